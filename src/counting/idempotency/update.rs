//! Counting updates with an idempotency key.

use std::fmt::Write;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, Ordering};

use diesel::connection::LoadConnection;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryId};
use diesel::query_dsl::methods::ExecuteDsl;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel::sql_types::BigInt;
#[cfg(feature = "async")]
use diesel_async::AsyncConnection;

use super::keys::{FindKey, explained, insert_into, values};
use super::{Idempotent, Request, Requested, once};
use crate::backend::{BackendOf, ErrorDetail, OnceForm, SHARD_REMOVED, ShardedBackend};
use crate::conflict::{Conflict, ErrorClass};
#[cfg(feature = "async")]
use crate::connection::{Async, BoxFuture};
use crate::connection::{
    Link, LoadIo, clean_up, in_any_transaction, in_transaction, note_surplus, now,
    other_nodes_write,
};
use crate::counting::update::returning::NoReturning;
use crate::counting::update::{Count, IntoCount, TypedUpdate, UpdateStatement, Values};
use crate::engine::{self, SendStatement, Statement, Step};
use crate::error::Error;
use crate::per_process::random;
use crate::policy::RetryPolicy;
use crate::query_builder::{
    CountByKey, Identified, bind, has_rows, id, number_of_rows, sql, statements, walk,
};

impl<Query, V, Ins, Run> UpdateStatement<Query, Values<V>, NoReturning, Ins, Run> {
    /// Counts only if nothing was counted with this key before, in any process. A key has 1 to 255 bytes, such as a request's id.
    /// Only `.execute(conn)` may follow. See [`idempotency`](crate::idempotency).
    pub fn idempotency_key(self, key: impl AsRef<[u8]>) -> Idempotent<Self> {
        Idempotent::new(self, key)
    }
}

impl<Of, Conn> RunQueryDsl<Conn> for Idempotent<Of> {}

impl<Q, V, Ret, Ins, Conn, DB> ExecuteDsl<Conn, DB>
    for Idempotent<UpdateStatement<Q, Values<V>, Ret, Ins>>
where
    UpdateStatement<Q, Values<V>, Ret, Ins>: IntoCount<DB>,
    Conn: LoadConnection<Backend = DB>,
    DB: BackendOf<Conn>,
{
    fn execute(update: Self, conn: &mut Conn) -> QueryResult<usize> {
        let link = &mut Link::blocking(conn);
        let mut count = UpdateOnce(update.of.into_count(link.dialect())?);
        let request = request(&count.0, &update.key, &link.backend())?;
        let retry = count.0.retry.clone();
        Ok(now(once(link, &request, retry, &mut count))?.0)
    }
}

/// An update that is counted once for its key.
pub(crate) struct UpdateOnce<U>(pub(crate) Count<U>);

impl<M, U> Requested<M> for UpdateOnce<U>
where
    M: LoadIo,
    U: TypedUpdate<M::Backend>,
{
    /// Outside a caller's transaction, one statement can claim the key and count, if the update is by key. It does neither if the
    /// idempotency key is known, or the shard is missing.
    async fn count_at_once(
        &mut self,
        link: &mut Link<'_, M>,
        request: &Request,
        retry: &RetryPolicy,
    ) -> QueryResult<Option<usize>> {
        let mut facts = self.0.facts;
        facts.once = true;
        let may_be_tried = facts.by_key && !in_transaction(link)?;
        let form = match facts.dialect.counts_once_by() {
            Some(OnceForm::Compound) if !may_be_sent() => None,
            form => form.filter(|_| may_be_tried),
        };
        let Some(form) = form else {
            return Ok(None);
        };
        let mut counting = Once {
            count: &mut self.0,
            request,
            claim: i64::from_ne_bytes(random()?),
            form,
        };
        match engine::count(link, facts, retry.clone(), &mut counting).await {
            Ok(0) => Ok(None),
            Ok(counted) => Ok(Some(counted)),
            Err(error) => Err(explained(link, error)),
        }
    }

    /// The increment stays in the transaction that claims its key, and is never combined.
    async fn carry_out(&mut self, link: &mut Link<'_, M>) -> QueryResult<usize> {
        let (facts, retry) = (self.0.facts, self.0.retry.clone());
        engine::count(link, facts, retry, &mut self.0).await
    }
}

