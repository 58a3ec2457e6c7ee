use super::*;
use crate::report::Report;

const SERVER: Server = Server {
    cores: 4,
    count: 100_000,
    delay: 0,
    flush: 400_000,
    handover: 50_000,
    holds_while_flushing: true,
    batch: 150_000,
    addition: 1_000,
};

fn is_near(value: f64, expected: f64) -> bool {
    (value / expected - 1.0).abs() < 0.03
}

#[test]
fn one_writer_waits_for_nobody() {
    for choice in [Choice::OneRow, Choice::Random, Choice::Adaptive] {
        let outcome = simulate(&SERVER, &Load::new(1, 1, 8, choice), 10_000);
        let time = (SERVER.count + SERVER.flush) as f64 / 1e3;
        assert!(
            is_near(outcome.per_second, 1e6 / time),
            "{choice:?}: {outcome:?}"
        );
        assert_eq!(outcome.bottleneck, FLUSHES);
    }
}

/// The queue of one row: each count begins when the one before has released the lock and handed it over.
#[test]
fn one_shard_is_the_queue_of_one_row() {
    for holds_while_flushing in [true, false] {
        let server = Server {
            holds_while_flushing,
            flush: 400_000 * u64::from(holds_while_flushing),
            ..SERVER
        };
        let time = (server.held() + server.handover) as f64 / 1e9;
        for choice in [
            Choice::OneRow,
            Choice::Random,
            Choice::Striped,
            Choice::Adaptive,
        ] {
            let outcome = simulate(&server, &Load::new(4, 16, 1, choice), 20_000);
            assert!(is_near(outcome.per_second, 1.0 / time), "{outcome:?}");
            assert_eq!(outcome.bottleneck, LOCKS);
        }
    }
}

#[test]
fn many_shards_and_writers_use_all_cores() {
    let outcome = simulate(&SERVER, &Load::new(1, 256, 512, Choice::Adaptive), 20_000);
    let most = SERVER.cores as f64 * 1e9 / SERVER.count as f64;
    assert!(
        (0.9 * most..1.01 * most).contains(&outcome.per_second),
        "{outcome:?}"
    );
    assert_eq!(outcome.bottleneck, CORES);
}

#[test]
fn the_writers_of_one_process_never_wait_for_each_other_s_shards() {
    let of = |choice| simulate(&SERVER, &Load::new(1, 16, 16, choice), 10_000);
    let (adaptive, random) = (of(Choice::Adaptive), of(Choice::Random));
    assert!(adaptive.per_second > 1.3 * random.per_second);
    assert_eq!(of(Choice::Striped).bottleneck, adaptive.bottleneck);
}

/// Times that were taken from a measurement give it back.
#[test]
fn the_sources_of_the_times_are_met() {
    use crate::names::*;
    let report = Report::read();
    for (database, disk) in [(POSTGRESQL, LOCAL_DISK), (POSTGRESQL, SLOW_DISK)] {
        let server = Server::measured(&report, database, disk).unwrap();
        let part = report.part(DISKS, database).unwrap();
        let sources = [
            (1, DEFAULT, Choice::Adaptive),
            (64, PREPARED, Choice::OneRow),
            (1, COALESCED, Choice::Coalesced),
        ];
        for (writers, entrant, choice) in sources {
            let measured = part.cell(disk, writers, entrant).unwrap().per_second;
            let outcome = simulate(&server, &Load::new(1, writers, 128, choice), 10_000);
            assert!(
                is_near(outcome.per_second, measured),
                "{entrant}: {outcome:?}"
            );
        }
    }
}
