//! Any sequence of updates does to totals what it would do to plain columns.

use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::update;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::videos_shards;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::{Conn, database};

#[derive(Debug, Clone)]
enum Change {
    Views(i64),
    Likes(i32),
    Both(i64, i32),
    /// `- n`, of the base itself, by Diesel.
    Base(i64),
}

#[derive(Debug, Clone)]
enum Rows {
    Key(i64),
    Slug(&'static str),
    AtLeast(i64),
    All,
}

#[derive(Debug, Clone)]
struct Operation {
    change: Change,
    rows: Rows,
    in_transaction: bool,
    commits: bool,
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let change = prop_oneof![
        (-1000..1000i64).prop_map(Change::Views),
        (-1000..1000i32).prop_map(Change::Likes),
        (-1000..1000i64, -1000..1000i32).prop_map(|(v, l)| Change::Both(v, l)),
        (-1000..1000i64).prop_map(Change::Base),
    ];
    let rows = prop_oneof![
        (0..5i64).prop_map(Rows::Key),
        prop_oneof![Just("a"), Just("c"), Just("z")].prop_map(Rows::Slug),
        (0..5i64).prop_map(Rows::AtLeast),
        Just(Rows::All),
    ];
    let operation = (change, rows, any::<bool>(), any::<bool>()).prop_map(
        |(change, rows, in_transaction, commits)| Operation {
            change,
            rows,
            in_transaction,
            commits: commits || !in_transaction,
        },
    );
    proptest::collection::vec(operation, 1..25)
}

fn apply(conn: &mut Conn, Operation { change, rows, .. }: &Operation) -> QueryResult<usize> {
    macro_rules! change {
        ($source:expr) => {
            match *change {
                Change::Views(n) => update($source).set(views.eq(views + n)).execute(conn),
                Change::Likes(n) => update($source).set(likes.eq(likes - n)).execute(conn),
                Change::Both(v, l) => update($source)
                    .set((views.eq(views - v), likes.eq(likes + l)))
                    .execute(conn),
                Change::Base(n) => diesel::update($source)
                    .set(views.eq(views - n))
                    .execute(conn),
            }
        };
    }
    match *rows {
        Rows::Key(key) => change!(videos.find(key)),
        Rows::Slug(name) => change!(videos.filter(slug.eq(name))),
        Rows::AtLeast(least) => change!(videos.filter(id.ge(least))),
        Rows::All => change!(videos),
    }
}

/// What `apply` does to plain numbers; the number of rows met.
fn apply_to(
    model: &mut [(i64, i64, i32)],
    Operation {
        change,
        rows,
        commits,
        ..
    }: &Operation,
) -> usize {
    let mut met = 0;
    for (key, v, l) in model {
        let in_rows = match *rows {
            Rows::Key(wanted) => *key == wanted,
            Rows::Slug(name) => ["a", "b", "c"][*key as usize - 1] == name,
            Rows::AtLeast(least) => *key >= least,
            Rows::All => true,
        };
        if !in_rows {
            continue;
        }
        met += 1;
        if *commits {
            match *change {
                Change::Views(n) => *v += n,
                Change::Likes(n) => *l -= n,
                Change::Both(dv, dl) => (*v, *l) = (*v - dv, *l + dl),
                Change::Base(n) => *v -= n,
            }
        }
    }
    met
}

#[test]
fn any_sequence_of_updates_equals_a_plain_column() {
    let (_database, conn) = database();
    let conn = std::cell::RefCell::new(conn);
    let config = Config {
        cases: 40,
        failure_persistence: None,
        ..Config::default()
    };
    TestRunner::new(config)
        .run(&operations(), |operations| {
            let conn = &mut *conn.borrow_mut();
            diesel::delete(videos_shards::table).execute(conn).unwrap();
            diesel::update(videos)
                .set((views.eq(0), likes.eq(0)))
                .execute(conn)
                .unwrap();
            let mut model = [(1, 0, 0), (2, 0, 0), (3, 0, 0)];
            for operation in &operations {
                let met = if operation.in_transaction {
                    let mut met = Ok(0);
                    let _: QueryResult<()> = conn.transaction(|conn| {
                        met = apply(conn, operation);
                        if operation.commits {
                            Ok(())
                        } else {
                            Err(diesel::result::Error::RollbackTransaction)
                        }
                    });
                    met
                } else {
                    apply(conn, operation)
                };
                prop_assert_eq!(met, Ok(apply_to(&mut model, operation)));
            }
            let read = videos
                .select((id, views.total(), likes.total()))
                .order(id)
                .load(conn);
            prop_assert_eq!(read, Ok(model.to_vec()));
            Ok(())
        })
        .unwrap();
}