/// The request that the idempotency key stands for.
fn request<DB, U>(count: &Count<U>, key: &[u8], backend: &DB) -> QueryResult<Request>
where
    U: TypedUpdate<DB>,
    DB: ShardedBackend,
{
    let clauses = count.update.clauses(0);
    let request = Request::new(key, |text| {
        text.write_str(count.facts.shards_table.as_str())?;
        backend.show(clauses.changes, text)?;
        backend.show(clauses.filter, text)?;
        clauses
            .insert
            .map_or(Ok(()), |insert| backend.show(insert, text))
    })?;
    Ok(request)
}

#[cfg(feature = "async")]
impl<Q, V, Ret, Ins> Idempotent<UpdateStatement<Q, Values<V>, Ret, Ins, Async>> {
    /// Counts, unless this was done before, and returns the number of rows.
    ///
    /// # Errors
    /// As [`update`](crate::update())'s, and those of [`idempotency`](crate::idempotency).
    pub fn execute<'c, Conn, DB>(self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<usize>>
    where
        UpdateStatement<Q, Values<V>, Ret, Ins, Async>: IntoCount<DB, Update: Send + 'c>,
        Conn: AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        let mut link = Link::awaited(conn);
        let count = self.of.into_count(link.dialect());
        Box::pin(async move {
            let count = count?;
            let request = request(&count, &self.key, &link.backend())?;
            let retry = count.retry.clone();
            Ok(once(&mut link, &request, retry, &mut UpdateOnce(count))
                .await?
                .0)
        })
    }
}

/// Sends an update's statements, and the one that also claims a key.
struct Once<'a, U> {
    count: &'a mut Count<U>,
    request: &'a Request,
    claim: i64,
    form: OnceForm,
}

impl<M, U> SendStatement<M> for Once<'_, U>
where
    M: LoadIo,
    U: TypedUpdate<M::Backend>,
{
    async fn send(&mut self, link: &mut Link<'_, M>, step: Step) -> QueryResult<usize> {
        if step.statement != Statement::CountOnce {
            return self.count.send(link, step).await;
        }
        let count = CountOnce {
            request: self.request,
            claim: self.claim,
            count: CountByKey(self.count.update.clauses(step.shard)),
        };
        let count = Identified::<CountOnceId<U::Id>, _>::new(count);
        let sent = link.execute_prepared(count).await;
        match self.form {
            OnceForm::With => sent,
            OnceForm::Compound => self.compound_ended(link, sent).await,
        }
    }
}

impl<U> Once<'_, U> {
    /// The outcome of the compound statement: 1 if it counted, 0 if it did nothing for a reason that a transaction may cure.
    async fn compound_ended<M: LoadIo>(
        &mut self,
        link: &mut Link<'_, M>,
        sent: QueryResult<usize>,
    ) -> QueryResult<usize> {
        let dialect = link.dialect();
        let error = match sent {
            Ok(_) => {
                KNOWN.store(COUNTS, Ordering::Relaxed);
                return Ok(1);
            }
            Err(error) if dialect.has_detail(&error, ErrorDetail::RefusedInside) => return Ok(0),
            Err(error) => explained(link, error),
        };
        if dialect.has_detail(&error, ErrorDetail::Syntax) {
            KNOWN.store(REFUSED, Ordering::Relaxed);
            return Ok(0);
        }
        let class = dialect.classify(&error);
        if class == ErrorClass::ConnectionLost {
            return Err(error);
        }
        clean_up(link, &undo(self.claim)).await;
        if did_nothing(&error) {
            return Ok(0);
        }
        let timed_out = class == ErrorClass::Conflict(Conflict::StatementTimeout);
        let is_undone = !timed_out && dialect.is_refusal(&error, false);
        if is_undone {
            return Err(error);
        }
        note_surplus(link).await;
        // A statement that is killed after its COMMIT fails like one that did nothing.
        match self.has_counted(link).await {
            Ok(true) => Ok(1),
            // A server that does not know the syntax may say so in another language.
            Ok(false) if class == ErrorClass::Other && KNOWN.load(Ordering::Relaxed) != COUNTS => {
                Ok(0)
            }
            Ok(false) => Err(error),
            // The table of keys is missing.
            Err(_) if !matches!(error, DieselError::DatabaseError(..)) => Err(error),
            Err(_) => Err(Error::OutcomeUnknown { source: error }.into()),
        }
    }

    /// Whether this statement wrote the key's row. If a transaction is open now, it is the caller's, and the statement did nothing.
    async fn has_counted<M: LoadIo>(&mut self, link: &mut Link<'_, M>) -> QueryResult<bool> {
        if in_any_transaction(link).await? {
            return Ok(false);
        }
        let rows = link.load(FindKey([&self.request.key])).await?;
        Ok(rows
            .first()
            .is_some_and(|(_, _, claim, _)| *claim == self.claim))
    }
}

