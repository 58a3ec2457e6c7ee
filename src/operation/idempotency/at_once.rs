//! A key and its count in one statement, which commits by itself: one round trip instead of a transaction.

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::{AsChangeset, AstPass, QueryFragment, QueryId};

use super::compound::{self, SAVEPOINT, SHARD_MISSING};
use super::keys::{explained, push_insert_into, push_values};
use super::request::Request;
use crate::backend::{OnceForm, SHARD_REMOVED, ShardedBackend};
use crate::connection::{Io, Link};
use crate::engine::{self, Plan, Sender, Statement, explain};
use crate::model::ShardedTable;
use crate::operation::update::Ready;
use crate::per_process::random;
use crate::query_builder::{
    CountByKey, Keep, push_has_rows, push_number_of_rows, push_shard_is, push_shards_as_parent,
    push_under_alias, query_ids,
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
            return self.ready.send(link, statement, shard).await;
        }
        let count = CountOnce::<T, W, V, V::Changeset> {
            key: &self.request.key,
            fingerprint: self.request.fingerprint,
            claim: self.claim,
            count: CountByKey {
                changes: &self.ready.changes.changeset,
                filter: &self.ready.filter,
                shard,
                types: PhantomData,
            },
        };
        let sent = link.execute_kept(count).await;
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
struct CountOnce<'a, T, W, V, Ch> {
    key: &'a [u8],
    fingerprint: i64,
    claim: i64,
    count: CountByKey<'a, T, W, V, Ch>,
}

const CLAIMED: &str = "sharded_claimed";
const COUNTED: &str = "sharded_counted";

impl<T, W, V, Ch, DB> QueryFragment<DB> for CountOnce<'_, T, W, V, Ch>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
    Ch: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        if out.backend().dialect().counts_once_by() == Some(OnceForm::Compound) {
            return self.walk_compound(out);
        }
        out.push_sql("WITH ");
        out.push_identifier(CLAIMED)?;
        out.push_sql(" AS (");
        push_insert_into(out.reborrow())?;
        out.push_sql(" SELECT ");
        push_values(self.row(), None, out.reborrow())?;
        // The look comes first, so that a missing shard is no error, which would abort a transaction that Diesel does not know.
        out.push_sql(" WHERE EXISTS (SELECT 1 FROM ");
        push_shards_as_parent::<T, DB>(out.reborrow())?;
        push_under_alias::<T, _, DB>(self.count.filter, out.reborrow())?;
        out.push_sql(" AND ");
        push_shard_is::<T, DB>(&self.count.shard, out.reborrow())?;
        out.push_sql(") ON CONFLICT (");
        out.push_identifier("key")?;
        out.push_sql(") DO NOTHING RETURNING 1), ");
        out.push_identifier(COUNTED)?;
        out.push_sql(" AS (");
        self.count.walk_ast(out.reborrow())?;
        out.push_sql(" AND ");
        push_has_rows(CLAIMED, out.reborrow())?;
        out.push_sql(" RETURNING 1) SELECT 1 FROM ");
        out.push_identifier(CLAIMED)?;
        out.push_sql(" WHERE CAST(CASE WHEN ");
        push_number_of_rows(CLAIMED, out.reborrow())?;
        out.push_sql(" = ");
        push_number_of_rows(COUNTED, out.reborrow())?;
        out.push_sql(" THEN '1' ELSE '");
        out.push_sql(SHARD_REMOVED);
        out.push_sql("' END AS BOOLEAN)");
        Ok(())
    }
}

impl<T, W, V, Ch> CountOnce<'_, T, W, V, Ch> {
    fn walk_compound<'b, DB>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()>
    where
        DB: ShardedBackend,
        T: ShardedTable + QueryFragment<DB>,
        W: QueryFragment<DB>,
        Ch: QueryFragment<DB>,
    {
        out.push_sql("BEGIN NOT ATOMIC SET TRANSACTION ISOLATION LEVEL READ COMMITTED; ");
        out.push_sql("BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END; ");
        out.push_sql("START TRANSACTION; SAVEPOINT ");
        out.push_sql(SAVEPOINT);
        out.push_sql("; ");
        push_insert_into(out.reborrow())?;
        out.push_sql(" VALUES (");
        push_values(self.row(), None, out.reborrow())?;
        out.push_sql("); ");
        self.count.walk_ast(out.reborrow())?;
        out.push_sql("; IF ROW_COUNT() <> 1 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '");
        out.push_sql(SHARD_MISSING);
        out.push_sql("'; END IF; COMMIT; END; END");
        Ok(())
    }

    /// The values of the key's row.
    fn row(&self) -> (&[u8], &i64, &i64) {
        (self.key, &self.fingerprint, &self.claim)
    }
}

impl<T, W, V, Ch, DB> Keep<DB> for CountOnce<'_, T, W, V, Ch>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
    Ch: QueryFragment<DB>,
{
}

query_ids!(CountOnce<'a, T, W, V; Ch>);

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::query_builder::Kept;
    use crate::test_schema::videos::dsl::*;
    use crate::test_schema::{sql, videos as table};
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::query_builder::IntoUpdateTarget;

    macro_rules! count_once {
        (|$count:ident| $used:expr) => {{
            let changes = views.eq(views + 1).as_changeset();
            let filter = videos.find(7).into_update_target().where_clause;
            let $count = CountOnce::<table::table, _, (), _> {
                key: b"a",
                fingerprint: 11,
                claim: 12,
                count: CountByKey {
                    changes: &changes,
                    filter: &filter,
                    shard: 3,
                    types: PhantomData,
                },
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
        let kept = count_once!(|count| sql!(Pg, Kept::new(count, &Pg)));
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
            CountOnce::<table::table, W, V, ()>::HAS_STATIC_QUERY_ID
        }
        let filter = videos.find(7).into_update_target().where_clause;
        assert!(is_static(views.eq(views + 1), filter));
    }
}
