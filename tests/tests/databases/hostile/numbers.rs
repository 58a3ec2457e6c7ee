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
use diesel_sharded_tests::{TestConnection, delete, edit};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::{Conn, database, dialect, for_all, is_overflow};

mod shards {
    diesel::table! {
        measures_shards (id, shard) {
            id -> SmallInt,
            shard -> Integer,
            small -> SmallInt,
            medium -> Integer,
            large -> BigInt,
            real -> Double,
            exact -> Numeric,
        }
    }
}
use shards::measures_shards;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Field {
    Small,
    Medium,
    Large,
}

/// An amount with its sign: `+ n` or `- n`.
#[derive(Debug, Clone)]
enum Event {
    Small(bool, i16),
    Medium(bool, i32),
    Large(bool, i64),
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

fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let sign = any::<bool>;
    let field = prop_oneof![Just(Field::Small), Just(Field::Medium), Just(Field::Large)];
    let event = prop_oneof![
        1 => (sign(), at_the_edges!(i16)).prop_map(|(sign, n)| Event::Small(sign, n)),
        1 => (sign(), at_the_edges!(i32)).prop_map(|(sign, n)| Event::Medium(sign, n)),
        2 => (sign(), at_the_edges!(i64)).prop_map(|(sign, n)| Event::Large(sign, n)),
        3 => (sign(), reals()).prop_map(|(sign, n)| Event::Real(sign, n)),
        2 => (sign(), decimals()).prop_map(|(sign, n)| Event::Exact(sign, n)),
        2 => (field, at_the_edges!(i64)).prop_map(|(field, n)| Event::Row(field, n)),
        1 => at_the_edges!(i64).prop_map(Event::SetLarge),
        1 => reals().prop_map(Event::SetReal),
        1 => Just(Event::Fold),
    ];
    proptest::collection::vec((0..2u64, event), 1..12)
}

/// The contents of the tables for one field: the base, and the shards.
#[derive(Debug, Clone, PartialEq)]
struct Held<N> {
    base: N,
    shards: [N; 2],
}

impl Held<i128> {
    fn total(&self) -> i128 {
        self.base + self.shards[0] + self.shards[1]
    }
}

#[derive(Debug, Clone, PartialEq)]
struct State {
    integers: [Held<i128>; 3],
    real: Held<f64>,
    exact: Held<BigDecimal>,
}

fn state(conn: &mut Conn) -> State {
    type Row = (i16, i32, i64, f64, BigDecimal);
    let base: Row = measures
        .find(1)
        .select((small, medium, large, real, exact))
        .first(conn)
        .unwrap();
    let rows: Vec<(i32, Row)> = measures_shards::table
        .select((
            measures_shards::shard,
            (
                measures_shards::small,
                measures_shards::medium,
                measures_shards::large,
                measures_shards::real,
                measures_shards::exact,
            ),
        ))
        .load(conn)
        .unwrap();
    let shard = |number| {
        let rows = rows.iter().filter(|(shard, _)| *shard == number);
        rows.map(|(_, row)| row.clone())
            .next()
            .unwrap_or_else(|| (0, 0, 0, 0.0, BigDecimal::zero()))
    };
    let [a, b] = [shard(0), shard(1)];
    let integers = |base: i64, a: i64, b: i64| Held {
        base: base.into(),
        shards: [a.into(), b.into()],
    };
    State {
        integers: [
            integers(base.0.into(), a.0.into(), b.0.into()),
            integers(base.1.into(), a.1.into(), b.1.into()),
            integers(base.2, a.2, b.2),
        ],
        real: Held {
            base: base.3,
            shards: [a.3, b.3],
        },
        exact: Held {
            base: base.4,
            shards: [a.4, b.4],
        },
    }
}

fn range(field: Field) -> std::ops::RangeInclusive<i128> {
    match field {
        Field::Small => i16::MIN.into()..=i16::MAX.into(),
        Field::Medium => i32::MIN.into()..=i32::MAX.into(),
        Field::Large => i64::MIN.into()..=i64::MAX.into(),
    }
}