statements! {
    /// Claims a key and counts, and meets one row; or does neither and meets none, if the key is known or the shard is missing.
    ///
    /// ```sql
    /// -- PostgreSQL; if the shard was removed since the statement began, it fails
    /// WITH "sharded_claimed" AS (
    ///     INSERT INTO "diesel_sharded_idempotency_keys" ("key", "fingerprint", "claim", "counted", "created", "expires")
    ///     SELECT $1, $2, $3, 1, now, $4
    ///     WHERE EXISTS (SELECT 1 FROM "videos_shards" AS "videos" WHERE ("videos"."id" = $5) AND "videos"."shard" = $6)
    ///     ON CONFLICT ("key") DO NOTHING RETURNING 1),
    /// "sharded_counted" AS (
    ///     UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $7)
    ///     WHERE ("videos"."id" = $8) AND "videos"."shard" = $9 AND EXISTS (SELECT 1 FROM "sharded_claimed") RETURNING 1)
    /// SELECT 1 FROM "sharded_claimed"
    /// WHERE CAST(CASE WHEN (SELECT COUNT(*) FROM "sharded_claimed") = (SELECT COUNT(*) FROM "sharded_counted")
    ///     THEN '1' ELSE 'diesel_sharded: …' END AS BOOLEAN)
    /// -- MariaDB; inside a transaction it fails at its first step, before the handler that rolls back
    /// BEGIN NOT ATOMIC
    ///     SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    ///     SET @diesel_sharded_once = ?;
    ///     BEGIN
    ///         DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    ///         START TRANSACTION;
    ///         INSERT INTO `diesel_sharded_idempotency_keys` (…) VALUES (?, ?, ?, 1, now, ?);
    ///         UPDATE `videos_shards` AS `videos` SET …;
    ///         IF ROW_COUNT() <> 1 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'diesel_sharded: …'; END IF;
    ///         COMMIT;
    ///     END;
    /// END
    /// ```
    struct CountOnce<'a> {
        request: &'a Request,
        claim: i64,
        count: CountByKey<'a, DB>,
    }: Prepare;
    |self, out| {
        if out.backend().dialect().counts_once_by() == Some(OnceForm::Compound) {
            return self.walk_compound(out);
        }
        let clauses = &self.count.0;
        let table = clauses.names;
        // The `EXISTS` comes first, so that a missing shard is no error: that would abort a transaction that Diesel does not know of.
        sql!(out;
            "WITH ", id(CLAIMED), " AS (", insert_into(),
            " SELECT ", values(self.request, &self.claim, None),
            " WHERE EXISTS (SELECT 1 FROM ", table.shards_as_parent(), table.aliased(clauses.filter),
            " AND ", table.shard_is(&clauses.shard), ") ON CONFLICT (", id("key"), ") DO NOTHING RETURNING 1), ",
            id(COUNTED), " AS (", walk(&self.count), " AND ", has_rows(CLAIMED), " RETURNING 1) SELECT 1 FROM ", id(CLAIMED),
            " WHERE CAST(CASE WHEN ", number_of_rows(CLAIMED), " = ", number_of_rows(COUNTED),
            " THEN '1' ELSE '", SHARD_REMOVED, "' END AS BOOLEAN)")
    }
}

/// The id of [`CountOnce`] for an update.
#[derive(QueryId)]
struct CountOnceId<Update>(PhantomData<Update>);

const CLAIMED: &str = "sharded_claimed";
const COUNTED: &str = "sharded_counted";

impl<DB: ShardedBackend> CountOnce<'_, DB> {
    fn walk_compound<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        sql!(out;
            "BEGIN NOT ATOMIC SET TRANSACTION ISOLATION LEVEL READ COMMITTED; ",
            "SET @diesel_sharded_once = ", bind(BigInt, &self.claim), "; ",
            "BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END; START TRANSACTION; ",
            insert_into(), " VALUES (", values(self.request, &self.claim, None), "); ",
            walk(&self.count), "; IF ROW_COUNT() <> 1 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '", SHARD_MISSING,
            "'; END IF; COMMIT; END; END")
    }
}

