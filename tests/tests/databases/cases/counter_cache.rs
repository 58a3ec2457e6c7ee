//! Numbers of rows that triggers keep.

use std::sync::Barrier;

use super::api::counter_cache::literal;
use super::support::*;
use diesel::dsl::sql;
use diesel::result::DatabaseErrorKind;
use diesel::sql_types::Bool;
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
    topics_shards (id, shard) {
        id -> BigInt,
        shard -> Integer,
        replies_count -> BigInt,
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
fn database() -> (Database, Conn) {
    let database = Conn::database();
    let mut conn = connect(&database);
    let tables = "CREATE TABLE topics (id BIGINT PRIMARY KEY, replies_count BIGINT NOT NULL DEFAULT 0, words INTEGER NOT NULL DEFAULT 0);
        CREATE TABLE authors (id BIGINT PRIMARY KEY);
        CREATE TABLE replies (id BIGINT PRIMARY KEY, topic_id BIGINT, author_id BIGINT, shown BOOL NOT NULL DEFAULT TRUE, words INTEGER, \
            answers_count BIGINT NOT NULL DEFAULT 0, answer_to BIGINT, \
            FOREIGN KEY (topic_id) REFERENCES topics (id) ON DELETE CASCADE ON UPDATE CASCADE, \
            FOREIGN KEY (author_id) REFERENCES authors (id) ON DELETE CASCADE);
        INSERT INTO topics (id) VALUES (1), (2), (3), (4);
        INSERT INTO authors (id) VALUES (1), (2)";
    for statement in tables.split(";\n") {
        conn.batch_execute(statement).unwrap();
    }
    ShardsTable::of(topics::table).create(&mut conn).unwrap();
    (database, conn)
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

/// The key of a reply, and of its topic.
type NewReply = (i64, Option<i64>);

fn reply(id: i64, topic: impl Into<Option<i64>>) -> NewReply {
    (id, topic.into())
}

/// By one statement. (On an enum of connections Diesel inserts single rows.)
fn insert(conn: &mut Conn, new: Vec<NewReply>) -> QueryResult<usize> {
    let rows = new.into_iter().map(|new| (new, None)).collect();
    insert_with("words", rows, conn)
}

/// By one statement, with a further column.
fn insert_with(
    column: &str,
    new: Vec<(NewReply, Option<i64>)>,
    conn: &mut Conn,
) -> QueryResult<usize> {
    let number = |n: Option<i64>| n.map_or("NULL".to_owned(), |n| n.to_string());
    let row = |((id, topic), value)| format!("({id}, {}, {})", number(topic), number(value));
    let rows: Vec<_> = new.into_iter().map(row).collect();
    let rows = rows.join(", ");
    let sql = format!("INSERT INTO replies (id, topic_id, {column}) VALUES {rows}");
    diesel::sql_query(sql).execute(conn)
}

fn counts(conn: &mut Conn) -> Vec<i64> {
    let totals = topics::table.select(topics::replies_count.total());
    totals.order(topics::id).load(conn).unwrap()
}

fn sums(conn: &mut Conn) -> Vec<i32> {
    let totals = topics::table.select(topics::words.total());
    totals.order(topics::id).load(conn).unwrap()
}

fn shards(conn: &mut Conn) -> i64 {
    topics_shards::table.count().get_result(conn).unwrap()
}

#[test]
fn every_change_of_the_rows_counts() {
    let (_database, conn) = &mut database();
    replies_count!().create(conn).unwrap();
    let new = (1..=6).map(|id| reply(id, 1 + id % 2)).collect();
    assert_eq!(insert(conn, new), Ok(6));
    assert_eq!(counts(conn), [3, 3, 0, 0]);
    // Without a topic it counts nowhere.
    insert(conn, vec![reply(7, None), reply(8, 3)]).unwrap();
    assert_eq!(counts(conn), [3, 3, 1, 0]);
    // 2, 4 and 6 move from 1 to 4, one of 2's to nowhere, and 7 to 3.
    let of_1 = replies::table.filter(replies::topic_id.eq(1));
    edit!(of_1, replies::topic_id.eq(4), conn);
    edit!(
        replies::table.find(1),
        replies::topic_id.eq(None::<i64>),
        conn
    );
    edit!(replies::table.find(7), replies::topic_id.eq(3), conn);
    assert_eq!(counts(conn), [0, 2, 2, 3]);
    let before = shards(conn);
    edit!(
        replies::table,
        (replies::words.eq(5), replies::shown.eq(false)),
        conn
    );
    assert_eq!((counts(conn), shards(conn)), (vec![0, 2, 2, 3], before));
    delete!(replies::table.filter(replies::id.ge(4)), conn);
    assert_eq!(counts(conn), [0, 1, 0, 1]);
    diesel::delete(replies::table).execute(conn).unwrap();
    assert_eq!(counts(conn), [0, 0, 0, 0]);
    assert_eq!(replies_count!().verify().drifts(conn), Ok(vec![]));
}

#[test]
fn a_condition_decides_which_rows_count() {
    let (_database, conn) = &mut database();
    let long_and_shown = replies::shown
        .and(replies::words.ge(literal(10)))
        .and(replies::id.ne(literal(99_i64)));
    let cache = replies_count!().filter(long_and_shown);
    cache.create(conn).unwrap();
    let new = |id: i64, topic: i64, words: Option<i64>| (reply(id, topic), words);
    let rows = vec![
        new(1, 1, Some(10)),
        new(2, 1, Some(9)),
        new(3, 1, None), // the condition is NULL
        new(4, 2, Some(11)),
        new(99, 2, Some(11)),
    ];
    insert_with("words", rows, conn).unwrap();
    assert_eq!(counts(conn), [1, 1, 0, 0]);
    let set = |id: i64, words: i32, shown: bool, topic: i64, conn: &mut Conn| {
        edit!(
            replies::table.find(id),
            (
                replies::words.eq(words),
                replies::shown.eq(shown),
                replies::topic_id.eq(topic),
            ),
            conn
        );
    };
    set(2, 20, true, 1, conn); // begins to count
    set(1, 20, false, 1, conn); // ends to count
    set(3, 20, true, 3, conn); // begins, and moves
    set(4, 3, true, 4, conn); // ends, and moves
    set(99, 50, true, 4, conn);
    assert_eq!(counts(conn), [1, 0, 1, 0]);
    set(1, 20, false, 4, conn); // moves unseen
    diesel::delete(replies::table.filter(replies::id.le(2)))
        .execute(conn)
        .unwrap();
    assert_eq!(counts(conn), [0, 0, 1, 0]);
    assert_eq!(cache.verify().drifts(conn), Ok(vec![]));
}

#[test]
fn a_condition_with_a_bind_is_refused() {
    let (_database, mut conn) = database();
    let cache = replies_count!().filter(replies::shown.eq(true));
    let error = Error::from(cache.create(&mut conn).unwrap_err());
    assert_matches!(error, Error::BindInTrigger { .. });
}

#[test]
fn several_caches_of_the_same_rows() {
    let (_database, conn) = &mut database();
    replies_count!().create(conn).unwrap();
    words!().create(conn).unwrap();
    let new = |id: i64, topic: i64, words: Option<i64>| (reply(id, topic), words);
    let rows = vec![
        new(1, 1, Some(10)),
        new(2, 1, Some(-3)),
        new(3, 1, None),
        new(4, 2, Some(0)),
    ];
    insert_with("words", rows, conn).unwrap();
    assert_eq!(
        (counts(conn), sums(conn)),
        (vec![3, 1, 0, 0], vec![7, 0, 0, 0])
    );
    edit!(replies::table, replies::words.eq(replies::words + 1), conn);
    edit!(replies::table.find(2), replies::topic_id.eq(2), conn);
    assert_eq!(
        (counts(conn), sums(conn)),
        (vec![2, 2, 0, 0], vec![11, -1, 0, 0])
    );
    delete!(replies::table.find(1), conn);
    assert_eq!(
        (counts(conn), sums(conn)),
        (vec![1, 2, 0, 0], vec![0, -1, 0, 0])
    );
    assert_eq!(words!().verify().drifts(conn), Ok(vec![]));
    // One of them goes, and the other continues.
    replies_count!().drop(conn).unwrap();
    diesel::delete(replies::table).execute(conn).unwrap();
    assert_eq!(
        (counts(conn), sums(conn)),
        (vec![1, 2, 0, 0], vec![0, 0, 0, 0])
    );
}

#[test]
fn what_is_rolled_back_is_not_counted() {
    let (_database, conn) = &mut database();
    replies_count!().create(conn).unwrap();
    rolled_back(conn, |conn| {
        insert(conn, vec![reply(1, 1), reply(2, 2)]).unwrap();
        rolled_back(conn, |conn| {
            insert(conn, vec![reply(3, 1)]).unwrap();
            assert_eq!(counts(conn), [2, 1, 0, 0]);
        });
        assert_eq!(counts(conn), [1, 1, 0, 0]);
    });
    assert_eq!((counts(conn), shards(conn)), (vec![0, 0, 0, 0], 0));
    // A statement of which one row fails counts none of them.
    insert(conn, vec![reply(1, 1)]).unwrap();
    insert(conn, vec![reply(2, 1), reply(1, 2)]).unwrap_err();
    assert_eq!(counts(conn), [1, 0, 0, 0]);
}

#[test]
fn a_sum_that_leaves_its_range_is_an_error() {
    let (_database, conn) = &mut database();
    words!().shards(1).create(conn).unwrap();
    let new = |id: i64, words: i32| (reply(id, 1), Some(words.into()));
    let insert = |rows: Vec<_>, conn: &mut Conn| insert_with("words", rows, conn);
    insert(vec![new(1, i32::MAX - 1)], conn).unwrap();
    insert(vec![new(2, 2)], conn).unwrap_err();
    insert(vec![new(3, 2), new(4, i32::MAX)], conn).unwrap_err();
    let raise = diesel::update(replies::table).set(replies::topic_id.eq(2));
    assert_eq!(raise.execute(conn), Ok(1));
    assert_eq!(sums(conn), [0, i32::MAX - 1, 0, 0]);
    let rows = replies::table.count().get_result::<i64>(conn);
    assert_eq!(rows, Ok(1));
}

#[test]
fn rows_go_with_their_parent_and_leave_nothing() {
    let (_database, conn) = &mut database();
    replies_count!().create(conn).unwrap();
    let new = (1..=8).map(|id| reply(id, 1 + id % 4)).collect();
    insert(conn, new).unwrap();
    fold(topics::table).keep_shards(0).run(conn).unwrap(); // the rows that go find no shard
    assert_eq!((counts(conn), shards(conn)), (vec![2, 2, 2, 2], 0));
    delete!(topics::table.filter(topics::id.le(2)), conn);
    let left = replies::table.count().get_result::<i64>(conn);
    assert_eq!((left, shards(conn)), (Ok(4), 0));
    insert(conn, vec![reply(9, 3)]).unwrap();
    diesel::delete(topics::table.find(3)).execute(conn).unwrap();
    assert_eq!((counts(conn), shards(conn)), (vec![2], 0));
    // A new row of an old key begins anew.
    diesel::insert_into(topics::table)
        .values(topics::id.eq(3))
        .execute(conn)
        .unwrap();
    assert_eq!(counts(conn), [0, 2]);
    assert_eq!(replies_count!().verify().drifts(conn), Ok(vec![]));
}

/// The trigger that the documentation gives for MySQL, and the plain cascade elsewhere.
#[test]
fn rows_that_go_with_another_tables_row_count() {
    const BY_TRIGGER: &str = "CREATE TRIGGER authors_delete_replies BEFORE DELETE ON authors FOR EACH ROW \
        DELETE FROM replies WHERE author_id = OLD.id";
    let (_database, conn) = &mut database();
    replies_count!().create(conn).unwrap();
    let by = |id: i64, author: i64| (reply(id, 1 + id % 2), Some(author));
    let rows = (1..=6).map(|id| by(id, 1 + id % 3 % 2)).collect();
    insert_with("author_id", rows, conn).unwrap();
    let on_mysql = dialect(conn) == Dialect::Mysql;
    if on_mysql {
        conn.batch_execute(BY_TRIGGER).unwrap();
    }
    delete!(authors::table.find(2), conn);
    let left = replies::table.select(replies::id).order(replies::id);
    assert_eq!(left.load::<i64>(conn), Ok(vec![2, 3, 5, 6]));
    assert_eq!(counts(conn), [2, 2, 0, 0]);
    if on_mysql {
        // Without it the cascade counts nothing, and a repair finds that.
        conn.batch_execute("DROP TRIGGER authors_delete_replies")
            .unwrap();
        delete!(authors::table.find(1), conn);
        assert_eq!(counts(conn), [2, 2, 0, 0]);
        let repaired = replies_count!().verify().repair(conn).unwrap();
        assert_eq!((repaired.len(), counts(conn)), (2, vec![0, 0, 0, 0]));
    }
}

/// Answers are rows of the same table, and go with the row that they answer.
#[test]
fn a_table_counts_its_own_rows() {
    let (_database, conn) = &mut database();
    ShardsTable::of(replies::table).create(conn).unwrap();
    let answers = CounterCache::of(replies::answers_count).counts(replies::answer_to);
    answers.create(conn).unwrap();
    let new = |id: i64, to: Option<i64>| (reply(id, None), to);
    let rows = vec![
        new(1, None),
        new(2, Some(1)),
        new(3, Some(1)),
        new(4, Some(2)),
    ];
    insert_with("answer_to", rows, conn).unwrap();
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
    edit!(replies::table.find(4), replies::answer_to.eq(3), conn);
    delete!(replies::table.filter(replies::id.eq_any([1, 2])), conn);
    assert_eq!(totals(conn), [(3, 1), (4, 0)]);
    assert_eq!(answers.verify().drifts(conn), Ok(vec![]));
}

#[test]
fn composite_keys_and_odd_names() {
    let database = Conn::database();
    let conn = &mut connect(&database);
    let tables = r#"CREATE TABLE "Odd ""shelves""" ("row" INTEGER NOT NULL, "order" VARCHAR(40) NOT NULL, "number of `books`" INTEGER NOT NULL DEFAULT 0, PRIMARY KEY ("row", "order"));
        CREATE TABLE "it's a 'book' with a name that is as long as it may be" (id BIGINT PRIMARY KEY, "select" INTEGER, "shelf, ""order""" VARCHAR(40));
        INSERT INTO "Odd ""shelves""" ("row", "order") VALUES (1, 'it''s "a"'), (1, 'b'), (2, 'b')"#;
    if dialect(conn) == Dialect::Mysql {
        conn.batch_execute("SET SESSION sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES')")
            .unwrap();
    }
    for statement in tables.split(";\n") {
        conn.batch_execute(statement).unwrap();
    }
    let conn = &mut connect(&database);
    ShardsTable::of(shelves::table).create(conn).unwrap();
    let number_of_books = CounterCache::of(shelves::books).counts((books::row, books::place));
    number_of_books.create(conn).unwrap();
    let new = |id: i64, row: Option<i32>, place: Option<&'static str>| {
        (books::id.eq(id), books::row.eq(row), books::place.eq(place))
    };
    let rows = vec![
        new(1, Some(1), Some("it's \"a\"")),
        new(2, Some(1), Some("b")),
        new(3, Some(1), Some("b")),
        new(4, Some(2), Some("c")), // no such shelf
        new(5, Some(2), None),
        new(6, None, Some("b")),
    ];
    for row in rows {
        let insert = diesel::insert_into(books::table).values(row);
        insert.execute(conn).unwrap();
    }
    let totals = |conn: &mut Conn| {
        let totals = shelves::table.select(shelves::books.total());
        let by_key = (shelves::row, shelves::place.desc());
        totals.order(by_key).load::<i32>(conn).unwrap()
    };
    assert_eq!(totals(conn), [1, 2, 0]);
    edit!(
        books::table.filter(books::id.ge(3)),
        (books::row.eq(2), books::place.eq("b")),
        conn
    );
    assert_eq!(totals(conn), [1, 1, 4]);
    assert_eq!(number_of_books.verify().drifts(conn), Ok(vec![]));
    diesel::delete(books::table).execute(conn).unwrap();
    assert_eq!(totals(conn), [0, 0, 0]);
    number_of_books.drop(conn).unwrap();
}

#[test]
fn a_migration_creates_and_drops_the_triggers() {
    let (_database, conn) = &mut database();
    let migration = replies_count!().migration("20260101000000");
    let run = |conn: &mut Conn| {
        conn.run_pending_migrations(migration.clone())
            .unwrap()
            .len()
    };
    assert_eq!((run(conn), run(conn)), (1, 0));
    insert(conn, vec![reply(1, 1)]).unwrap();
    conn.revert_migration(&migration).unwrap();
    insert(conn, vec![reply(2, 1)]).unwrap();
    assert_eq!(counts(conn), [1, 0, 0, 0]);
    assert_eq!(run(conn), 1);
    insert(conn, vec![reply(3, 1)]).unwrap();
    assert_eq!(counts(conn), [2, 0, 0, 0]);
}

/// A text without shards table or child fails at once, and not at the application's next insert.
#[test]
fn a_missing_table_is_found_at_creation() {
    let (_database, conn) = &mut database();
    ShardsTable::of(topics::table).drop(conn).unwrap();
    let error = Error::from(replies_count!().create(conn).unwrap_err());
    assert_matches!(&error, Error::MissingShardsTable { table, .. } if table == "topics_shards");
    assert_eq!(insert(conn, vec![reply(1, 1)]), Ok(1));
}

#[test]
fn inside_a_transaction() {
    let (_database, conn) = &mut database();
    let created: QueryResult<()> = conn.transaction(|conn| {
        replies_count!().create(conn)?;
        insert(conn, vec![reply(1, 1)]).map(drop)
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

/// The cache of the rows that are shown, and that of their words.
macro_rules! the_caches_are_exact {
    ($shown:expr, $conn:expr) => {
        assert_eq!($shown.verify().drifts($conn), Ok(vec![]));
        assert_eq!(words!().verify().drifts($conn), Ok(vec![]));
        let of_shown = replies::table.filter(replies::shown);
        let of_shown = of_shown.count().get_result::<i64>($conn);
        assert_eq!(Ok(counts($conn).iter().sum()), of_shown);
    };
}

/// Eight writers insert, move, hide and delete rows of the same topics, in statements and in transactions, some of which are rolled
/// back, while folds remove shards.
#[test]
fn eight_writers_beside_folds() {
    let (database, mut conn) = database();
    let shown = replies_count!().filter(replies::shown);
    shown.create(&mut conn).unwrap();
    words!().create(&mut conn).unwrap();
    let writing = AtomicI64::new(8);
    let policy = diesel_sharded_tests::patient().with_attempts(1000);
    on_threads(9, &database, |number, conn| {
        if number == 8 {
            while writing.load(Ordering::SeqCst) > 0 {
                let _ = fold(topics::table).keep_shards(2).run(conn).unwrap();
            }
            return;
        }
        for round in 0..30 {
            let id = id_of(number, round);
            let rolled_back = round % 7 == 3;
            let written: QueryResult<()> = retry::transaction(conn, policy.clone(), |conn| {
                let new: Vec<_> = (0..5)
                    .map(|i| (reply(id + i, 1 + (id / 100 + i) % 4), Some(i)))
                    .collect();
                insert_with("words", new, conn)?;
                let own = replies::table.filter(replies::id.between(id, id + 4));
                diesel::update(own.filter(replies::id.ge(id + 2)))
                    .set((
                        replies::topic_id.eq(1 + (number + round) % 4),
                        replies::shown.eq(round % 3 != 0),
                        replies::words.eq(replies::words - 7),
                    ))
                    .execute(conn)?;
                diesel::delete(replies::table.find(id + round % 5)).execute(conn)?;
                match rolled_back {
                    true => Err(DieselError::RollbackTransaction),
                    false => Ok(()),
                }
            });
            match rolled_back {
                true => assert_eq!(written, Err(DieselError::RollbackTransaction)),
                false => assert_eq!(written, Ok(())),
            }
        }
        writing.fetch_sub(1, Ordering::SeqCst);
    });
    let conn = &mut conn;
    let rows = replies::table.count().get_result::<i64>(conn);
    assert_eq!(rows, Ok(8 * 26 * 4)); // 4 of the 30 rounds were rolled back
    the_caches_are_exact!(shown, conn);
}

/// Eight writers write rows of parents whose keys change meanwhile. A row of a key that is gone is refused by its foreign key.
#[test]
fn eight_writers_beside_new_keys_of_parents() {
    let (database, mut conn) = database();
    let shown = replies_count!().filter(replies::shown);
    shown.create(&mut conn).unwrap();
    words!().create(&mut conn).unwrap();
    let policy = diesel_sharded_tests::patient().with_attempts(1000);
    let version = conn.version();
    let others = ["MariaDB", "PostgreSQL", "SQLite"];
    let is_mysql = !others.iter().any(|other| version.contains(other));
    on_threads(9, &database, |number, conn| {
        for round in 0..60 {
            if number == 8 {
                let parents = topics::table.filter(topics::replies_count.total().ge(0));
                let parents = parents.select(topics::id).order(topics::id);
                let parents: Vec<i64> = parents.load(conn).unwrap();
                let parent = parents[round as usize % 4];
                let renamed: QueryResult<usize> =
                    retry::transaction(conn, policy.clone(), |conn| {
                        let parent = topics::table.find(parent);
                        diesel::update(parent)
                            .set(topics::id.eq(topics::id + 4))
                            .execute(conn)
                    });
                match renamed {
                    Ok(renamed) => assert_eq!(renamed, 1),
                    // Another may have the key.
                    Err(DieselError::DatabaseError(DatabaseErrorKind::UniqueViolation, _)) => {}
                    // MySQL 9.7 rolls back the victim of a deadlock in a cascade, and answers Ok to its statement.
                    Err(error) => {
                        let error = Error::from(error);
                        assert!(
                            is_mysql && matches!(error, Error::TransactionAborted),
                            "{error:?}"
                        );
                    }
                }
                continue;
            }
            let id = id_of(number, round);
            let written: QueryResult<()> = retry::transaction(conn, policy.clone(), |conn| {
                let parents = topics::table.select(topics::id).order(topics::id);
                let parents: Vec<i64> = parents.load(conn)?;
                let parent = |n: i64| parents[(number + round + n) as usize % 4];
                let new = (0..3)
                    .map(|i| (reply(id + i, parent(i)), Some(i)))
                    .collect();
                insert_with("words", new, conn)?;
                let some = replies::table.find(id_of(number, round / 2));
                diesel::update(some)
                    .set((
                        replies::topic_id.eq(parent(3)),
                        replies::shown.eq(round % 3 != 0),
                        replies::words.eq(replies::words - 7),
                    ))
                    .execute(conn)?;
                diesel::delete(replies::table.find(id + round % 3)).execute(conn)?;
                Ok(())
            });
            let is_gone = matches!(
                &written,
                Err(DieselError::DatabaseError(
                    DatabaseErrorKind::ForeignKeyViolation,
                    _
                ))
            );
            assert!(written == Ok(()) || is_gone, "{written:?}");
        }
    });
    let conn = &mut conn;
    the_caches_are_exact!(shown, conn);
}

/// The triggers name no other columns than they read.
#[test]
fn a_column_that_is_not_read_may_be_dropped() {
    let (_database, conn) = &mut database();
    let shown = replies_count!().filter(sql::<Bool>("shown AND replies.id <> 3"));
    shown.create(conn).unwrap();
    conn.batch_execute("ALTER TABLE replies DROP COLUMN words")
        .unwrap();
    let new = |id: i64| (reply(id, 1), Some(id));
    insert_with("answers_count", (1..=4).map(new).collect(), conn).unwrap();
    assert_eq!(counts(conn), [3, 0, 0, 0]);
    edit!(replies::table.find(1), replies::shown.eq(false), conn);
    delete!(replies::table.find(2), conn);
    assert_eq!(counts(conn), [1, 0, 0, 0]);
    assert_eq!(shown.verify().drifts(conn), Ok(vec![]));
}

/// No trigger is left that would fail at the first row: the parent's columns are none of the row's.
#[test]
fn a_condition_on_a_column_that_is_not_there_is_refused() {
    let (_database, conn) = &mut database();
    for condition in ["hidden = 0", "replies.hidden = 0", "replies_count > 0"] {
        let cache = replies_count!().filter(sql::<Bool>(condition));
        let refused = cache.create(conn).unwrap_err().to_string();
        let column = condition
            .split([' ', '.'])
            .find(|word| !["replies"].contains(word));
        assert!(refused.contains(column.unwrap()), "{refused}");
        insert(conn, vec![reply(1, 1)]).unwrap();
        diesel::delete(replies::table).execute(conn).unwrap();
    }
    // `table!` may lack a column, which then stands behind its table.
    conn.batch_execute("ALTER TABLE replies ADD COLUMN hidden INTEGER NOT NULL DEFAULT 0")
        .unwrap();
    let cache = replies_count!().filter(sql::<Bool>("replies.hidden = 0"));
    cache.create(conn).unwrap();
    insert_with(
        "hidden",
        vec![(reply(1, 1), Some(0)), (reply(2, 1), Some(1))],
        conn,
    )
    .unwrap();
    assert_eq!(counts(conn), [1, 0, 0, 0]);
}

/// Rows are there before the triggers are, and others come while they are created and the rest is added. Each writer writes a
/// number of rows, whenever the repair gets its turn.
#[test]
fn backfill_while_eight_writers_write() {
    let (database, mut conn) = database();
    let old = (1..=40).map(|id| reply(id, 1 + id % 4)).collect();
    insert(&mut conn, old).unwrap();
    let begun = Barrier::new(9);
    let policy = diesel_sharded_tests::patient().with_attempts(1000);
    on_threads(9, &database, |number, conn| {
        begun.wait();
        if number == 8 {
            replies_count!().create(conn).unwrap();
            let repaired = replies_count!().verify().retry(policy.clone()).repair(conn);
            assert!(repaired.is_ok(), "{repaired:?}");
            return;
        }
        for round in 0..100 {
            let id = id_of(number, round);
            let written: QueryResult<usize> = retry::transaction(conn, policy.clone(), |conn| {
                insert(
                    conn,
                    vec![reply(id, 1 + round % 4), reply(id + 1, 1 + number % 4)],
                )?;
                diesel::delete(replies::table.find(id)).execute(conn)
            });
            assert_eq!(written, Ok(1));
        }
    });
    let conn = &mut conn;
    assert_eq!(replies_count!().verify().drifts(conn), Ok(vec![]));
    let rows = replies::table.count().get_result::<i64>(conn);
    assert_eq!(Ok(counts(conn).iter().sum()), rows);
}

/// Triggers of the application's own call the function; SQLite's contain its statement.
#[test]
fn triggers_of_the_applications_own() {
    let (_database, conn) = &mut database();
    let table = ShardsTable::of(topics::table);
    let backend = <Conn as Connection>::Backend::backend_of(conn);
    let on_mysql = dialect(conn) == Dialect::Mysql;
    let triggers = match dialect(conn) {
        Dialect::Postgres => {
            "CREATE FUNCTION counted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 IF NOT topics_shards_add(NEW.topic_id, 'words', NEW.words) THEN RAISE EXCEPTION 'no topic'; END IF; RETURN NEW; END $$;
             CREATE TRIGGER counted AFTER INSERT ON replies FOR EACH ROW EXECUTE FUNCTION counted()"
        }
        Dialect::Mysql => {
            "CREATE TRIGGER counted AFTER INSERT ON replies FOR EACH ROW CALL topics_shards_add(NEW.topic_id, 'words', NEW.words)"
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
    for (id, words) in [(1, 5), (2, -2), (3, 7)] {
        insert_with("words", vec![(reply(id, 1), Some(words))], conn).unwrap();
    }
    assert_eq!(
        (sums(conn), counts(conn)),
        (vec![10, 0, 0, 0], vec![0, 0, 0, 0])
    );
    if function.is_err() {
        return; // SQLite has none
    }
    let call = if on_mysql { "CALL" } else { "SELECT" };
    let unknown = format!("{call} topics_shards_add(1, 'title', 1)");
    conn.batch_execute(&unknown).unwrap_err();
    let missing = format!("{call} topics_shards_add(99, 'words', 1)");
    conn.batch_execute(&missing).unwrap();
    let overflow = format!("{call} topics_shards_add(1, 'words', 2147483647)");
    conn.batch_execute(&overflow).unwrap_err();
    assert_eq!(sums(conn), [10, 0, 0, 0]);
    conn.batch_execute("DROP TRIGGER IF EXISTS counted ON replies")
        .or_else(|_| conn.batch_execute("DROP TRIGGER counted"))
        .unwrap();
    let drop = table.drop_function_sql(&backend).unwrap();
    conn.batch_execute(&drop).unwrap();
    conn.batch_execute(&missing).unwrap_err();
}
