//! The library's asynchronous operations under the names and signatures of its blocking ones, so that the same cases run on both.
//!
//! Items of [`diesel_sharded::asynchronous`] replace the blocking ones of the same kind. Each call waits for its future, on a
//! connection of `diesel_async` that can also be used as a blocking one: [`Awaited`].

#![expect(
    clippy::type_complexity,
    reason = "they wrap what the library's own builder gives"
)]

use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::ops::{ControlFlow, Deref};
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use diesel::associations::HasTable;
use diesel::backend::Backend;
use diesel::dsl::Filter;
use diesel::expression::Expression;
use diesel::prelude::*;
use diesel::query_builder::{
    AsChangeset, InsertStatement, IntoUpdateTarget, QueryFragment, QueryId,
};
use diesel::query_dsl::methods::FilterDsl;
use diesel::result::Error as DieselError;
use diesel::sql_types::BoolOrNullableBool;
use diesel_async::AsyncConnection;
use diesel_async::async_connection_wrapper::{AsyncConnectionWrapper, BlockOn};
use diesel_async::methods::LoadQuery;
pub use diesel_sharded::*;
use tokio::runtime::Runtime;

use diesel_sharded::__bounds::{
    AllWithTotals, Assignment, BoxedRows, CountableFields, InsertCounter, KeyedTable, NoReturning,
    ReturningTotals, SetNotCalled, ToValue, ToZero, Values,
};
use diesel_sharded::asynchronous::{Async, operation as waiting, operation::LoadCounted};
use diesel_sharded::backend::BackendOf;
use diesel_sharded::combine::Combiner;
use diesel_sharded::counter_cache::{
    CacheRecount, ChildTable, EveryRow, NotCounting, ReadFrom, RefersTo, SummedInto,
};
use diesel_sharded::dsl::Value;
use diesel_sharded::idempotency::Idempotent;
use diesel_sharded::model::{
    CountingUpdate, FieldType, IntegerFields, ShardedColumn, ShardedTable,
};
use diesel_sharded::operation::IntoKey;
use diesel_sharded::operation::{
    CountedMany, CounterBackend, Drift, Folded, IntegerField, RecountQuery, SelectTotals,
    UpdateSource, UpdateStatement,
};
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded::shard_choice::ShardChoice;

/// A connection of `diesel_async`, for both kinds of operations.
pub type Awaited<C> = AsyncConnectionWrapper<C, Nested>;

/// Waits for futures on the calling thread, also nested: a case's closure is called by a future that is waited for, and waits
/// itself.
pub struct Nested;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
});

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl BlockOn for Nested {
    fn block_on<F: Future>(&self, future: F) -> F::Output {
        let _context = RUNTIME.enter();
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        let mut future = pin!(future);
        loop {
            match future.as_mut().poll(&mut context) {
                Poll::Ready(done) => return done,
                Poll::Pending => thread::park(),
            }
        }
    }

    fn get_runtime() -> Self {
        Nested
    }
}

/// Waits for a future.
pub fn wait<F: Future>(future: F) -> F::Output {
    Nested.block_on(future)
}

/// An asynchronous operation, whose methods wait. What does not wait is its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Waiting<T>(T);

impl<T> Deref for Waiting<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// The asynchronous methods of these names, waited for, with these bounds on the connection `Conn` and its backend `DB`. A method's `self`
/// says whether it takes the value.
macro_rules! waits {
    (
        @method {$($bounds:tt)*}
        $name:ident$(<$of:ident>)?($this:ident: $taken:ty $(, $argument:ident: $type:ty)*) -> $result:ty
    ) => {
        pub fn $name<Conn, DB $(, $of)?>($this: $taken, $($argument: $type,)* conn: &mut Conn) -> QueryResult<$result>
        where
            Conn: AsyncConnection<Backend = DB>,
            DB: BackendOf<Conn>,
            $($bounds)*
        {
            wait($this.0.$name($($argument,)* conn))
        }
    };
    ($bounds:tt $($name:ident$(<$of:ident>)?($this:ident: $taken:ty $(, $argument:ident: $type:ty)*) -> $result:ty;)+) => {$(
        waits! {
            @method $bounds $name$(<$of>)?($this: $taken $(, $argument: $type)*) -> $result
        }
    )+};
}

