//! Amounts at the edges that meet in one batch, or reach a bound.

use std::sync::{Arc, Mutex};
use std::thread;
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

/// Whether a caller's error is about his own amount.
fn is_overflow(error: &Error) -> bool {
    match error {
        Error::Overflow { .. } => true,
        Error::InBatch { source } => is_overflow(source),
        _ => false,
    }
}

/// Each caller learns the outcome of his own count, whatever it was committed with.
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
        let lost = Arc::new(Mutex::new(0_i128));
        let losses = Arc::clone(&lost);
        // One for each case: a worker that is still to be woken by the last one's callers would take these amounts in two batches.
        let coalescer = Coalescer::<Conn>::builder(pool.clone())
            .deadline(Duration::from_secs(60))
            .max_delay(Duration::from_secs(60))
            .on_loss(move |loss| *losses.lock().unwrap() += loss.amount)
            .build()
            .unwrap();
        let (row, named) = (RowCounter::of(views, 1), Counter::named("n"));
        let mut later = 0_i128;
        for (n, _) in &amounts {
            coalescer.add_later(&named, *n).unwrap();
            later += i128::from(*n);
        }
        let told: Vec<(i64, Result<usize, Error>)> = thread::scope(|scope| {
            let (coalescer, row) = (&coalescer, &row);
            let callers = amounts.iter().map(|(_, n)| {
                let n = *n;
                scope.spawn(move || (n, coalescer.add(row, n)))
            });
            let callers: Vec<_> = callers.collect();
            callers
                .into_iter()
                .map(|caller| caller.join().unwrap())
                .collect()
        });
        coalescer.flush().unwrap();
        let mut expected = 0_i128;
        for (n, told) in told {
            match told {
                Ok(rows) => {
                    prop_assert_eq!(rows, 1);
                    expected += i128::from(n);
                }
                Err(error) => prop_assert!(is_overflow(&error) && n != 0, "{:?}", error),
            }
        }
        let lost = *lost.lock().unwrap();
        let row = row.get(conn).map(Option::unwrap);
        for (read, expected) in [(row, expected), (named.get(conn), later - lost)] {
            match i64::try_from(expected) {
                Ok(expected) => prop_assert_eq!(read, Ok(expected)),
                // Callers that were counted one by one used several shards.
                Err(_) => prop_assert!(read.is_err(), "{:?}", read),
            }
        }
        prop_assert!(
            !FIT.contains(&later) || lost == 0,
            "{} of {} is lost",
            lost,
            later
        );
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
                    let may_fail = is_overflow(&error) && !FIT.contains(&next);
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
