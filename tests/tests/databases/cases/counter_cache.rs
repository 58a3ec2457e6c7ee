//! Numbers of rows that triggers keep.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use super::api::counter_cache::literal;
use super::support::*;
use diesel::dsl::{case_when, sql};
use diesel::result::DatabaseErrorKind;
use diesel::sql_types::{Bool, Integer};
use diesel_migrations::MigrationHarness;
use diesel_sharded::backend::{BackendOf, Dialect};

diesel_sharded_tests::counted_table! {
    Topic of topics (id) {
        id -> BigInt = i64,
        #[sharded] replies_count -> BigInt = i64,
        #[sharded] words -> Integer = i32,
    }
}

diesel::table! {
    authors (id) {
        id -> BigInt,
    }
}

diesel_sharded_tests::counted_table! {
    Reply of replies (id) {
        id -> BigInt = i64,
        topic_id -> Nullable<BigInt> = Option<i64>,
        author_id -> Nullable<BigInt> = Option<i64>,
        shown -> Bool = bool,
        words -> Nullable<Integer> = Option<i32>,
        #[sharded] answers_count -> BigInt = i64,
        answer_to -> Nullable<BigInt> = Option<i64>,
    }
}

diesel::table! {
    #[sql_name = "Odd \"shelves\""]
    shelves (row, place) {
        row -> Integer,
        #[sql_name = "order"]
        place -> Text,
        #[sql_name = "number of `books`"]
        books -> Integer,
    }
}

diesel::table! {
    #[sql_name = "it's a 'book' with a name that is as long as it may be"]
    books (id) {
        id -> BigInt,
        #[sql_name = "select"]
        row -> Nullable<Integer>,
        #[sql_name = "shelf, \"order\""]
        place -> Nullable<Text>,
    }
}

#[derive(ShardedField)]
#[diesel(table_name = shelves, primary_key(row, place))]
#[sharded(table_name = "Odd \"shelves\" and `shards`")]
#[expect(dead_code, reason = "the derive reads the fields' types")]
struct Shelf {
    row: i32,
    #[sharded(sql_type = "VARCHAR(40)")]
    place: String,
    #[sharded]
    books: i32,
}

fn connect(database: &Database) -> Conn {
    let mut conn = Conn::connect(database);
    if dialect(&conn) == Dialect::Sqlite {
        conn.batch_execute("PRAGMA foreign_keys = ON").unwrap();
    }
    conn
}

/// Topics 1 to 4 without replies, and authors 1 and 2.
fn set_up() -> Connected<Conn> {
    let database = Conn::database();
    let mut conn = connect(&database);
    conn.batch_execute(
        "CREATE TABLE topics (id BIGINT PRIMARY KEY, replies_count BIGINT NOT NULL DEFAULT 0, words INTEGER NOT NULL DEFAULT 0);
        CREATE TABLE authors (id BIGINT PRIMARY KEY);
        CREATE TABLE replies (id BIGINT PRIMARY KEY, topic_id BIGINT, author_id BIGINT, shown BOOL NOT NULL DEFAULT TRUE, words INTEGER, \
            answers_count BIGINT NOT NULL DEFAULT 0, answer_to BIGINT, \
            FOREIGN KEY (topic_id) REFERENCES topics (id) ON DELETE CASCADE ON UPDATE CASCADE, \
            FOREIGN KEY (author_id) REFERENCES authors (id) ON DELETE CASCADE);
        INSERT INTO topics (id) VALUES (1), (2), (3), (4);
        INSERT INTO authors (id) VALUES (1), (2)",
    )
    .unwrap();
    ShardsTable::of(topics::table).create(&mut conn).unwrap();
    Connected { conn, database }
}

macro_rules! replies_count {
    () => {
        CounterCache::of(topics::replies_count).counts(replies::topic_id)
    };
}

macro_rules! words {
    () => {
        CounterCache::of(topics::words)
            .counts(replies::topic_id)
            .sums(replies::words)
    };
}

/// Does what one statement says.
fn run(sql: impl AsRef<str>, conn: &mut Conn) -> QueryResult<usize> {
    diesel::sql_query(sql.as_ref()).execute(conn)
}

fn insert(columns: &str, rows: impl AsRef<str>, conn: &mut Conn) -> QueryResult<usize> {
    let rows = rows.as_ref();
    let insert = format!("INSERT INTO replies ({columns}) VALUES {rows}");
    run(insert, conn)
}

fn counts(conn: &mut Conn) -> Vec<i64> {
    let totals = topics::table.select(topics::replies_count.total());
    totals.order(topics::id).load(conn).unwrap()
}

fn sums(conn: &mut Conn) -> Vec<i32> {
    let totals = topics::table.select(topics::words.total());
    totals.order(topics::id).load(conn).unwrap()
}

