//! Amounts at the edges of their types.

use std::cell::RefCell;
use std::str::FromStr;

use bigdecimal::{BigDecimal, Zero};
use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded::shard_choice::ShardChoice;
use diesel_sharded::{RowCounter, fold, set_total, update};
use diesel_sharded_tests::schema::measures::dsl::*;
use diesel_sharded_tests::schema::measures_shards;
use diesel_sharded_tests::{TestConnection, delete, edit};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::{Conn, database, dialect, for_all, is_overflow};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Field {
    Small,
    Medium,
    Large,
}

const FIELDS: [Field; 3] = [Field::Small, Field::Medium, Field::Large];

/// An amount with its sign: `+ n` or `- n`.
#[derive(Debug, Clone)]
enum Event {
    /// An amount of the field's own type.
    Integer(Field, bool, i64),
    Real(bool, f64),
    Exact(bool, BigDecimal),
    /// Through a `RowCounter`, which adds an `i64` to a column of any type.
    Row(Field, i64),
    SetLarge(i64),
    SetReal(f64),
    Fold,
}

macro_rules! at_the_edges {
    ($int:ty) => {
        prop_oneof![
            Just(<$int>::MAX),
            Just(<$int>::MIN),
            Just(<$int>::MAX - 1),
            Just(<$int>::MIN + 1),
            Just(<$int>::MAX / 2 + 1),
            Just(<$int>::MIN / 2),
            -2..3 as $int,
            any::<$int>(),
        ]
    };
}

fn reals() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => prop_oneof![
            Just(f64::MAX),
            Just(f64::MIN),
            Just(f64::MAX / 2.0),
            Just(1e308),
            Just(-1e308),
            Just(f64::MIN_POSITIVE),
            Just(5e-324),
            Just(-0.0),
            Just(0.1),
        ],
        2 => prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(f64::NEG_INFINITY)],
        3 => proptest::num::f64::ANY,
    ]
}

fn decimals() -> impl Strategy<Value = BigDecimal> {
    let digits = prop_oneof!["[1-9][0-9]{0,20}", "[1-9][0-9]{40,44}", "[1-9][0-9]{60}"];
    let sign = prop_oneof![Just(""), Just("-")];
    (sign, digits, "[0-9]{0,6}")
        .prop_map(|(sign, digits, decimals)| format!("{sign}{digits}.{decimals}0"))
        .prop_map(|text| BigDecimal::from_str(&text).unwrap())
}

/// Each with the shard that an increment on it draws.
fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let integer = prop_oneof![
        1 => at_the_edges!(i16).prop_map(|n| (Field::Small, n.into())),
        1 => at_the_edges!(i32).prop_map(|n| (Field::Medium, n.into())),
        2 => at_the_edges!(i64).prop_map(|n| (Field::Large, n)),
    ];
    let sign = any::<bool>;
    let event = prop_oneof![
        4 => (sign(), integer).prop_map(|(sign, (field, n))| Event::Integer(field, sign, n)),
        3 => (sign(), reals()).prop_map(|(sign, n)| Event::Real(sign, n)),
        2 => (sign(), decimals()).prop_map(|(sign, n)| Event::Exact(sign, n)),
        2 => (proptest::sample::select(&FIELDS[..]), at_the_edges!(i64))
            .prop_map(|(field, n)| Event::Row(field, n)),
        1 => at_the_edges!(i64).prop_map(Event::SetLarge),
        1 => reals().prop_map(Event::SetReal),
        1 => Just(Event::Fold),
    ];
    proptest::collection::vec((0..2u64, event), 1..12)
}

/// The contents of the tables for one field: the base, and both shards.
type Held<N> = [N; 3];

#[derive(Debug, Clone, PartialEq)]
struct State {
    integers: [Held<i128>; 3],
    real: Held<f64>,
    exact: Held<BigDecimal>,
}

