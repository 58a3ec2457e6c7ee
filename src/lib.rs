//! Sharded counters for [Diesel]: `views = views + 1` without the queue on one row lock.
//!
//! When every request adds to the same row, every request waits for that row's lock. This crate splits the count over
//! shard rows, as many as there are writers at once. Each update adds to a shard that no other writer is using, and a reader adds
//! the shards up. An application changes an import:
//!
//! ```diff
//! - use diesel::update;
//! + use diesel_sharded::update;
//!
//!   update(videos.find(7)).set(views.eq(views + 1)).execute(conn)?;
//! ```
//!
//! The same code counts on PostgreSQL, MySQL, MariaDB and SQLite. No count is lost and none is doubled. The column stays
//! as the *base*, so code that was not changed yet stays correct.
//!
//! The [guide] begins at [why](guide::why), shows in a [diagram](guide) how it works, and leads a running
//! application [to shards and back](guide::adopting), in three deploys each. This page is its summary.
//!
//! # First use
//!
//! ```
//! use diesel::prelude::*;
//! use diesel_sharded::prelude::*;
//! use diesel_sharded::{ShardsTable, update};
//!
//! mod schema {
//!     diesel::table! {
//!         videos (id) {
//!             id -> BigInt,
//!             title -> Text,
//!             views -> BigInt,
//!             likes -> Integer,
//!         }
//!     }
//! }
//! use schema::videos::{self, dsl::*};
//!
//! #[derive(ShardedSelectable, Identifiable, ShardedField)]
//! #[diesel(table_name = videos)]
//! #[sharded(table_name = videos_shards)]
//! struct Video {
//!     id: i64,
//!     title: String,
//!     #[sharded]
//!     views: i64,
//!     #[sharded]
//!     likes: i32,
//! }
//!
//! # fn main() -> QueryResult<()> {
//! # let conn = &mut SqliteConnection::establish(":memory:").unwrap();
//! # diesel::sql_query("CREATE TABLE videos (id INTEGER PRIMARY KEY, title TEXT NOT NULL, views BIGINT NOT NULL, likes INTEGER NOT NULL)").execute(conn)?;
//! # diesel::insert_into(videos::table).values((id.eq(7), title.eq("zoo"), views.eq(100), likes.eq(0))).execute(conn)?;
//! // Once, or as a migration: see `ShardsTable`.
//! ShardsTable::of(videos::table).create(conn)?;
//!
//! update(videos.find(7)).set(views.eq(views + 1)).execute(conn)?;
//! update(videos.find(7)).set((views.eq(views + 1), likes.eq(likes + 1))).execute(conn)?;
//!
//! let top = videos.select(Video::as_select()).order(views.total().desc()).limit(10).load(conn)?;
//! assert_eq!((top[0].views, top[0].likes), (102, 1));
//! # Ok(())
//! # }
//! ```
//!
//! # Where to go on
//!
//! The [guide] explains, with [questions and answers](guide::faq) and a [comparison](crate::reference::comparison) with other cures for
//! hot rows. By item:
//!
//! Counting and reading:
//!
//! - [`update`]: every shape that it counts, the rows that it returns, and the SQL that it sends; rows that may not exist yet, by
//!   [`or_insert`](operation::UpdateStatement::or_insert).
//! - [`ShardedField`](derive@ShardedField): the attributes of the derive. [`ShardedSelectable`](derive@ShardedSelectable): models that
//!   read totals.
//! - [`Total`]: reading, and what it costs; [`estimate`](ShardedExpressionMethods::estimate), which costs nothing.
//! - [`top`]: the rows with the greatest totals, exactly, without a sort of the whole table.
//! - [`Counter`]: counters that need no table of the application's own.
//! - [`RowCounter`]: one field of one row as a value, and [`bounded`]: seats and stock, which never fall below zero.
//! - [`cached`]: totals from a cache, in the process or in a server.
//! - [`coalescer`] (feature `r2d2`): counts that are gathered in memory and committed later; a crash loses them.
//!
//! The life of a counter; all of this works while the application counts:
//!
//! - [`ShardsTable`]: the table, as text and as a migration; leaving again without losing a count.
//! - [`fold`](fold()): shards into the base. [`set_total`](set_total()), [`reset`]: totals that are set.
//! - [`combine`]: callers of one process who meet at one row share a statement and its commit.
//! - [`shard_choice`]: which shard an update adds to, and when more of them would help.
//! - [`shard_counts`]: more shards, or fewer, at run time.
//! - [`CounterCache`]: fields that hold the number of rows of another table, kept by triggers.
//! - [`verify`](verify()): totals compared with a recount and repaired; a new counter filled from existing rows.
//!
//! Failures:
//!
//! - [`retry`]: the policy, and [`retry::transaction`] for whole transactions.
//! - [`Error`]: what can go wrong, and what to do.
//! - [`idempotency`]: requests that may arrive repeatedly, and count once.
//! - [`multi_connection!`]: one enum of connections to several databases.
//! - [`observability`]: tracing spans and metrics.
//!
//! In signatures and bounds: [`dsl`] and [`operation`] name statements and results, [`backend`] names databases, and [`model`]
//! names what the derive implements.
//!
//! # The words
//!
//! | word | meaning |
//! |---|---|
//! | sharded field | a column whose counting updates go to shards, or whose greatest or least value is kept there; [`ShardedField`](derive@ShardedField) declares it |
//! | base | the value that the column itself holds |
//! | shard | a row of the shards table: the parent's key, a shard number, a column for each sharded field |
//! | shards table | one for each parent table; [`ShardsTable`] creates it |
//! | total | base + sum of shards, or the greatest or least of them, exact but for sums of doubles, read in one statement; [`total`](ShardedExpressionMethods::total) |
//! | counting update | `column.eq(column ± n)`, `column.raise_to(value)` or `column.lower_to(value)`, by [`update`]; nothing else reaches the shards |
//! | conflict | a transient failure that a new attempt can cure; [`Conflict`], [`retry`] |
//! | fold | move shard values into the base without changing any total; [`fold`](fold()) |
//! | named counter | a counter that is known by its name alone; [`Counter`] |
//! | coalesce | gather many counts of one process in memory, and write them later in batches; [`coalescer`] |
//!
//! # Features
//!
//! None is on by default, and none but `postgres`, `mysql` and `sqlite` links a C library.
//!
//! | feature | for |
//! |---|---|
//! | `postgres`, `mysql`, `sqlite` | Diesel's own connections, as the features of that name there |
//! | `postgres_backend`, `mysql_backend` | the same databases through other connections |
//! | `r2d2` | the [`coalescer`]; a [`multi_connection!`] enum inside a pool (plain connections need no feature for that) |
//! | `numeric` | `BigDecimal` fields |
//! | `uuid` | `Uuid` keys on PostgreSQL |
//! | `async` | [`asynchronous`]: the same operations on `diesel_async`'s connections |
//! | `cache` | [`cached`] totals that are kept in the process, by moka |
//! | `tracing` | spans and events: [`observability`] |
//! | `metrics` | counters and histograms: [`observability`] |
//!
//! [Diesel]: https://diesel.rs

