//! Unique counts: one for each visitor and window, such as one view for each visitor and day.
//!
//! A product that counts a visitor once a day keeps a row for each view, and counts these rows. Here the row is the one of an [idempotency
//! key](crate::idempotency), committed together with the increment. A repeat finds it, and counts nothing.
//!
//! ```
//! # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } } }
//! # use schema::videos::{self, dsl::{id, videos as all, views}};
//! # use diesel_migrations::MigrationHarness;
//! # #[derive(diesel_sharded::ShardedField)]
//! # #[diesel(table_name = videos)]
//! # struct Video { id: i64, #[sharded] views: i64 }
//! # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! # let conn = &mut SqliteConnection::establish(":memory:")?;
//! # diesel::sql_query("CREATE TABLE videos (id INTEGER PRIMARY KEY, views BIGINT NOT NULL)").execute(conn)?;
//! # diesel::insert_into(all).values((id.eq(7), views.eq(100))).execute(conn)?;
//! # diesel_sharded::ShardsTable::of(videos::table).create(conn)?;
//! use std::time::Duration;
//!
//! use diesel::prelude::*;
//! use diesel_sharded::prelude::*;
//! use diesel_sharded::unique::Unique;
//! use diesel_sharded::{Counter, update};
//!
//! const DAY: Duration = Duration::from_secs(86_400);
//!
//! conn.run_pending_migrations(diesel_sharded::MIGRATIONS)?; // once
//! let visitor = "203.0.113.7 Firefox"; // an address, an account's id, a cookie
//!
//! let view = update(all.find(7)).set(views.eq(views + 1)).once_per(visitor, DAY);
//! assert_eq!(view.clone().count(conn)?, Unique::Counted);
//! assert_eq!(view.count(conn)?, Unique::Repeat);
//! assert_eq!(all.select(views.total()).first::<i64>(conn)?, 101);
//! // A counter adds any amount.
//! let site = Counter::named("visitors").once_per(visitor, DAY);
//! assert_eq!(site.add(1, conn)?, Unique::Counted);
//! # Ok(())
//! # }
//! ```
//!
//! # Windows
//!
//! Windows begin at fixed times: those of a day at midnight in UTC, or elsewhere by [`utc_offset`](OncePer::utc_offset). A visitor who comes
//! before and after midnight is counted in both windows. Any two windows of the same length count apart, and so do two lengths.
//!
//! The clock of the process that counts tells the window. Processes whose clocks differ may count a visitor twice around the edge.
//! Connections with the same tables of this library share their visitors: if tenants have a schema each and these tables are in
//! another one, put the tenant's name in front of the visitor.
//!
//! # What is the same visit
//!
//! The table, the fields, the row and the visitor, but not the amount: `views + 1` and `views + 2` count once together, as do an update and
//! a [`RowCounter`](crate::RowCounter) of the same row. A row is known by the filter that names it, as Diesel writes it. So use
//! `find(7)` or `filter(slug.eq("zoo"))` for all increments on a row, not both, and spell a text as the row does: `Zoo` finds the same row where
//! a collation ignores case, as MySQL's default does, and counts apart. Visitors are compared byte by byte. A key type whose `Debug` hides its
//! value makes different rows look the same. A release of Diesel that writes filters in another way counts the visitors of that day again.
//!
//! # SQL
//!
//! A repeat is one plain read. It writes nothing, locks nothing, and waits for no lock (but on SQLite outside WAL mode for a commit):
//!
//! ```sql
//! SELECT "key", "fingerprint", "claim", "counted" FROM "diesel_sharded_idempotency_keys" WHERE "key" = $1
//! ```
//!
//! If the read finds no row, the statements of an [idempotency key](crate::idempotency#sql) follow: outside a transaction usually one. They
//! wait only for the same visitor on the same row. Inside the caller's transaction on MySQL and SQLite there is no such read, because it
//! could fail the increment that follows. There a repeat locks the visitor's row, or SQLite's database, until the transaction ends. (A
//! transaction that Diesel does not know of has the read.)
//!
//! Inside a transaction the increment is part of the caller's: a rollback takes back the visitor's row too. After an
//! [`OutcomeUnknown`](crate::Error::OutcomeUnknown) the caller may repeat the call: in the same window it counts only if the first one did not.
//!
//! On PostgreSQL with a synchronous standby, a repeat may be answered before the standby has the first increment.
//!
//! # What is stored
//!
//! The key is a part of a SHA-256 hash of the visitor, the row and the window; the visitor is not stored. Such a row is still personal
//! data: *pseudonymous*, not anonymous. There are only four billion IPv4 addresses: a reader of the table can hash them all, and find the one
//! behind a row. A secret in front of the visitor prevents that while the secret stays outside the database:
//! `once_per(format!("{secret} {address}"), DAY)`. A new secret for each window protects the older rows once the old secret is destroyed.
//!
//! A row expires five minutes after its window, because clocks differ: the process tells how much of the window is left, and the
//! database's clock measures it. A process whose clock goes back further counts visitors again whose rows have been removed. Three things
//! remove them: a background fold with [`remove_expired`](crate::operation::FolderBuilder::remove_expired), the function
//! [`remove_expired`], and the command `diesel-sharded remove-expired`. [`remove_older_than`](crate::idempotency::remove_older_than) leaves it alone.

