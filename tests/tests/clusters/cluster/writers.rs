//! Few shards, chosen at random, on all nodes.

use std::thread;

use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::{self, RetryPolicy};
use diesel_sharded::shard_choice::ShardChoice;
use diesel_sharded::{Counter, fold, update};
use diesel_sharded_tests::cluster::{Cluster, NODES};
use diesel_sharded_tests::schema::{Day, comments, downloads, videos::dsl::*};
use diesel_sharded_tests::{count, gives};

use super::{on_all_nodes, prepare};

/// Few shards, chosen at random: every writer meets every other, and none notices.
pub fn writers_on_all_nodes(cluster: &impl Cluster) {
    const ROUNDS: i64 = 25;
    prepare(cluster);
    thread::scope(|scope| {
        for node in 0..NODES {
            for kind in 0..3 {
                scope.spawn(move || {
                    let conn = &mut cluster.connect(node);
                    for round in 0..ROUNDS {
                        match kind {
                            0 => by_key(conn),
                            1 => by_other_ways(conn, round),
                            _ => in_a_transaction(conn, node as i64 * ROUNDS + round),
                        }
                    }
                });
            }
        }
    });
    let each = ROUNDS * NODES as i64;
    let (totals, pages, numbers, posts) = on_all_nodes(cluster, |conn| {
        let totals = videos.select((views.total(), likes.total())).order(id);
        let pages = Counter::named("page").get(conn)?;
        let numbers = downloads::table.select(downloads::number.total());
        let posts: i64 = comments::table.count().get_result(conn)?;
        let totals: Vec<(i64, i32)> = totals.load(conn)?;
        Ok((totals, pages, numbers.load::<i32>(conn)?, posts))
    });
    let each_like = each as i32;
    let a = (100 + 2 * each, 1 - each_like);
    let b = (200 + 2 * each, 2 + each_like);
    assert_eq!(totals, [a, b, (300, 3)]);
    assert_eq!((pages, posts), (each, 2 + each));
    assert_eq!(numbers, [NODES as i32; ROUNDS as usize]);
    assert!(cluster.conflicts() > 0);
    // If nobody else writes, a fold changes no total, and moves all of it.
    let folded = fold(videos).run(&mut cluster.up_to_date(1)).unwrap();
    assert!(folded.finished && folded.busy.is_empty());
    let bases: Vec<i64> = on_all_nodes(cluster, |conn| videos.select(views).order(id).load(conn));
    assert_eq!(bases, [100 + 2 * each, 200 + 2 * each, 300]);
}

fn by_key(conn: &mut MysqlConnection) {
    let count = update(videos.find(1)).set(views.eq(views + 1));
    gives!(count.shard_choice(ShardChoice::Random).execute(conn), 1);
    let count = update(videos.find(1)).set(likes.eq(likes - 1));
    gives!(count.shard_choice(ShardChoice::Random).execute(conn), 1);
}

fn by_other_ways(conn: &mut MysqlConnection, round: i64) {
    let count = update(videos.filter(slug.eq_any(["a", "b"]))).set(views.eq(views + 1));
    gives!(count.shard_choice(ShardChoice::Random).execute(conn), 2);
    Counter::named("page").increment(conn).unwrap();
    // The first ones insert the row, on all nodes at once.
    let (of, on) = (round as i32, Day(1));
    let count = update(downloads::table.find((of, on)));
    let count = count.set(downloads::number.eq(downloads::number + 1));
    let count = count.or_insert((downloads::version.eq(of), downloads::day.eq(on)));
    gives!(count.execute(conn), 1);
    count!(videos.find(2), views.eq(views + 1), conn);
}

fn in_a_transaction(conn: &mut MysqlConnection, comment: i64) {
    let counted: QueryResult<usize> = retry::transaction(conn, RetryPolicy::new(), |conn| {
        let row = (comments::id.eq(100 + comment), comments::video_id.eq(1));
        let comment = diesel::insert_into(comments::table).values(row);
        comment.execute(conn)?;
        videos.find(1).select(views.total()).first::<i64>(conn)?;
        let count = update(videos.find(2)).set(likes.eq(likes + 1));
        count.shard_choice(ShardChoice::Random).execute(conn)
    });
    assert_eq!(counted, Ok(1));
}
