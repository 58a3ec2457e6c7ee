//! Inside the caller's transaction, beside other statements.

use super::api::retry::{Isolation, Transaction};
use super::support::*;
use diesel::connection::TransactionManager;
use diesel_sharded::backend::Dialect;
use diesel_sharded_tests::conflict;
use diesel_sharded_tests::schema::videos::dsl::*;

fn total(conn: &mut Conn) -> i64 {
    total_of(1, conn)
}

/// A nested one is a savepoint.
#[test]
fn a_count_is_part_of_the_callers_transaction() {
    let Connected { conn, database } = &mut set_up();
    let other = &mut Conn::connect(database);
    let committed: QueryResult<()> = conn.transaction(|conn| {
        edit!(videos.find(1), title.eq("new"), conn);
        assert_eq!(count(1, 1, conn)?, 1);
        rolled_back(conn, |conn| assert_eq!(count(1, 10, conn), Ok(1)));
        assert_eq!((total(conn), total(other)), (101, 100));
        Ok(())
    });
    assert_eq!((committed, total(other)), (Ok(()), 101));
}

#[test]
fn the_crates_error_passes_through_a_transactions_closure() {
    let conn = &mut set_up().conn;
    let result = conn.transaction::<(), Error, _>(|conn| {
        count(1, 1, conn)?;
        Err(Error::TransactionAborted)
    });
    assert_matches!(result, Err(Error::TransactionAborted));
    assert_eq!(total(conn), 100);
}

/// Other errors than conflicts are returned at once.
#[test]
fn a_retried_transaction_commits_once() {
    let conn = &mut set_up().conn;
    type Failure = fn(u32) -> QueryResult<()>;
    let conflicts: Failure = |run| if run < 3 { Err(conflict()) } else { Ok(()) };
    let not_found: Failure = |_| Err(DieselError::NotFound);
    for (fails, result, times) in [
        (conflicts, Ok(1), 3),
        (not_found, Err(DieselError::NotFound), 1),
    ] {
        let mut runs = 0;
        let counted = in_transaction(conn, |conn| {
            runs += 1;
            let counted = count(1, 1, conn)?;
            fails(runs).map(|()| counted)
        });
        assert_eq!((counted, runs), (result, times));
        assert_eq!(total(conn), 101);
    }
}

#[test]
fn isolation_levels_are_set_and_refused_inside_a_transaction() {
    let conn = &mut set_up().conn;
    for isolation in [
        Isolation::ReadCommitted,
        Isolation::RepeatableRead,
        Isolation::Serializable,
    ] {
        let transaction = Transaction::new().isolation(isolation);
        let counted: QueryResult<usize> = transaction.run(conn, |conn| count(1, 1, conn));
        assert_eq!(counted, Ok(1));
    }
    let nested: QueryResult<()> = conn.transaction(|conn| {
        in_transaction(conn, |conn| count(1, 1, conn))?;
        let nested = Transaction::new().isolation(Isolation::Serializable);
        nested.run(conn, |_| Ok(()))
    });
    assert_eq!(nested, Err(DieselError::AlreadyInTransaction));
    assert_eq!(total(conn), 103);
}

/// A total out of range is noticed when the counted row is read, after the increment; a closure that continues must not commit it.
#[test]
fn a_failure_after_the_count_takes_the_count_back() {
    use diesel_sharded_tests::schema::measures::dsl::*;
    let conn = &mut set_up().conn;
    edit!(measures.find(1), small.eq(i16::MAX), conn);
    macro_rules! fails {
        ($rows:expr) => {
            let committed: QueryResult<()> = conn.transaction(|conn| {
                let count = update($rows).set(small.eq(small + 1)).returning(small);
                count.get_result::<i16>(conn).unwrap_err();
                Ok(())
            });
            assert_eq!(committed, Ok(()));
            let total = measures.find(1).select(small.total()).first(conn);
            assert_eq!(total, Ok(i16::MAX));
        };
    }
    fails!(measures.find(1));
    fails!(measures);
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

    let conn = &mut set_up().conn;
    assert_eq!(count(conn, 1), Ok(1));
    assert_eq!(total(conn), 101);
}

/// Its transaction is still open: a later increment would be part of it, and never be committed.
#[test]
fn after_a_panic_in_a_transaction_nothing_is_acknowledged() {
    let conn = &mut set_up().conn;
    let panics = std::panic::AssertUnwindSafe(|| {
        in_transaction(conn, |conn| {
            count(1, 1, conn)?;
            panic!("on purpose")
        })
    });
    let panicked: Result<QueryResult<()>, _> = std::panic::catch_unwind(panics);
    assert!(panicked.is_err());
    refused!(count(1, 1, conn), Error::ConnectionLost { .. });
}

/// Diesel gives up a connection that was lost. Every later call on it reports that, by the library's own error.
#[test]
fn a_connection_that_diesel_gave_up_is_a_lost_one() {
    let conn = &mut set_up_with_counters().conn;
    <Conn as Connection>::TransactionManager::transaction_manager_status_mut(conn).set_in_error();
    let by_filter = viewed!(videos.filter(slug.eq("a")));
    for counted in [
        count(1, 1, conn).map(drop),
        by_filter.execute(conn).done().map(drop),
        Counter::named("a").increment(conn).done(),
        fold(videos).run(conn).done().map(drop),
        set_total(videos.find(1), views, 7)
            .execute(conn)
            .done()
            .map(drop),
        ShardCount::of(views).resize(2, conn).done(),
        in_transaction(conn, |_| Ok(())),
    ] {
        refused!(counted, Error::ConnectionLost { .. });
    }
}

/// The trigger of an application's own that refuses an increment: nothing was changed, and the error stays the database's own, outside a
/// transaction and inside.
#[test]
fn what_a_trigger_refuses_is_the_databases_own_error() {
    let conn = &mut set_up().conn;
    assert_eq!(count(1, 1, conn), Ok(1));
    let trigger = match dialect(conn) {
        Dialect::Postgres => {
            "CREATE FUNCTION few() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 IF NEW.views - OLD.views > 5 THEN RAISE EXCEPTION 'too many'; END IF; RETURN NEW; END $$;
             CREATE TRIGGER few BEFORE UPDATE ON videos_shards FOR EACH ROW EXECUTE FUNCTION few()"
        }
        Dialect::Mysql => {
            "CREATE TRIGGER few BEFORE UPDATE ON videos_shards FOR EACH ROW
                 IF NEW.views - OLD.views > 5 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'too many'; END IF"
        }
        _ => {
            "CREATE TRIGGER few BEFORE UPDATE ON videos_shards WHEN NEW.views - OLD.views > 5
                 BEGIN SELECT RAISE(ABORT, 'too many'); END"
        }
    };
    conn.batch_execute(trigger).unwrap();
    let refused = |n: i64, conn: &mut Conn| {
        let error = count(1, n, conn).unwrap_err();
        assert!(
            matches!(Error::from(error), Error::Diesel(error) if error.to_string() == "too many")
        );
    };
    refused(6, conn);
    conn.batch_execute("BEGIN").unwrap();
    refused(7, conn);
    conn.batch_execute("ROLLBACK").unwrap();
    rolled_back(conn, |conn| refused(8, conn));
    assert_eq!(count(1, 5, conn), Ok(1));
    assert_eq!(total_of(1, conn), 106);
}