/// The builder's methods of these names; they give the operation itself, or another, perhaps with bounds.
macro_rules! builds {
    ($($name:ident$(<$($of:tt),+>)?($($argument:ident: $type:ty),*) $(-> $other:ty)? $(where {$($bounds:tt)+})?;)+) => {$(
        builds! { @method $name$(<$($of),+>)?($($argument: $type),*) $(-> $other)? $(where {$($bounds)+})? }
    )+};
    (@method $name:ident($($argument:ident: $type:ty),*)) => {
        pub fn $name(self, $($argument: $type),*) -> Self {
            Waiting(self.0.$name($($argument),*))
        }
    };
    (@method $name:ident$(<$($of:tt),+>)?($($argument:ident: $type:ty),*) -> $other:ty $(where {$($bounds:tt)+})?) => {
        pub fn $name$(<$($of),+>)?(self, $($argument: $type),*) -> Waiting<$other>
        $(where $($bounds)+)?
        {
            Waiting(self.0.$name($($argument),*))
        }
    };
}

/// The functions of these names, which begin an operation.
macro_rules! begins {
    ($($name:ident<$($of:ident),+>($($argument:ident: $type:ty),+) -> $operation:ty where {$($bounds:tt)+};)+) => {$(
        pub fn $name<$($of),+>($($argument: $type),+) -> Waiting<$operation>
        where
            $($bounds)+
        {
            Waiting(asynchronous::$name($($argument),+))
        }
    )+};
}

/// The methods of these names that leave the operation as it is, and give another.
macro_rules! gives {
    ($($name:ident($argument:ident: $type:ty) -> $other:ty;)+) => {$(
        pub fn $name(&self, $argument: $type) -> Waiting<$other> {
            Waiting(self.0.$name($argument))
        }
    )+};
}

/// A named counter's methods, waited for.
macro_rules! waits_for_names {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)+) => {
        waits! {
            { DB: CounterBackend<Conn> }
            $($name(self: &Self $(, $argument: $type)*) -> $result;)+
        }
    };
}

/// The methods of a row's counter, waited for.
macro_rules! waits_for_rows {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)+) => {
        waits! {
            { C: IntegerField<DB> + Send + Sync }
            $($name(self: &Self $(, $argument: $type)*) -> $result;)+
        }
    };
}

pub type Counter = Waiting<asynchronous::Counter>;

impl Counter {
    pub fn named(name: impl Into<String>) -> Self {
        Waiting(asynchronous::Counter::named(name))
    }

    pub fn list(prefix: impl Into<String>) -> CounterList {
        Waiting(asynchronous::Counter::list(prefix))
    }

    pub fn top(prefix: impl Into<String>, n: u32) -> Waiting<waiting::TopCounters> {
        Waiting(asynchronous::Counter::top(prefix, n))
    }

    builds! {
        never_below(least: i64) -> waiting::BoundedCounter;
        never_above(most: i64) -> waiting::BoundedCounter;
    }

    pub fn get_many<Conn, S>(names: &[S], conn: &mut Conn) -> QueryResult<Vec<i64>>
    where
        S: AsRef<str> + Sync,
        Conn: AsyncConnection,
        Conn::Backend: CounterBackend<Conn>,
    {
        wait(asynchronous::Counter::get_many(names, conn))
    }

    pub fn count_many<Name: AsRef<str>>(
        amounts: impl IntoIterator<Item = (Name, i64)>,
    ) -> Waiting<operation::CountMany<counters::value, fn(&Vec<u8>) -> InsertCounter, Async>> {
        Waiting(asynchronous::Counter::count_many(amounts))
    }

