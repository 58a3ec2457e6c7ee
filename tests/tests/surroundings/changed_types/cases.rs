//! What each kind of statement does then, on one kind of connection.

use diesel::connection::CacheSize;
use diesel::prelude::*;
use diesel_sharded::Error;
use diesel_sharded::prelude::*;
use diesel_sharded_tests::awaited::Done;
use diesel_sharded_tests::fixture::{Connected, Run};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::{self, watchlists};
use diesel_sharded_tests::{TestConnection, insert};

use super::super::apart;
use super::Conn;
use super::api::{RowCounter, retry, top, update};

fn set_up() -> Connected<Conn> {
    let mut connected = Connected::<Conn>::from(schema::database());
    let conn = &mut connected.conn;
    insert!(watchlists::table, watchlists::name.eq("a"), conn);
    for _ in 0..4 {
        each(conn);
        let _: QueryResult<()> = conn.transaction(|conn| {
            each(conn);
            Ok(())
        });
    }
    connected
}

type Counted = QueryResult<usize>;

fn returning(conn: &mut Conn) -> Counted {
    let update = update(videos.find(1)).set(views.eq(views + 1));
    let titles: Vec<String> = update.returning(title).get_results(conn).done()?;
    Ok(titles.len())
}

fn bounded(conn: &mut Conn) -> Counted {
    let counter = RowCounter::of(watchlists::entries, "a").never_below(0);
    counter.add(1, conn).done().map(usize::from)
}

fn best(conn: &mut Conn) -> Counted {
    let titles: Vec<String> = top(videos, views, 1).select(title).load(conn)?;
    Ok(titles.len())
}

/// A query of the application's own, which Diesel keeps.
fn own(conn: &mut Conn) -> Counted {
    let total = videos.find(1).select((title, views.total()));
    total.load::<(String, i64)>(conn).map(|rows| rows.len())
}

fn each(conn: &mut Conn) {
    for operation in [returning, bounded, best, own] {
        assert_eq!(operation(conn), Ok(1));
    }
}

fn totals(conn: &mut Conn) -> (i64, i32) {
    let of_list = watchlists::table.select(watchlists::entries.total());
    let of_video = videos.find(1).select(views.total());
    (of_video.first(conn).unwrap(), of_list.first(conn).unwrap())
}

fn change_types(connected: &Connected<Conn>) {
    let other = &mut Conn::connect(&connected.database);
    other.run(&format!(
        "ALTER TABLE videos ALTER COLUMN title TYPE TEXT; ALTER TABLE {WATCHLISTS} ALTER COLUMN name TYPE TEXT"
    ));
}

/// The table of `schema`, whose name is hostile.
const WATCHLISTS: &str = r#""Watch ""li`sts""' \ -- $1 ?""#;

#[test]
fn outside_a_transaction_a_statement_is_prepared_anew() {
    apart(
        module_path!(),
        "outside_a_transaction_a_statement_is_prepared_anew",
        || {
            let mut connected = set_up();
            change_types(&connected);
            let conn = &mut connected.conn;
            assert_eq!([returning(conn), bounded(conn)], [Ok(1), Ok(1)]);
            // Diesel keeps the application's own queries until it is told to forget them.
            for query in [best, own] {
                let kept = query(conn).unwrap_err().to_string();
                assert!(kept.contains("cached plan"), "{kept}");
            }
            conn.set_prepared_statement_cache_size(CacheSize::Disabled);
            conn.set_prepared_statement_cache_size(CacheSize::Unbounded);
            each(conn);
            assert_eq!(totals(conn), (110, 10));
        },
    );
}

#[test]
fn inside_a_transaction_all_of_it_is_tried_again() {
    apart(
        module_path!(),
        "inside_a_transaction_all_of_it_is_tried_again",
        || {
            let mut connected = set_up();
            change_types(&connected);
            let conn = &mut connected.conn;
            let refused = conn.transaction(|conn| {
                let count = update(videos.find(1)).set(views.eq(views + 1));
                count.execute(conn).done()?;
                returning(conn)
            });
            let refused = Error::from(refused.unwrap_err());
            assert!(
                matches!(refused, Error::StatementLost { .. }),
                "{refused:?}"
            );
            let counted: Counted = retry::transaction(conn, Default::default(), |conn| {
                returning(conn)?;
                bounded(conn)
            });
            assert_eq!(counted, Ok(1));
            assert_eq!(totals(conn), (109, 9));
        },
    );
}