/// After each statement the topics have this many replies.
macro_rules! counts_after {
    ($conn:expr; $($sql:expr => $counts:expr),+ $(,)?) => {$(
        run($sql, $conn).unwrap();
        assert_eq!(counts($conn), $counts, "{}", $sql);
    )+};
}

fn shards(conn: &mut Conn) -> i64 {
    number!("(SELECT COUNT(*) FROM topics_shards)", conn)
}

fn number_of_replies(conn: &mut Conn) -> i64 {
    replies::table.count().get_result(conn).unwrap()
}

#[test]
fn every_change_of_the_rows_counts() {
    let conn = &mut set_up().conn;
    replies_count!().create(conn).unwrap();
    let many = "(1, 2), (2, 1), (3, 2), (4, 1), (5, 2), (6, 1)";
    assert_eq!(insert("id, topic_id", many, conn), Ok(6));
    assert_eq!(counts(conn), [3, 3, 0, 0]);
    // Without a topic it counts nowhere.
    insert("id, topic_id", "(7, NULL), (8, 3)", conn).unwrap();
    counts_after! { conn;
        "UPDATE replies SET topic_id = 4 WHERE topic_id = 1" => [0, 3, 1, 3],
        "UPDATE replies SET topic_id = NULL WHERE id = 1" => [0, 2, 1, 3],
        "UPDATE replies SET topic_id = 3 WHERE id = 7" => [0, 2, 2, 3],
    }
    let before = shards(conn);
    run("UPDATE replies SET words = 5, shown = FALSE", conn).unwrap();
    assert_eq!((counts(conn), shards(conn)), (vec![0, 2, 2, 3], before));
    counts_after! { conn;
        "DELETE FROM replies WHERE id >= 4" => [0, 1, 0, 1],
        "DELETE FROM replies" => [0, 0, 0, 0],
    }
    gives!(replies_count!().verify().drifts(conn), vec![]);
}

#[test]
fn a_condition_decides_which_rows_count() {
    let conn = &mut set_up().conn;
    let long_and_shown = replies::shown
        .and(replies::words.ge(literal(10)))
        .and(replies::id.ne(literal(99_i64)));
    let cache = replies_count!().filter(long_and_shown);
    cache.create(conn).unwrap();
    // Of reply 3 the condition is NULL.
    let rows = "(1, 1, 10), (2, 1, 9), (3, 1, NULL), (4, 2, 11), (99, 2, 11)";
    insert("id, topic_id, words", rows, conn).unwrap();
    assert_eq!(counts(conn), [1, 1, 0, 0]);
    let begins = "UPDATE replies SET words = 20, shown = TRUE WHERE id = 2";
    let ends = "UPDATE replies SET words = 20, shown = FALSE WHERE id = 1";
    let begins_and_moves = "UPDATE replies SET words = 20, topic_id = 3 WHERE id = 3";
    let ends_and_moves = "UPDATE replies SET words = 3, topic_id = 4 WHERE id = 4";
    let moves_unseen = "UPDATE replies SET topic_id = 4 WHERE id IN (1, 99)";
    counts_after! { conn;
        begins => [2, 1, 0, 0],
        ends => [1, 1, 0, 0],
        begins_and_moves => [1, 1, 1, 0],
        ends_and_moves => [1, 0, 1, 0],
        moves_unseen => [1, 0, 1, 0],
        "DELETE FROM replies WHERE id <= 2" => [0, 0, 1, 0],
    }
    gives!(cache.verify().drifts(conn), vec![]);
}

#[test]
fn binds_and_queries_are_refused() {
    let cache = replies_count!().filter(replies::shown.eq(true));
    let created = cache.create(&mut set_up().conn).done();
    refused!(created, Error::BindInTrigger { .. });
    let total = CounterCache::of(topics::replies_count)
        .counts(replies::topic_id)
        .sums(replies::answers_count.total());
    let conn = &mut set_up().conn;
    refused!(total.create(conn), Error::QueryInTrigger { .. });
    gives!(total.drop(conn), ());
    let own = CounterCache::of(topics::replies_count).counts_all(topics::table);
    let refused = own.create(conn).unwrap_err().to_string();
    assert!(refused.contains("its own table"), "{refused}");
}

