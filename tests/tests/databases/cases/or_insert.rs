//! Counts on rows that may not exist yet.

use super::support::*;
use diesel_sharded_tests::schema::videos::dsl::*;

fn download(conn: &mut Conn, version: i32, day: i32) -> QueryResult<usize> {
    update(downloads::table.find((version, Day(day))))
        .set(downloads::number.eq(downloads::number + 1))
        .or_insert((downloads::version.eq(version), downloads::day.eq(day)))
        .execute(conn)
}

fn number(conn: &mut Conn, version: i32, day: i32) -> Option<i32> {
    downloads::table
        .find((version, Day(day)))
        .select(downloads::number.total())
        .first(conn)
        .optional()
        .unwrap()
}

#[test]
fn the_row_is_inserted_once_and_counted_always() {
    let (_database, conn) = &mut database();
    assert_eq!(number(conn, 1, 1), None);
    for _ in 0..3 {
        assert_eq!(download(conn, 1, 1), Ok(1));
    }
    assert_eq!(number(conn, 1, 1), Some(3));
    // The count adds to the value that the inserted row brings.
    for _ in 0..2 {
        let counted = update(downloads::table.find((2, Day(2))))
            .set(downloads::number.eq(downloads::number - 1))
            .or_insert((
                downloads::version.eq(2),
                downloads::day.eq(2),
                downloads::number.eq(50),
            ))
            .execute(conn);
        assert_eq!(counted, Ok(1));
    }
    assert_eq!(number(conn, 2, 2), Some(48));
}

#[test]
fn by_a_filter_and_with_the_row_given_back() {
    let (_database, conn) = &mut database();
    let new = (id.eq(10), slug.eq("new"), title.eq("New"));
    for total in 1..=3_i64 {
        let counted = update(videos.filter(slug.eq("new")))
            .set(views.eq(views + 1))
            .or_insert(new)
            .returning((id, views))
            .get_result(conn);
        assert_eq!(counted, Ok((10_i64, total)));
    }
    let counted = update(videos.filter(title.eq("New")))
        .set(views.eq(views + 1))
        .or_insert(new)
        .execute(conn);
    assert_eq!(counted, Ok(1));
    let by_key = update(videos.find(11))
        .set(views.eq(views + 1))
        .or_insert((id.eq(11), slug.eq("eleven"), title.eq("")))
        .returning(views.total())
        .get_results(conn);
    assert_eq!(by_key, Ok(vec![1_i64]));
    let missing = update(videos.filter(slug.eq("twelve")))
        .set(views.eq(views + 1))
        .or_insert((id.eq(12), slug.eq("twelve"), title.eq("")))
        .execute(conn);
    assert_eq!(missing, Ok(1));
}

/// A column that counts what its row stands for has `DEFAULT 1`: the first count is 1, and not 2.
#[test]
fn a_default_is_not_counted() {
    let (_database, conn) = &mut database_with_counters();
    diesel::sql_query("ALTER TABLE downloads ALTER COLUMN number SET DEFAULT 1")
        .execute(conn)
        .or_else(|_| {
            conn.batch_execute(
                "PRAGMA writable_schema = ON;
                 UPDATE sqlite_schema SET sql = replace(sql, 'DEFAULT 0', 'DEFAULT 1') WHERE name = 'downloads';
                 PRAGMA writable_schema = RESET;",
            )
            .map(|()| 0)
        })
        .unwrap();
    insert!(
        downloads::table,
        (downloads::version.eq(0), downloads::day.eq(0)),
        conn
    );
    assert_eq!(number(conn, 0, 0), Some(1));

    let row = |version: i32| (downloads::version.eq(version), downloads::day.eq(1));
    let add = downloads::number.eq(downloads::number + 1);
    assert_eq!(download(conn, 1, 1), Ok(1));
    let returned = update(downloads::table.find((2, Day(1))))
        .set(add)
        .or_insert(row(2))
        .returning(downloads::number)
        .get_result::<i32>(conn);
    assert_eq!(returned, Ok(1));
    let filter = update(downloads::table.filter(downloads::version.eq(3)))
        .set(add)
        .or_insert(row(3));
    assert_eq!(filter.execute(conn), Ok(1));
    let keyed = update(downloads::table.find((4, Day(1))))
        .set(add)
        .or_insert(row(4))
        .idempotency_key("4");
    assert_eq!(keyed.execute(conn), Ok(1));
    let keys = [((5, Day(1)), 1), ((6, Day(1)), 1)];
    let counted = count_many(downloads::number, keys)
        .or_insert(|key: &(i32, Day)| row(key.0))
        .run(conn);
    assert_eq!(counted.unwrap().rows, 2);
    for version in 1..=6 {
        assert_eq!(number(conn, version, 1), Some(1), "{version}");
    }
    // What the caller names is the base.
    let named = update(downloads::table.find((7, Day(1))))
        .set(add)
        .or_insert((row(7), downloads::number.eq(50)))
        .execute(conn);
    assert_eq!((named, number(conn, 7, 1)), (Ok(1), Some(51)));
}