fn state(conn: &mut Conn) -> State {
    type Row = (i16, i32, i64, f64, BigDecimal);
    let base = measures.find(1);
    let base = base.select((small, medium, large, real, exact));
    let base: Row = base.first(conn).unwrap();
    let shard = |number: i32, conn: &mut Conn| {
        use measures_shards as shards;
        let shard = shards::table.find((1, number)).select((
            shards::small,
            shards::medium,
            shards::large,
            shards::real,
            shards::exact,
        ));
        let shard = shard.first(conn).optional().unwrap();
        shard.unwrap_or_else(|| (0, 0, 0, 0.0, BigDecimal::zero()))
    };
    let rows: [Row; 3] = [base, shard(0, conn), shard(1, conn)];
    let rows = rows.each_ref();
    State {
        integers: [
            rows.map(|row| row.0.into()),
            rows.map(|row| row.1.into()),
            rows.map(|row| row.2.into()),
        ],
        real: rows.map(|row| row.3),
        exact: rows.map(|row| row.4.clone()),
    }
}

fn range(field: Field) -> std::ops::RangeInclusive<i128> {
    match field {
        Field::Small => i16::MIN.into()..=i16::MAX.into(),
        Field::Medium => i32::MIN.into()..=i32::MAX.into(),
        Field::Large => i64::MIN.into()..=i64::MAX.into(),
    }
}

/// Whether a shard of this field may hold this value. Only PostgreSQL's shards hold the very least `i64`.
fn fits_shard(dialect: Dialect, field: Field, n: i128) -> bool {
    let least = dialect != Dialect::Postgres && field == Field::Large && n == i64::MIN.into();
    range(field).contains(&n) && !least
}

/// Whether the total, and on SQLite the sum of shards by itself, is in range.
fn sums_fit(dialect: Dialect, field: Field, held: &Held<i128>) -> bool {
    let sum_fits = dialect != Dialect::Sqlite || range(Field::Large).contains(&(held[1] + held[2]));
    sum_fits && range(field).contains(&held.iter().sum::<i128>())
}

fn close(a: f64, b: f64, among: &Held<f64>) -> bool {
    let greatest = |greatest: f64, n: &f64| greatest.max(n.abs());
    a == b || (a - b).abs() <= among.iter().fold(0.0, greatest) * 1e-15 * 4.0
}

/// The sum of shards, and then the total, which may be out of range.
fn sums_of_reals([base, one, other]: &Held<f64>) -> [f64; 2] {
    let sum = one + other;
    [sum, base + sum]
}

fn is_finite(held: &Held<f64>) -> bool {
    sums_of_reals(held).iter().all(|sum| sum.is_finite())
}

/// The greatest value that every decimal column here can hold, on every database.
fn fits_anywhere(n: &BigDecimal) -> bool {
    n.abs() < BigDecimal::from(10_i64.pow(12)).square()
}

fn count(conn: &mut Conn, shard: u64, event: &Event) -> QueryResult<usize> {
    let retry = RetryPolicy::new().with_random(move || shard);
    macro_rules! count {
        ($column:ident, $plus:expr, $n:expr) => {
            match $plus {
                true => update(measures.find(1))
                    .set($column.eq($column + $n))
                    .retry(retry)
                    .shard_choice(ShardChoice::Random)
                    .execute(conn),
                false => update(measures.filter(id.eq(1)))
                    .set($column.eq($column - $n))
                    .retry(retry)
                    .shard_choice(ShardChoice::Random)
                    .execute(conn),
            }
        };
    }
    match event {
        Event::Integer(Field::Small, plus, n) => count!(small, *plus, *n as i16),
        Event::Integer(Field::Medium, plus, n) => count!(medium, *plus, *n as i32),
        Event::Integer(Field::Large, plus, n) => count!(large, *plus, n),
        Event::Real(plus, n) => count!(real, *plus, n),
        Event::Exact(plus, n) => count!(exact, *plus, n),
        Event::Row(Field::Small, n) => RowCounter::of(small, 1).add(*n, conn),
        Event::Row(Field::Medium, n) => RowCounter::of(medium, 1).add(*n, conn),
        Event::Row(Field::Large, n) => RowCounter::of(large, 1).add(*n, conn),
        Event::SetLarge(n) => set_total(measures.find(1), large, *n).execute(conn),
        Event::SetReal(n) => set_total(measures.find(1), real, *n).execute(conn),
        Event::Fold => fold(measures).run(conn).map(|folded| folded.unfit.len()),
    }
}