/// Votes up and down: what a row adds may be an expression, beside a condition too.
#[test]
fn an_expression_is_summed() {
    let conn = &mut set_up().conn;
    let vote = |n: i32| literal::<_, Integer>(n);
    let votes = || {
        let votes = case_when(replies::shown, vote(1)).otherwise(vote(-1));
        let cache = CounterCache::of(topics::words).counts(replies::topic_id);
        cache.sums(votes)
    };
    let cast = votes().filter(replies::words.is_not_null());
    cast.create(conn).unwrap();
    let rows = "(1, 1, 5, TRUE), (2, 1, 5, TRUE), (3, 1, NULL, TRUE), (4, 2, 5, FALSE)";
    insert("id, topic_id, words, shown", rows, conn).unwrap();
    assert_eq!(sums(conn), [2, -1, 0, 0]);
    for (sql, expected) in [
        ("UPDATE replies SET words = words + 1", [2, -1, 0, 0]),
        (
            "UPDATE replies SET shown = FALSE WHERE id <= 2",
            [-2, -1, 0, 0],
        ),
        (
            "UPDATE replies SET topic_id = 3 WHERE id IN (1, 3)",
            [-1, -1, -1, 0],
        ),
        ("UPDATE replies SET words = 1 WHERE id = 3", [-1, -1, 0, 0]),
        ("DELETE FROM replies WHERE id = 4", [-1, 0, 0, 0]),
    ] {
        run(sql, conn).unwrap();
        assert_eq!(sums(conn), expected, "{sql}");
    }
    gives!(cast.verify().drifts(conn), vec![]);
    cast.drop(conn).unwrap();
    // By text, without a condition; a column has to be qualified by its table's name.
    let cache = || CounterCache::of(topics::words).counts(replies::topic_id);
    for refused in [
        "words * 2",
        "replies.words, replies.id",
        "SUM(replies.words)",
    ] {
        let refused = cache().sums(sql::<Integer>(refused));
        refused.create(conn).unwrap_err();
    }
    let doubled = cache().sums(sql::<Integer>("replies.words * 2"));
    doubled.create(conn).unwrap();
    doubled.verify().repair(conn).unwrap();
    assert_eq!(sums(conn), [12, 0, 14, 0]);
    run("UPDATE replies SET words = NULL WHERE id = 1", conn).unwrap();
    assert_eq!(sums(conn), [12, 0, 2, 0]);
    gives!(doubled.verify().drifts(conn), vec![]);
    doubled.drop(conn).unwrap();
    // It may fail on a row that is not counted.
    let shares = cache().sums(sql::<Integer>("100 / replies.words"));
    let shares = shares.filter(replies::words.ne(literal(0)));
    shares.create(conn).unwrap();
    insert("id, topic_id, words", "(10, 4, 5), (11, 4, 0)", conn).unwrap();
    assert_eq!(sums(conn)[3], 20);
    let hidden = "UPDATE replies SET shown = NOT shown, topic_id = 4 WHERE id = 11";
    run(hidden, conn).unwrap();
    run("UPDATE replies SET words = 10 WHERE id >= 10", conn).unwrap();
    run("DELETE FROM replies WHERE id = 10", conn).unwrap();
    assert_eq!(sums(conn)[3], 10);
}

#[test]
fn several_caches_of_the_same_rows() {
    let conn = &mut set_up().conn;
    replies_count!().create(conn).unwrap();
    words!().create(conn).unwrap();
    let rows = "(1, 1, 10), (2, 1, -3), (3, 1, NULL), (4, 2, 0)";
    insert("id, topic_id, words", rows, conn).unwrap();
    assert_eq!(sums(conn), [7, 0, 0, 0]);
    run("UPDATE replies SET words = words + 1", conn).unwrap();
    counts_after! { conn;
        "UPDATE replies SET topic_id = 2 WHERE id = 2" => [2, 2, 0, 0],
        "DELETE FROM replies WHERE id = 1" => [1, 2, 0, 0],
    }
    assert_eq!(sums(conn), [0, -1, 0, 0]);
    gives!(words!().verify().drifts(conn), vec![]);
    // One of them goes, and the other continues.
    replies_count!().drop(conn).unwrap();
    counts_after! { conn; "DELETE FROM replies" => [1, 2, 0, 0] }
    assert_eq!(sums(conn), [0, 0, 0, 0]);
}

