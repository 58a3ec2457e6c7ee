//! Row locks that others hold, which only servers have.

pub mod advise;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded_tests::TestConnection;

use super::Conn;
use crate::cases::{self, run_noting, videos};

#[test]
fn a_fold_waits_for_nobody_and_names_what_is_busy() {
    let (database, mut conn) = videos(3, 2);
    let mut holder = Conn::connect(&database);
    holder
        .transaction(|holder| {
            holder.batch_execute(
                "UPDATE videos_shards SET likes = likes WHERE id = 2 AND shard = 1",
            )?;
            let (folded, notes) = run_noting(&database, &["fold", "videos"], 3);
            assert!(notes.contains("fold them again later: 2"), "{notes}");
            // Of the busy one the shard that nobody holds.
            assert!(
                folded.contains("3 rows folded (views +5, likes +10)"),
                "{folded}"
            );
            QueryResult::Ok(())
        })
        .unwrap();
    assert_eq!(cases::totals(&mut conn), [(1, 2, 2), (2, 2, 1), (3, 2, 2)]);
    cases::run(&database, &["fold", "videos"], 0);
    assert_eq!(cases::totals(&mut conn), [(1, 2, 2), (2, 2, 2), (3, 2, 2)]);
}
