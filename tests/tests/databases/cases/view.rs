//! Views with totals, read by plain SQL.

use self::row::Shown;
use super::support::*;
use diesel_migrations::MigrationHarness;
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
    let conn = &mut set_up().conn;
    let view = ShardsTable::of(videos).view("videos_totals");
    view.create(conn).unwrap();
    count!(videos, (views.eq(views + 1), likes.eq(likes - 5)), conn);
    count(2, 1, conn).unwrap();
    let expected = |key: i64, name: &str, v, l| Shown {
        id: key,
        title: name.to_owned(),
        views: v,
        likes: l,
        channel: Some("news".to_owned()),
    };
    for parents in [3, 0] {
        let all = "SELECT * FROM videos_totals WHERE id > 1 ORDER BY views DESC";
        let all = shown(all, conn).unwrap();
        assert_eq!(all, [expected(3, "C", 301, -2), expected(2, "B", 202, -3)]);
        assert_eq!(fold(videos).run(conn).unwrap().parents, parents);
    }
    let of_2 = number!("COUNT(*) FROM videos_totals WHERE views = 202", conn);
    assert_eq!(of_2, 1);
    view.drop(conn).unwrap();
    assert!(shown("SELECT * FROM videos_totals", conn).is_err());
    assert!(view.drop(conn).is_err());
}

#[test]
fn a_migration_creates_and_drops_it() {
    let conn = &mut set_up().conn;
    let view = ShardsTable::of(downloads::table).view("downloads \"per\" day");
    let migration = || view.clone().migration("20260101000000");
    conn.run_pending_migrations(migration()).unwrap();
    let row = (downloads::version.eq(1), downloads::day.eq(2));
    insert!(downloads::table, row, conn);
    let changes = downloads::number.eq(downloads::number + 7);
    count!(downloads::table, changes, conn);
    let backend = <<Conn as Connection>::Backend as Default>::default();
    let quoted = view.drop_sql(&backend).unwrap().replace("DROP VIEW ", "");
    let rows = format!("COUNT(*) FROM {quoted} WHERE number = 7 AND day = 2");
    assert_eq!(number!(&rows, conn), 1);
    conn.revert_last_migration(migration()).unwrap();
    assert!(view.drop(conn).is_err());
}

/// Quoted names, and a field whose column has another name than in Rust.
#[test]
fn names_are_those_of_the_table() {
    let conn = &mut set_up().conn;
    let lists = ShardsTable::of(watchlists::table);
    lists.view("lists").create(conn).unwrap();
    insert!(watchlists::table, watchlists::name.eq("a"), conn);
    let changes = watchlists::entries.eq(watchlists::entries + 3);
    count!(watchlists::table, changes, conn);
    let backend = <<Conn as Connection>::Backend as Default>::default();
    let column = lists.view(watchlists::entries::NAME).drop_sql(&backend);
    let column = column.unwrap().replace("DROP VIEW ", "");
    let rows = format!("COUNT(*) FROM lists WHERE {column} = 3");
    assert_eq!(number!(&rows, conn), 1);
}

/// A view keeps the columns that it was created with, and has to be dropped before one of them is.
#[test]
fn a_changed_table_needs_a_new_view() {
    let conn = &mut set_up().conn;
    let view = ShardsTable::of(videos).view("videos_totals");
    view.create(conn).unwrap();
    conn.batch_execute("ALTER TABLE videos ADD COLUMN added INTEGER")
        .unwrap();
    assert_eq!(number!("COUNT(*) FROM videos_totals", conn), 3);
    let added = conn.batch_execute("SELECT added FROM videos_totals");
    assert!(added.is_err());
    const DROP: &str = "ALTER TABLE videos DROP COLUMN title";
    let dropped = conn.batch_execute(DROP);
    let read = shown("SELECT * FROM videos_totals", conn);
    assert!(dropped.is_err() || read.is_err());
    view.drop(conn).unwrap();
    if dropped.is_err() {
        conn.batch_execute(DROP).unwrap();
    }
    conn.batch_execute("ALTER TABLE videos ADD COLUMN title VARCHAR(100)")
        .unwrap();
    view.create(conn).unwrap();
    let without_title = "COUNT(*) FROM videos_totals WHERE title IS NULL";
    assert_eq!(number!(without_title, conn), 3);
    view.drop(conn).unwrap();
    ShardsTable::of(videos).drop(conn).unwrap();
}

#[test]
fn it_is_exact_beside_8_writers_and_folds() {
    let Connected { conn, database } = &mut set_up();
    let view = ShardsTable::of(videos).view("videos_totals");
    view.create(conn).unwrap();
    let of_1 = "SELECT * FROM videos_totals WHERE id = 1";
    totals_rise(100, database, |writer, conn| {
        count(1, 1, conn).unwrap();
        let total = shown(of_1, conn).unwrap()[0].views;
        if writer == 0 {
            let _ = fold(videos.find(1)).run(conn).unwrap();
        }
        total
    });
    assert_eq!(shown(of_1, conn).unwrap()[0].views, 260);
}