/// An event has two possible outcomes: it happened exactly, or it is an overflow and nothing has changed.
#[test]
fn hostile_numbers_count_exactly_or_not_at_all() {
    let (_database, mut conn) = database();
    let dialect = dialect(&conn);
    // MySQL writes a sum in 22 characters, and rounds the least ones to one that no double holds. MariaDB does not.
    let least = match dialect {
        Dialect::Mysql if !conn.version().contains("MariaDB") => -1.797693134862315e308,
        _ => f64::NEG_INFINITY,
    };
    let conn = RefCell::new(conn);
    for_all(120, events(), |events| {
        let conn = &mut *conn.borrow_mut();
        delete!(measures_shards::table, conn);
        let integers = (small.eq(0), medium.eq(0), large.eq(0));
        let zero = exact.eq(BigDecimal::zero());
        edit!(measures, (integers, real.eq(0.0), zero), conn);
        let mut before = state(conn);
        for (shard, event) in &events {
            let done = count(conn, *shard, event);
            let after = state(conn);
            let step = Step {
                dialect,
                least,
                before: &before,
                event,
                done: &done,
                after: &after,
            };
            step.happened(*shard as usize)?;
            if let Err(error) = done {
                prop_assert!(is_overflow(error));
                prop_assert_eq!(&before, &after);
            }
            totals(dialect, conn, &after)?;
            before = after;
        }
        Ok(())
    });
}

type Checked = Result<(), TestCaseError>;

/// One event, and what came of it.
struct Step<'a> {
    dialect: Dialect,
    /// The least sum of doubles that can be written.
    least: f64,
    before: &'a State,
    event: &'a Event,
    done: &'a QueryResult<usize>,
    after: &'a State,
}