const FIELDS: [Field; 3] = [Field::Small, Field::Medium, Field::Large];

/// Whether a shard of this field may hold this value. Only PostgreSQL's shards hold the very least `i64`.
fn fits_shard(dialect: Dialect, field: Field, n: i128) -> bool {
    let least = dialect != Dialect::Postgres && field == Field::Large && n == i64::MIN.into();
    range(field).contains(&n) && !least
}

fn close(a: f64, b: f64, among: &Held<f64>) -> bool {
    let largest = [among.base, among.shards[0], among.shards[1]]
        .into_iter()
        .fold(0.0, |largest: f64, n| largest.max(n.abs()));
    a == b || (a - b).abs() <= largest * 1e-15 * 4.0
}

/// Whether the sum of shards, and the total, stay finite.
fn is_finite(held: &Held<f64>) -> bool {
    let sum = held.shards[0] + held.shards[1];
    sum.is_finite() && (held.base + sum).is_finite()
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
        Event::Small(plus, n) => count!(small, *plus, n),
        Event::Medium(plus, n) => count!(medium, *plus, n),
        Event::Large(plus, n) => count!(large, *plus, n),
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
        let zero = BigDecimal::zero();
        edit!(
            measures,
            (
                small.eq(0),
                medium.eq(0),
                large.eq(0),
                real.eq(0.0),
                exact.eq(zero),
            ),
            conn
        );
        let mut before = state(conn);
        for (shard, event) in &events {
            let done = count(conn, *shard, event);
            let after = state(conn);
            happened(
                dialect,
                least,
                &before,
                event,
                *shard as usize,
                &done,
                &after,
            )?;
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

fn happened(
    dialect: Dialect,
    least: f64,
    before: &State,
    event: &Event,
    shard: usize,
    done: &QueryResult<usize>,
    after: &State,
) -> Checked {
    let sign = |plus: &bool, n: i128| if *plus { n } else { -n };
    match event {
        Event::Small(plus, n) => {
            let n = sign(plus, i128::from(*n));
            integer(dialect, before, Field::Small, n, Some(shard), done, after)
        }
        Event::Medium(plus, n) => {
            let n = sign(plus, i128::from(*n));
            integer(dialect, before, Field::Medium, n, Some(shard), done, after)
        }
        Event::Large(plus, n) => {
            let n = sign(plus, i128::from(*n));
            integer(dialect, before, Field::Large, n, Some(shard), done, after)
        }
        Event::Row(field, n) => integer(dialect, before, *field, (*n).into(), None, done, after),
        Event::Real(plus, n) => {
            let n = if *plus { *n } else { -n };
            let mut expected = before.clone();
            expected.real.shards[shard] += n;
            let fits = n.is_finite() && expected.real.shards[shard].is_finite();
            prop_assert_eq!(done.is_ok(), fits, "{:?}: {:?}", event, done);
            if fits {
                prop_assert_eq!(&expected, after);
            }
            Ok(())
        }
        Event::Exact(plus, n) => {
            let mut expected = before.clone();
            let n = if *plus { n.clone() } else { -n };
            expected.exact.shards[shard] += n;
            if dialect != Dialect::Sqlite {
                let fits = expected.exact.shards[shard].abs() < fits_anywhere();
                prop_assert!(done.is_ok() || !fits, "{:?}: {:?}", event, done);
                if done.is_ok() {
                    prop_assert_eq!(&expected, after);
                }
            }
            Ok(())
        }
        Event::SetLarge(n) => {
            prop_assert_eq!(done, &Ok(1));
            let mut expected = before.clone();
            expected.integers[Field::Large as usize] = Held {
                base: (*n).into(),
                shards: [0, 0],
            };
            prop_assert_eq!(&expected, after);
            Ok(())
        }
        Event::SetReal(n) => {
            prop_assert_eq!(done.is_ok(), n.is_finite(), "{:?}: {:?}", event, done);
            if n.is_finite() {
                let mut expected = before.clone();
                expected.real = Held {
                    base: *n,
                    shards: [0.0, 0.0],
                };
                prop_assert_eq!(&expected, after);
            }
            Ok(())
        }
        Event::Fold => {
            let unfit = done
                .as_ref()
                .map_err(|e| TestCaseError::fail(e.to_string()))?;
            for (before, after) in before.integers.iter().zip(&after.integers) {
                prop_assert_eq!(before.total(), after.total());
            }
            let sum = |held: &Held<BigDecimal>| &held.base + &held.shards[0] + &held.shards[1];
            if dialect != Dialect::Sqlite {
                prop_assert_eq!(sum(&before.exact), sum(&after.exact));
            }
            let fits = FIELDS
                .iter()
                .zip(&before.integers)
                .all(|(field, held)| sums_fit(dialect, *field, held));
            let decimal_fits = sum(&before.exact).abs() < fits_anywhere();
            let is_written = before.real.shards.iter().sum::<f64>() > least;
            let fits = fits && decimal_fits && is_finite(&before.real) && is_written;
            if fits {
                prop_assert_eq!(*unfit, 0);
                prop_assert!(after.integers.iter().all(|held| held.shards == [0, 0]));
                prop_assert_eq!(after.real.shards, [0.0, 0.0]);
            }
            Ok(())
        }
    }
}

/// The greatest value that every decimal column here can hold, on every database.
fn fits_anywhere() -> BigDecimal {
    BigDecimal::from(10_i64.pow(12)).square()
}

/// Whether the total, and on SQLite the sum of shards by itself, is in range.
fn sums_fit(dialect: Dialect, field: Field, held: &Held<i128>) -> bool {
    let sum = held.shards[0] + held.shards[1];
    let sum_fits = dialect != Dialect::Sqlite || range(Field::Large).contains(&sum);
    sum_fits && range(field).contains(&held.total())
}

fn integer(
    dialect: Dialect,
    before: &State,
    field: Field,
    n: i128,
    shard: Option<usize>,
    done: &QueryResult<usize>,
    after: &State,
) -> Checked {
    let held = |state: &State| state.integers[field as usize].clone();
    let fits = |shard: usize| fits_shard(dialect, field, held(before).shards[shard] + n);
    let shards = shard.map_or(vec![0, 1], |shard| vec![shard]);
    match done {
        Ok(rows) => {
            prop_assert_eq!(*rows, 1);
            let one_of = shards.iter().any(|shard| {
                let mut expected = before.clone();
                expected.integers[field as usize].shards[*shard] += n;
                expected == *after
            });
            prop_assert!(one_of, "{:?} and {} is not {:?}", before, n, after);
        }
        Err(_) => {
            let may_fail = shards.into_iter().any(|shard| !fits(shard));
            prop_assert!(may_fail, "{:?} takes {}: {:?}", before, n, done);
        }
    }
    Ok(())
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
            true => prop_assert_eq!(read.map(i128::from), Ok(held.total()), "{:?}", held),
            false => prop_assert!(read.is_err(), "{:?} of {:?}", read, held),
        }
    }
    let held = &state.real;
    // An error in the middle of a result hangs MariaDB's client library at the next execution of the prepared statement.
    if is_finite(held) || dialect != Dialect::Mysql {
        let read = one.select(real.total()).first::<f64>(conn);
        match is_finite(held) {
            true => {
                let total = held.base + (held.shards[0] + held.shards[1]);
                let is_close = matches!(read, Ok(read) if close(read, total, held));
                prop_assert!(is_close, "{:?} of {:?}", read, held);
            }
            false => prop_assert!(read.is_err(), "{:?} of {:?}", read, held),
        }
    }
    if dialect != Dialect::Sqlite {
        let read = one.select(exact.total()).first::<BigDecimal>(conn);
        let held = &state.exact;
        let total = &held.base + &held.shards[0] + &held.shards[1];
        let parts = [&held.base, &held.shards[0], &held.shards[1], &total];
        match read {
            Ok(read) => prop_assert_eq!(read, total, "{:?}", held),
            Err(error) => prop_assert!(
                parts.iter().any(|part| part.abs() >= fits_anywhere()),
                "{:?} of {:?}",
                error,
                held
            ),
        }
    }
    Ok(())
}