#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))] // which feature an item needs; docs.rs builds with the nightly compiler

extern crate self as diesel_sharded; // the derive's paths, for named counters

#[cfg(feature = "async")]
pub mod asynchronous;
pub mod backend;
mod background;
mod conflict;
mod connection;
mod counting;
pub mod dsl;
mod engine;
mod error;
#[cfg(doc)] // nothing but documentation
pub mod guide;
pub mod model;
pub mod observability;
mod observe;
pub mod operation;
mod per_process;
mod placement;
mod policy;
pub mod prelude;
mod query_builder;
mod reading;
#[cfg(doc)] // nothing but documentation
pub mod reference;
mod tables;
#[cfg(test)]
mod test_schema;
mod unfit;
mod upkeep;

/// The example of the README compiles.
#[cfg(all(doctest, feature = "postgres"))]
#[doc = include_str!("../README.md")]
mod readme {}

pub use self::conflict::Conflict;
#[cfg(feature = "r2d2")]
#[doc(inline)]
pub use self::counting::coalescer;
pub use self::counting::count_many::count_many;
pub use self::counting::counter::counters;
pub use self::counting::update::update;
#[doc(inline)]
pub use self::counting::{bounded, combine, idempotency, retry, shard_choice};
pub use self::error::Error;
#[doc(hidden)] // the derive's
pub use self::query_builder::TotalInRow as __TotalInRow;
pub use self::query_builder::{NewPeak, PeakExpressionMethods, ShardedExpressionMethods, Total};
#[doc(inline)]
pub use self::reading::cached;
pub use self::reading::top::top;
#[doc(inline)]
pub use self::tables::counter_cache;
#[doc(hidden)]
pub use self::tables::described;
pub use self::tables::migrations::MIGRATIONS;
pub use self::unfit::Unfit;
pub use self::upkeep::fold::fold;
pub use self::upkeep::set_total::{reset, set_total};
#[doc(inline)]
pub use self::upkeep::shard_counts;
pub use self::upkeep::verify::verify;

/// A counter that is known by its name alone, and exists from its first count on; see [`operation::Counter`].
pub type Counter = operation::Counter;

/// One sharded field of one row, as a value that can be passed around; see [`operation::RowCounter`].
pub type RowCounter<C> = operation::RowCounter<C>;