    gives! {
        idempotency_key(key: impl AsRef<[u8]>) -> waiting::IdempotentCounter;
        combine(combiner: &Combiner) -> asynchronous::Counter;
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

impl Waiting<waiting::BoundedCounter> {
    builds! {
        never_below(least: i64);
        never_above(most: i64);
    }

    gives! { idempotency_key(key: impl AsRef<[u8]>) -> Idempotent<waiting::BoundedCounter>; }

    waits_for_names! {
        add(n: i64) -> bool;
        add_and_get(n: i64) -> Option<i64>;
        add_up_to(n: i64) -> i64;
        get() -> i64;
    }
}

impl Waiting<Idempotent<waiting::BoundedCounter>> {
    waits_for_names! {
        add(n: i64) -> bool;
        add_and_get(n: i64) -> Option<i64>;
    }
}

impl Waiting<waiting::TopCounters> {
    builds! { offset(counters: u32); }

    waits_for_names! { load() -> Vec<(String, i64)>; }
}

pub type CounterList = Waiting<waiting::CounterList>;

impl CounterList {
    builds! {
        after(name: impl Into<String>);
        limit(counters: u32);
    }

    waits_for_names! { load() -> Vec<(String, i64)>; }
}

impl Waiting<waiting::IdempotentCounter> {
    waits_for_names! {
        add(n: i64) -> usize;
        add_and_get(n: i64) -> i64;
        set(total: i64) -> ();
        reset() -> ();
        delete() -> bool;
    }
}

pub type RowCounter<C> = Waiting<asynchronous::RowCounter<C>>;

impl<C: ShardedColumn> RowCounter<C> {
    pub fn of(column: C, key: impl IntoKey<<C::Table as ShardedTable>::Key>) -> Self {
        Waiting(asynchronous::RowCounter::of(column, key))
    }

    waits_for_rows! {
        add(n: i64) -> usize;
        add_and_get(n: i64) -> Option<i64>;
        get() -> Option<i64>;
    }

    pub fn idempotency_key(
        &self,
        key: impl AsRef<[u8]>,
    ) -> Waiting<waiting::IdempotentRowCounter<C>>
    where
        <C::Table as ShardedTable>::Key: fmt::Debug,
    {
        Waiting(self.0.idempotency_key(key))
    }

    gives! { combine(combiner: &Combiner) -> asynchronous::RowCounter<C>; }

    builds! {
        never_below(least: i64) -> asynchronous::bounded::Bounded<C>;
        never_above(most: i64) -> asynchronous::bounded::Bounded<C>;
    }
}

impl<C: ShardedColumn> Waiting<waiting::IdempotentRowCounter<C>>
where
    <C::Table as ShardedTable>::Key: fmt::Debug,
{
    waits_for_rows! {
        add(n: i64) -> usize;
        add_and_get(n: i64) -> Option<i64>;
    }
}

pub type Bounded<C> = Waiting<asynchronous::bounded::Bounded<C>>;

impl<C: ShardedColumn> Bounded<C> {
    builds! {
        never_below(least: i64);
        never_above(most: i64);
        retry(policy: RetryPolicy);
    }

    gives! {
        idempotency_key(key: impl AsRef<[u8]>) -> Idempotent<asynchronous::bounded::Bounded<C>>;
    }

    waits_for_rows! {
        add(n: i64) -> bool;
        add_and_get(n: i64) -> Option<i64>;
        add_up_to(n: i64) -> i64;
        get() -> Option<i64>;
    }
}

impl<C: ShardedColumn> Waiting<Idempotent<asynchronous::bounded::Bounded<C>>>
where
    <C::Table as ShardedTable>::Key: fmt::Debug,
{
    waits_for_rows! {
        add(n: i64) -> bool;
        add_and_get(n: i64) -> Option<i64>;
    }
}

type Key<Q> = <<Q as HasTable>::Table as ShardedTable>::Key;

type KeyOf<F> = <<F as IntegerFields>::ParentTable as ShardedTable>::Key;

begins! {
    fold<Source, Kind>(source: Source) -> operation::Fold<Source::Query, Async>
    where {
        Source: UpdateSource<Kind>,
        Source::Query: IntoUpdateTarget<Table: ShardedTable>,
    };

    count_many<F, I>(fields: F, amounts: I) -> operation::CountMany<F, fn(&KeyOf<F>), Async>
    where {
        F: IntegerFields<ParentTable: ShardedTable<Key: Ord>>,
        I: IntoIterator<Item = (KeyOf<F>, F::Amounts)>,
    };

    set_total<Source, Kind, C>(source: Source, column: C, total: Value<C>) -> operation::SetTotal<Source::Query, ToValue<C>, Async>
    where {
        Source: UpdateSource<Kind>,
        Source::Query: IntoUpdateTarget<Table = C::Table>,
        C: ShardedColumn,
    };

    reset<Source, Kind, T>(source: Source) -> operation::SetTotal<Source::Query, ToZero<T>, Async>
    where {
        Source: UpdateSource<Kind>,
        Source::Query: IntoUpdateTarget<Table = T>,
        T: ShardedTable,
    };

    verify<Source, Kind, C, Q>(source: Source, column: C, expected: Q) -> operation::Verify<Source::Query, C, Q, Async>
    where {
        Source: UpdateSource<Kind>,
        Source::Query: IntoUpdateTarget<Table = C::Table>,
        C: ShardedColumn,
    };

    update<Source, Kind>(source: Source) -> UpdateStatement<Source::Query, SetNotCalled, NoReturning, (), Async>
    where { Source: UpdateSource<Kind> };
}

impl<Q, T, W> Waiting<operation::Fold<Q, Async>>
where
    Q: IntoUpdateTarget<Table = T, WhereClause = W> + Send,
    T: ShardedTable,
    W: Send + Sync,
{
    builds! {
        batch(parents: usize);
        at_most_per_second(parents: u32);
        keep_shards(number: u16);
        after(key: impl Into<Option<Key<Q>>>);
        retry(policy: RetryPolicy);
    }

    waits! {
        { T: KeyedTable<DB>, T::PrimaryKey: Expression, W: QueryFragment<DB> + QueryId }
        run(self: Self) -> Folded<T>;
    }

    pub fn run_with<Conn, DB>(
        self,
        conn: &mut Conn,
        progress: impl FnMut(&Folded<T>) -> ControlFlow<()> + Send,
    ) -> QueryResult<Folded<T>>
    where
        T: KeyedTable<DB>,
        T::PrimaryKey: Expression,
        W: QueryFragment<DB> + QueryId,
        Conn: AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        wait(self.0.run_with(conn, progress))
    }
}

impl<F: IntegerFields> Waiting<operation::CountMany<F, fn(&KeyOf<F>), Async>> {
    builds! {
        or_insert<R, I>(row_of: R)
            -> operation::CountMany<F, impl Fn(&KeyOf<F>) -> InsertStatement<F::ParentTable, I::Values>, Async>
        where { R: Fn(&KeyOf<F>) -> I, I: Insertable<F::ParentTable> };
    }
}

impl<F: IntegerFields, Ins> Waiting<operation::CountMany<F, Ins, Async>> {
    pub fn run<Conn, DB, Insert>(self, conn: &mut Conn) -> QueryResult<CountedMany<F::ParentTable>>
    where
        F: CountableFields<DB> + Send + Sync,
        F::ParentTable: ShardedTable<KeyValues: Send>,
        Ins: Fn(&KeyOf<F>) -> Insert + Send + Sync,
        Insert: QueryFragment<DB> + QueryId + Send,
        Conn: AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        wait(self.0.run(conn))
    }

