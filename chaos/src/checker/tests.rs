//! The checker on small histories.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::{Aftermath, Finding, Rule, Rules, judge};
use crate::history::{Done, History, Moment, Outcome, Span};
use crate::operation::{Answer, Begin, By, Count, Counter, On, Operation, Refused};

const ROW: Counter = Counter::Views(1);

fn done(operation: Operation, began: Moment, ended: Moment, outcome: Outcome) -> Done {
    Done {
        client: "0".into(),
        number: began,
        operation,
        span: Span { began, ended },
        took: Duration::ZERO,
        outcome,
    }
}

fn answered(operation: Operation, began: Moment, ended: Moment, answer: Answer) -> Done {
    done(operation, began, ended, Outcome::Ok(answer))
}

fn count(n: i64) -> Operation {
    Operation::count(On::Row(1), By::Update, n)
}

fn set(total: i64) -> Operation {
    Operation::SetTotal { row: 1, total }
}

/// An operation that met one row.
fn ok(operation: Operation, began: Moment, ended: Moment) -> Done {
    answered(operation, began, ended, Answer::Rows(1))
}

fn unknown(operation: Operation, began: Moment) -> Done {
    done(operation, began, Moment::MAX, Outcome::Unknown(None))
}

fn failed(operation: Operation, began: Moment, kind: &str) -> Done {
    let refused = Refused {
        unknown: false,
        kind: kind.into(),
        text: String::new(),
    };
    done(operation, began, began + 1, Outcome::Failed(refused))
}

fn transaction(token: &str, n: i64) -> Operation {
    Operation::Transaction {
        token: token.into(),
        counts: vec![(ROW, n)],
        begin: Begin::Plainly,
        reads_first: false,
    }
}

fn findings_at(mut operations: Vec<Done>, aftermath: &Aftermath) -> Vec<Finding> {
    operations.sort_by_key(|done| done.span.began);
    let rules = Rules {
        base: [(ROW, 100)].into(),
        ..Rules::default()
    };
    judge(&rules, &History { operations }, aftermath).findings
}

fn findings(operations: Vec<Done>, total: i64, tokens: &[&str]) -> Vec<Finding> {
    let aftermath = Aftermath {
        totals: vec![(ROW, total)],
        tokens: tokens.iter().map(|token| (*token).to_owned()).collect(),
    };
    findings_at(operations, &aftermath)
}

fn rules_of(findings: Vec<Finding>) -> Vec<Rule> {
    findings.into_iter().map(|finding| finding.rule).collect()
}

/// The rules that are violated.
fn broken(operations: Vec<Done>, total: i64, tokens: &[&str]) -> Vec<Rule> {
    rules_of(findings(operations, total, tokens))
}

/// The values from 0 to 199 that a read at that time may show after `operations`.
fn readable(operations: &[Done], began: Moment, ended: Moment) -> Vec<i64> {
    readable_with(operations, &[], began, ended)
}

fn readable_with(operations: &[Done], tokens: &[&str], began: Moment, ended: Moment) -> Vec<i64> {
    let is_explained = |value: &i64| {
        let read = Operation::ReadRows { first: 1, last: 1 };
        let read = answered(read, began, ended, Answer::Totals(vec![(ROW, *value)]));
        let all = operations.iter().cloned().chain([read]).collect();
        !broken(all, 100, tokens).contains(&Rule::InBounds)
    };
    (0..200).filter(is_explained).collect()
}

#[test]
fn a_read_sees_what_ended_before_it_and_maybe_what_goes_on() {
    let operations = [
        ok(count(5), 10, 20),
        failed(count(50), 12, "ConnectionLost"),
    ];
    assert_eq!(readable(&operations, 1, 5), [100]);
    assert_eq!(readable(&operations, 1, 15), [100, 101, 102, 103, 104, 105]);
    assert_eq!(
        readable(&operations, 15, 25),
        [100, 101, 102, 103, 104, 105]
    );
    assert_eq!(readable(&operations, 21, 25), [105]);
}

#[test]
fn what_is_unknown_may_have_happened_for_ever() {
    let operations = [unknown(count(-2), 10), unknown(count(1), 30)];
    assert_eq!(readable(&operations, 1, 5), [100]);
    assert_eq!(readable(&operations, 15, 25), [98, 99, 100]);
    assert_eq!(readable(&operations, 1000, 1001), [98, 99, 100, 101]);
}

