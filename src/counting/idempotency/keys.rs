//! The table of idempotency keys, and the statements about it.

use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryId};
use diesel::result::Error as DieselError;
use diesel::sql_types::{BigInt, Binary};

use super::{Expiry, Request};
use crate::backend::{Dialect, KeepsAndLocks, ShardedBackend};
use crate::connection::{Io, Link};
use crate::engine::explain_missing;
use crate::query_builder::{Prepare, Sql, TextChecksum, bind, fragments, id, on, sql};

const TABLE: &str = "diesel_sharded_idempotency_keys";

/// Inserts a row for a key that has none, with a count of one row.
///
/// ```sql
/// INSERT INTO "diesel_sharded_idempotency_keys" ("key", "fingerprint", "claim", "counted", "created", "expires")
/// VALUES ($1, $2, $3, 1, now, now * $4 + $5)
/// ON CONFLICT ("key") DO NOTHING                                              -- MySQL: ON DUPLICATE KEY UPDATE `key` = `…`.`key`
/// ```
pub(super) struct InsertKey<'a> {
    pub(super) request: &'a Request,
    pub(super) claim: i64,
}

impl<DB: ShardedBackend> Prepare<DB> for InsertKey<'_> {
    /// The checksum wraps the claim.
    fn walk_checked<'b>(
        &'b self,
        checksum: Option<&'b TextChecksum>,
        mut out: AstPass<'_, 'b, DB>,
    ) -> QueryResult<()> {
        sql!(out.reborrow(); insert_into(), " VALUES (", values(self.request, &self.claim, checksum))?;
        match out.backend().dialect().keeps_and_locks() {
            KeepsAndLocks::ConflictLocks | KeepsAndLocks::ConflictIgnored => {
                sql!(out; ") ON CONFLICT (", id("key"), ") DO NOTHING")
            }
            KeepsAndLocks::DuplicateKeyLocks => {
                sql!(out; ") ON DUPLICATE KEY UPDATE ", id("key"), " = ", id(TABLE), ".", id("key"))
            }
        }
    }
}

/// Reads the row of this key, even if another transaction created it.
///
/// ```sql
/// SELECT "key", "fingerprint", "claim", "counted" FROM "diesel_sharded_idempotency_keys" WHERE "key" IN ($1)
/// -- PostgreSQL: FOR KEY SHARE, so that the answer waits for a synchronous standby
/// -- MySQL: LIMIT 18446744073709551615 FOR UPDATE, or a transaction would not see what was committed since it began
/// ```
pub(super) struct FindKey<'a>(pub(super) [&'a [u8]; 1]);

/// Reads the row of this key, if this connection sees it, and locks nothing.
///
/// ```sql
/// SELECT "key", "fingerprint", "claim", "counted" FROM "diesel_sharded_idempotency_keys" WHERE "key" = $1
/// ```
#[derive(QueryId)]
pub(super) struct SeeKey(pub(super) Vec<u8>);

/// Notes how many rows were counted.
///
/// ```sql
/// UPDATE "diesel_sharded_idempotency_keys" SET "counted" = $1 WHERE "key" IN ($2)
/// ```
pub(super) struct NoteCounted<'a> {
    pub(super) key: [&'a [u8]; 1],
    pub(super) counted: i64,
}

/// Removes keys, or only those of them that are removable.
///
/// ```sql
/// DELETE FROM "diesel_sharded_idempotency_keys" WHERE "key" IN ($1, …) AND "expires" < now
/// ```
pub(super) struct DeleteKeys<'a> {
    pub(super) keys: Vec<&'a [u8]>,
    pub(super) only: Option<Removable>,
}

/// Reads keys that are removable, oldest first.
///
/// ```sql
/// SELECT "key", "fingerprint", "claim", "counted" FROM "diesel_sharded_idempotency_keys"
/// WHERE "expires" < now ORDER BY "expires", "created" LIMIT $1
/// ```
pub(super) struct FindRemovable {
    pub(super) which: Removable,
    pub(super) limit: i64,
}

/// Which keys may be removed, by the database's clock.
#[derive(Clone, Copy)]
pub(crate) enum Removable {
    /// Those without an expiry that were created more than this many seconds ago.
    OlderThan(i64),
    /// Those whose expiry has passed.
    Expired,
}