/// As for a site's one row; here for each topic.
#[test]
fn all_rows_count_for_each_parent() {
    let conn = &mut set_up().conn;
    let all = CounterCache::of(topics::replies_count).counts_all(replies::table);
    let words = CounterCache::of(topics::words)
        .counts_all(replies::table)
        .filter(replies::shown)
        .sums(replies::words);
    insert("id", "(1)", conn).unwrap();
    all.create(conn).unwrap();
    words.create(conn).unwrap();
    insert("id, topic_id, words", "(2, 1, 5), (3, NULL, NULL)", conn).unwrap();
    assert_eq!((counts(conn), sums(conn)), (vec![2; 4], vec![5; 4]));
    assert_eq!(all.verify().repair(conn).unwrap().len(), 4);
    run("UPDATE replies SET topic_id = 2, words = 7", conn).unwrap();
    run("UPDATE replies SET shown = FALSE WHERE id = 1", conn).unwrap();
    assert_eq!((counts(conn), sums(conn)), (vec![3; 4], vec![14; 4]));
    run("DELETE FROM replies WHERE id = 2", conn).unwrap();
    run("UPDATE topics SET id = 5 WHERE id = 3", conn).unwrap();
    run("INSERT INTO topics (id) VALUES (6)", conn).unwrap();
    assert_eq!(counts(conn), [2, 2, 2, 2, 0]);
    assert_eq!(sums(conn), [7, 7, 7, 7, 0]);
    assert_eq!(all.verify().repair(conn).unwrap().len(), 1);
    let _ = fold(topics::table).run(conn).unwrap();
    assert_eq!(counts(conn), [2; 5]);
    if dialect(conn) == Dialect::Postgres {
        run("TRUNCATE replies", conn).unwrap();
        assert_eq!(counts(conn), [0; 5]);
        insert("id", "(1), (2)", conn).unwrap();
    }
    all.drop(conn).unwrap();
    words.drop(conn).unwrap();
    run("DELETE FROM replies", conn).unwrap();
    assert_eq!(counts(conn), [2; 5]);
}

#[test]
fn a_parent_that_goes_meanwhile_is_left_out() {
    let Connected { conn, database } = &mut set_up();
    let all = CounterCache::of(topics::replies_count).counts_all(replies::table);
    all.create(conn).unwrap();
    insert("id", "(1)", conn).unwrap();
    if dialect(conn) == Dialect::Sqlite {
        return; // one transaction at a time writes
    }
    conn.batch_execute("BEGIN; DELETE FROM topics WHERE id = 3")
        .unwrap();
    thread::scope(|scope| {
        let writer = scope.spawn(|| insert("id", "(2)", &mut connect(database)));
        thread::sleep(Duration::from_millis(300)); // it waits by then, on most machines
        conn.batch_execute("COMMIT").unwrap();
        assert_eq!(writer.join().unwrap(), Ok(1));
    });
    assert_eq!(counts(conn), [2; 3]);
}

#[test]
fn what_is_rolled_back_is_not_counted() {
    let conn = &mut set_up().conn;
    replies_count!().create(conn).unwrap();
    rolled_back(conn, |conn| {
        insert("id, topic_id", "(1, 1), (2, 2)", conn).unwrap();
        rolled_back(conn, |conn| {
            insert("id, topic_id", "(3, 1)", conn).unwrap();
            assert_eq!(counts(conn), [2, 1, 0, 0]);
        });
        assert_eq!(counts(conn), [1, 1, 0, 0]);
    });
    assert_eq!((counts(conn), shards(conn)), (vec![0, 0, 0, 0], 0));
    // A statement of which one row fails counts none of them.
    insert("id, topic_id", "(1, 1)", conn).unwrap();
    insert("id, topic_id", "(2, 1), (1, 2)", conn).unwrap_err();
    assert_eq!(counts(conn), [1, 0, 0, 0]);
}

#[test]
fn a_sum_that_leaves_its_range_is_an_error() {
    let conn = &mut set_up().conn;
    words!().shards(1).create(conn).unwrap();
    let mut insert = |rows: &str| insert("id, topic_id, words", rows, conn);
    insert("(1, 1, 2147483646)").unwrap();
    insert("(2, 1, 2)").unwrap_err();
    insert("(3, 1, 2), (4, 1, 2147483647)").unwrap_err();
    assert_eq!(run("UPDATE replies SET topic_id = 2", conn), Ok(1));
    assert_eq!(sums(conn), [0, i32::MAX - 1, 0, 0]);
    assert_eq!(number_of_replies(conn), 1);
}

#[test]
fn rows_go_with_their_parent_and_leave_nothing() {
    let conn = &mut set_up().conn;
    replies_count!().create(conn).unwrap();
    let rows = "(1, 2), (2, 3), (3, 4), (4, 1), (5, 2), (6, 3), (7, 4), (8, 1)";
    insert("id, topic_id", rows, conn).unwrap();
    fold(topics::table).keep_shards(0).run(conn).unwrap(); // the rows that go find no shard
    assert_eq!((counts(conn), shards(conn)), (vec![2, 2, 2, 2], 0));
    run("DELETE FROM topics WHERE id <= 2", conn).unwrap();
    assert_eq!((number_of_replies(conn), shards(conn)), (4, 0));
    insert("id, topic_id", "(9, 3)", conn).unwrap();
    run("DELETE FROM topics WHERE id = 3", conn).unwrap();
    assert_eq!((counts(conn), shards(conn)), (vec![2], 0));
    // A new row of an old key begins anew.
    counts_after! { conn; "INSERT INTO topics (id) VALUES (3)" => [0, 2] }
    gives!(replies_count!().verify().drifts(conn), vec![]);
}

