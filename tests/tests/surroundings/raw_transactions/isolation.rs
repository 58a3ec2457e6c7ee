//! The isolation level that a caller sets for the next transaction of a connection to MySQL or MariaDB.

use diesel::prelude::*;
use diesel_sharded::retry::{self, Isolation, RetryPolicy, Transaction};
use diesel_sharded_tests::fixture::{Fixture, Run};
use diesel_sharded_tests::number;
use diesel_sharded_tests::schema::videos::dsl::*;

/// The question whether a transaction is open leaves it as it is.
#[test]
fn a_transaction_has_the_level_that_was_set_for_it() {
    let [conn, other] = &mut *Fixture::<MysqlConnection, _>::with_counters();
    // What a serializable transaction reads is locked.
    let mut reads_locked = |conn: &mut MysqlConnection| -> QueryResult<bool> {
        let _: i32 = videos.find(1).select(likes).first(conn)?;
        let free =
            "COUNT(*) FROM (SELECT 1 FROM videos WHERE id = 1 FOR UPDATE SKIP LOCKED) AS free";
        Ok(number!(free, other) == 0)
    };
    for is_set in [true, false] {
        if is_set {
            conn.run("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE");
        }
        let found = retry::transaction(conn, RetryPolicy::new(), &mut reads_locked);
        assert_eq!(found, Ok(is_set));
    }
    conn.run("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE");
    let own = Transaction::new().isolation(Isolation::ReadCommitted);
    assert_eq!(own.run(conn, reads_locked), Ok(false));
}