fragments! {
    [] InsertKey<'_>, no query id [];
    |self, out| self.walk_checked(None, out);

    [] FindKey<'_>: Query<(Binary, BigInt, BigInt, BigInt)>, no query id [];
    |self, out| sql!(out; select(), is_one_of(&self.0), on(Dialect::all_rows), on(Dialect::reads_what_is_safe));

    [] SeeKey: Query<(Binary, BigInt, BigInt, BigInt)>;
    |self, out| sql!(out; select(), " WHERE ", id("key"), " = ", bind(Binary, &self.0[..]));

    [] NoteCounted<'_>, no query id [];
    |self, out| sql!(out; "UPDATE ", id(TABLE), " SET ", id("counted"), " = ", bind(BigInt, &self.counted), is_one_of(&self.key));

    [] DeleteKeys<'_>, no query id [];
    |self, mut out| {
        if self.keys.len() != 1 {
            out.unsafe_to_cache_prepared(); // one text for each number of keys
        }
        sql!(out;
            "DELETE FROM ", id(TABLE), is_one_of(&self.keys), if let Some(only) = &self.only { " AND ", is_removable(only) })
    };

    [] FindRemovable: Query<(Binary, BigInt, BigInt, BigInt)>, no query id [];
    |self, out| sql!(out;
        select(), " WHERE ", is_removable(&self.which), " ORDER BY ", id("expires"), ", ", id("created"), " LIMIT ", bind(BigInt, &self.limit));
}

/// `INSERT INTO keys (key, fingerprint, claim, counted, created, expires)`
pub(super) fn insert_into<'b, DB: ShardedBackend>() -> impl Sql<'b, DB> {
    let columns = [
        "key",
        "fingerprint",
        "claim",
        "counted",
        "created",
        "expires",
    ];
    sql! { "INSERT INTO ", id(TABLE), " (", for column in (columns, ", ") { id(column) }, ")" }
}

/// `$1, $2, $3, 1, now, now * $4 + $5`, with a checksum around the claim: `CASE WHEN … THEN $3 END`
pub(super) fn values<'b, DB: ShardedBackend>(
    request: &'b Request,
    claim: &'b i64,
    checksum: Option<&'b TextChecksum>,
) -> impl Sql<'b, DB> {
    sql! {
        bind(Binary, &request.key[..]), ", ", bind(BigInt, &request.fingerprint), ", ",
        if let Some(checksum) = checksum {
            "CASE WHEN ", checksum.condition(), " THEN ", bind(BigInt, claim), " END"
        } else { bind(BigInt, claim) },
        ", 1, ", on(Dialect::seconds_since_1970), ", ",
        on(Dialect::seconds_since_1970), " * ", bind(BigInt, &request.expires.from_now), " + ", bind(BigInt, &request.expires.seconds)
    }
}

/// `SELECT key, fingerprint, claim, counted FROM keys`
fn select<'b, DB: ShardedBackend>() -> impl Sql<'b, DB> {
    let columns = ["key", "fingerprint", "claim", "counted"];
    sql! { "SELECT ", for column in (columns, ", ") { id(column) }, " FROM ", id(TABLE) }
}

/// ` WHERE key IN ($1, …)`
fn is_one_of<'b, DB: ShardedBackend>(keys: &'b [&[u8]]) -> impl Sql<'b, DB> {
    sql! { " WHERE ", id("key"), " IN (", for key in (keys, ", ") { bind(Binary, *key) }, ")" }
}

/// `expires < now`, or `expires = $1 AND created < now - $2`
fn is_removable<'b, DB: ShardedBackend>(which: &'b Removable) -> impl Sql<'b, DB> {
    let age = match which {
        Removable::OlderThan(seconds) => Some(seconds),
        Removable::Expired => None,
    };
    sql! {
        id("expires"),
        if let Some(seconds) = age {
            " = ", bind(BigInt, &Expiry::NEVER.seconds), " AND ", id("created"), " < ", on(Dialect::seconds_since_1970), " - ", bind(BigInt, seconds)
        } else { " < ", on(Dialect::seconds_since_1970) }
    }
}

