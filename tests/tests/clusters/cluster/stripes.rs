//! A process for each node, with a stripe of its own.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel_sharded_tests::cluster::{Cluster, NODES};
use diesel_sharded_tests::insert;
use diesel_sharded_tests::schema::{Day, downloads};

use super::{on_all_nodes, prepare};

/// A process for each node, each with a stripe of its own: they hardly ever conflict, not even on the first increments.
pub fn stripes_keep_processes_apart(cluster: &impl Cluster) {
    const THREADS: usize = 4;
    const COUNTS: usize = 100;
    let mut conn = prepare(cluster);
    let row = (downloads::version.eq(1), downloads::day.eq(Day(1)));
    insert!(downloads::table, row, &mut conn);
    up_to_date_everywhere(cluster);
    let mut processes: Vec<_> = (0..NODES)
        .map(|node| {
            Command::new(env!("CARGO_BIN_EXE_cluster_writer"))
                .arg(cluster.url(node))
                .args([node, NODES, THREADS, COUNTS].map(|number| number.to_string()))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut outputs: Vec<_> = processes
        .iter_mut()
        .map(|process| BufReader::new(process.stdout.take().unwrap()).lines())
        .collect();
    for output in &mut outputs {
        assert_eq!(output.next().unwrap().unwrap(), "ready");
    }
    for process in &mut processes {
        writeln!(process.stdin.take().unwrap()).unwrap();
    }
    let mut met = 0;
    for (output, process) in outputs.iter_mut().zip(&mut processes) {
        met += output.next().unwrap().unwrap().parse::<usize>().unwrap();
        assert!(process.wait().unwrap().success());
    }
    assert!(met * 20 < NODES * THREADS * COUNTS, "{met} conflicts");
    // Each has counted on its own shards and on no others, and has no more of them than writers.
    let stripes = on_all_nodes(cluster, |conn| {
        diesel::sql_query(format!(
            "SELECT CAST(SUM(number) AS SIGNED) AS counted, COUNT(*) AS shards FROM downloads_shards \
             GROUP BY shard % {NODES} ORDER BY shard % {NODES}"
        ))
        .load::<StripeOf>(conn)
    });
    assert_eq!(stripes.len(), NODES);
    for stripe in stripes {
        assert_eq!(stripe.counted, (THREADS * COUNTS) as i64);
        assert!(stripe.shards <= 2 * THREADS as i64, "{stripe:?}");
    }
}

fn up_to_date_everywhere(cluster: &impl Cluster) {
    on_all_nodes(cluster, |conn| {
        downloads::table.count().get_result::<i64>(conn)
    });
}

#[derive(Debug, PartialEq, QueryableByName)]
struct StripeOf {
    #[diesel(sql_type = BigInt)]
    counted: i64,
    #[diesel(sql_type = BigInt)]
    shards: i64,
}