/// The shards table of a table with sharded fields: created, folded and dropped; see [`operation::ShardsTable`].
pub type ShardsTable<T> = operation::ShardsTable<T>;

/// A sharded field that holds the number of rows of another table, kept by triggers; see [`counter_cache::CounterCache`].
pub type CounterCache<
    C,
    Child = counter_cache::NotCounting,
    Condition = counter_cache::EveryRow,
    Amount = counter_cache::EveryRow,
> = counter_cache::CounterCache<C, Child, Condition, Amount>;

/// Declares sharded fields of a table. Put it beside Diesel's own derives on a model, in the crate that has the `table!`.
///
/// # On the struct
///
/// | attribute | meaning | default |
/// |---|---|---|
/// | `#[sharded(table_name = videos_shards)]` | the shards table's name; a string for one that is no identifier | the table's own name in SQL, however it is imported, and `_shards`; none inside a schema |
/// | `#[sharded(schema = analytics)]` | the schema (on MySQL, the database) in which the `table!` and the shards table are; the compiler asks for it where the `table!` names one | none |
/// | `#[sharded(shards = 128)]` | the number of shards that a writer chooses from: 1 to 4096 | 128 |
/// | `#[sharded(no_totals)]` | this model means to read bases | a model that can be read (`Queryable`) has to read totals, by [`ShardedSelectable`](derive@ShardedSelectable) or Diesel's `select_expression` |
/// | `#[sharded(saves_totals)]` | this model means to write its sharded fields into their columns, by `diesel::update(..).set(&model)` | an `AsChangeset` does not compile, unless its sharded fields have `#[diesel(skip_update)]` |
/// | `#[diesel(table_name = videos)]` | the parent's `table!` | Diesel's: the struct's name in snake case, and an `s` |
/// | `#[diesel(primary_key(version, day))]` | the parent's key, which must be the key of the `table!` | `id` |
///
/// Processes may disagree on the number of shards, and it may change at any time, up and down, because readers add up all rows
/// that exist. The number is an upper bound. A row with one writer at a time has one shard, and a hot row has as many as it has
/// writers at once; see [`shard_choice`]. A reader reads only the shards that were used.
///
/// # On fields
///
/// | attribute | meaning |
/// |---|---|
/// | `#[sharded]` | counted on shards: a `NOT NULL` column of type `SmallInt`, `Integer`, `BigInt`, `Double` (whose sums [round](crate::guide::folding#doubles)), `Numeric` (feature `numeric`; SQLite keeps it as a float, as Diesel does) or MySQL's `Unsigned<..>` of these integers |
/// | `#[sharded(max)]`, `#[sharded(min)]` | not counted: the greatest or the least value is kept on shards ([`raise_to`](PeakExpressionMethods::raise_to), [`lower_to`](PeakExpressionMethods::lower_to)). A column, perhaps `NULL`, of any of these integers, `TinyInt`, `Float`, `Double`, `Numeric`, `Date`, `Timestamp`, `Timestamptz` (PostgreSQL), `TimestamptzSqlite` or `Datetime` (MySQL) |
/// | `#[sharded(sql_type = "VARCHAR(64)")]` | the type of this column in the shards table (a field outside the key is sharded by this alone), if [`create_sql`](ShardsTable::create_sql) should not choose it: the precision and scale of a `Numeric`, the length or collation of a text key that has one of its own, a `TIMESTAMP(6)` of MySQL in place of `DATETIME(6)`. (On PostgreSQL a key of type `CHAR(n)` does not equal its own padded text: make it `VARCHAR`.) |
/// | `#[diesel(column_name = ..)]` | the column's name, if it is not the field's |
///
/// The struct has a field for each column of the key, which may be `SmallInt`, `Integer`, `BigInt`, `Text`, `Binary`,
/// `Date`, `Uuid` (PostgreSQL, feature `uuid`) or MySQL's `Unsigned<..>`, under any Rust type.
///
/// ```
/// mod schema {
///     diesel::table! {
///         downloads (version, day) {
///             version -> Integer,
///             day -> Text,
///             number -> Integer,
///         }
///     }
/// }
/// use diesel::prelude::*;
/// use diesel_sharded::prelude::*;
/// use schema::downloads;
///
/// #[derive(ShardedSelectable, ShardedField)]
/// #[diesel(table_name = downloads, primary_key(version, day))]
/// #[sharded(table_name = download_counts, shards = 4)]
/// struct Download {
///     version: i32,
///     #[sharded(sql_type = "VARCHAR(10)")]
///     day: String,
///     #[sharded]
///     number: i32,
/// }
/// ```
pub use diesel_sharded_derive::ShardedField;