use std::time::Duration;

use diesel::prelude::*;
use diesel::result::Error as DieselError;
use sha2::{Digest, Sha256};

use crate::backend::{BackendOf, ShardedBackend};
use crate::connection::{Link, LoadIo, paired};
use crate::counting::counter::{Counter, CounterBackend};
use crate::counting::idempotency::{
    Expiry, Removable, Request, UpdateOnce, is_known, once, remove,
};
use crate::counting::row_counter::{IntegerField, OneCounter, RowCounter};
use crate::counting::update::returning::NoReturning;
use crate::counting::update::{Count, IntoCount, TypedUpdate, UpdateStatement, Values};
use crate::error::Error;
use crate::model::{ShardedColumn, shows};

/// The answer of a unique count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[must_use = "a repeat and a missing row are no errors"]
pub enum Unique {
    /// It was counted.
    Counted,
    /// The visitor was counted in this window before, even if the row has been deleted since. Nothing was changed.
    Repeat,
    /// There is no such row. Nothing was changed, and the visitor may still be counted. (A named counter always exists.)
    NoSuchRow,
}

/// A counting update, or a counter, that counts once for each visitor and window; see the [module](self).
///
/// Made by [`UpdateStatement::once_per`], [`RowCounter::once_per`](crate::operation::RowCounter::once_per) and
/// [`Counter::once_per`](crate::operation::Counter::once_per). It is never [combined](crate::combine).
#[derive(Clone)]
#[must_use = "nothing is counted until it is told to `.count(conn)` or `.add(n, conn)`"]
pub struct OncePer<Of> {
    of: Of,
    visit: Visit,
}

shows!([Of] OncePer<Of>: |self| OncePer {
    window: self.visit.window, utc_offset: self.visit.utc_offset
} finish_non_exhaustive);

/// A visitor, and the windows in which a visit counts once.
#[derive(Clone)]
struct Visit {
    visitor: Vec<u8>,
    window: Duration,
    utc_offset: i32,
}

impl<Of> OncePer<Of> {
    fn new(of: Of, visitor: impl AsRef<[u8]>, window: Duration) -> Self {
        let visit = Visit {
            visitor: visitor.as_ref().to_vec(),
            window,
            utc_offset: 0,
        };
        OncePer { of, visit }
    }