/// The error by which the statement rolls back its key if it finds no shard.
const SHARD_MISSING: &str = "diesel_sharded: the shard is missing";

/// What this process knows about the compound statement.
static KNOWN: AtomicU8 = AtomicU8::new(UNTRIED);

const UNTRIED: u8 = 0;
/// It has counted.
const COUNTS: u8 = 1;
/// A server does not know its syntax, as is the case with MySQL.
const REFUSED: u8 = 2;

/// Whether the compound statement may be sent. If other nodes write too, transactions need a guard, and this statement has none.
fn may_be_sent() -> bool {
    KNOWN.load(Ordering::Relaxed) != REFUSED && !other_nodes_write()
}

/// Whether the key is known, or the shard is missing.
fn did_nothing(error: &DieselError) -> bool {
    match error {
        DieselError::DatabaseError(DatabaseErrorKind::UniqueViolation, _) => true,
        DieselError::DatabaseError(_, information) => information.message() == SHARD_MISSING,
        _ => false,
    }
}

/// Rolls back the transaction that the statement with this claim has begun, and undoes its isolation level: a statement that is killed does
/// not reach its handler. Its variable distinguishes its transaction from the caller's. On MySQL nothing happens.
fn undo(claim: i64) -> String {
    format!(
        "/*M!100000 BEGIN NOT ATOMIC IF @@in_transaction AND @diesel_sharded_once = {claim} THEN ROLLBACK; END IF; \
         IF NOT @@in_transaction THEN SET @@tx_isolation = @@session.tx_isolation; END IF; END */ /*!50720 DO 0 */"
    )
}

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::query_builder::{Clauses, Names, Prepared, UpdateId};
    use crate::test_schema::videos::dsl::*;
    use crate::test_schema::{sql, videos as table};
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::query_builder::{AsChangeset, IntoUpdateTarget};
    use diesel::sqlite::Sqlite;

    fn request_of<DB: ShardedBackend>(update: impl IntoCount<DB>) -> Request {
        let backend = DB::default();
        let count = update.into_count(backend.dialect()).unwrap();
        request(&count, b"key", &backend).unwrap()
    }

    /// Another release must recognize the updates that this one has counted: as long as Diesel writes updates in the same way,
    /// these numbers stay.
    #[test]
    fn fingerprints_stay_what_they_are() {
        let added = Request::to_add(b"key", "videos.views:7", 1).map(|added| added.fingerprint);
        assert_eq!(added.unwrap(), 2168550578216979576);
        let update = || crate::update(videos.find(7)).set(views.eq(views + 1));
        let fingerprints = [
            request_of::<Pg>(update()),
            request_of::<Mysql>(update()),
            request_of::<Sqlite>(update()),
        ];
        assert_eq!(
            fingerprints.map(|request| request.fingerprint),
            // MySQL and SQLite quote the same way.
            [
                2366884638119216392,
                4743227850791024172,
                4743227850791024172
            ]
        );
    }

    #[test]
    fn other_updates_have_other_fingerprints() {
        macro_rules! fingerprint {
            ($target:expr, $changes:expr $(, $row:expr)?) => {{
                let update = crate::update($target).set($changes)$(.or_insert($row))?;
                request_of::<Pg>(update).fingerprint
            }};
        }
        let all = [
            fingerprint!(videos.find(7), views.eq(views + 1)),
            fingerprint!(videos.find(8), views.eq(views + 1)),
            fingerprint!(videos.find(7), views.eq(views + 2)),
            fingerprint!(videos.find(7), views.eq(views - 1)),
            fingerprint!(videos.find(7), likes.eq(likes + 1)),
            fingerprint!(videos.filter(slug.eq("7")), views.eq(views + 1)),
            fingerprint!(videos.filter(slug.eq("8")), views.eq(views + 1)),
            fingerprint!(videos.find(7), views.eq(views + 1), slug.eq("7")),
            fingerprint!(videos.find(7), views.eq(views + 1), slug.eq("8")),
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len(), "{all:?}");
    }

    macro_rules! count_once {
        (|$count:ident| $used:expr) => {{
            let changes = views.eq(views + 1).as_changeset();
            let filter = videos.find(7).into_update_target().where_clause;
            let request = Request::new(b"a", |_| Ok(())).unwrap();
            let $count = CountOnce {
                request: &request,
                claim: 12,
                count: CountByKey(Clauses {
                    names: Names::of::<table::table>(),
                    changes: &changes,
                    filter: &filter,
                    insert: None,
                    shard: 3,
                }),
            };
            $used
        }};
    }

    #[test]
    fn with_clauses_claim_and_count_or_do_neither() {
        let claimed = r#"INSERT INTO "diesel_sharded_idempotency_keys" ("key", "fingerprint", "claim", "counted", "created", "expires") SELECT $1, $2, $3, 1, EXTRACT(EPOCH FROM statement_timestamp())::BIGINT, EXTRACT(EPOCH FROM statement_timestamp())::BIGINT * $4 + $5 WHERE EXISTS (SELECT 1 FROM "videos_shards" AS "videos" WHERE ("videos"."id" = $6) AND "videos"."shard" = $7) ON CONFLICT ("key") DO NOTHING RETURNING 1"#;
        let counted = r#"UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $8) WHERE ("videos"."id" = $9) AND "videos"."shard" = $10 AND EXISTS (SELECT 1 FROM "sharded_claimed") RETURNING 1"#;
        let together = r#"SELECT 1 FROM "sharded_claimed" WHERE CAST(CASE WHEN (SELECT COUNT(*) FROM "sharded_claimed") = (SELECT COUNT(*) FROM "sharded_counted") THEN '1' ELSE 'diesel_sharded: the shard was removed meanwhile' END AS BOOLEAN)"#;
        assert_eq!(
            count_once!(|count| sql!(Pg, count)),
            format!(
                r#"WITH "sharded_claimed" AS ({claimed}), "sharded_counted" AS ({counted}) {together}"#
            )
        );
        let kept = count_once!(|count| sql!(
            Pg,
            Prepared::new(Identified::<CountOnceId<()>, _>::new(count), &Pg)
        ));
        assert!(kept.contains(r#"END AS BOOLEAN) AND CAST(CASE WHEN $11 = decode("#));
    }

    #[test]
    fn a_compound_statement_is_a_transaction_of_its_own() {
        let insert = "INSERT INTO `diesel_sharded_idempotency_keys` (`key`, `fingerprint`, `claim`, `counted`, `created`, `expires`) VALUES (?, ?, ?, 1, CAST(UNIX_TIMESTAMP() AS SIGNED), CAST(UNIX_TIMESTAMP() AS SIGNED) * ? + ?)";
        let update = "UPDATE `videos_shards` AS `videos` SET `views` = (`videos`.`views` + ?) WHERE (`videos`.`id` = ?) AND `videos`.`shard` = ?";
        let begin = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET @diesel_sharded_once = ?; BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END; START TRANSACTION";
        let check = "IF ROW_COUNT() <> 1 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'diesel_sharded: the shard is missing'; END IF";
        assert_eq!(
            count_once!(|count| sql!(Mysql, count)),
            format!("BEGIN NOT ATOMIC {begin}; {insert}; {update}; {check}; COMMIT; END; END")
        );
    }

    #[test]
    fn the_statement_stays_prepared() {
        fn is_static<V: QueryId, W: QueryId>(_: V, _: W) -> bool {
            CountOnceId::<UpdateId<table::table, W, V>>::HAS_STATIC_QUERY_ID
        }
        let filter = videos.find(7).into_update_target().where_clause;
        assert!(is_static(views.eq(views + 1), filter));
    }

    #[test]
    fn the_reasons_to_begin_a_transaction() {
        let error = |kind, text: &str| DieselError::DatabaseError(kind, Box::new(text.to_owned()));
        let duplicate = "Duplicate entry 'a' for key 'PRIMARY'";
        assert!(did_nothing(&error(
            DatabaseErrorKind::UniqueViolation,
            duplicate
        )));
        let unknown = |text| did_nothing(&error(DatabaseErrorKind::Unknown, text));
        assert!(unknown(SHARD_MISSING));
        assert!(!unknown("Query execution was interrupted"));
        assert!(!did_nothing(&DieselError::NotFound));
    }
}