/// The trigger that the documentation gives for MySQL, and the plain cascade elsewhere.
#[test]
fn rows_that_go_with_another_tables_row_count() {
    const BY_TRIGGER: &str = "CREATE TRIGGER authors_delete_replies BEFORE DELETE ON authors FOR EACH ROW \
        DELETE FROM replies WHERE author_id = OLD.id";
    let conn = &mut set_up().conn;
    replies_count!().create(conn).unwrap();
    let rows = "(1, 2, 2), (2, 1, 1), (3, 2, 1), (4, 1, 2), (5, 2, 1), (6, 1, 1)";
    insert("id, topic_id, author_id", rows, conn).unwrap();
    let on_mysql = dialect(conn) == Dialect::Mysql;
    if on_mysql {
        conn.batch_execute(BY_TRIGGER).unwrap();
    }
    counts_after! { conn; "DELETE FROM authors WHERE id = 2" => [2, 2, 0, 0] }
    let left = replies::table.select(replies::id).order(replies::id);
    assert_eq!(left.load::<i64>(conn), Ok(vec![2, 3, 5, 6]));
    if on_mysql {
        // Without it the cascade counts nothing, and a repair finds that.
        let without = "DROP TRIGGER authors_delete_replies";
        conn.batch_execute(without).unwrap();
        counts_after! { conn; "DELETE FROM authors WHERE id = 1" => [2, 2, 0, 0] }
        let repaired = replies_count!().verify().repair(conn).unwrap();
        assert_eq!((repaired.len(), counts(conn)), (2, vec![0, 0, 0, 0]));
    }
}

/// Answers are rows of the same table, and go with the row that they answer.
#[test]
fn a_table_counts_its_own_rows() {
    let conn = &mut set_up().conn;
    ShardsTable::of(replies::table).create(conn).unwrap();
    let answers = CounterCache::of(replies::answers_count).counts(replies::answer_to);
    answers.create(conn).unwrap();
    let rows = "(1, NULL), (2, 1), (3, 1), (4, 2)";
    insert("id, answer_to", rows, conn).unwrap();
    let totals = |conn: &mut Conn| {
        let totals = replies::table.select((replies::id, replies::answers_count.total()));
        totals.order(replies::id).load::<(i64, i64)>(conn).unwrap()
    };
    assert_eq!(totals(conn), [(1, 2), (2, 1), (3, 0), (4, 0)]);
    let folded = fold(replies::table).run(conn).unwrap();
    assert_eq!((folded.parents, folded.unfit), (2, vec![]));
    let bases = replies::table.select(replies::answers_count);
    let bases = bases.order(replies::id).load::<i64>(conn);
    assert_eq!(bases, Ok(vec![2, 1, 0, 0]));
    run("UPDATE replies SET answer_to = 3 WHERE id = 4", conn).unwrap();
    run("DELETE FROM replies WHERE id IN (1, 2)", conn).unwrap();
    assert_eq!(totals(conn), [(3, 1), (4, 0)]);
    gives!(answers.verify().drifts(conn), vec![]);
}

#[test]
fn composite_keys_and_odd_names() {
    let database = Conn::database();
    let conn = &mut connect(&database);
    if dialect(conn) == Dialect::Mysql {
        let quotes = "SET SESSION sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')";
        conn.batch_execute(quotes).unwrap();
    }
    conn.batch_execute(
        r#"CREATE TABLE "Odd ""shelves""" ("row" INTEGER NOT NULL, "order" VARCHAR(40) NOT NULL, "number of `books`" INTEGER NOT NULL DEFAULT 0, PRIMARY KEY ("row", "order"));
        CREATE TABLE "it's a 'book' with a name that is as long as it may be" (id BIGINT PRIMARY KEY, "select" INTEGER, "shelf, ""order""" VARCHAR(40));
        INSERT INTO "Odd ""shelves""" ("row", "order") VALUES (1, 'it''s "a"'), (1, 'b'), (2, 'b')"#,
    )
    .unwrap();
    let conn = &mut connect(&database);
    ShardsTable::of(shelves::table).create(conn).unwrap();
    let number_of_books = CounterCache::of(shelves::books).counts((books::row, books::place));
    number_of_books.create(conn).unwrap();
    let no_such_shelf = (4, Some(2), Some("c"));
    for (id, row, place) in [
        (1, Some(1), Some("it's \"a\"")),
        (2, Some(1), Some("b")),
        (3, Some(1), Some("b")),
        no_such_shelf,
        (5, Some(2), None),
        (6, None, Some("b")),
    ] {
        let row = (books::id.eq(id), books::row.eq(row), books::place.eq(place));
        insert!(books::table, row, conn);
    }
    let totals = |conn: &mut Conn| {
        let totals = shelves::table.select(shelves::books.total());
        let by_key = (shelves::row, shelves::place.desc());
        totals.order(by_key).load::<i32>(conn).unwrap()
    };
    assert_eq!(totals(conn), [1, 2, 0]);
    let moved = books::table.filter(books::id.ge(3));
    edit!(moved, (books::row.eq(2), books::place.eq("b")), conn);
    assert_eq!(totals(conn), [1, 1, 4]);
    gives!(number_of_books.verify().drifts(conn), vec![]);
    delete!(books::table, conn);
    assert_eq!(totals(conn), [0, 0, 0]);
    number_of_books.drop(conn).unwrap();
}