    /// Begins windows in a time zone this many seconds ahead of UTC, or behind it if the number is negative: `3_600` for a day that
    /// begins at midnight in Berlin in winter. The default is 0. Another offset makes other windows.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use diesel_sharded::Counter;
    /// const DAY: Duration = Duration::from_secs(86_400);
    /// let visit = Counter::named("visitors").once_per("ann", DAY).utc_offset(3_600);
    /// # let _ = visit;
    /// ```
    pub fn utc_offset(mut self, seconds: i32) -> Self {
        self.visit.utc_offset = seconds;
        self
    }

    /// Adds `n` to a counter.
    async fn added<M>(&self, n: i64, link: &mut Link<'_, M>) -> QueryResult<Unique>
    where
        Of: OneCounter<M>,
        M: LoadIo,
    {
        self.of.begin(link).await?;
        let count = self.of.adding(n, link.dialect())?;
        self.visit.count(count, link).await
    }
}

impl<Q, V, Ins, Run> UpdateStatement<Q, Values<V>, NoReturning, Ins, Run> {
    /// Counts only once for each visitor, any bytes, and each window of 1 second to 100 years, in whole seconds. Only `.utc_offset(seconds)`
    /// and `.count(conn)` may follow. See [`unique`](crate::unique).
    pub fn once_per(self, visitor: impl AsRef<[u8]>, window: Duration) -> OncePer<Self> {
        OncePer::new(self, visitor, window)
    }
}

impl<C: ShardedColumn, Run> RowCounter<C, Run> {
    /// The same counter, which is added to only once for each visitor, any bytes, and each window of 1 second to 100 years, in whole seconds.
    /// See [`unique`](crate::unique).
    pub fn once_per(&self, visitor: impl AsRef<[u8]>, window: Duration) -> OncePer<Self> {
        OncePer::new(Self::of(self.column, self.key.clone()), visitor, window)
    }
}

impl<Run> Counter<Run> {
    /// The same counter, which is added to only once for each visitor, any bytes, and each window of 1 second to 100 years, in whole seconds.
    /// See [`unique`](crate::unique).
    pub fn once_per(&self, visitor: impl AsRef<[u8]>, window: Duration) -> OncePer<Self> {
        OncePer::new(Self::named(self.name()), visitor, window)
    }
}

pub use self::blocking::remove_expired;

paired! {
    /// Removes the rows of unique counts whose window ended more than five minutes ago, by the database's clock, and returns their number.
    ///
    /// Each 1,000 rows are removed in a separate transaction, so increments do not wait. Several processes may remove rows at once. Inside a
    /// transaction the removal is part of the caller's.
    ///
    /// ```sql
    /// SELECT … FROM "diesel_sharded_idempotency_keys" WHERE "expires" < now ORDER BY "expires", "created" LIMIT 1000;
    /// DELETE FROM "diesel_sharded_idempotency_keys" WHERE "key" IN ($1, …) AND "expires" < now
    /// ```
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel_migrations::MigrationHarness;
    /// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// # let conn = &mut SqliteConnection::establish(":memory:")?;
    /// # conn.run_pending_migrations(diesel_sharded::MIGRATIONS)?;
    /// let removed = diesel_sharded::unique::remove_expired(conn)?;
    /// # assert_eq!(removed, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The database's; [`MissingShardsTable`](Error::MissingShardsTable) if the library's migrations have not run.
    pub fn remove_expired(link: Link) -> QueryResult<usize>
    where
        DB: BackendOf<Conn>,
    {
        remove(Removable::Expired, usize::MAX, link).await
    }

    #[awaited(
        Q: Send, V: Send, Ins: Send,
        <UpdateStatement<Q, Values<V>, NoReturning, Ins, Run> as IntoCount<DB>>::Update: Send
    )]
    impl<Q, V, Ins> OncePer<UpdateStatement<Q, Values<V>, NoReturning, Ins, Run>>
    where
        UpdateStatement<Q, Values<V>, NoReturning, Ins, Run>: IntoCount<DB>,
        DB: BackendOf<Conn>,
    {
        /// Counts, unless the visitor was counted in this window before.
        ///
        /// # Errors
        /// Those of [`update`](crate::update()); [`InvalidWindow`](Error::InvalidWindow) for a window of another length, and
        /// [`MissingShardsTable`](Error::MissingShardsTable) if the library's migrations have not run.
        pub fn count(self, link: Link) -> QueryResult<Unique> {
            let OncePer { of, visit } = self;
            let count = of.into_count(link.dialect())?;
            visit.count(count, link).await
        }
    }

    impl<C: ShardedColumn> OncePer<RowCounter<C, Run>>
    where
        C: IntegerField<DB>,
        DB: BackendOf<Conn>;
    impl<> OncePer<Counter<Run>>
    where
        DB: CounterBackend<Conn>,
    {
        /// Adds `n`, which may be negative, unless the visitor was counted in this window before.
        ///
        /// # Errors
        /// Those of the counter's `add`; [`InvalidWindow`](Error::InvalidWindow) for a window of another length, and
        /// [`MissingShardsTable`](Error::MissingShardsTable) if the library's migrations have not run.
        pub fn add(&self, link: Link, n: i64) -> QueryResult<Unique> {
            self.added(n, link).await
        }
    }
}

