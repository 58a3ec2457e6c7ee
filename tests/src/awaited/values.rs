//! Counters as values.

use std::fmt;

use diesel::prelude::*;
use diesel_async::AsyncConnection;
use diesel_sharded::asynchronous::{self, operation};
use diesel_sharded::backend::BackendOf;
use diesel_sharded::model::{ShardedColumn, ShardedTable};
use diesel_sharded::operation::{CounterBackend, Folded, IntegerField};
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded::{counters, idempotency};

use super::wait;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Counter(asynchronous::Counter);

/// The same methods, waited for.
macro_rules! waits_for_names {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)+) => {
        waits! {
            { DB: CounterBackend<Conn> }
            $($name(self: &Self $(, $argument: $type)*) -> $result;)+
        }
    };
}

/// The same methods of a row's counter, waited for.
macro_rules! waits_for_rows {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)+) => {
        waits! {
            { C: IntegerField<DB> + Send + Sync }
            $($name(self: &Self $(, $argument: $type)*) -> $result;)+
        }
    };
}

impl Counter {
    pub fn named(name: impl Into<String>) -> Self {
        Counter(asynchronous::Counter::named(name))
    }

    pub fn name(&self) -> &str {
        self.0.name()
    }

    pub fn list(prefix: impl Into<String>) -> CounterList {
        CounterList(asynchronous::Counter::list(prefix))
    }

    pub fn top(prefix: impl Into<String>, n: u32) -> TopCounters {
        TopCounters(asynchronous::Counter::top(prefix, n))
    }

    pub fn never_below(self, least: i64) -> BoundedCounter {
        BoundedCounter(self.0.never_below(least))
    }

    pub fn never_above(self, most: i64) -> BoundedCounter {
        BoundedCounter(self.0.never_above(most))
    }

    pub fn get_many<Conn, S>(names: &[S], conn: &mut Conn) -> QueryResult<Vec<i64>>
    where
        S: AsRef<str> + Sync,
        Conn: AsyncConnection,
        Conn::Backend: CounterBackend<Conn>,
    {
        wait(asynchronous::Counter::get_many(names, conn))
    }

    pub fn idempotency_key(&self, key: impl AsRef<[u8]>) -> Idempotent {
        Idempotent(self.0.idempotency_key(key))
    }

    waits_for_names! {
        increment() -> ();
        decrement() -> ();
        add(n: i64) -> ();
        add_and_get(n: i64) -> i64;
        get() -> i64;
        estimate() -> i64;
        set(total: i64) -> ();
        reset() -> ();
        delete() -> bool;
        fold() -> Folded<counters::table>;
        shards() -> u16;
        increase_shards(n: u16) -> u16;
        resize(n: u16) -> ();
    }
}

impl AsRef<str> for Counter {
    fn as_ref(&self) -> &str {
        self.0.as_ref()
    }
}

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

pub struct BoundedCounter(operation::BoundedCounter);

impl BoundedCounter {
    builds! { BoundedCounter:
        never_below(least: i64);
        never_above(most: i64);
    }

    pub fn idempotency_key(&self, key: impl AsRef<[u8]>) -> IdempotentBoundedCounter {
        IdempotentBoundedCounter(self.0.idempotency_key(key))
    }

    waits_for_names! {
        add(n: i64) -> bool;
        add_and_get(n: i64) -> Option<i64>;
        get() -> i64;
    }
}

pub struct IdempotentBoundedCounter(idempotency::Idempotent<operation::BoundedCounter>);

impl IdempotentBoundedCounter {
    waits_for_names! { add(n: i64) -> bool; }
}

pub struct TopCounters(operation::TopCounters);

impl TopCounters {
    builds! { TopCounters: offset(counters: u32); }

    waits_for_names! { load() -> Vec<(String, i64)>; }
}

pub struct CounterList(operation::CounterList);

impl CounterList {
    builds! { CounterList:
        after(name: impl Into<String>);
        limit(counters: u32);
    }

    waits_for_names! { load() -> Vec<(String, i64)>; }
}

pub struct Idempotent(operation::IdempotentCounter);

impl Idempotent {
    waits_for_names! {
        increment() -> usize;
        decrement() -> usize;
        add(n: i64) -> usize;
        set(total: i64) -> ();
        reset() -> ();
        delete() -> bool;
    }
}

#[derive(Clone)]
pub struct RowCounter<C: ShardedColumn>(asynchronous::RowCounter<C>);

impl<C: ShardedColumn> RowCounter<C> {
    pub fn of(column: C, key: <C::Table as ShardedTable>::Key) -> Self {
        RowCounter(asynchronous::RowCounter::of(column, key))
    }

    waits_for_rows! {
        add(n: i64) -> usize;
        add_and_get(n: i64) -> Option<i64>;
        get() -> Option<i64>;
    }

    pub fn idempotency_key(&self, key: impl AsRef<[u8]>) -> IdempotentRowCounter<C>
    where
        <C::Table as ShardedTable>::Key: fmt::Debug,
    {
        IdempotentRowCounter(self.0.idempotency_key(key))
    }

    pub fn never_below(self, least: i64) -> Bounded<C> {
        Bounded(self.0.never_below(least))
    }

    pub fn never_above(self, most: i64) -> Bounded<C> {
        Bounded(self.0.never_above(most))
    }
}

pub struct IdempotentRowCounter<C: ShardedColumn>(operation::IdempotentRowCounter<C>)
where
    <C::Table as ShardedTable>::Key: fmt::Debug;

impl<C: ShardedColumn> IdempotentRowCounter<C>
where
    <C::Table as ShardedTable>::Key: fmt::Debug,
{
    waits_for_rows! { add(n: i64) -> usize; }
}

pub struct Bounded<C: ShardedColumn>(asynchronous::bounded::Bounded<C>);

impl<C: ShardedColumn> Bounded<C> {
    builds! { Bounded:
        never_below(least: i64);
        never_above(most: i64);
        retry(policy: RetryPolicy);
    }

    pub fn idempotency_key(&self, key: impl AsRef<[u8]>) -> IdempotentBounded<C> {
        IdempotentBounded(self.0.idempotency_key(key))
    }

    waits_for_rows! {
        add(n: i64) -> bool;
        add_and_get(n: i64) -> Option<i64>;
        get() -> Option<i64>;
    }
}

pub struct IdempotentBounded<C: ShardedColumn>(
    idempotency::Idempotent<asynchronous::bounded::Bounded<C>>,
);

impl<C: ShardedColumn> IdempotentBounded<C>
where
    <C::Table as ShardedTable>::Key: fmt::Debug,
{
    waits_for_rows! { add(n: i64) -> bool; }
}
