//! The tool on PostgreSQL.

type Conn = diesel::PgConnection;

mod cases;
mod servers;

use cases::{run, tool};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;

#[test]
fn keys_of_postgresqls_own_types() {
    let (database, mut conn) = cases::empty_database();
    conn.batch_execute(
        "CREATE TABLE visits (site UUID, day DATE, hits BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (site, day));
         CREATE TABLE tags (tag TEXT COLLATE \"C\" PRIMARY KEY, uses SMALLINT NOT NULL DEFAULT 0);
         CREATE TABLE blobs (digest BYTEA PRIMARY KEY, reads NUMERIC(12, 2) NOT NULL DEFAULT 0);
         INSERT INTO visits VALUES ('00000000-0000-0000-0000-000000000001', '2026-01-01'),
             ('00000000-0000-0000-0000-000000000001', '2026-01-02'), ('00000000-0000-0000-0000-000000000002', '2025-01-01');
         INSERT INTO tags VALUES ('a'), ('B'), ('it''s');
         INSERT INTO blobs VALUES ('\\x00'), ('\\xff00')",
    )
    .unwrap();
    for (table, field, n) in [
        ("visits", "hits", "1"),
        ("tags", "uses", "1"),
        ("blobs", "reads", "0.5"),
    ] {
        cases::shard(&database, &mut conn, table, &[field]);
        let key = match table {
            "visits" => "site, day",
            "tags" => "tag",
            _ => "digest",
        };
        conn.batch_execute(&format!(
            "INSERT INTO {table}_shards SELECT {key}, s, {n} FROM {table}, generate_series(0, 3) AS s"
        ))
        .unwrap();
        run(&database, &["fold", table, "--batch=1"], 0);
        let left: i64 = diesel::select(diesel::dsl::sql::<diesel::sql_types::BigInt>(&format!(
            "(SELECT COUNT(*) FROM {table} WHERE {field} <> 4 * {n})"
        )))
        .get_result(&mut conn)
        .unwrap();
        assert_eq!(left, 0, "{table}");
    }
    let up = run(&database, &["status", "tags"], 0);
    assert!(up.contains("it's"), "{up}");
    // Goes on behind a composite key.
    conn.batch_execute("UPDATE visits_shards SET hits = 1")
        .unwrap();
    let after = [
        "fold",
        "visits",
        "--after=00000000-0000-0000-0000-000000000001",
        "--after=2026-01-01",
        "--dry-run",
    ];
    assert!(run(&database, &after, 0).contains("2 rows to fold"));
    let one = tool(&database, &after[..3]);
    assert_eq!(one.status.code(), Some(1), "{one:?}");
    // The collation is the parent's, so that keys can be compared.
    let recount = "SELECT tag, 5 FROM tags WHERE tag <> 'a'";
    run(
        &database,
        &["verify", "tags", "uses", "--recount", recount],
        3,
    );
    run(
        &database,
        &["backfill", "tags", "uses", "--recount", recount],
        0,
    );
    run(
        &database,
        &["verify", "tags", "uses", "--recount", recount],
        0,
    );
}

#[test]
fn relations_that_are_no_tables_are_refused() {
    let (database, mut conn) = cases::empty_database();
    conn.batch_execute(
        "CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT NOT NULL, twice BIGINT GENERATED ALWAYS AS (n * 2) STORED NOT NULL, \
             code REAL NOT NULL);
         CREATE MATERIALIZED VIEW m AS SELECT * FROM t;
         CREATE TABLE padded (id CHAR(3) PRIMARY KEY, n BIGINT NOT NULL);
         CREATE SCHEMA other; CREATE TABLE other.hidden (id BIGINT PRIMARY KEY, n BIGINT NOT NULL)",
    )
    .unwrap();
    for (arguments, says) in [
        (["m", "n"], "materialized view"),
        (["t", "twice"], "generated"),
        (["t", "code"], "`real`"),
        (["padded", "n"], "cannot be the key"),
        (["hidden", "n"], "there is no table"),
    ] {
        cases::refused(&database, &arguments, says);
    }
}

#[test]
fn a_suppressed_update_is_told() {
    cases::fold::what_suppresses_updates_is_told(&[
        "CREATE FUNCTION resist() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$",
        "CREATE TRIGGER resist BEFORE UPDATE ON videos FOR EACH ROW WHEN (OLD.id = 2) EXECUTE FUNCTION resist()",
    ]);
}
