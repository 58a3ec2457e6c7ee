//! Increments that are added if and when a transaction commits.

use std::error::Error as StdError;

use diesel::connection::LoadConnection;
use diesel::prelude::*;
use diesel::result::Error as DieselError;

use crate::backend::BackendOf;
#[cfg(feature = "async")]
use crate::connection::{BoxFuture, Link};
use crate::counting::retry::Transaction;
#[cfg(feature = "async")]
use crate::counting::retry::asynchronous::AsyncAttempt;
#[cfg(feature = "async")]
use crate::engine::{AttemptError, retry_loop};
#[cfg(doc)]
use crate::error::Error;
use crate::model::shows;

use super::sums::Fields;
use super::{Coalesced, Coalescer};

/// Increments that wait for the commit of a transaction; made by [`Coalescer::transaction`].
#[must_use = "they count when the transaction has committed"]
pub struct Counts<Conn>(Fields<Conn>);

impl<Conn> Counts<Conn>
where
    Conn: LoadConnection + 'static,
    Conn::Backend: BackendOf<Conn>,
{
    fn none() -> Self {
        Counts(Fields::default())
    }

    /// Counts them, once their transaction has committed.
    fn hand_to(self, coalescer: &Coalescer<Conn>) -> QueryResult<()> {
        Ok(coalescer.owner.buffer.absorb(self.0)?)
    }

    /// Adds `n`, which may be negative, once the transaction has committed.
    ///
    /// # Errors
    /// [`InvalidCounterName`](Error::InvalidCounterName) for an invalid name.
    pub fn add<K: Coalesced<Conn, Sum = i128>>(&mut self, counter: &K, n: i64) -> QueryResult<()> {
        let key = counter.key()?;
        if n != 0 {
            self.0.add::<K>(key, n.into());
        }
        Ok(())
    }
}

shows!([Conn: LoadConnection + 'static] Counts<Conn>: |self| Counts { counters: self.0.len() } finish_non_exhaustive);

impl<Conn> Coalescer<Conn>
where
    Conn: LoadConnection + 'static,
    Conn::Backend: BackendOf<Conn>,
{
    /// Runs `f` in a transaction on `conn`, as [`retry::transaction`](crate::retry::transaction()) does, and adds its increments when the
    /// transaction has committed. A transaction that is rolled back counts nothing, and one that is retried counts once.
    ///
    /// The transaction holds no lock on a shard, so it may be a long one: the increments are committed after it, as by
    /// [`add_later`](Self::add_later). A crash between the two commits loses them. They are accepted even if the queue is full. If that
    /// must not happen, count by [`update`](crate::update()) in the transaction.
    ///
    /// ```
    /// # mod schema { diesel::table! { videos (id) { id -> BigInt, title -> Text, views -> BigInt, } } }
    /// # use schema::videos::{self, dsl::{id, title, videos as all, views}};
    /// # use diesel_migrations::MigrationHarness;
    /// # #[derive(diesel_sharded::ShardedField)]
    /// # #[diesel(table_name = videos)]
    /// # struct Video { id: i64, #[sharded] views: i64 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// # let file = std::env::temp_dir().join(format!("sharded_after_commit_{}.db", std::process::id()));
    /// # let url = file.display().to_string();
    /// # let conn = &mut SqliteConnection::establish(&url)?;
    /// # diesel::sql_query("CREATE TABLE videos (id INTEGER PRIMARY KEY, title TEXT NOT NULL, views BIGINT NOT NULL)").execute(conn)?;
    /// # diesel::insert_into(all).values((id.eq(7), title.eq(""), views.eq(100))).execute(conn)?;
    /// # diesel_sharded::ShardsTable::of(videos::table).create(conn)?;
    /// # conn.run_pending_migrations(diesel_sharded::MIGRATIONS)?;
    /// # use diesel::r2d2::{ConnectionManager, Pool};
    /// # let coalescer = diesel_sharded::coalescer::Coalescer::new(Pool::new(ConnectionManager::<SqliteConnection>::new(&url))?)?;
    /// use diesel::prelude::*;
    /// use diesel_sharded::RowCounter;
    ///
    /// let views_of_7 = RowCounter::of(views, 7);
    /// coalescer.transaction(conn, |conn, counts| {
    ///     counts.add(&views_of_7, 1)?;
    ///     diesel::update(all.find(7)).set(title.eq("zoo")).execute(conn)
    /// })?;
    ///
    /// coalescer.close()?; // commits the increment
    /// assert_eq!(views_of_7.get(conn)?, Some(101));
    /// # std::fs::remove_file(file)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of `f` and of [`retry::transaction`](crate::retry::transaction()), with nothing counted;
    /// [`AlreadyInTransaction`](diesel::result::Error::AlreadyInTransaction) inside an open transaction, whose commit the coalescer would
    /// not see; [`CommittedNotCounted`](Error::CommittedNotCounted) if the coalescer is closed while the transaction runs;
    /// [`MadeBeforeFork`](Error::MadeBeforeFork) before it begins.
    pub fn transaction<C, T, E, F>(&self, conn: &mut C, mut f: F) -> Result<T, E>
    where
        C: Connection,
        C::Backend: BackendOf<C>,
        F: FnMut(&mut C, &mut Counts<Conn>) -> Result<T, E>,
        E: From<DieselError> + StdError + 'static,
    {
        self.owner.checked().map_err(DieselError::from)?;
        let mut counts = Counts::none();
        let value = Transaction::new().outermost().run(conn, |conn| {
            counts = Counts::none();
            f(conn, &mut counts)
        })?;
        counts.hand_to(self)?;
        Ok(value)
    }

    /// [`transaction`](Self::transaction) on a connection of `diesel_async`, with an async closure of one argument:
    /// `async |(conn, counts)| …`.
    ///
    /// # Errors
    /// As [`transaction`](Self::transaction)'s.
    #[cfg(feature = "async")]
    pub fn transaction_async<'c, C, T, E, F>(
        &'c self,
        conn: &'c mut C,
        mut f: F,
    ) -> BoxFuture<'c, Result<T, E>>
    where
        C: diesel_async::AsyncConnection,
        C::Backend: BackendOf<C>,
        for<'r> F: AsyncAttempt<(&'r mut C, &'r mut Counts<Conn>), Result<T, E>> + Send + 'c,
        T: Send + 'c,
        E: From<DieselError> + StdError + Send + 'static,
    {
        Box::pin(async move {
            self.owner.checked().map_err(DieselError::from)?;
            let mut counts = Counts::none();
            let link = &mut Link::awaited(conn);
            let mut retry = Transaction::new().outermost().retry_loop(link)?;
            link.enter();
            let done = retry_loop!(link, retry => {
                counts = Counts::none();
                let attempted = retry.scope().within(f.attempt((link.conn, &mut counts)));
                attempted.await.map_err(AttemptError::Application)
            });
            link.leave();
            let value = done?;
            counts.hand_to(self)?;
            Ok(value)
        })
    }
}