    builds! {
        idempotency_key(key: impl AsRef<[u8]>) -> Idempotent<operation::CountMany<F, Ins, Async>>;
    }
}

impl<F: IntegerFields, Ins> Waiting<Idempotent<operation::CountMany<F, Ins, Async>>> {
    pub fn run<Conn, DB, Insert>(self, conn: &mut Conn) -> QueryResult<usize>
    where
        F: CountableFields<DB> + Send + Sync,
        F::ParentTable: ShardedTable<Key: fmt::Debug, KeyValues: Send>,
        Ins: Fn(&KeyOf<F>) -> Insert + Send + Sync,
        Insert: QueryFragment<DB> + QueryId + Send,
        Conn: AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        wait(self.0.run(conn))
    }
}

impl<Q, A, T, W> Waiting<operation::SetTotal<Q, A, Async>>
where
    Q: IntoUpdateTarget<Table = T, WhereClause = W>,
{
    builds! {
        retry(policy: RetryPolicy);
        idempotency_key(key: impl AsRef<[u8]>) -> Idempotent<operation::SetTotal<Q, A, Async>>;
    }
}

/// Sets, with an idempotency key or without one.
macro_rules! sets {
    ($($set:ty),+) => {$(
        impl<Q, A, T, W> Waiting<$set>
        where
            Q: IntoUpdateTarget<Table = T, WhereClause = W> + Send,
        {
            waits! {
                {
                    A: Assignment + QueryFragment<DB> + Send + Sync,
                    T: KeyedTable<DB>,
                    T::PrimaryKey: Expression + QueryId,
                    W: QueryFragment<DB> + QueryId + Send + Sync,
                }
                execute(self: Self) -> usize;
            }
        }
    )+};
}

