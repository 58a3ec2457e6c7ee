//! A deadlock ends the whole transaction on MySQL and MariaDB. A retry of the count would then be committed by itself.

use std::sync::Barrier;
use std::thread;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded::shard_choice::ShardChoice;
use diesel_sharded::update;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{TestConnection, schema};

macro_rules! the_victim_counts_nothing {
    ($name:ident, $conn:ty) => {
        #[test]
        fn $name() {
            let (database, conn) = &mut schema::database::<$conn>();
            let count = |of: i64, conn: &mut $conn| {
                let count = update(videos.find(of)).set(views.eq(views + 1));
                let count = count.shard_choice(ShardChoice::Random);
                count
                    .retry(RetryPolicy::new().with_random(|| 0))
                    .execute(conn)
            };
            for of in [1, 2] {
                assert_eq!(count(of, conn), Ok(1));
            }
            let both_have_one = Barrier::new(2);
            let counted: Vec<QueryResult<()>> = thread::scope(|scope| {
                let threads = [(1, 2), (2, 1)].map(|(first, second)| {
                    let (database, both_have_one) = (&database, &both_have_one);
                    scope.spawn(move || {
                        let conn = &mut <$conn>::connect(database);
                        conn.batch_execute("BEGIN")?;
                        diesel::update(videos.find(3))
                            .filter(id.eq(0)) // an edit that locks nothing
                            .set(title.eq("x"))
                            .execute(conn)?;
                        count(first, conn)?;
                        both_have_one.wait();
                        let counted = count(second, conn);
                        // A caller who ignores the error commits the rest of the transaction: nothing, since the deadlock ended it.
                        conn.batch_execute("COMMIT")?;
                        counted.map(drop)
                    })
                });
                threads
                    .into_iter()
                    .map(|thread| thread.join().unwrap())
                    .collect()
            });
            let victims: Vec<_> = counted.into_iter().filter_map(Result::err).collect();
            assert!(
                matches!(&victims[..], [DieselError::DatabaseError(..)]),
                "{victims:?}"
            );
            let totals = videos.select(views.total()).order(id).limit(2);
            assert_eq!(totals.load::<i64>(conn), Ok(vec![102, 202]));
        }
    };
}

the_victim_counts_nothing!(on_postgres, PgConnection);
the_victim_counts_nothing!(on_mariadb, MysqlConnection);
