//! Shards tables without a foreign key: kept by triggers, or by the application.

use super::api::MIGRATIONS;
use super::support::*;
use diesel::migration::MigrationSource;
use diesel_migrations::MigrationHarness;
use diesel_sharded::backend::Dialect;
use diesel_sharded_tests::schema::videos as table;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::until;

type Videos = ShardsTable<table::table>;

fn by_triggers() -> Videos {
    ShardsTable::of(table::table).without_foreign_key()
}

fn by_application() -> Videos {
    ShardsTable::of(table::table).without_triggers()
}

/// A database whose shards of videos are kept in this way.
fn kept(shards_table: Videos) -> Connected<Conn> {
    let mut fixture = set_up();
    let conn = &mut fixture.conn;
    ShardsTable::of(table::table).drop(conn).unwrap();
    shards_table.create(conn).unwrap();
    fixture
}

fn view(video: i64, conn: &mut Conn) -> QueryResult<usize> {
    count(video, 1, conn)
}

fn shards_of(video: i64, conn: &mut Conn) -> i64 {
    let shards = videos_shards::table.filter(videos_shards::id.eq(video));
    shards.count().get_result(conn).unwrap()
}

fn insert(video: i64, conn: &mut Conn) {
    let name = format!("new {video}");
    insert!(videos, (id.eq(video), slug.eq(name), title.eq("New")), conn);
}

/// Shards without a row, past all triggers.
fn leave_orphans(video: i64, conn: &mut Conn) {
    insert(video, conn);
    view(video, conn).unwrap();
    let past_triggers = match dialect(conn) {
        Dialect::Postgres => format!(
            "SET session_replication_role = replica; DELETE FROM videos WHERE id = {video};
             SET session_replication_role = origin"
        ),
        // No other trigger of the parent's fires for an update of the shards.
        _ => format!(
            "UPDATE videos_shards SET id = {video} + 100000 WHERE id = {video}; DELETE FROM videos WHERE id = {video};
             UPDATE videos_shards SET id = {video} WHERE id = {video} + 100000"
        ),
    };
    conn.batch_execute(&past_triggers).unwrap();
    assert!(shards_of(video, conn) > 0);
}

#[test]
fn triggers_keep_shards_with_their_parent() {
    let conn = &mut kept(by_triggers()).conn;
    for video in 1..=3 {
        assert_eq!(view(video, conn), Ok(1));
    }
    assert_eq!(view(9, conn), Ok(0));
    // A changed base is no changed key.
    edit!(videos.find(1), views.eq(views + 1), conn);
    assert_eq!((total_of(1, conn), shards_of(1, conn)), (102, 1));
    let rename = || diesel::update(videos.find(1)).set(id.eq(7));
    if dialect(conn) == Dialect::Mysql {
        assert!(rename().execute(conn).is_err());
        let folded = fold(videos.find(1)).keep_shards(0).run(conn).unwrap();
        assert_eq!(folded.shards_removed, 1);
    }
    assert_eq!(rename().execute(conn), Ok(1));
    assert_eq!((total_of(7, conn), shards_of(1, conn)), (102, 0));
    delete!(videos.find(7), conn);
    assert_eq!(shards_of(7, conn), 0);
    insert(7, conn);
    assert_eq!(total_of(7, conn), 0);
    let folded = fold(videos).run(conn).unwrap();
    assert!(folded.finished && folded.unfit.is_empty());
    assert_eq!(videos.find(2).select(views).first(conn), Ok(201_i64));
}

/// Any program may create the shard, not only this crate.
#[test]
fn triggers_refuse_a_shard_without_a_parent() {
    let conn = &mut kept(by_triggers()).conn;
    let mut insert_shard = |video: i64| {
        let shard = format!("INSERT INTO videos_shards (id, shard, views) VALUES ({video}, 0, 1)");
        conn.batch_execute(&shard)
    };
    let (inserted, without_a_parent) = (insert_shard(1), insert_shard(9));
    inserted.unwrap();
    assert_eq!(total_of(1, conn), 101);
    // The crate's own statements select from the parent.
    let is_sqlite = dialect(conn) == Dialect::Sqlite;
    assert_eq!(without_a_parent.is_ok(), is_sqlite);
}

#[test]
fn triggers_of_a_composite_key() {
    use diesel_sharded_tests::schema::downloads::dsl::*;
    let conn = &mut set_up().conn;
    ShardsTable::of(downloads).drop(conn).unwrap();
    let shards_table = ShardsTable::of(downloads).without_foreign_key();
    shards_table.create(conn).unwrap();
    for of in [1, 2] {
        insert!(downloads, (version.eq(of), day.eq(Day(1))), conn);
        let changes = number.eq(number + 5);
        assert_eq!(count!(downloads.find((of, Day(1))), changes, conn), 1);
    }
    if dialect(conn) == Dialect::Mysql {
        let _ = fold(downloads).keep_shards(0).run(conn).unwrap();
    }
    edit!(downloads.find((1, Day(1))), day.eq(Day(3)), conn);
    delete!(downloads.find((2, Day(1))), conn);
    let totals = downloads.select((day, number.total()));
    assert_eq!(totals.load::<(Day, i32)>(conn), Ok(vec![(Day(3), 5)]));
    gives!(shards_table.remove_orphans(conn), 0);
    shards_table.drop(conn).unwrap();
    assert_eq!(downloads.select(number).load::<i32>(conn), Ok(vec![5]));
}