sets!(
    operation::SetTotal<Q, A, Async>,
    Idempotent<operation::SetTotal<Q, A, Async>>
);

impl<R, C, Q, T, W> Waiting<operation::Verify<R, C, Q, Async>>
where
    R: IntoUpdateTarget<Table = T, WhereClause = W>,
{
    builds! { retry(policy: RetryPolicy); }

    waits! {
        {
            R: Clone + Send,
            C: ShardedColumn<Table = T>,
            <C::SqlType as FieldType>::Total: Send,
            Q: RecountQuery<T::Key, Row: Send>
                + LoadQuery<'static, Conn, <Q as RecountQuery<T::Key>>::Row>
                + Clone
                + Send
                + Sync
                + 'static,
            T: KeyedTable<DB, Key: Eq + Hash>,
            W: QueryFragment<DB> + QueryId + Send + Sync,
        }
        drifts(self: Self) -> Vec<Drift<T::Key, <C::SqlType as FieldType>::Total>>;
        repair(self: Self) -> Vec<Drift<T::Key, <C::SqlType as FieldType>::Total>>;
    }
}

pub type ShardsTable<T> = Waiting<asynchronous::ShardsTable<T>>;

impl<T: ShardedTable> ShardsTable<T> {
    pub fn of(table: T) -> Self {
        Waiting(asynchronous::ShardsTable::of(table))
    }

    builds! {
        without_foreign_key();
        without_triggers();
    }

    pub fn view(&self, name: &str) -> Waiting<waiting::TotalsView<T>> {
        Waiting(self.0.view(name))
    }

    waits! {
        { T: QueryFragment<DB> }
        create(self: &Self) -> ();
        drop(self: &Self) -> ();
    }

    waits! {
        { T: KeyedTable<DB> }
        remove_orphans(self: &Self) -> usize;
    }
}

impl<T> Waiting<waiting::TotalsView<T>>
where
    T: ShardedTable + Table<AllColumns: AllWithTotals>,
{
    builds! { security_invoker(); }

    waits! {
        { T: QueryFragment<DB> }
        create(self: &Self) -> ();
        drop(self: &Self) -> ();
    }
}

pub type CounterCache<C, Child = NotCounting, W = EveryRow, A = EveryRow> =
    Waiting<asynchronous::CounterCache<C, Child, W, A>>;

impl<C: ShardedColumn> CounterCache<C> {
    pub fn of(column: C) -> Self {
        Waiting(asynchronous::CounterCache::of(column))
    }

    builds! {
        counts<By, Kind>(by: By) -> asynchronous::CounterCache<C, By::Child>
        where { By: RefersTo<C::Table, Kind> };
        counts_all<T>(rows: T) -> asynchronous::CounterCache<C, T> where { T: Table };
    }
}

impl<C: ShardedColumn, Child: Table, A: Clone> CounterCache<C, Child, EveryRow, A> {
    builds! {
        filter<W>(condition: W) -> asynchronous::CounterCache<C, Child, W, A>
        where { W: ReadFrom<Child, SqlType: BoolOrNullableBool> };
    }
}