#[test]
fn a_migration_creates_and_drops_the_triggers() {
    let conn = &mut set_up().conn;
    let migration = replies_count!().migration("20260101000000");
    let migrate = |conn: &mut Conn| {
        conn.run_pending_migrations(migration.clone())
            .unwrap()
            .len()
    };
    assert_eq!((migrate(conn), migrate(conn)), (1, 0));
    insert("id, topic_id", "(1, 1)", conn).unwrap();
    conn.revert_migration(&migration).unwrap();
    insert("id, topic_id", "(2, 1)", conn).unwrap();
    assert_eq!(counts(conn), [1, 0, 0, 0]);
    assert_eq!(migrate(conn), 1);
    insert("id, topic_id", "(3, 1)", conn).unwrap();
    assert_eq!(counts(conn), [2, 0, 0, 0]);
}

/// A text without shards table or child fails at once, and not at the application's next insert.
#[test]
fn a_missing_table_is_found_at_creation() {
    let conn = &mut set_up().conn;
    ShardsTable::of(topics::table).drop(conn).unwrap();
    let created = replies_count!().create(conn).done();
    refused!(created, Error::MissingShardsTable { table, .. } if table == "topics_shards");
    assert_eq!(insert("id, topic_id", "(1, 1)", conn), Ok(1));
}

#[test]
fn inside_a_transaction() {
    let conn = &mut set_up().conn;
    let created: QueryResult<()> = conn.transaction(|conn| {
        replies_count!().create(conn).done()?;
        insert("id, topic_id", "(1, 1)", conn).map(drop)
    });
    match dialect(conn) {
        Dialect::Mysql => assert_eq!(created, Err(DieselError::AlreadyInTransaction)),
        _ => assert_eq!((created, counts(conn)), (Ok(()), vec![1, 0, 0, 0])),
    }
}

/// A reply of a thread's own.
fn id_of(number: i64, round: i64) -> i64 {
    1_000_000 * (number + 1) + 100 * round
}

/// This many attempts, whenever a transaction gets its turn.
fn patient() -> RetryPolicy {
    diesel_sharded_tests::patient().with_attempts(1000)
}

/// A cache of the rows that are shown, and one of their words.
macro_rules! both_caches {
    ($conn:expr) => {{
        let shown = replies_count!().filter(replies::shown);
        shown.create($conn).unwrap();
        words!().create($conn).unwrap();
        shown
    }};
}

macro_rules! the_caches_are_exact {
    ($shown:expr, $conn:expr) => {
        gives!($shown.verify().drifts($conn), vec![]);
        gives!(words!().verify().drifts($conn), vec![]);
        let of_shown = replies::table.filter(replies::shown);
        let of_shown = of_shown.count().get_result::<i64>($conn);
        assert_eq!(Ok(counts($conn).iter().sum()), of_shown);
    };
}

/// Eight writers insert, move, hide and delete rows of the same topics, in statements and in transactions, some of which are rolled
/// back, while folds remove shards.
#[test]
fn eight_writers_beside_folds() {
    let Connected { conn, database } = &mut set_up();
    let shown = both_caches!(conn);
    let write = |number, conn: &mut Conn| {
        for round in 0..30 {
            let id = id_of(number, round);
            let row = |i| format!("({}, {}, {i})", id + i, 1 + (id / 100 + i) % 4);
            let rows = (0..5).map(row).collect::<Vec<_>>().join(", ");
            let update = format!(
                "UPDATE replies SET topic_id = {}, shown = {}, words = words - 7 WHERE id BETWEEN {} AND {}",
                1 + (number + round) % 4,
                round % 3 != 0,
                id + 2,
                id + 4
            );
            let delete = format!("DELETE FROM replies WHERE id = {}", id + round % 5);
            let outcome = || match round % 7 {
                3 => Err(DieselError::RollbackTransaction),
                _ => Ok(()),
            };
            let written = retry::transaction(conn, patient(), |conn| {
                insert("id, topic_id, words", &rows, conn)?;
                run(&update, conn)?;
                run(&delete, conn)?;
                outcome()
            });
            assert_eq!(written, outcome());
        }
    };
    on_threads_beside(8, database, write, 1, |_, rounds, conn| {
        for _ in rounds {
            fold(topics::table).keep_shards(2).run(conn).unwrap();
        }
    });
    assert_eq!(number_of_replies(conn), 8 * 26 * 4); // 4 of the 30 rounds were rolled back
    the_caches_are_exact!(shown, conn);
}