impl Step<'_> {
    fn happened(&self, shard: usize) -> Checked {
        let Step {
            before,
            event,
            done,
            after,
            ..
        } = self;
        let mut expected = State::clone(before);
        match event {
            Event::Integer(field, plus, n) => {
                let n = i128::from(*n);
                return self.integer(*field, if *plus { n } else { -n }, &[shard]);
            }
            Event::Row(field, n) => return self.integer(*field, (*n).into(), &[0, 1]),
            Event::Real(plus, n) => {
                let counted = &mut expected.real[1 + shard];
                *counted += if *plus { *n } else { -n };
                let fits = n.is_finite() && counted.is_finite();
                prop_assert_eq!(done.is_ok(), fits, "{:?}: {:?}", event, done);
            }
            Event::Exact(plus, n) => {
                let counted = &mut expected.exact[1 + shard];
                *counted += if *plus { n.clone() } else { -n };
                if self.dialect == Dialect::Sqlite {
                    return Ok(());
                }
                let fits = fits_anywhere(counted);
                prop_assert!(done.is_ok() || !fits, "{:?}: {:?}", event, done);
            }
            Event::SetLarge(n) => {
                prop_assert_eq!(*done, &Ok(1));
                expected.integers[Field::Large as usize] = [(*n).into(), 0, 0];
            }
            Event::SetReal(n) => {
                prop_assert_eq!(done.is_ok(), n.is_finite(), "{:?}: {:?}", event, done);
                expected.real = [*n, 0.0, 0.0];
            }
            Event::Fold => return self.folded(),
        }
        if done.is_ok() {
            prop_assert_eq!(&expected, *after);
        }
        Ok(())
    }

    /// One of these shards has taken the amount, or may be too small for it.
    fn integer(&self, field: Field, n: i128, shards: &[usize]) -> Checked {
        let Step {
            before,
            done,
            after,
            ..
        } = self;
        let counted = |shard: usize| {
            let mut counted = State::clone(before);
            counted.integers[field as usize][1 + shard] += n;
            counted
        };
        match done {
            Ok(rows) => {
                prop_assert_eq!(*rows, 1);
                let one_of = shards.iter().any(|shard| counted(*shard) == **after);
                prop_assert!(one_of, "{:?} and {} is not {:?}", before, n, after);
            }
            Err(_) => {
                let fits = |shard: usize| {
                    let held = counted(shard).integers[field as usize][1 + shard];
                    fits_shard(self.dialect, field, held)
                };
                let may_fail = shards.iter().any(|shard| !fits(*shard));
                prop_assert!(may_fail, "{:?} takes {}: {:?}", before, n, done);
            }
        }
        Ok(())
    }

    fn folded(&self) -> Checked {
        let Step {
            dialect,
            before,
            after,
            ..
        } = self;
        let unfit = self.done.as_ref();
        let unfit = unfit.map_err(|e| TestCaseError::fail(e.to_string()))?;
        let sums = |state: &State| state.integers.map(|held| held.iter().sum::<i128>());
        prop_assert_eq!(sums(before), sums(after));
        let decimal: BigDecimal = before.exact.iter().sum();
        if *dialect != Dialect::Sqlite {
            prop_assert_eq!(&decimal, &after.exact.iter().sum::<BigDecimal>());
        }
        let mut integers = FIELDS.iter().zip(&before.integers);
        let fits = integers.all(|(field, held)| sums_fit(*dialect, *field, held));
        let is_written = sums_of_reals(&before.real)[0] > self.least;
        if fits && fits_anywhere(&decimal) && is_finite(&before.real) && is_written {
            prop_assert_eq!(*unfit, 0);
            prop_assert!(after.integers.iter().all(|held| held[1..] == [0, 0]));
            // The base holds the rest of no double that it would not round away again.
            let [base, rests @ ..] = after.real;
            prop_assert!(rests.contains(&0.0) && rests.iter().all(|rest| base + rest == base));
        }
        Ok(())
    }
}

/// Each total is exact or an error.
fn totals(dialect: Dialect, conn: &mut Conn, state: &State) -> Checked {
    let one = measures.find(1);
    let read: [QueryResult<i64>; 3] = [
        one.select(small.total()).first::<i16>(conn).map(i64::from),
        one.select(medium.total()).first::<i32>(conn).map(i64::from),
        one.select(large.total()).first::<i64>(conn),
    ];
    for ((field, held), read) in FIELDS.iter().zip(&state.integers).zip(read) {
        match sums_fit(dialect, *field, held) {
            true => prop_assert_eq!(
                read.map(i128::from),
                Ok(held.iter().sum::<i128>()),
                "{:?}",
                held
            ),
            false => prop_assert!(read.is_err(), "{:?} of {:?}", read, held),
        }
    }
    let held = &state.real;
    // An error in the middle of a result hangs MariaDB's client library at the next execution of the prepared statement.
    if is_finite(held) || dialect != Dialect::Mysql {
        let read = one.select(real.total()).first::<f64>(conn);
        let total = sums_of_reals(held)[1];
        let as_it_is = match is_finite(held) {
            true => matches!(read, Ok(read) if close(read, total, held)),
            false => read.is_err(),
        };
        prop_assert!(as_it_is, "{:?} of {:?}", read, held);
    }
    if dialect != Dialect::Sqlite {
        let read = one.select(exact.total()).first::<BigDecimal>(conn);
        let held = &state.exact;
        let total: BigDecimal = held.iter().sum();
        let as_it_is = match &read {
            Ok(read) => *read == total,
            Err(_) => !(fits_anywhere(&total) && held.iter().all(fits_anywhere)),
        };
        prop_assert!(as_it_is, "{:?} of {:?}", read, held);
    }
    Ok(())
}