impl<C: ShardedColumn, Child: Table, W: Clone> CounterCache<C, Child, W> {
    builds! {
        sums<A>(amount: A) -> asynchronous::CounterCache<C, Child, W, A>
        where { A: ReadFrom<Child, SqlType: SummedInto<C::SqlType>> };
    }
}

impl<C: ShardedColumn, Child, W, A> CounterCache<C, Child, W, A> {
    builds! {
        shards(number: u16);
    }

    waits! {
        { C::Table: QueryFragment<DB>, Child: ChildTable<DB>, W: QueryFragment<DB> + Sync, A: QueryFragment<DB> + Sync }
        create(self: &Self) -> ();
        drop(self: &Self) -> ();
    }

    pub fn verify(
        &self,
    ) -> Waiting<operation::Verify<C::Table, C, CacheRecount<C, Child, W, A>, Async>>
    where
        W: Clone,
        A: Clone,
    {
        Waiting(self.0.verify())
    }
}

impl<Q, R, I> Waiting<UpdateStatement<Q, SetNotCalled, R, I, Async>> {
    builds! {
        set<V, Columns, Operations, Kind>(values: V) -> UpdateStatement<Q, Values<V::Changes>, R, I, Async>
        where {
            Q: HasTable<Table: ShardedTable>,
            V: CountingUpdate<Columns, Operations, Kind, Changes: AsChangeset<Target = Q::Table>>,
        };
    }
}

impl<Q, V, R, I> Waiting<UpdateStatement<Q, V, R, I, Async>> {
    builds! {
        filter<P>(predicate: P) -> UpdateStatement<Filter<Q, P>, V, R, I, Async> where { Q: FilterDsl<P> };
        into_boxed<'a, DB>() -> UpdateStatement<BoxedRows<'a, Q::Table, DB>, V, R, I, Async>
        where {
            Q: IntoUpdateTarget<Table: IntoUpdateTarget<WhereClause: QueryId>>,
            Q::WhereClause: QueryFragment<DB> + QueryId + Send + 'a,
            DB: Backend,
        };
        retry(policy: RetryPolicy);
        shard_choice(choice: ShardChoice);
        combine(combiner: &Combiner);
        alone();
    }
}

impl<Q, V, R> Waiting<UpdateStatement<Q, V, R, (), Async>> {
    builds! {
        or_insert<I>(row: I) -> UpdateStatement<Q, V, R, InsertStatement<Q::Table, I::Values>, Async>
        where { Q: HasTable, I: Insertable<Q::Table> };
    }
}

impl<Q, V, I> Waiting<UpdateStatement<Q, Values<V>, NoReturning, I, Async>>
where
    Q: HasTable,
{
    builds! {
        returning<S, Kind>(selection: S) -> UpdateStatement<Q, Values<V>, ReturningTotals<S::Output>, I, Async>
        where { S: SelectTotals<Q::Table, Kind> };
    }
}

impl<Q, V, I> Waiting<UpdateStatement<Q, Values<V>, NoReturning, I, Async>> {
    builds! {
        idempotency_key(key: impl AsRef<[u8]>) -> Idempotent<UpdateStatement<Q, Values<V>, NoReturning, I, Async>>;
    }
}

/// Counts, with an idempotency key or without one: how many rows they met.
macro_rules! counts {
    ($($counted:ty),+) => {$(
        impl<Q, V, R, I, T, W> Waiting<$counted>
        where
            Q: IntoUpdateTarget<Table = T, WhereClause = W>,
        {
            waits! {
                {
                    V: AsChangeset<Target = T, Changeset: QueryFragment<DB> + Send> + QueryId,
                    T: ShardedTable + QueryFragment<DB> + QueryId,
                    W: QueryFragment<DB> + QueryId + Send,
                    I: QueryFragment<DB> + QueryId + Send,
                }
                execute(self: Self) -> usize;
            }
        }
    )+};
}

counts!(
    UpdateStatement<Q, Values<V>, R, I, Async>,
    Idempotent<UpdateStatement<Q, Values<V>, R, I, Async>>
);