/// Eight writers write rows of parents whose keys change meanwhile. A row of a key that is gone is refused by its foreign key.
#[test]
fn eight_writers_beside_new_keys_of_parents() {
    use DatabaseErrorKind::{ForeignKeyViolation, UniqueViolation};
    let Connected { conn, database } = &mut set_up();
    let shown = both_caches!(conn);
    let version = conn.version();
    let others = ["MariaDB", "PostgreSQL", "SQLite"];
    let is_mysql = !others.iter().any(|other| version.contains(other));
    let parents = topics::table.select(topics::id).order(topics::id);
    on_threads(9, database, |number, conn| {
        for round in 0..60 {
            if number == 8 {
                let with_totals = parents.filter(topics::replies_count.total().ge(0));
                let parent = with_totals.load::<i64>(conn).unwrap()[round as usize % 4];
                let rename = format!("UPDATE topics SET id = id + 4 WHERE id = {parent}");
                match retry::transaction(conn, patient(), |conn| run(&rename, conn)) {
                    Ok(renamed) => assert_eq!(renamed, 1),
                    // Another may have the key.
                    Err(DieselError::DatabaseError(UniqueViolation, _)) => {}
                    // MySQL 9.7 rolls back the victim of a deadlock in a cascade, and answers Ok to its statement.
                    Err(error) => {
                        assert_matches!(Error::from(error), Error::TransactionAborted if is_mysql);
                    }
                }
                continue;
            }
            let id = id_of(number, round);
            let written: QueryResult<()> = retry::transaction(conn, patient(), |conn| {
                let parents = parents.load::<i64>(conn)?;
                let parent = |n: i64| parents[(number + round + n) as usize % 4];
                let row = |i| format!("({}, {}, {i})", id + i, parent(i));
                let rows = (0..3).map(row).collect::<Vec<_>>().join(", ");
                insert("id, topic_id, words", rows, conn)?;
                let update = format!(
                    "UPDATE replies SET topic_id = {}, shown = {}, words = words - 7 WHERE id = {}",
                    parent(3),
                    round % 3 != 0,
                    id_of(number, round / 2)
                );
                run(update, conn)?;
                let delete = format!("DELETE FROM replies WHERE id = {}", id + round % 3);
                run(delete, conn).map(drop)
            });
            // Its parent may be gone.
            assert_matches!(
                written,
                Ok(()) | Err(DieselError::DatabaseError(ForeignKeyViolation, _))
            );
        }
    });
    the_caches_are_exact!(shown, conn);
}

/// The triggers name no other columns than they read.
#[test]
fn a_column_that_is_not_read_may_be_dropped() {
    let conn = &mut set_up().conn;
    let shown = replies_count!().filter(sql::<Bool>("replies.shown AND replies.id <> 3"));
    shown.create(conn).unwrap();
    run("ALTER TABLE replies DROP COLUMN words", conn).unwrap();
    let rows = "(1, 1), (2, 1), (3, 1), (4, 1)";
    insert("id, topic_id", rows, conn).unwrap();
    assert_eq!(counts(conn), [3, 0, 0, 0]);
    counts_after! { conn;
        "UPDATE replies SET shown = FALSE WHERE id = 1" => [2, 0, 0, 0],
        "DELETE FROM replies WHERE id = 2" => [1, 0, 0, 0],
    }
    gives!(shown.verify().drifts(conn), vec![]);
}

/// No trigger is left that would fail at the first row: the parent's columns are none of the row's.
#[test]
fn a_condition_on_a_column_that_is_not_there_is_refused() {
    let conn = &mut set_up().conn;
    for (condition, column) in [
        ("hidden = 0", "hidden"),
        ("replies.hidden = 0", "hidden"),
        ("replies_count > 0", "replies_count"),
        ("topics.replies_count > 0", "topics"),
        ("shown", "shown"), // without its table's name it would be any table's
    ] {
        let cache = replies_count!().filter(sql::<Bool>(condition));
        let refused = cache.create(conn).unwrap_err().to_string();
        assert!(refused.contains(column), "{refused}");
        insert("id, topic_id", "(1, 1)", conn).unwrap();
        run("DELETE FROM replies", conn).unwrap();
    }
    // `table!` may lack a column, which then follows its table's name.
    let hidden = "ALTER TABLE replies ADD COLUMN hidden INTEGER NOT NULL DEFAULT 0";
    run(hidden, conn).unwrap();
    let cache = replies_count!().filter(sql::<Bool>("replies.hidden = 0"));
    cache.create(conn).unwrap();
    insert("id, topic_id, hidden", "(1, 1, 0), (2, 1, 1)", conn).unwrap();
    assert_eq!(counts(conn), [1, 0, 0, 0]);
}