#[test]
fn leaving_drops_the_triggers_too() {
    // A value that does not know of triggers drops them too.
    let unknowing = ShardsTable::of(table::table);
    for (shards_table, dropped) in [
        (by_triggers(), by_triggers()),
        (by_triggers(), unknowing),
        (by_application(), by_application()),
    ] {
        let conn = &mut kept(shards_table).conn;
        view(2, conn).unwrap();
        dropped.drop(conn).unwrap();
        assert_eq!(videos.find(2).select(views).first(conn), Ok(201_i64));
        insert(9, conn);
        edit!(videos.find(9), id.eq(8), conn);
        assert_eq!(delete!(videos, conn), 4);
    }
}

#[test]
fn a_migration_has_the_same_form() {
    let conn = &mut set_up().conn;
    ShardsTable::of(table::table).drop(conn).unwrap();
    for shards_table in [by_triggers(), by_application()] {
        let migration = shards_table.migration("20260101000000");
        conn.run_pending_migrations(migration.clone()).unwrap();
        view(1, conn).unwrap();
        leave_orphans(9, conn);
        let refused = conn.revert_migration(&migration).unwrap_err();
        assert!(refused.to_string().contains("videos_shards"), "{refused}");
        gives!(shards_table.remove_orphans(conn), 1);
        conn.revert_migration(&migration).unwrap();
        insert(9, conn);
        delete!(videos.find(9), conn);
    }
    assert_eq!(videos.find(1).select(views).first(conn), Ok(102_i64));
}

#[test]
fn the_librarys_tables_without_a_foreign_key() {
    for migrations in [
        MIGRATIONS.without_foreign_key(),
        MIGRATIONS.without_triggers(),
    ] {
        let conn = &mut set_up().conn;
        conn.run_pending_migrations(migrations).unwrap();
        let page = Counter::named("page");
        page.increment(conn).unwrap();
        gives!(page.get(conn), 1);
        let source: &dyn MigrationSource<<Conn as Connection>::Backend> = &migrations;
        for migration in source.migrations().unwrap().iter().rev() {
            conn.revert_migration(migration).unwrap();
        }
        conn.run_pending_migrations(migrations).unwrap();
    }
}

#[test]
fn orphans_are_found_and_removed() {
    for shards_table in [by_triggers(), by_application()] {
        let conn = &mut kept(shards_table).conn;
        gives!(shards_table.remove_orphans(conn), 0);
        for video in 1..=3 {
            view(video, conn).unwrap();
        }
        for video in 1000..1150 {
            leave_orphans(video, conn); // more than a batch
        }
        refused!(shards_table.drop(conn), Error::Unfit { .. });
        gives!(shards_table.remove_orphans(conn), 150);
        assert_eq!(totals(conn), [101, 201, 301]);
        shards_table.drop(conn).unwrap();
    }
}

/// No increment is lost on rows that come with keys whose shards are being removed.
#[test]
fn orphans_are_removed_beside_rows_that_come_back() {
    let shards_table = by_application();
    let Connected { conn, database } = &mut kept(shards_table);
    let removed = AtomicI64::new(0);
    let patient = || diesel_sharded_tests::patient().with_attempts(1000);
    let come_and_go = |number, conn: &mut Conn| {
        let video = 10 + number;
        for round in 0..25 {
            let counted = retry::transaction(conn, patient(), |conn| {
                insert(video, conn);
                view(video, conn)
            });
            assert_eq!(counted, Ok(1));
            let count = viewed!(videos.find(video)).retry(patient());
            gives!(count.execute(conn), 1);
            assert!(total_of(video, conn) >= 2, "round {round}");
            let delete = || diesel::delete(videos.find(video));
            until("it is deleted", || delete().execute(conn) == Ok(1));
        }
    };
    on_threads_beside(2, database, come_and_go, 1, |_, rounds, conn| {
        for _ in rounds {
            let batch = shards_table.remove_orphans(conn).unwrap();
            removed.fetch_add(batch as i64, Ordering::Relaxed);
        }
    });
    let rest = shards_table.remove_orphans(conn).unwrap() as i64;
    let keeps_triggers = dialect(conn) == Dialect::Sqlite;
    assert!(removed.into_inner() + rest > 0 || keeps_triggers);
    assert_eq!(videos_shards::table.count().get_result(conn), Ok(0_i64));
}

/// Another statement of the batch removes the first row's shard, as a fold may. The increment on shards without a row stands in for none.
#[test]
fn a_batch_tells_counted_rows_from_orphans() {
    let conn = &mut kept(by_application()).conn;
    if dialect(conn) == Dialect::Mysql {
        return; // no trigger there may change the table that it is on
    }
    leave_orphans(9, conn);
    assert_eq!(view(1, conn), Ok(1));
    fold(videos.find(1)).keep_shards(1).run(conn).unwrap();
    let remove = "DELETE FROM videos_shards WHERE id = 1 AND views = 0";
    conn.batch_execute(&match dialect(conn) {
        Dialect::Postgres => format!(
            "CREATE FUNCTION remove() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN {remove}; RETURN NULL; END';
             CREATE TRIGGER remove AFTER INSERT ON videos_shards FOR EACH ROW WHEN (NEW.id = 3) EXECUTE FUNCTION remove()"
        ),
        _ => format!("CREATE TRIGGER remove AFTER INSERT ON videos_shards WHEN NEW.id = 3 BEGIN {remove}; END"),
    })
    .unwrap();
    let counted = count_many(views, [(1, 5), (3, 5), (9, 5)])
        .run(conn)
        .unwrap();
    assert_eq!((total_of(1, conn), total_of(3, conn)), (106, 305));
    assert!(counted.rows >= 2 && !counted.missing.contains(&1));
}
