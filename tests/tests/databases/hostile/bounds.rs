//! Amounts at the edges that reach a bound.

use diesel_sharded::backend::Dialect;
use diesel_sharded::bounded::Bounded;
use diesel_sharded::{Error, RowCounter, reset};
use diesel_sharded_tests::schema::videos::dsl::*;
use proptest::prelude::*;

use super::{database, dialect, for_all};

fn edges() -> impl Strategy<Value = i64> {
    prop_oneof![
        Just(i64::MAX),
        Just(i64::MIN),
        Just(i64::MAX / 2 + 1),
        Just(i64::MIN + 1),
        -2..3i64,
        any::<i64>(),
    ]
}

/// The amounts that every shard can hold.
const FIT: std::ops::RangeInclusive<i128> = i64::MIN as i128 + 1..=i64::MAX as i128;

/// Within its bounds a counter adds exactly, and a total that no column can hold is an overflow.
#[test]
fn hostile_amounts_and_bounds() {
    let (_database, conn) = database();
    let dialect = dialect(&conn);
    // SQLite cannot add up shards whose sum is out of range, whatever the base is.
    let cannot_add_up = |sizes: i128| dialect == Dialect::Sqlite && sizes > 1 << 62;
    let conn = std::cell::RefCell::new(conn);
    let bounds = (proptest::option::of(edges()), proptest::option::of(edges()));
    let cases = (bounds, proptest::collection::vec(edges(), 1..8));
    for_all(60, cases, |((least, most), amounts)| {
        let conn = &mut *conn.borrow_mut();
        reset(videos).execute(conn).unwrap();
        let counter = RowCounter::of(views, 1);
        let mut bounded: Bounded<views> = match (least, most) {
            (Some(least), _) => counter.clone().never_below(least),
            (None, Some(most)) => counter.clone().never_above(most),
            (None, None) => return Ok(()),
        };
        if let Some(most) = most {
            bounded = bounded.never_above(most);
        }
        let mut total = 0_i128;
        let (mut sum_of_sizes, mut reads) = (0_i128, false);
        for n in amounts {
            sum_of_sizes += i128::from(n).abs();
            let next = total + i128::from(n);
            let breaks = n < 0 && least.is_some_and(|least| next < least.into())
                || n > 0 && most.is_some_and(|most| next > most.into());
            // Both begin with a shard; one does so in a transaction of the library's own.
            reads = !reads;
            let added = match reads {
                true => bounded.add_and_get(n, conn).map(|total| total.is_some()),
                false => bounded.add(n, conn),
            };
            match added {
                Ok(added) => {
                    prop_assert_eq!(added, !breaks, "{} + {}", total, n);
                    total = if added { next } else { total };
                }
                Err(error) => {
                    let error = Error::from(error);
                    let is_overflow = matches!(error, Error::Overflow { .. });
                    let may_fail = match FIT.contains(&next) {
                        true => is_overflow && reads && cannot_add_up(sum_of_sizes),
                        false => is_overflow || reads, // nor can the total be read
                    };
                    prop_assert!(may_fail, "{} + {}: {:?}", total, n, error);
                }
            }
            let read = counter.get(conn).map(|n| n.map(i128::from));
            if i64::try_from(total).is_err() {
                // Without a bound the total may leave the column's range, as any counter's may: reading it reports that.
                prop_assert!(read.is_err(), "{:?}", read);
                return Ok(());
            }
            if read.is_err() && cannot_add_up(sum_of_sizes) {
                return Ok(());
            }
            prop_assert_eq!(read, Ok(Some(total)));
        }
        Ok(())
    });
}