impl<Q, V, R, I> Waiting<UpdateStatement<Q, Values<V>, R, I, Async>> {
    pub fn load<'c, U>(
        self,
        conn: &'c mut impl LoadCounted<'c, UpdateStatement<Q, Values<V>, R, I, Async>, U>,
    ) -> QueryResult<Vec<U>> {
        wait(conn.load_counted(self.0))
    }

    pub fn get_results<'c, U>(
        self,
        conn: &'c mut impl LoadCounted<'c, UpdateStatement<Q, Values<V>, R, I, Async>, U>,
    ) -> QueryResult<Vec<U>> {
        self.load(conn)
    }

    pub fn get_result<'c, U>(
        self,
        conn: &'c mut impl LoadCounted<'c, UpdateStatement<Q, Values<V>, R, I, Async>, U>,
    ) -> QueryResult<U> {
        let first = self.load(conn)?.into_iter().next();
        first.ok_or(DieselError::NotFound)
    }
}

/// Counters with bounds.
pub mod bounded {
    pub use super::Bounded;
}

/// Keys that count once.
pub mod idempotency {
    use std::time::Duration;

    use diesel::QueryResult;
    use diesel_async::AsyncConnection;
    use diesel_sharded::backend::BackendOf;

    use super::{asynchronous, wait};

    pub fn remove_older_than<Conn>(age: Duration, conn: &mut Conn) -> QueryResult<usize>
    where
        Conn: AsyncConnection,
        Conn::Backend: BackendOf<Conn>,
    {
        wait(asynchronous::idempotency::remove_older_than(age, conn))
    }
}

/// Numbers of shards.
pub mod shard_counts {
    use diesel::QueryResult;
    use diesel_async::AsyncConnection;
    use diesel_sharded::backend::BackendOf;
    use diesel_sharded::model::ShardedColumn;

    use super::{Waiting, asynchronous, wait};

    pub use diesel_sharded::shard_counts::{Following, follow};

    pub type ShardCount = Waiting<asynchronous::shard_counts::ShardCount>;

    impl ShardCount {
        pub const MAX: u16 = diesel_sharded::shard_counts::ShardCount::MAX;

        pub fn of<C: ShardedColumn>(column: C) -> Self {
            Waiting(asynchronous::shard_counts::ShardCount::of(column))
        }

        waits! {{}
            get(self: &Self) -> u16;
            increase(self: &Self, n: u16) -> u16;
            resize(self: &Self, n: u16) -> ();
        }
    }

    pub fn refresh<Conn>(conn: &mut Conn) -> QueryResult<()>
    where
        Conn: AsyncConnection,
        Conn::Backend: BackendOf<Conn>,
    {
        wait(asynchronous::shard_counts::refresh(conn))
    }
}

/// Whole transactions.
pub mod retry {
    use std::error::Error as StdError;
    use std::future::ready;

    use diesel::result::Error as DieselError;
    use diesel_async::AsyncConnection;
    use diesel_sharded::backend::BackendOf;

    use super::{Waiting, wait};

    pub use diesel_sharded::retry::*;

    pub fn transaction<Conn, T, E, F>(conn: &mut Conn, policy: RetryPolicy, f: F) -> Result<T, E>
    where
        Conn: AsyncConnection,
        Conn::Backend: BackendOf<Conn>,
        F: FnMut(&mut Conn) -> Result<T, E> + Send,
        T: Send,
        E: From<DieselError> + StdError + Send + 'static,
    {
        Transaction::new().retry(policy).run(conn, f)
    }

    pub type Transaction = Waiting<diesel_sharded::asynchronous::retry::Transaction>;

    impl Transaction {
        pub fn new() -> Self {
            Self::default()
        }

        builds! {
            retry(policy: RetryPolicy);
            isolation(isolation: Isolation);
            deferred();
        }

        pub fn run<Conn, T, E, F>(self, conn: &mut Conn, mut f: F) -> Result<T, E>
        where
            Conn: AsyncConnection,
            Conn::Backend: BackendOf<Conn>,
            F: FnMut(&mut Conn) -> Result<T, E> + Send,
            T: Send,
            E: From<DieselError> + StdError + Send + 'static,
        {
            wait(self.0.run(conn, move |conn: &mut Conn| ready(f(conn))))
        }
    }
}
