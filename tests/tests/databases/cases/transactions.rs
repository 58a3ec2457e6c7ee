//! Inside the caller's transaction, beside other statements.

use super::api::retry::{Isolation, Transaction};
use super::support::*;
use diesel::connection::TransactionManager;
use diesel_sharded_tests::conflict;
use diesel_sharded_tests::schema::videos::dsl::*;

fn total(conn: &mut Conn) -> i64 {
    total_of(1, conn)
}

/// A nested one is a savepoint.
#[test]
fn a_count_is_part_of_the_callers_transaction() {
    let (database, mut conn) = database();
    let mut other = Conn::connect(&database);
    conn.transaction(|conn| {
        edit!(videos.find(1), title.eq("new"), conn);
        assert_eq!(count(1, 1, conn)?, 1);
        rolled_back(conn, |conn| assert_eq!(count(1, 10, conn), Ok(1)));
        assert_eq!(total(conn), 101);
        assert_eq!(total(&mut other), 100);
        QueryResult::Ok(())
    })
    .unwrap();
    assert_eq!(total(&mut other), 101);
}

#[test]
fn the_crates_error_passes_through_a_transactions_closure() {
    let (_database, mut conn) = database();
    let result = conn.transaction::<(), Error, _>(|conn| {
        count(1, 1, conn)?;
        Err(Error::TransactionAborted)
    });
    assert_matches!(result, Err(Error::TransactionAborted));
    assert_eq!(total(&mut conn), 100);
}

#[test]
fn a_retried_transaction_commits_once() {
    let (_database, mut conn) = database();
    let mut runs = 0;
    let counted: QueryResult<usize> = retry::transaction(&mut conn, RetryPolicy::new(), |conn| {
        runs += 1;
        let counted = count(1, 1, conn)?;
        if runs < 3 {
            return Err(conflict());
        }
        Ok(counted)
    });
    assert_eq!((counted, runs), (Ok(1), 3));
    assert_eq!(total(&mut conn), 101);
}

#[test]
fn a_retried_transaction_returns_other_errors_at_once() {
    let (_database, mut conn) = database();
    let mut runs = 0;
    let result: QueryResult<()> = retry::transaction(&mut conn, RetryPolicy::new(), |conn| {
        runs += 1;
        count(1, 1, conn)?;
        Err(DieselError::NotFound)
    });
    assert_eq!((result, runs), (Err(DieselError::NotFound), 1));
    assert_eq!(total(&mut conn), 100);
}

#[test]
fn isolation_levels_are_set_and_refused_inside_a_transaction() {
    let (_database, mut conn) = database();
    for isolation in [
        Isolation::ReadCommitted,
        Isolation::RepeatableRead,
        Isolation::Serializable,
    ] {
        let counted: QueryResult<usize> = Transaction::new()
            .isolation(isolation)
            .run(&mut conn, |conn| count(1, 1, conn));
        assert_eq!(counted, Ok(1));
    }
    let nested: QueryResult<()> = conn.transaction(|conn| {
        retry::transaction(conn, RetryPolicy::new(), |conn| count(1, 1, conn))?;
        Transaction::new()
            .isolation(Isolation::Serializable)
            .run(conn, |_| Ok(()))
    });
    assert_eq!(nested, Err(DieselError::AlreadyInTransaction));
    assert_eq!(total(&mut conn), 103);
}

/// A total out of range is noticed when the counted row is read, after the count; a closure that continues must not commit it.
#[test]
fn a_failure_after_the_count_takes_the_count_back() {
    use diesel_sharded_tests::schema::measures::dsl::*;
    let (_database, mut conn) = database();
    edit!(measures.find(1), small.eq(i16::MAX), &mut conn);
    for by_key in [true, false] {
        let committed: QueryResult<()> = conn.transaction(|conn| {
            let add = small.eq(small + 1);
            let counted: QueryResult<i16> = match by_key {
                true => update(measures.find(1))
                    .set(add)
                    .returning(small)
                    .get_result(conn),
                false => update(measures).set(add).returning(small).get_result(conn),
            };
            counted.unwrap_err();
            Ok(())
        });
        assert_eq!(committed, Ok(()));
        assert_eq!(
            measures.find(1).select(small.total()).first(&mut conn),
            Ok(i16::MAX)
        );
    }
}

/// The connection type alone selects the database; the counting code names none.
#[test]
fn a_function_that_is_generic_over_its_connection() {
    use super::api::dsl::{Count, Plus};
    use diesel::query_dsl::methods::ExecuteDsl;
    use diesel_sharded::update; // a bound of Diesel's own is about blocking connections
    use diesel_sharded_tests::schema::videos as table;

    fn count<C>(conn: &mut C, video: i64) -> QueryResult<usize>
    where
        C: Connection,
        Count<diesel::dsl::Find<table::table, i64>, Plus<table::views>>: ExecuteDsl<C>,
    {
        update(videos.find(video))
            .set(views.eq(views + 1))
            .execute(conn)
    }

    let (_database, mut conn) = database();
    assert_eq!(count(&mut conn, 1), Ok(1));
    assert_eq!(total(&mut conn), 101);
}

/// Diesel gives up a connection that was lost. Every later call on it reports that, by the library's own error.
#[test]
fn a_connection_that_diesel_gave_up_is_a_lost_one() {
    type Operation = fn(&mut Conn) -> QueryResult<()>;
    let operations: [Operation; 7] = [
        |conn| count(1, 1, conn).map(drop),
        |conn| {
            let count = update(videos.filter(slug.eq("a"))).set(views.eq(views + 1));
            count.execute(conn).map(drop)
        },
        |conn| Counter::named("a").increment(conn),
        |conn| fold(videos).run(conn).map(drop),
        |conn| set_total(videos.find(1), views, 7).execute(conn).map(drop),
        |conn| ShardCount::of(views).resize(2, conn),
        |conn| retry::transaction(conn, RetryPolicy::new(), |_| Ok(())),
    ];
    let (_database, mut conn) = database_with_counters();
    <Conn as Connection>::TransactionManager::transaction_manager_status_mut(&mut conn)
        .set_in_error();
    for (n, operation) in operations.iter().enumerate() {
        let error = Error::from(operation(&mut conn).unwrap_err());
        assert!(
            matches!(error, Error::ConnectionLost { .. }),
            "{n}: {error:?}"
        );
    }
}
