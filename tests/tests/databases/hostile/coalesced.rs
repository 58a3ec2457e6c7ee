//! Amounts at the edges that meet in one batch, or reach a bound.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use diesel_sharded::backend::Dialect;
use diesel_sharded::bounded::Bounded;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::{Counter, Error, RowCounter, reset};
use diesel_sharded_tests::pool;
use diesel_sharded_tests::schema::videos::dsl::*;
use proptest::prelude::*;

use super::{Conn, database, dialect, for_all};

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

/// What is counted and what is reported as lost are all that was added.
#[test]
fn hostile_amounts_in_one_batch() {
    let (database, conn) = database();
    let conn = Mutex::new(conn);
    let pool = pool::<Conn>(database.url());
    let amounts = proptest::collection::vec((edges(), edges()), 1..9);
    for_all(25, amounts, |amounts| {
        let conn = &mut *conn.lock().unwrap();
        reset(videos).execute(conn).unwrap();
        Counter::named("n").reset(conn).unwrap();
        let lost = Arc::new(Mutex::new(vec![]));
        let losses = Arc::clone(&lost);
        let coalescer = Coalescer::<Conn>::builder(pool.clone())
            .deadline(Duration::from_secs(60))
            .max_delay(Duration::from_secs(60))
            .on_loss(move |loss| {
                losses
                    .lock()
                    .unwrap()
                    .push((loss.counter.clone(), loss.amount))
            })
            .build()
            .unwrap();
        let (row, named) = (RowCounter::of(views, 1), Counter::named("n"));
        for (to_named, to_row) in &amounts {
            coalescer.add_later(&named, *to_named).unwrap();
            coalescer.add_later(&row, *to_row).unwrap();
        }
        coalescer.flush().unwrap();
        let lost = lost.lock().unwrap();
        let added = |of: fn(&(i64, i64)) -> i64| -> i128 {
            amounts.iter().map(|n| i128::from(of(n))).sum()
        };
        for (name, read, added) in [
            ("views", row.get(conn).map(Option::unwrap), added(|n| n.1)),
            ("counter", named.get(conn), added(|n| n.0)),
        ] {
            let lost: i128 = lost
                .iter()
                .filter(|(of, _)| of.contains(name))
                .map(|(_, n)| n)
                .sum();
            prop_assert_eq!(read.map(i128::from), Ok(added - lost));
            prop_assert!(
                !FIT.contains(&added) || lost == 0,
                "{} of {} is lost",
                lost,
                added
            );
        }
        Ok(())
    });
}

/// The amounts that every shard can hold.
const FIT: std::ops::RangeInclusive<i128> = i64::MIN as i128 + 1..=i64::MAX as i128;

/// Within its bounds a counter adds exactly, and a total that no column can hold is an overflow.
#[test]
fn hostile_amounts_and_bounds() {
    let (_database, conn) = database();
    let dialect = dialect(&conn);
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
        let mut sum_of_sizes = 0_i128;
        for n in amounts {
            sum_of_sizes += i128::from(n).abs();
            let next = total + i128::from(n);
            let breaks = n < 0 && least.is_some_and(|least| next < least.into())
                || n > 0 && most.is_some_and(|most| next > most.into());
            match bounded.add(n, conn) {
                Ok(added) => {
                    prop_assert_eq!(added, !breaks, "{} + {}", total, n);
                    total = if added { next } else { total };
                }
                Err(error) => {
                    let error = Error::from(error);
                    let is_overflow = matches!(error, Error::Overflow { .. });
                    let may_fail = is_overflow && !FIT.contains(&next);
                    prop_assert!(may_fail, "{} + {}: {:?}", total, n, error);
                }
            }
            let read = counter.get(conn).map(|n| n.map(i128::from));
            if i64::try_from(total).is_err() {
                // Without a bound the total may leave the column's range, as any counter's may: reading it reports that.
                prop_assert!(read.is_err(), "{:?}", read);
                return Ok(());
            }
            if read.is_err() && dialect == Dialect::Sqlite && sum_of_sizes > 1 << 62 {
                return Ok(()); // it cannot add up shards whose sum is out of range, whatever the base is
            }
            prop_assert_eq!(read, Ok(Some(total)));
        }
        Ok(())
    });
}