/// The error, or one that says that the library's migrations have not run.
pub(super) fn explained<M: Io>(link: &Link<'_, M>, error: DieselError) -> DieselError {
    explain_missing(link.dialect(), TABLE, error)
}

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::test_schema::{assert_sql, sql};
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::sqlite::Sqlite;

    #[test]
    fn insert_key() {
        let request = Request {
            key: b"a".to_vec(),
            fingerprint: 1,
            expires: Expiry::NEVER,
        };
        let insert = InsertKey {
            request: &request,
            claim: 2,
        };
        assert_sql!(insert;
            Pg => r#"INSERT INTO "diesel_sharded_idempotency_keys" ("key", "fingerprint", "claim", "counted", "created", "expires") VALUES ($1, $2, $3, 1, EXTRACT(EPOCH FROM statement_timestamp())::BIGINT, EXTRACT(EPOCH FROM statement_timestamp())::BIGINT * $4 + $5) ON CONFLICT ("key") DO NOTHING"#,
            Mysql => "INSERT INTO `diesel_sharded_idempotency_keys` (`key`, `fingerprint`, `claim`, `counted`, `created`, `expires`) VALUES (?, ?, ?, 1, CAST(UNIX_TIMESTAMP() AS SIGNED), CAST(UNIX_TIMESTAMP() AS SIGNED) * ? + ?) ON DUPLICATE KEY UPDATE `key` = `diesel_sharded_idempotency_keys`.`key`",
            Sqlite => "INSERT INTO `diesel_sharded_idempotency_keys` (`key`, `fingerprint`, `claim`, `counted`, `created`, `expires`) VALUES (?, ?, ?, 1, CAST(strftime('%s', 'now') AS INTEGER), CAST(strftime('%s', 'now') AS INTEGER) * ? + ?) ON CONFLICT (`key`) DO NOTHING",
        );
    }

    #[test]
    fn find_key() {
        let find = FindKey([b"a"]);
        assert_sql!(find;
            Pg => r#"SELECT "key", "fingerprint", "claim", "counted" FROM "diesel_sharded_idempotency_keys" WHERE "key" IN ($1) FOR KEY SHARE"#,
        );
        assert!(sql!(Sqlite, find).ends_with("WHERE `key` IN (?)"));
        assert!(
            sql!(Mysql, find).ends_with("WHERE `key` IN (?) LIMIT 18446744073709551615 FOR UPDATE")
        );
    }

    #[test]
    fn see_key() {
        let see = SeeKey(b"a".to_vec());
        assert_sql!(see;
            Pg => r#"SELECT "key", "fingerprint", "claim", "counted" FROM "diesel_sharded_idempotency_keys" WHERE "key" = $1"#,
            Mysql => "SELECT `key`, `fingerprint`, `claim`, `counted` FROM `diesel_sharded_idempotency_keys` WHERE `key` = ?",
            Sqlite => "SELECT `key`, `fingerprint`, `claim`, `counted` FROM `diesel_sharded_idempotency_keys` WHERE `key` = ?",
        );
    }

    #[test]
    fn delete_keys() {
        let delete = |only| DeleteKeys {
            keys: vec![b"a"],
            only,
        };
        assert_sql!(delete(None);
            Mysql => "DELETE FROM `diesel_sharded_idempotency_keys` WHERE `key` IN (?)",
        );
        assert_sql!(delete(Some(Removable::OlderThan(60)));
            Mysql => "DELETE FROM `diesel_sharded_idempotency_keys` WHERE `key` IN (?) AND `expires` = ? AND `created` < CAST(UNIX_TIMESTAMP() AS SIGNED) - ?",
        );
        assert_sql!(delete(Some(Removable::Expired));
            Pg => r#"DELETE FROM "diesel_sharded_idempotency_keys" WHERE "key" IN ($1) AND "expires" < EXTRACT(EPOCH FROM statement_timestamp())::BIGINT"#,
            Mysql => "DELETE FROM `diesel_sharded_idempotency_keys` WHERE `key` IN (?) AND `expires` < CAST(UNIX_TIMESTAMP() AS SIGNED)",
            Sqlite => "DELETE FROM `diesel_sharded_idempotency_keys` WHERE `key` IN (?) AND `expires` < CAST(strftime('%s', 'now') AS INTEGER)",
        );
    }

    #[test]
    fn the_others() {
        let note = NoteCounted {
            key: [b"a"],
            counted: 3,
        };
        assert_sql!(note;
            Mysql => "UPDATE `diesel_sharded_idempotency_keys` SET `counted` = ? WHERE `key` IN (?)",
        );
        let old = |which| FindRemovable { which, limit: 9 };
        assert_sql!(old(Removable::OlderThan(60));
            Mysql => "SELECT `key`, `fingerprint`, `claim`, `counted` FROM `diesel_sharded_idempotency_keys` WHERE `expires` = ? AND `created` < CAST(UNIX_TIMESTAMP() AS SIGNED) - ? ORDER BY `expires`, `created` LIMIT ?",
        );
        assert_sql!(old(Removable::Expired);
            Mysql => "SELECT `key`, `fingerprint`, `claim`, `counted` FROM `diesel_sharded_idempotency_keys` WHERE `expires` < CAST(UNIX_TIMESTAMP() AS SIGNED) ORDER BY `expires`, `created` LIMIT ?",
        );
    }
}
