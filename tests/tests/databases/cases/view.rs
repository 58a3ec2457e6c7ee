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
    assert!(view.drop(conn).done().is_err());
}

/// A view of one table takes writes on PostgreSQL and MariaDB, with the rights of the role that created it.
#[test]
fn nothing_is_written_through_it() {
    let conn = &mut set_up().conn;
    let view = ShardsTable::of(videos).view("videos_totals");
    let invoker = ShardsTable::of(videos).view("videos_of_reader");
    view.create(conn).unwrap();
    invoker.security_invoker().create(conn).unwrap();
    count(2, 1, conn).unwrap();
    for name in ["videos_totals", "videos_of_reader"] {
        let all = format!("SELECT * FROM {name} WHERE id > 1 ORDER BY id");
        let before = shown(&all, conn).unwrap();
        assert_eq!(before[0].views, 201);
        for write in [
            "UPDATE view SET title = 'x' WHERE id = 2",
            "UPDATE view SET views = 7 WHERE id = 2",
            "DELETE FROM view WHERE id = 2",
            "INSERT INTO view (id, slug, title) VALUES (9, 'z', 'Z')",
        ] {
            let write = write.replace("view ", &format!("{name} "));
            let refused = diesel::sql_query(&write).execute(conn);
            assert!(refused.is_err(), "{write}: {refused:?}");
        }
        assert_eq!(shown(&all, conn), Ok(before));
    }
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
    assert!(view.drop(conn).done().is_err());
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
