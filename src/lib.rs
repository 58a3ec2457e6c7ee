//! Sharded counters for [Diesel]: `views = views + 1` without the queue on one row lock.
//!
//! When every request adds to the same row, every request waits for that row's lock. This crate spreads the column over shard
//! rows, as many as there are concurrent writers. Each update adds to a shard that no other writer is using, and a reader adds up
//! the shards. An application changes an import:
//!
//! ```diff
//! - use diesel::update;
//! + use diesel_sharded::update;
//!
//!   update(videos.find(7)).set(views.eq(views + 1)).execute(conn)?;
//! ```
//!
//! The same code counts on PostgreSQL, MySQL, MariaDB and SQLite. The column stays as the *base*, so code that still adds to it
//! stays correct. Code that *reads* it sees too little from the first shard on, and code that *saves* it writes a wrong number:
//! the [guide] leads a running application [to shards and back](guide::adopting), in three deploys each way. It begins with
//! [why](guide::why) and a [diagram](guide), and [every error](guide::errors) has its answer. This page is its summary.
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
//! // In tests; an application runs a migration: see `ShardsTable`.
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
//! # Where to go next
//!
//! The [guide] has seven chapters to read in order, and the [reference](mod@reference) has pages to look something up in, such as a
//! [comparison](reference::comparison) with other cures for hot rows. By item:
//!
//! Counting and reading:
//!
//! - [`update`]: the updates that it counts, the rows that it returns and the SQL that it sends.
//!   [`or_insert`](operation::UpdateStatement::or_insert) counts on rows that may not exist yet.
//! - [`count_many`](count_many()): many rows, each with its own amount.
//! - [`ShardedField`](derive@ShardedField): the attributes of the derive. [`ShardedSelectable`](derive@ShardedSelectable): models that
//!   read totals.
//! - [`Total`]: reading, and what it costs; [`estimate`](ShardedExpressionMethods::estimate), which costs nothing.
//! - [`top`]: the rows with the greatest totals, exactly, without sorting the whole table.
//! - [`Counter`]: counters that need no table of the application.
//! - [`RowCounter`]: one field of one row as a value. [`bounded`]: seats and stock, which never fall below zero.
//! - [`trending`]: scores that fade, in the order of an index.
//! - [`cached`]: totals from a cache, in the process or on a server.
//! - [`coalescer`] (feature `r2d2`): increments that are gathered in memory and committed later; a crash loses them.
//!
//! Operating counters, all while the application counts:
//!
//! - [`ShardsTable`]: creates the table, as SQL text or as a migration; removes it without losing increments.
//! - [`fold`](fold()): moves shards into the base. [`set_total`](set_total()), [`reset`]: set totals.
//! - [`combine`]: threads of one process that count on the same row share a statement and its commit.
//! - [`shard_choice`]: which shard an update adds to, and when more shards would help.
//! - [`shard_counts`]: more shards, or fewer, at run time.
//! - [`CounterCache`]: fields that hold the number of rows in another table, kept by triggers.
//! - [`verify`](verify()): compares totals with a recount and repairs them; fills a new counter from existing rows.
//!
//! Failures:
//!
//! - [`retry`]: the policy, and [`retry::transaction`] for whole transactions.
//! - [`Error`]: what can go wrong, and what to do.
//! - [`idempotency`]: a request that may arrive several times counts once.
//! - [`unique`]: a visitor counts once in each window, such as a day.
//! - [`multi_connection!`]: one enum of connections to several databases.
//! - [`observability`]: tracing spans and metrics.
//!
//! In signatures and bounds, [`dsl`] and [`operation`] name statements and results, [`backend`] names databases, and [`model`]
//! names the traits that the derive implements.
//!
//! # Terms
//!
//! | term | meaning |
//! |---|---|
//! | sharded field | a column whose counting updates go to shards, or whose greatest or least value is kept there; [`ShardedField`](derive@ShardedField) declares it |
//! | base | the value that the column itself holds |
//! | shard | a row of the shards table: the parent's key, a shard number, a column for each sharded field |
//! | shards table | one for each parent table; [`ShardsTable`] creates it |
//! | total | base + sum of shards, or the greatest or least of them, read in one statement; exact except for sums of doubles and [older snapshots](reference::transactions#isolation); [`total`](ShardedExpressionMethods::total) |
//! | counting update | `column.eq(column ± n)`, `column.raise_to(value)` or `column.lower_to(value)`, by [`update`]; nothing else reaches the shards |
//! | conflict | a transient failure that a new attempt can cure; [`Conflict`], [`retry`] |
//! | fold | move shard values into the base without changing any total; [`fold`](fold()) |
//! | named counter | a counter that is identified only by its name; [`Counter`] |
//! | increment | one counting update, and what it adds |
//! | combine | threads of one process share one statement and its commit; [`combine`] |
//! | coalesce | gather many increments of one process in memory, and write them later in batches; [`coalescer`] |
//!
//! # Features
//!
//! No feature is on by default. Only `postgres`, `mysql` and `sqlite` link a C library.
//!
//! | feature | for |
//! |---|---|
//! | `postgres`, `mysql`, `sqlite` | Diesel's own connections, like Diesel's features of these names |
//! | `postgres_backend`, `mysql_backend` | the same databases through other connections |
//! | `r2d2` | the [`coalescer`]; a [`Combiner`](combine::Combiner) or a [`multi_connection!`] enum in a pool (other pools need no feature) |
//! | `numeric` | `BigDecimal` fields |
//! | `uuid` | `Uuid` keys on PostgreSQL |
//! | `async` | [`asynchronous`]: the same operations on `diesel_async`'s connections |
//! | `cache` | [`cached`] totals that are kept in the process, by moka |
//! | `64-column-tables` | tables and models of up to 64 columns instead of 32, like Diesel's feature of this name |
//! | `tracing` | spans and events: [`observability`] |
//! | `metrics` | counters and histograms: [`observability`] |
//!
//! [Diesel]: https://diesel.rs