/// The longest window, in seconds: 100 years.
const LONGEST: u64 = 3_155_760_000;

/// How long after its window a row expires, in seconds: the clocks of processes and databases differ.
const MARGIN: i64 = 300;

impl Visit {
    async fn count<U, M>(&self, count: Count<U>, link: &mut Link<'_, M>) -> QueryResult<Unique>
    where
        U: TypedUpdate<M::Backend>,
        M: LoadIo,
    {
        let retry = count.retry.clone().begun();
        let request = self.request(&count, retry.seconds_since_1970(), &link.backend())?;
        if is_known(link, &request, retry.clone()).await? {
            return Ok(Unique::Repeat);
        }
        let counted = once(link, &request, retry, &mut UpdateOnce(count)).await?;
        Ok(match counted {
            (_, false) => Unique::Repeat,
            (0, true) => Unique::NoSuchRow,
            (_, true) => Unique::Counted,
        })
    }

    /// The request of a visit at `now`, in seconds since 1970.
    fn request<DB, U>(&self, count: &Count<U>, now: i64, backend: &DB) -> QueryResult<Request>
    where
        DB: ShardedBackend,
        U: TypedUpdate<DB>,
    {
        let (begin, end) = self.window_at(now)?;
        let facts = &count.facts;
        let mut fields = facts.fields.to_vec();
        fields.sort_unstable(); // an update may name them in any order
        let mut row = format!("{} {fields:?} {begin} {end} ", facts.shards_table);
        let shown = backend.show(count.update.clauses(0).filter, &mut row);
        shown.map_err(|error| DieselError::QueryBuilderError(error.into()))?;
        let hash = Sha256::new()
            .chain_update((self.visitor.len() as u64).to_be_bytes())
            .chain_update(&self.visitor)
            .chain_update(row)
            .finalize();
        let (key, rest) = hash.split_at(16);
        Ok(Request {
            // No text begins with this byte, so no textual idempotency key is the same.
            key: [&[0xFF], key].concat(),
            fingerprint: (rest.iter().take(8)).fold(0, |all, byte| all << 8 | i64::from(*byte)),
            expires: Expiry::after(end.saturating_sub(now).saturating_add(MARGIN)),
        })
    }

    /// The first second of the window at `now`, and the first one after it.
    fn window_at(&self, now: i64) -> Result<(i64, i64), Error> {
        let Visit { window, .. } = *self;
        let length = match window.as_secs() {
            seconds @ 1..=LONGEST if window.subsec_nanos() == 0 => seconds as i64,
            _ => return Err(Error::InvalidWindow { window }),
        };
        let offset = i64::from(self.utc_offset);
        let begin = now - now.saturating_add(offset).rem_euclid(length);
        Ok((begin, begin.saturating_add(length)))
    }
}

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::test_schema::videos::dsl::*;
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::sqlite::Sqlite;

