//! Tables and columns whose names would break out of SQL that does not quote them.

use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use diesel_sharded::backend::Dialect;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::prelude::*;
use diesel_sharded::{MIGRATIONS, RowCounter, ShardsTable, fold, reset, set_total, update, verify};
use diesel_sharded_tests::fixture::{Fixture, Run};
use diesel_sharded_tests::{count, insert, pool};

use super::{Conn, dialect};

mod schema {
    diesel::table! {
        #[sql_name = "we\"ir`d'; DROP TABLE \"victims\"; -- $1 ? %s"]
        weird (id) {
            #[sql_name = "i\"d`'; --"]
            id -> BigInt,
            #[sql_name = "SELECT"]
            slug -> Text,
            #[sql_name = "co`u\"nt' + 1 -- /*"]
            hits -> BigInt,
            #[sql_name = "total"]
            total_of -> Integer,
        }
    }
}
use schema::weird;
use schema::weird::dsl::*;

#[derive(ShardedField)]
#[diesel(table_name = weird)]
#[sharded(table_name = "sh`ar\"ds'; DROP TABLE victims; -- ?", shards = 4)]
#[expect(dead_code, reason = "the derive reads the fields' types")]
struct Weird {
    id: i64,
    #[sharded]
    hits: i64,
    #[sharded]
    total_of: i32,
}

#[test]
fn hostile_identifiers_are_quoted_in_every_statement() {
    let own = &mut Fixture::<Conn, _>::empty();
    let (database, [conn]) = own.parts();
    let quote = |name: &str| match dialect(conn) {
        Dialect::Mysql => format!("`{}`", name.replace('`', "``")),
        _ => format!("\"{}\"", name.replace('"', "\"\"")),
    };
    let create = format!(
        "CREATE TABLE {} ({} BIGINT PRIMARY KEY, {} VARCHAR(20) NOT NULL, {} BIGINT NOT NULL DEFAULT 0, \
         {} INTEGER NOT NULL DEFAULT 0)",
        quote("we\"ir`d'; DROP TABLE \"victims\"; -- $1 ? %s"),
        quote("i\"d`'; --"),
        quote("SELECT"),
        quote("co`u\"nt' + 1 -- /*"),
        quote("total"),
    );
    conn.run(&create);
    conn.run("CREATE TABLE victims (id INTEGER)");
    conn.run_pending_migrations(MIGRATIONS).unwrap();
    let shards = ShardsTable::of(weird);
    shards.create(conn).unwrap();
    for key in 1..=3 {
        insert!(weird, (id.eq(key), slug.eq("a")), conn);
    }
    let total = |conn: &mut Conn| weird.find(1).select(hits.total()).first::<i64>(conn);
    assert_eq!(count!(weird.find(1), hits.eq(hits + 1), conn), 1);
    let both = (hits.eq(hits + 1), total_of.eq(total_of - 1));
    assert_eq!(count!(weird.filter(slug.eq("a")), both, conn), 3);
    let count = update(weird.filter(slug.eq("a"))).set(hits.eq(hits + 1));
    let rows = count.returning((id, hits, total_of)).get_results(conn);
    let mut rows: Vec<(i64, i64, i32)> = rows.unwrap();
    rows.sort();
    assert_eq!(rows, [(1, 3, -1), (2, 2, -1), (3, 2, -1)]);
    let count = update(weird.find(4)).set(hits.eq(hits + 7));
    let inserts = count.or_insert((id.eq(4), slug.eq("b")));
    assert_eq!(inserts.execute(conn), Ok(1));
    assert_eq!(RowCounter::of(hits, 1).add(2, conn), Ok(1));
    assert_eq!(RowCounter::of(hits, 1).get(conn), Ok(Some(5)));
    let folded = fold(weird).keep_shards(1).run(conn).unwrap();
    assert_eq!(folded.parents, 4);
    assert_eq!(weird.find(1).select(hits).first(conn), Ok(5_i64));
    let bounded = RowCounter::of(hits, 1).never_below(0).never_above(6);
    assert_eq!(bounded.add(1, conn), Ok(true));
    assert_eq!(bounded.add(1, conn), Ok(false));
    let set = set_total(weird.filter(slug.eq("b")), hits, 70);
    assert_eq!(set.execute(conn), Ok(1));
    let recount = weird.filter(id.lt(9)).select((id, hits - hits));
    let repaired = verify(weird.find(4), hits, recount).repair(conn).unwrap();
    assert_eq!(repaired.len(), 1);
    assert_eq!(reset(weird.find(1)).execute(conn), Ok(1));
    let coalescer = Coalescer::<Conn>::new(pool::<Conn>(database.url())).unwrap();
    for round in 0..2 {
        for key in [1, 2, 3] {
            coalescer.add_later(&RowCounter::of(hits, key), 1).unwrap();
        }
        coalescer.flush().unwrap();
        assert_eq!(total(conn), Ok(2 * round + 1));
        coalescer.add_later(&RowCounter::of(hits, 1), 1).unwrap();
        coalescer.flush().unwrap();
    }
    coalescer.close().unwrap();
    shards.drop(conn).unwrap();
    assert_eq!(weird.find(1).select(hits).first(conn), Ok(4_i64));
    conn.run("INSERT INTO victims VALUES (1)");
}