/// Reads sharded fields of a model as totals. Takes the place of Diesel's `Queryable` and `Selectable`.
///
/// ```
/// # mod schema { diesel::table! { videos (id) { id -> BigInt, title -> Text, views -> BigInt, } } }
/// # use schema::videos::{self, dsl::{id, title, videos as all, views}};
/// # fn main() -> diesel::QueryResult<()> {
/// # let conn = &mut SqliteConnection::establish(":memory:").unwrap();
/// # diesel::sql_query("CREATE TABLE videos (id INTEGER PRIMARY KEY, title TEXT NOT NULL, views BIGINT NOT NULL)").execute(conn)?;
/// # diesel::insert_into(all).values((id.eq(7), title.eq("zoo"), views.eq(100))).execute(conn)?;
/// # ShardsTable::of(videos::table).create(conn)?;
/// use diesel::prelude::*;
/// use diesel_sharded::prelude::*;
/// use diesel_sharded::{ShardsTable, update};
///
/// #[derive(ShardedSelectable, Identifiable, ShardedField)]
/// #[diesel(table_name = videos)]
/// struct Video {
///     id: i64,
///     title: String,
///     #[sharded]
///     views: i64,
/// }
///
/// /// A second model of the table: `ShardedField` stands on one of them.
/// #[derive(ShardedSelectable)]
/// #[diesel(table_name = videos)]
/// struct Card {
///     title: String,
///     #[sharded]
///     views: i64,
/// }
///
/// update(all.find(7)).set(views.eq(views + 1)).execute(conn)?;
///
/// let video = all.select(Video::as_select()).first(conn)?;
/// let card: Card = update(&video)
///     .set(views.eq(views + 1))
///     .returning(Card::as_returning())
///     .get_result(conn)?;
/// assert_eq!((video.views, card.views), (101, 102));
/// # Ok(())
/// # }
/// ```
///
/// ```sql
/// SELECT "videos"."id", "videos"."title", CAST(("videos"."views" + (SELECT …)) AS bigint) FROM "videos"
/// ```
///
/// A field with `#[sharded]`, `#[sharded(max)]` or `#[sharded(min)]` is read as its [`Total`]; `#[sharded(sql_type = "..")]` on a field outside the key says the same. All of Diesel's
/// attributes mean what they mean for `Queryable` and `Selectable`: `table_name`, `check_for_backend`, `column_name`, `embed`,
/// `deserialize_as`, and `select_expression`, which also replaces the total. `Option::<Video>::as_select()` reads a left join, and another
/// model embeds this one by `#[diesel(embed)]`.
///
/// # Bases are refused
///
/// A load without a selection names the plain columns and would show bases. It does not compile:
///
/// ```compile_fail,E0277
/// # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } } }
/// # use schema::videos;
/// # use diesel::prelude::*;
/// # use diesel_sharded::prelude::*;
/// # #[derive(ShardedSelectable, ShardedField)]
/// # struct Video { id: i64, #[sharded] views: i64 }
/// # fn read(conn: &mut SqliteConnection) -> QueryResult<Vec<Video>> {
/// videos::table.load::<Video>(conn) // without `.select(Video::as_select())`
/// # }
/// ```
///
/// The same holds for `Video::belonging_to(&channel).load(conn)`, for `.returning(..)` and `.get_result(conn)` of Diesel's own statements,
/// and for [`update`] and [`top`], which then need `.returning(Video::as_returning())` and `.select(Video::as_select())`. Tuples and
/// structs with Diesel's own `Queryable` are read from any selection.
///
/// # By hand
///
/// The same selection in Diesel's own attributes, for a model that derives `HasQuery`, or may be read from any query. It does not refuse bases:
///
/// ```
/// # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } } }
/// # use schema::videos;
/// # use diesel::prelude::*;
/// # use diesel_sharded::prelude::*;
/// use diesel_sharded::Total;
///
/// #[derive(Queryable, Selectable, ShardedField)]
/// struct Video {
///     id: i64,
///     #[sharded]
///     #[diesel(
///         select_expression = videos::views.total(),
///         select_expression_type = Total<videos::views>,
///     )]
///     views: i64,
/// }
/// ```
pub use diesel_sharded_derive::ShardedSelectable;

#[doc(hidden)]
pub use diesel as __diesel;

/// The type states of statements, and the parts of the operations' bounds, for the tests that wrap them.
#[doc(hidden)]
pub mod __bounds {
    pub use crate::counting::count_many::CountableFields;
    pub use crate::counting::counter::InsertCounter;
    pub use crate::counting::update::returning::{AllWithTotals, NoReturning, ReturningTotals};
    pub use crate::counting::update::{BoxedRows, SetNotCalled, Values};
    pub use crate::engine::KeyedTable;
    pub use crate::upkeep::set_total::{Assignment, ToValue, ToZero};
}