    fn visit(window: Duration, utc_offset: i32) -> Visit {
        let visitor = b"ann".to_vec();
        Visit {
            visitor,
            window,
            utc_offset,
        }
    }

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn windows_are_whole_multiples_of_their_length() {
        let window = |seconds, utc_offset, now| {
            let visit = visit(Duration::from_secs(seconds), utc_offset);
            visit.window_at(now).unwrap()
        };
        assert_eq!(window(86_400, 0, 0), (0, 86_400));
        assert_eq!(window(86_400, 0, 86_399), (0, 86_400));
        assert_eq!(window(86_400, 0, 86_400), (86_400, 172_800));
        assert_eq!(window(86_400, 3_600, 86_399), (82_800, 169_200));
        assert_eq!(window(86_400, -3_600, 86_400), (3_600, 90_000));
        assert_eq!(window(86_400, -3_600, 0), (-82_800, 3_600));
        assert_eq!(window(1, i32::MIN, 7), (7, 8));
        assert_eq!(window(LONGEST, i32::MAX, i64::MAX).1, i64::MAX);
    }

    fn request<DB: ShardedBackend>(
        visit: &Visit,
        update: impl IntoCount<DB>,
        now: i64,
    ) -> (String, i64, Expiry) {
        let backend = DB::default();
        let count = update.into_count(backend.dialect()).unwrap();
        let request = visit.request(&count, now, &backend).unwrap();
        let digits = request.key.iter().map(|byte| format!("{byte:02x}"));
        (digits.collect(), request.fingerprint, request.expires)
    }

    /// Another release must recognize the visitors that this one has counted.
    #[test]
    fn requests_stay_what_they_are() {
        let view = || crate::update(videos.find(7)).set(views.eq(views + 1));
        let requests = [
            request::<Pg>(&visit(DAY, 0), view(), 86_400),
            request::<Mysql>(&visit(DAY, 0), view(), 86_400),
            request::<Sqlite>(&visit(DAY, 0), view(), 172_799),
        ];
        let [postgres, mysql, sqlite] = requests.each_ref().map(|(key, ..)| &**key);
        assert_eq!(postgres, "ff4e363457590b1d9c09ee633abd05bd3a");
        // MySQL and SQLite quote the same way.
        assert_eq!([mysql, sqlite], ["ff3c2007b48ab3ffbb79a1a889a20e93cf"; 2]);
        let expires = requests.map(|(.., expires)| expires);
        assert_eq!(expires, [86_700, 86_700, 301].map(Expiry::after));
    }

    #[test]
    fn what_distinguishes_visits() {
        macro_rules! key {
            ($target:expr, $changes:expr, $window:expr, $now:expr) => {
                request::<Pg>(
                    &visit($window, 0),
                    crate::update($target).set($changes),
                    $now,
                )
                .0
            };
        }
        let view = || views.eq(views + 1);
        let hour = Duration::from_secs(3_600);
        let keys = [
            key!(videos.find(7), view(), DAY, 0),
            key!(videos.find(8), view(), DAY, 0),
            key!(videos.find(7), likes.eq(likes + 1), DAY, 0),
            key!(videos.find(7), (view(), likes.eq(likes + 1)), DAY, 0),
            key!(videos.filter(slug.eq("7")), view(), DAY, 0),
            key!(videos.find(7), view(), DAY, 86_400),
            key!(videos.find(7), view(), hour, 0),
        ];
        let different: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(different.len(), keys.len(), "{keys:?}");
        let other_amount = key!(videos.find(7), views.eq(views - 5), DAY, 86_399);
        assert_eq!(other_amount, keys[0]);
        let other_order = key!(videos.find(7), (likes.eq(likes + 1), view()), DAY, 0);
        assert_eq!(other_order, keys[3]);
        assert_eq!(key!(videos.filter(id.eq(7)), view(), DAY, 0), keys[0]);
    }
}