#[test]
fn a_set_ends_what_was_before() {
    let operations = [ok(count(9), 1, 5), ok(set(7), 10, 20), ok(count(2), 30, 40)];
    assert_eq!(readable(&operations, 6, 8), [109]);
    assert_eq!(readable(&operations, 15, 18), [7, 109]);
    assert_eq!(readable(&operations, 21, 25), [7]);
    assert_eq!(readable(&operations, 50, 60), [9]);
}

#[test]
fn a_count_beside_a_set_is_before_or_after_it() {
    let operations = [ok(set(7), 10, 20), ok(count(2), 15, 25)];
    assert_eq!(readable(&operations, 30, 40), [7, 8, 9]);
}

#[test]
fn an_unknown_set_may_come_at_any_time() {
    let operations = [
        unknown(set(50), 10),
        ok(count(2), 30, 40),
        ok(set(7), 50, 60),
    ];
    assert_eq!(readable(&operations, 1, 5), [100]);
    assert_eq!(readable(&operations, 20, 25), [50, 100]);
    assert_eq!(readable(&operations, 45, 46), [50, 51, 52, 102]);
    // The acknowledged set overrides earlier changes, but not those that may still happen.
    assert_eq!(readable(&operations, 70, 80), [7, 50, 51, 52]);
}

#[test]
fn an_unknown_count_may_come_after_a_set() {
    let operations = [unknown(count(3), 5), ok(set(7), 10, 20)];
    assert_eq!(readable(&operations, 30, 40), [7, 8, 9, 10]);
}

#[test]
fn the_end_is_some_of_what_is_unknown() {
    let operations = || {
        vec![
            ok(count(5), 1, 2),
            unknown(count(30), 3),
            unknown(count(-10), 4),
        ]
    };
    let right: Vec<_> = (0..200)
        .filter(|total| findings(operations(), *total, &[]).is_empty())
        .collect();
    assert_eq!(right, [95, 105, 125, 135]);
}

#[test]
fn tokens_tell_what_became_of_the_unknown() {
    let operations = || {
        vec![
            ok(transaction("a", 1), 1, 2),
            unknown(transaction("b", 10), 3),
            unknown(transaction("c", 20), 4),
            failed(transaction("d", 40), 5, "ConnectionLost"),
        ]
    };
    assert_eq!(findings(operations(), 111, &["a", "b"]), []);
    assert_eq!(findings(operations(), 101, &["a"]), []);
    for total in [101, 121, 131] {
        let found = broken(operations(), total, &["a", "b"]);
        assert_eq!(found, [Rule::RightTotal]);
    }
    for (total, tokens, rule, text) in [
        (
            100,
            &[][..],
            Rule::NothingLost,
            "transaction a was acknowledged and is lost",
        ),
        (
            141,
            &["a", "d"],
            Rule::FailedChangesNothing,
            "transaction d failed and was applied: ConnectionLost: ",
        ),
        (
            101,
            &["a", "e"],
            Rule::KnownTokens,
            "token e belongs to no operation",
        ),
        (
            101,
            &["a", "a"],
            Rule::KnownTokens,
            "token a is there twice",
        ),
    ] {
        let text = text.to_owned();
        assert_eq!(
            findings(operations(), total, tokens),
            [Finding { rule, text }]
        );
    }
}

fn request(n: i64) -> Operation {
    Operation::Count(Count {
        on: On::Row(1),
        by: By::Counter,
        n,
        likes: None,
        request: Some("r".into()),
    })
}

#[test]
fn what_is_asked_for_more_than_once_happens_once() {
    let operations = || {
        vec![
            failed(request(5), 10, "ConnectionLost"),
            unknown(request(5), 20),
            ok(request(5), 30, 40),
            ok(request(5), 35, 50),
        ]
    };
    assert_eq!(findings(operations(), 105, &["r"]), []);
    assert_eq!(readable_with(&operations(), &["r"], 1, 5), [100]);
    let maybe = [100, 101, 102, 103, 104, 105];
    assert_eq!(readable_with(&operations(), &["r"], 25, 32), maybe);
    assert_eq!(readable_with(&operations(), &["r"], 41, 45), [105]);
    for total in [100, 110, 115] {
        assert_eq!(broken(operations(), total, &["r"]), [Rule::RightTotal]);
    }
    assert_eq!(broken(operations(), 100, &[]), [Rule::NothingLost]);
}