/// Rows are there before the triggers are, and others come while they are created and the rest is added. Each writer writes a
/// number of rows, whenever the repair gets its turn.
#[test]
fn backfill_while_eight_writers_write() {
    let Connected { conn, database } = &mut set_up();
    let row = |id: i64| format!("({id}, {})", 1 + id % 4);
    let old = (1..=40).map(row).collect::<Vec<_>>().join(", ");
    insert("id, topic_id", old, conn).unwrap();
    let begun = Barrier::new(9);
    on_threads(9, database, |number, conn| {
        begun.wait();
        if number == 8 {
            replies_count!().create(conn).unwrap();
            let cache = replies_count!().verify().retry(patient());
            let repaired = cache.repair(conn).done();
            assert!(repaired.is_ok(), "{repaired:?}");
            return;
        }
        for round in 0..100 {
            let (id, own) = (id_of(number, round), 1 + number % 4);
            let rows = format!("({id}, {}), ({}, {own})", 1 + round % 4, id + 1);
            let written: QueryResult<usize> = retry::transaction(conn, patient(), |conn| {
                insert("id, topic_id", &rows, conn)?;
                diesel::delete(replies::table.find(id)).execute(conn)
            });
            assert_eq!(written, Ok(1));
        }
    });
    gives!(replies_count!().verify().drifts(conn), vec![]);
    assert_eq!(counts(conn).iter().sum::<i64>(), number_of_replies(conn));
}

/// Triggers of the application's own call the function; SQLite's contain its statement.
#[test]
fn triggers_of_the_applications_own() {
    let conn = &mut set_up().conn;
    let table = ShardsTable::of(topics::table);
    let backend = <Conn as Connection>::Backend::backend_of(conn);
    let triggers = match dialect(conn) {
        Dialect::Postgres => {
            "CREATE FUNCTION counted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 IF NOT topics_shards_add(NEW.topic_id, 0, NEW.words) THEN RAISE EXCEPTION 'no topic'; END IF; RETURN NEW; END $$;
             CREATE TRIGGER counted AFTER INSERT ON replies FOR EACH ROW EXECUTE FUNCTION counted()"
        }
        Dialect::Mysql => {
            "CREATE TRIGGER counted AFTER INSERT ON replies FOR EACH ROW CALL topics_shards_add(NEW.topic_id, 0, NEW.words)"
        }
        _ => {
            "CREATE TRIGGER counted AFTER INSERT ON replies BEGIN
                 INSERT INTO topics_shards (id, shard, words) SELECT id, 0, NEW.words FROM topics WHERE id = NEW.topic_id
                     ON CONFLICT (id, shard) DO UPDATE SET words = words + excluded.words; END"
        }
    };
    let function = table.add_function_sql(&backend);
    if let Ok(function) = &function {
        conn.batch_execute(function).unwrap();
    }
    conn.batch_execute(triggers).unwrap();
    let rows = "(1, 1, 5), (2, 1, -2), (3, 1, 7)";
    insert("id, topic_id, words", rows, conn).unwrap();
    assert_eq!(sums(conn), [10, 0, 0, 0]);
    assert_eq!(counts(conn), [0, 0, 0, 0]);
    if function.is_err() {
        return; // SQLite has none
    }
    let (call, drop_trigger) = match dialect(conn) {
        Dialect::Mysql => ("CALL", "DROP TRIGGER counted"),
        _ => ("SELECT", "DROP TRIGGER counted ON replies"),
    };
    let add = |arguments: &str, conn: &mut Conn| {
        conn.batch_execute(&format!("{call} topics_shards_add({arguments})"))
    };
    add("1, 0, 0, 1", conn).unwrap_err();
    add("99, 0, 1", conn).unwrap();
    add("1, 0, 2147483647", conn).unwrap_err();
    assert_eq!(sums(conn), [10, 0, 0, 0]);
    conn.batch_execute(drop_trigger).unwrap();
    let drop_function = table.drop_function_sql(&backend).unwrap();
    conn.batch_execute(&drop_function).unwrap();
    add("99, 0, 1", conn).unwrap_err();
}
