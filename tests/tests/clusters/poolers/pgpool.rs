//! Pgpool-II in front of one server. It pools sessions, and resets a server's connection before it gives it to the next client.

use diesel_sharded_tests::pgpool::Pgpool;

use super::*;

/// More clients than connections to the server, so that later clients get the connections of earlier ones.
#[test]
fn every_count_lands_where_it_belongs_behind_pgpool() {
    let (database, mut conn) = database();
    let pgpool = Pgpool::start(8);
    let url = pgpool.url(&database);
    let mut all = vec![];
    for _ in 0..2 {
        let (tallies, failed) = count_on_both(&url, 70);
        assert!(failed.is_empty(), "{failed:?}");
        all.extend(tallies);
    }
    let awaited = awaited_processes(&url);
    assert_eq!((awaited.unknown, awaited.refused), ([0; 8], 0));
    all.push(awaited.acknowledged);
    assert_eq!(totals(&mut conn), added(&all));
}