#[test]
fn a_total_that_grows_does_not_fall() {
    let read = |began, ended, value| {
        let read = Operation::ReadRows { first: 1, last: 1 };
        answered(read, began, ended, Answer::Totals(vec![(ROW, value)]))
    };
    // The increment is open all the time: each read may include it or not.
    let fell = |n, reads: [Done; 2]| {
        let operations = reads.into_iter().chain([ok(count(n), 1, 90)]).collect();
        broken(operations, 100 + n, &[]).contains(&Rule::NoWayBack)
    };
    assert!(fell(5, [read(10, 20, 105), read(30, 40, 100)]));
    assert!(!fell(5, [read(10, 20, 100), read(30, 40, 105)]));
    assert!(!fell(5, [read(10, 35, 105), read(30, 40, 100)])); // at once
    assert!(!fell(-5, [read(10, 20, 100), read(30, 40, 95)]));
}

#[test]
fn only_an_error_of_the_librarys_own_tells_an_outcome() {
    for (operation, kind, is_wrong) in [
        (count(1), "Diesel", true),
        (count(1), "Overflow", true),
        (count(1), "ConnectionLost", false),
        (transaction("a", 1), "Diesel", false),
    ] {
        let found = broken(vec![failed(operation.clone(), 1, kind)], 100, &[]);
        assert_eq!(
            found.contains(&Rule::Errors),
            is_wrong,
            "{operation:?}, {kind}"
        );
    }
}

/// A row that is there all the time is met by each operation on it.
#[test]
fn a_row_is_never_missing() {
    let missed = answered(count(5), 10, 20, Answer::Rows(0));
    assert_eq!(broken(vec![missed], 100, &[]), [Rule::There]);
}

#[test]
fn only_a_total_near_a_bound_refuses_a_count() {
    let bounded = |n| Operation::count(On::Row(1), By::Bounded(0, 105), n);
    let refused = |n, began| answered(bounded(n), began, began + 5, Answer::Unchanged);
    let operations = |n, began| vec![ok(count(5), 10, 20), refused(n, began)];
    for (n, began, is_wrong) in [
        (6, 5, false),
        (5, 1, true),
        (1, 30, false),
        (-105, 30, true),
    ] {
        let found = broken(operations(n, began), 105, &[]);
        assert_eq!(found.contains(&Rule::Bounds), is_wrong, "{n} at {began}");
    }
}

#[test]
fn a_repair_that_changes_nothing_met_a_right_total() {
    let repair = |total| {
        let repair = Operation::Repair { row: 1, total };
        broken(vec![answered(repair, 30, 40, Answer::Unchanged)], 100, &[])
    };
    assert_eq!(repair(100), []);
    assert_eq!(repair(101), [Rule::InBounds]);
}

/// A history of random operations passes as it is, and not with one answer, token or total that is wrong.
#[test]
fn whatever_is_broken_is_objected_to() {
    let read = |value, began| {
        let read = Operation::ReadRows { first: 1, last: 1 };
        answered(read, began, began + 5, Answer::Totals(vec![(ROW, value)]))
    };
    for seed in 0..500 {
        let random = &mut SmallRng::seed_from_u64(seed);
        let (mut total, mut tokens, mut operations) = (100, vec![], vec![]);
        for began in (10..10 * random.random_range(8..40)).step_by(10) {
            let n = random.random_range(1..9);
            let (operation, after) = match random.random_range(0..8) {
                0 => (ok(set(n), began, began + 5), n),
                1 => (failed(count(n), began, "ConnectionLost"), total),
                2 | 3 => (read(total, began), total),
                4 | 5 => {
                    tokens.push(format!("{began}"));
                    let operation = transaction(&tokens[tokens.len() - 1], n);
                    (ok(operation, began, began + 5), total + n)
                }
                _ => (ok(count(n), began, began + 5), total + n),
            };
            operations.push(operation);
            total = after;
        }
        operations.push(read(total, 1000));
        let texts: Vec<_> = tokens.iter().map(String::as_str).collect();
        assert_eq!(
            findings(operations.clone(), total, &texts),
            [],
            "seed {seed}"
        );
        let off = if random.random() { 1 } else { -1 };
        assert!(broken(operations.clone(), total + off, &texts).contains(&Rule::RightTotal));
        if let [_, rest @ ..] = &texts[..] {
            assert!(broken(operations.clone(), total, rest).contains(&Rule::NothingLost));
        }
        let last = operations.len() - 1;
        operations[last] = read(total + off, 1000);
        assert!(broken(operations, total, &texts).contains(&Rule::InBounds));
    }
}
