//! Views with totals, read by plain SQL.

use self::row::Shown;
use super::support::*;
use diesel_migrations::MigrationHarness;
use diesel_sharded::{ShardsTable, fold};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::watchlists;

mod row {
    use diesel::prelude::*;
    use diesel::sql_types::{BigInt, Integer, Nullable, Text};

    #[derive(Debug, PartialEq, QueryableByName)]
    pub struct Shown {
        #[diesel(sql_type = BigInt)]
        pub id: i64,
        #[diesel(sql_type = Text)]
        pub title: String,
        #[diesel(sql_type = BigInt)]
        pub views: i64,
        #[diesel(sql_type = Integer)]
        pub likes: i32,
        #[diesel(sql_type = Nullable<Text>)]
        pub channel: Option<String>,
    }
}

fn shown(sql: &str, conn: &mut Conn) -> QueryResult<Vec<Shown>> {
    diesel::sql_query(sql).load(conn)
}

#[test]
fn plain_sql_reads_totals() {
    let (_database, conn) = &mut database();
    let view = ShardsTable::of(videos).view("videos_totals");
    view.create(conn).unwrap();
    count!(videos, (views.eq(views + 1), likes.eq(likes - 5)), conn);
    count(2, 1, conn).unwrap();
    let all = shown(
        "SELECT * FROM videos_totals WHERE id > 1 ORDER BY views DESC",
        conn,
    )
    .unwrap();
    let expected = |key: i64, name: &str, v, l| Shown {
        id: key,
        title: name.to_owned(),
        views: v,
        likes: l,
        channel: Some("news".to_owned()),
    };
    let folded = [expected(3, "C", 301, -2), expected(2, "B", 202, -3)];
    assert_eq!(all, folded);
    assert_eq!(fold(videos).run(conn).unwrap().parents, 3);
    let all = shown(
        "SELECT * FROM videos_totals WHERE id > 1 ORDER BY views DESC",
        conn,
    );
    assert_eq!(all, Ok(folded.into()));
    assert_eq!(
        number!("COUNT(*) FROM videos_totals WHERE views = 202", conn),
        1
    );
    view.drop(conn).unwrap();
    assert!(shown("SELECT * FROM videos_totals", conn).is_err());
    assert!(view.drop(conn).is_err());
}

#[test]
fn a_migration_creates_and_drops_it() {
    let (_database, conn) = &mut database();
    let migration = || {
        ShardsTable::of(downloads::table)
            .view("downloads \"per\" day")
            .migration("20260101000000")
    };
    conn.run_pending_migrations(migration()).unwrap();
    let row = (downloads::version.eq(1), downloads::day.eq(2));
    insert!(downloads::table, row, conn);
    let rows = downloads::table.find((1, diesel_sharded_tests::schema::Day(2)));
    count!(rows, downloads::number.eq(downloads::number + 7), conn);
    let backend = <<Conn as Connection>::Backend as Default>::default();
    let named = ShardsTable::of(downloads::table).view("downloads \"per\" day");
    let quoted = named.drop_sql(&backend).unwrap().replace("DROP VIEW ", "");
    assert_eq!(
        number!(
            &format!("COUNT(*) FROM {quoted} WHERE number = 7 AND day = 2"),
            conn
        ),
        1
    );
    conn.revert_last_migration(migration()).unwrap();
    assert!(named.drop(conn).is_err());
}

/// Quoted names, and a field whose column has another name than in Rust.
#[test]
fn names_are_those_of_the_table() {
    let (_database, conn) = &mut database();
    ShardsTable::of(watchlists::table)
        .view("lists")
        .create(conn)
        .unwrap();
    insert!(watchlists::table, watchlists::name.eq("a"), conn);
    let changes = watchlists::entries.eq(watchlists::entries + 3);
    count!(watchlists::table, changes, conn);
    let backend = <<Conn as Connection>::Backend as Default>::default();
    let order = ShardsTable::of(watchlists::table)
        .view("order")
        .drop_sql(&backend)
        .unwrap();
    let order = order.replace("DROP VIEW ", "");
    assert_eq!(
        number!(&format!("COUNT(*) FROM lists WHERE {order} = 3"), conn),
        1
    );
}

/// A view keeps the columns that it was created with, and has to be dropped before one of them is.
#[test]
fn a_changed_table_needs_a_new_view() {
    let (_database, conn) = &mut database();
    let view = ShardsTable::of(videos).view("videos_totals");
    view.create(conn).unwrap();
    conn.batch_execute("ALTER TABLE videos ADD COLUMN added INTEGER")
        .unwrap();
    assert_eq!(number!("COUNT(*) FROM videos_totals", conn), 3);
    assert!(
        conn.batch_execute("SELECT added FROM videos_totals")
            .is_err()
    );
    let dropped = conn.batch_execute("ALTER TABLE videos DROP COLUMN title");
    let read = shown("SELECT * FROM videos_totals", conn);
    assert!(dropped.is_err() || read.is_err());
    view.drop(conn).unwrap();
    if dropped.is_err() {
        conn.batch_execute("ALTER TABLE videos DROP COLUMN title")
            .unwrap();
    }
    conn.batch_execute("ALTER TABLE videos ADD COLUMN title VARCHAR(100)")
        .unwrap();
    view.create(conn).unwrap();
    assert_eq!(
        number!("COUNT(*) FROM videos_totals WHERE title IS NULL", conn),
        3
    );
    view.drop(conn).unwrap();
    ShardsTable::of(videos).drop(conn).unwrap();
}

#[test]
fn it_is_exact_beside_8_writers_and_folds() {
    let (database, conn) = &mut database();
    let view = ShardsTable::of(videos).view("videos_totals");
    view.create(conn).unwrap();
    totals_rise(100, database, |writer, conn| {
        count(1, 1, conn).unwrap();
        let total = shown("SELECT * FROM videos_totals WHERE id = 1", conn).unwrap()[0].views;
        if writer == 0 {
            let _ = fold(videos.find(1)).run(conn).unwrap();
        }
        total
    });
    assert_eq!(
        number!(
            "COUNT(*) FROM videos_totals WHERE id = 1 AND views = 260",
            conn
        ),
        1
    );
}
