//! A key and its count in one statement, which commits by itself: one round trip instead of a transaction.

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::{AsChangeset, AstPass, QueryFragment, QueryId};

use super::compound::{self, SAVEPOINT, SHARD_MISSING};
use super::keys::{explained, insert_into, values};
use super::request::Request;
use crate::backend::{OnceForm, SHARD_REMOVED, ShardedBackend};
use crate::connection::{Io, Link};
use crate::engine::{self, Plan, SendStep, Sender, Statement, explain};
use crate::model::ShardedTable;
use crate::operation::update::Ready;
use crate::per_process::random;
use crate::query_builder::{
    CountByKey, Identified, Prepare, has_rows, id, number_of_rows, sql, walk,
};

/// Claims the key and counts, where one statement can do that: outside a caller's transaction, by key. `None` if it cannot, or if it
/// did neither: the key is known, or the shard is not there.
pub(super) async fn count_at_once<M, Conn, DB, T, V, W, I>(
    link: &mut Link<'_, M, Conn>,
    ready: &mut Ready<T, V, W, I>,
    request: &Request,
) -> QueryResult<Option<usize>>
where
    M: Io<Conn, Backend = DB>,
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB> + QueryId,
    V: AsChangeset<Target = T, Changeset: QueryFragment<DB>> + QueryId,
    W: QueryFragment<DB> + QueryId,
    I: QueryFragment<DB> + QueryId,
{
    let plan = ready.plan(link)?;
    let may_be_tried = plan.by_key && !plan.in_transaction;
    let form = match plan.dialect.counts_once_by() {
        Some(OnceForm::Compound) if !compound::may_be_sent() => None,
        form => form.filter(|_| may_be_tried),
    };
    let Some(form) = form else {
        return Ok(None);
    };
    let plan = Plan { once: true, ..plan };
    let (claim, retry) = (i64::from_ne_bytes(random()?), ready.retry());
    let mut sender = Once {
        ready,
        request,
        claim,
        form,
    };
    match engine::count(link, plan, retry, &mut sender).await {
        Ok(0) => Ok(None),
        Ok(counted) => Ok(Some(counted)),
        Err(error) => {
            let error = explained(link, error);
            Err(explain::<T, DB>(&link.backend(), error))
        }
    }
}

/// Sends an update's statements, and the one that claims a key too.
struct Once<'a, T, V: AsChangeset, W, I> {
    ready: &'a mut Ready<T, V, W, I>,
    request: &'a Request,
    claim: i64,
    form: OnceForm,
}

impl<M, Conn, DB, T, V, W, I> Sender<M, Conn> for Once<'_, T, V, W, I>
where
    M: Io<Conn, Backend = DB>,
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB> + QueryId,
    V: AsChangeset<Target = T, Changeset: QueryFragment<DB>> + QueryId,
    W: QueryFragment<DB> + QueryId,
    I: QueryFragment<DB> + QueryId,
{
    async fn send(
        &mut self,
        link: &mut Link<'_, M, Conn>,
        statement: Statement,
        shard: i32,
    ) -> QueryResult<usize> {
        if statement != Statement::CountOnce {
            return self.ready.send_step(link, statement, shard).await;
        }
        let count = CountOnce {
            key: &self.request.key,
            fingerprint: self.request.fingerprint,
            claim: self.claim,
            count: CountByKey(self.ready.parts(shard)),
        };
        let count = Identified::<CountOnceId<T, W, V>, _>::new(count);
        let sent = link.execute_prepared(count).await;
        match self.form {
            OnceForm::With => sent,
            OnceForm::Compound => compound::ended(link, sent).await,
        }
    }
}

/// Claims a key and counts, and meets one row; or does neither and meets none, where the key is known or the shard is missing.
///
/// ```sql
/// -- PostgreSQL; if the shard was removed since the statement began, it fails
/// WITH "sharded_claimed" AS (
///     INSERT INTO "diesel_sharded_idempotency_keys" ("key", "fingerprint", "claim", "counted", "created")
///     SELECT $1, $2, $3, 1, now
///     WHERE EXISTS (SELECT 1 FROM "videos_shards" AS "videos" WHERE ("videos"."id" = $4) AND "videos"."shard" = $5)
///     ON CONFLICT ("key") DO NOTHING RETURNING 1),
/// "sharded_counted" AS (
///     UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $6)
///     WHERE ("videos"."id" = $7) AND "videos"."shard" = $8 AND EXISTS (SELECT 1 FROM "sharded_claimed") RETURNING 1)
/// SELECT 1 FROM "sharded_claimed"
/// WHERE CAST(CASE WHEN (SELECT COUNT(*) FROM "sharded_claimed") = (SELECT COUNT(*) FROM "sharded_counted")
///     THEN '1' ELSE 'diesel_sharded: …' END AS BOOLEAN)
/// -- MariaDB; inside a transaction it fails at its first step, before the handler that rolls back
/// BEGIN NOT ATOMIC
///     SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
///     BEGIN
///         DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
///         START TRANSACTION;
///         SAVEPOINT diesel_sharded_once;
///         INSERT INTO `diesel_sharded_idempotency_keys` (…) VALUES (?, ?, ?, 1, now);
///         UPDATE `videos_shards` AS `videos` SET …;
///         IF ROW_COUNT() <> 1 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'diesel_sharded: …'; END IF;
///         COMMIT;
///     END;
/// END
/// ```
struct CountOnce<'a, DB: ShardedBackend> {
    key: &'a [u8],
    fingerprint: i64,
    claim: i64,
    count: CountByKey<'a, DB>,
}

/// The id of [`CountOnce`] for changes `V` and a filter `W`.
#[derive(QueryId)]
struct CountOnceId<T, W, V>(PhantomData<(T, W, V)>);