#[test]
fn in_the_callers_transaction() {
    let (_database, conn) = &mut database();
    for commits in [false, true, true] {
        let result: QueryResult<()> = conn.transaction(|conn| {
            assert_eq!(download(conn, 1, 1), Ok(1));
            assert_eq!(download(conn, 1, 1), Ok(1));
            match commits {
                true => Ok(()),
                false => Err(diesel::result::Error::RollbackTransaction),
            }
        });
        assert_eq!(result.is_ok(), commits);
    }
    assert_eq!(number(conn, 1, 1), Some(4));
}

#[test]
fn a_row_that_is_another_is_refused_and_taken_back() {
    let (_database, conn) = &mut database();
    let other = |conn: &mut Conn| {
        update(videos.find(20))
            .set(views.eq(views + 1))
            .or_insert((id.eq(21), slug.eq("other"), title.eq("")))
            .execute(conn)
    };
    let outside = other(conn).unwrap_err();
    let mut inside = None;
    let result: QueryResult<()> = conn.transaction(|conn| {
        inside = other(conn).err();
        Ok(())
    });
    assert_eq!(result, Ok(()));
    for error in [Some(outside), inside] {
        let error = Error::from(error.unwrap());
        assert_matches!(error, Error::InsertedOther);
    }
    assert_eq!(videos.count().get_result(conn), Ok(3_i64));
}

/// A unique key other than the parent's is violated: the error is returned as it is, and the caller's transaction goes on.
#[test]
fn another_unique_key_is_told() {
    let (_database, conn) = &mut database();
    let taken = |conn: &mut Conn| {
        update(videos.find(20))
            .set(views.eq(views + 1))
            .or_insert((id.eq(20), slug.eq("a"), title.eq("")))
            .execute(conn)
    };
    for inside in [false, true] {
        let error = match inside {
            false => taken(conn).unwrap_err(),
            true => conn
                .transaction(|conn| {
                    let error = taken(conn).unwrap_err();
                    count(1, 1, conn)?;
                    QueryResult::Ok(error)
                })
                .unwrap(),
        };
        assert_matches!(
            error,
            diesel::result::Error::DatabaseError(
                diesel::result::DatabaseErrorKind::UniqueViolation,
                _
            )
        );
    }
    assert_eq!(total_of(1, conn), 101);
}

#[test]
fn racing_callers_lose_nothing() {
    let (database, mut conn) = database();
    on_threads(64, &database, |thread, conn| {
        for day in 0..5 {
            if thread % 4 == 0 {
                let counted: QueryResult<usize> =
                    retry::transaction(conn, RetryPolicy::default(), |conn| download(conn, 7, day));
                assert_eq!(counted, Ok(1));
            } else {
                assert_eq!(download(conn, 7, day), Ok(1));
            }
        }
    });
    for day in 0..5 {
        assert_eq!(number(&mut conn, 7, day), Some(64));
    }
}
