//! The links that are counted. Each contender has a table of its own, so that none inherits another's rows.

use diesel::prelude::*;
use diesel_sharded::ShardedField;

use crate::arena::Arena;
use crate::schema::ROWS;

/// The link that is counted by its key or its slug.
pub const HOT: i64 = 10;
pub const SLUG: &str = "link-10";
/// The owner of the ten links that are counted together. The hot link is one of them.
pub const OWNER: i64 = 10;

/// The shards of each row that is counted: as many as the crate uses by default.
const SHARDS: i64 = 128;

macro_rules! links {
    ($($table:ident)*) => {
        $(diesel::table! {
            $table (id) {
                id -> BigInt,
                slug -> Text,
                url_to -> Text,
                owner -> BigInt,
                deleted -> Bool,
                clicks -> BigInt,
            }
        })*

        const TABLES: &[&str] = &[$(stringify!($table)),*];
    };
}

links!(plain_links prepared_links links);

/// A row of any of the tables.
#[derive(Queryable, Identifiable, ShardedField)]
#[sharded(table_name = links_shards, no_totals)]
#[expect(dead_code, reason = "an application reads them")]
pub struct Link {
    id: i64,
    pub slug: String,
    url_to: String,
    owner: i64,
    deleted: bool,
    #[sharded]
    clicks: i64,
}

/// Creates the tables anew, with all shards of the rows that are counted.
pub fn create<Conn: Arena>(conn: &mut Conn, create_shards_table: fn(&mut Conn)) {
    conn.run("DROP TABLE IF EXISTS links_shards");
    for table in TABLES {
        conn.run(&format!("DROP TABLE IF EXISTS {table}"));
        conn.run(&format!(
            "CREATE TABLE {table} (id BIGINT PRIMARY KEY, slug VARCHAR(100) NOT NULL UNIQUE, url_to VARCHAR(200) NOT NULL, \
             owner BIGINT NOT NULL, deleted BOOLEAN NOT NULL, clicks BIGINT NOT NULL)"
        ));
        conn.run(&format!("CREATE INDEX {table}_owner ON {table} (owner)"));
        conn.run(&format!(
            "INSERT INTO {table} SELECT n, CONCAT('link-', n), CONCAT('https://example.org/pages/', n), n - n % 10, FALSE, 0 \
             FROM ({}) AS numbers",
            Conn::numbers(ROWS)
        ));
    }
    create_shards_table(conn);
    conn.run(&format!(
        "INSERT INTO links_shards (id, shard) SELECT l.id, s.n - 1 FROM links AS l CROSS JOIN ({}) AS s WHERE l.owner = {OWNER}",
        Conn::numbers(SHARDS)
    ));
    conn.analyze();
}