const CLAIMED: &str = "sharded_claimed";
const COUNTED: &str = "sharded_counted";

impl<DB: ShardedBackend> QueryFragment<DB> for CountOnce<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        if out.backend().dialect().counts_once_by() == Some(OnceForm::Compound) {
            return self.walk_compound(out);
        }
        let parts = &self.count.0;
        let table = parts.names;
        // The look comes first, so that a missing shard is no error, which would abort a transaction that Diesel does not know.
        sql!(out;
            "WITH ", id(CLAIMED), " AS (", insert_into(),
            " SELECT ", values(self.row(), None),
            " WHERE EXISTS (SELECT 1 FROM ", table.shards_as_parent(), table.aliased(parts.filter),
            " AND ", table.shard_is(&parts.shard), ") ON CONFLICT (", id("key"), ") DO NOTHING RETURNING 1), ",
            id(COUNTED), " AS (", walk(&self.count), " AND ", has_rows(CLAIMED), " RETURNING 1) SELECT 1 FROM ", id(CLAIMED),
            " WHERE CAST(CASE WHEN ", number_of_rows(CLAIMED), " = ", number_of_rows(COUNTED),
            " THEN '1' ELSE '", SHARD_REMOVED, "' END AS BOOLEAN)")
    }
}

impl<DB: ShardedBackend> CountOnce<'_, DB> {
    fn walk_compound<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        sql!(out;
            "BEGIN NOT ATOMIC SET TRANSACTION ISOLATION LEVEL READ COMMITTED; ",
            "BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END; ",
            "START TRANSACTION; SAVEPOINT ", SAVEPOINT, "; ",
            insert_into(), " VALUES (", values(self.row(), None), "); ",
            walk(&self.count), "; IF ROW_COUNT() <> 1 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '", SHARD_MISSING,
            "'; END IF; COMMIT; END; END")
    }

    /// The values of the key's row.
    fn row(&self) -> (&[u8], &i64, &i64) {
        (self.key, &self.fingerprint, &self.claim)
    }
}

impl<DB: ShardedBackend> Prepare<DB> for CountOnce<'_, DB> {}

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::query_builder::{Names, Parts, Prepared};
    use crate::test_schema::videos::dsl::*;
    use crate::test_schema::{sql, videos as table};
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::query_builder::IntoUpdateTarget;

    macro_rules! count_once {
        (|$count:ident| $used:expr) => {{
            let changes = views.eq(views + 1).as_changeset();
            let filter = videos.find(7).into_update_target().where_clause;
            let $count = CountOnce {
                key: b"a",
                fingerprint: 11,
                claim: 12,
                count: CountByKey(Parts {
                    names: Names::of::<table::table>(),
                    changes: &changes,
                    filter: &filter,
                    shard: 3,
                }),
            };
            $used
        }};
    }

    #[test]
    fn with_clauses_claim_and_count_or_do_neither() {
        let claimed = r#"INSERT INTO "diesel_sharded_idempotency_keys" ("key", "fingerprint", "claim", "counted", "created") SELECT $1, $2, $3, 1, EXTRACT(EPOCH FROM statement_timestamp())::BIGINT WHERE EXISTS (SELECT 1 FROM "videos_shards" AS "videos" WHERE ("videos"."id" = $4) AND "videos"."shard" = $5) ON CONFLICT ("key") DO NOTHING RETURNING 1"#;
        let counted = r#"UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $6) WHERE ("videos"."id" = $7) AND "videos"."shard" = $8 AND EXISTS (SELECT 1 FROM "sharded_claimed") RETURNING 1"#;
        let together = r#"SELECT 1 FROM "sharded_claimed" WHERE CAST(CASE WHEN (SELECT COUNT(*) FROM "sharded_claimed") = (SELECT COUNT(*) FROM "sharded_counted") THEN '1' ELSE 'diesel_sharded: the shard was removed meanwhile' END AS BOOLEAN)"#;
        assert_eq!(
            count_once!(|count| sql!(Pg, count)),
            format!(
                r#"WITH "sharded_claimed" AS ({claimed}), "sharded_counted" AS ({counted}) {together}"#
            )
        );
        let kept = count_once!(|count| sql!(
            Pg,
            Prepared::new(Identified::<CountOnceId<(), (), ()>, _>::new(count), &Pg)
        ));
        assert!(kept.contains(r#"END AS BOOLEAN) AND CAST(CASE WHEN $9 = decode("#));
    }

    #[test]
    fn a_compound_statement_is_a_transaction_of_its_own() {
        let insert = "INSERT INTO `diesel_sharded_idempotency_keys` (`key`, `fingerprint`, `claim`, `counted`, `created`) VALUES (?, ?, ?, 1, CAST(UNIX_TIMESTAMP() AS SIGNED))";
        let update = "UPDATE `videos_shards` AS `videos` SET `views` = (`videos`.`views` + ?) WHERE (`videos`.`id` = ?) AND `videos`.`shard` = ?";
        let begin = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END; START TRANSACTION; SAVEPOINT diesel_sharded_once";
        let check = "IF ROW_COUNT() <> 1 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'diesel_sharded: the shard is missing'; END IF";
        assert_eq!(
            count_once!(|count| sql!(Mysql, count)),
            format!("BEGIN NOT ATOMIC {begin}; {insert}; {update}; {check}; COMMIT; END; END")
        );
    }

    #[test]
    fn the_statement_stays_prepared() {
        fn is_static<V: QueryId, W: QueryId>(_: V, _: W) -> bool {
            CountOnceId::<table::table, W, V>::HAS_STATIC_QUERY_ID
        }
        let filter = videos.find(7).into_update_target().where_clause;
        assert!(is_static(views.eq(views + 1), filter));
    }
}