#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))] // shows the feature that an item needs; docs.rs builds with the nightly compiler

extern crate self as diesel_sharded; // the derive, used here for named counters, writes paths with this name

// Only documentation, which docs.rs lists first.
#[cfg(doc)]
pub mod guide;
#[cfg(doc)]
pub mod reference;

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
mod tables;
#[cfg(test)]
mod test_schema;
mod unfit;
mod upkeep;

/// Compiles the README's example.
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
pub use self::counting::{bounded, combine, idempotency, retry, shard_choice, trending, unique};
pub use self::error::Error;
#[doc(hidden)] // for the derive
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

/// A counter that is identified only by its name and exists from its first increment on; see [`operation::Counter`].
pub type Counter = operation::Counter;

/// One sharded field of one row, as a value that can be passed around; see [`operation::RowCounter`].
pub type RowCounter<C> = operation::RowCounter<C>;

/// The shards table of a table with sharded fields: creates, folds and drops it; see [`operation::ShardsTable`].
pub type ShardsTable<T> = operation::ShardsTable<T>;

/// A sharded field that holds the number of rows in another table, kept by triggers; see [`counter_cache::CounterCache`].
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
/// | `#[sharded(table_name = videos_shards)]` | the shards table's name; a string if it is not an identifier | the table's name in SQL, even if it is imported under another, with `_shards` after it; no default inside a schema |
/// | `#[sharded(schema = analytics)]` | the schema (on MySQL, the database) of the `table!` and the shards table; required if the `table!` names a schema | none |
/// | `#[sharded(shards = 128)]` | the number of shards that a writer chooses from: 1 to 4096 | 128 |
/// | `#[sharded(crate = path::to::it)]` | this crate's path, if it is renamed or re-exported; for [`ShardedSelectable`](derive@ShardedSelectable) too | `::diesel_sharded` |
/// | `#[sharded(no_totals)]` | this model reads bases on purpose | a model that can be read (`Queryable`) has to read totals, by [`ShardedSelectable`](derive@ShardedSelectable) or Diesel's `select_expression` |
/// | `#[sharded(saves_totals)]` | this model writes its sharded fields into their columns on purpose, by `diesel::update(..).set(&model)` | an `AsChangeset` does not compile unless its sharded fields have `#[diesel(skip_update)]` |
/// | `#[diesel(table_name = videos)]` | the parent's `table!` | Diesel's default: the struct's name in snake case with an `s` |
/// | `#[diesel(primary_key(version, day))]` | the parent's key, which must be the key of the `table!` | `id` |
///
/// Processes may disagree on the number of shards, and it may change at any time, up and down, because readers add up all rows
/// that exist. The number is the most that a row gets. A row with one writer at a time has one shard, and a hot row has as many as it has
/// concurrent writers; see [`shard_choice`]. A reader reads only the shards that were used.
///
/// # On fields
///
/// | attribute | meaning |
/// |---|---|
/// | `#[sharded]` | counted on shards: a `NOT NULL` column of type `SmallInt`, `Integer`, `BigInt`, `Double` (whose sums [round](crate::reference::folding#doubles)), `Numeric` (feature `numeric`; SQLite keeps it as a float, as Diesel does) or MySQL's `Unsigned<..>` of these integers |
/// | `#[sharded(max)]`, `#[sharded(min)]` | not counted: the greatest or the least value is kept on shards ([`raise_to`](PeakExpressionMethods::raise_to), [`lower_to`](PeakExpressionMethods::lower_to)). A column, possibly nullable, of any of these integers, `TinyInt`, `Float`, `Double`, `Numeric`, `Date`, `Timestamp`, `Timestamptz` (PostgreSQL), `TimestamptzSqlite` or `Datetime` (MySQL) |
/// | `#[sharded(sql_type = "VARCHAR(64)")]` | the type of this column in the shards table, if [`create_sql`](ShardsTable::create_sql) should not choose it: the precision and scale of a `Numeric`, the particular length or collation of a text key, MySQL's `TIMESTAMP(6)` instead of `DATETIME(6)`, a key column's own type such as an enum of PostgreSQL's. Outside the key it also makes the field sharded. (On PostgreSQL a key of type `CHAR(n)` does not equal its own padded text: make it `VARCHAR`.) |
/// | `#[diesel(column_name = ..)]` | the column's name, if it differs from the field's |
///
/// The struct has a field for each column of the key. A key column may be `SmallInt`, `Integer`, `BigInt`, `Text`, `Binary`, `Bool`,
/// `Date`, `Timestamp`, `Timestamptz` (PostgreSQL), `TimestamptzSqlite`, `Uuid` (PostgreSQL, feature `uuid`), MySQL's `Datetime` or
/// `Unsigned<..>`, and of any other type that is named by `sql_type`, except for MySQL's `ENUM`. Its Rust type may be any that is `pub` (in
/// a module that need not be).
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

/// Reads sharded fields of a model as totals. Replaces Diesel's `Queryable` and `Selectable`.
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
/// /// A second model of the table: only one of them has `ShardedField`.
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
/// A field with `#[sharded]`, `#[sharded(max)]` or `#[sharded(min)]` is read as its [`Total`], and so is a field outside the key with
/// `#[sharded(sql_type = "..")]`. Diesel's attributes have the same meaning as for `Queryable` and `Selectable`: `table_name`,
/// `check_for_backend`, `column_name`, `embed`, `deserialize_as`, and `select_expression`, which also replaces the total.
/// `Option::<Video>::as_select()` reads a left join, and another model embeds this one by `#[diesel(embed)]`. (A model whose totals are all
/// in embedded ones derives Diesel's `Queryable` and `Selectable`.)
///
/// # Bases are refused
///
/// A load without a selection would read the plain columns, and therefore bases. It does not compile:
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
/// for `save_changes` (instead, `.set(&video)` and then select), and for [`update`] and [`top`], which then need
/// `.returning(Video::as_returning())` and `.select(Video::as_select())`. Tuples and structs with Diesel's own `Queryable` can be read from
/// any selection.
///
/// # By hand
///
/// Diesel's own attributes can express the same selection, for a model that derives `HasQuery` or that any query may load. They do not
/// refuse bases:
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
