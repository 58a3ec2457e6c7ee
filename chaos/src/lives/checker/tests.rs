//! The checker on small histories.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::{Aftermath, Done, judge};
use crate::checker::Rule;
use crate::history::{Moment, Outcome};
use crate::lives::{Answer, History, Operation, Seen};
use crate::operation::Refused;

fn done(operation: Operation, began: Moment, ended: Moment, answer: Answer) -> Done {
    Done {
        client: "0".into(),
        number: began,
        operation,
        began,
        ended,
        took: Duration::ZERO,
        outcome: Outcome::Ok(answer),
    }
}

fn insert(key: i64, life: i64, began: Moment, ended: Moment) -> Done {
    let total = 100 * life;
    let insert = Operation::Insert { key, life, total };
    done(insert, began, ended, Answer::Rows(1))
}

fn count(key: i64, n: i64, began: Moment, ended: Moment) -> Done {
    done(Operation::Count { key, n }, began, ended, Answer::Rows(1))
}

fn seen(key: i64, life: i64, total: i64) -> Answer {
    Answer::Lives(vec![Seen { key, life, total }])
}

fn delete(life: i64, total: i64, began: Moment, ended: Moment) -> Done {
    let delete = Operation::Delete { key: 1 };
    done(delete, began, ended, seen(1, life, total))
}

fn read(answer: Answer, began: Moment, ended: Moment) -> Done {
    let read = Operation::Read { first: 1, last: 2 };
    done(read, began, ended, answer)
}

/// The rules that are violated if these lives are there at the end.
fn broken(mut operations: Vec<Done>, lives: &[(i64, i64, i64)]) -> Vec<Rule> {
    operations.sort_by_key(|done| done.began);
    let lives = lives.iter();
    let lives = lives.map(|&(key, life, total)| Seen { key, life, total });
    let aftermath = Aftermath {
        lives: lives.collect(),
        named: vec![],
    };
    judged(None, operations, &aftermath)
}

fn judged(
    bounds: Option<RangeInclusive<i64>>,
    operations: Vec<Done>,
    aftermath: &Aftermath,
) -> Vec<Rule> {
    let found = judge(bounds, &History { operations }, aftermath).findings;
    found.iter().map(|finding| finding.rule).collect()
}

#[test]
fn a_count_falls_on_the_one_life_that_is_there() {
    let operations = |first| {
        vec![
            insert(1, 1, 10, 20),
            count(1, 5, 30, 40),
            delete(1, first, 50, 60),
            insert(1, 2, 70, 80),
            count(1, 7, 90, 95),
        ]
    };
    assert_eq!(broken(operations(105), &[(1, 2, 207)]), []);
    // The sum is right, and neither total is.
    let wrong = broken(operations(100), &[(1, 2, 212)]);
    assert!(
        !wrong.is_empty() && !wrong.contains(&Rule::RightSum),
        "{wrong:?}"
    );
    for total in [200, 214] {
        let wrong = broken(operations(105), &[(1, 2, total)]);
        assert!(wrong.contains(&Rule::RightSum), "{wrong:?}");
    }
}

#[test]
fn a_count_beside_a_delete_and_an_insert_falls_on_one_of_both() {
    let operations = |first| {
        vec![
            insert(1, 1, 10, 20),
            count(1, 5, 45, 85),
            delete(1, first, 50, 60),
            insert(1, 2, 70, 80),
        ]
    };
    assert_eq!(broken(operations(105), &[(1, 2, 200)]), []);
    assert_eq!(broken(operations(100), &[(1, 2, 205)]), []);
    for (first, second) in [(100, 200), (105, 205)] {
        let wrong = broken(operations(first), &[(1, 2, second)]);
        assert_eq!(wrong, [Rule::RightSum]);
    }
    assert!(broken(operations(103), &[(1, 2, 202)]).len() > 1); // no part of it
}

#[test]
fn a_renamed_row_keeps_its_counts() {
    let operations = |at_rename, at_read| {
        let rename = Operation::Rename { from: 1, to: 2 };
        vec![
            insert(1, 1, 10, 20),
            count(1, 5, 30, 40),
            done(rename, 50, 60, seen(2, 1, at_rename)),
            count(2, 7, 70, 80),
            read(seen(2, 1, at_read), 90, 95),
        ]
    };
    assert_eq!(broken(operations(105, 112), &[(2, 1, 112)]), []);
    assert!(!broken(operations(100, 107), &[(2, 1, 107)]).is_empty());
    assert!(!broken(operations(105, 107), &[(2, 1, 112)]).is_empty());
    // It is not under its old key any more.
    let late = operations(105, 112)
        .into_iter()
        .chain([count(1, 1, 85, 88)]);
    assert!(broken(late.collect(), &[(2, 1, 112)]).contains(&Rule::NotElsewhere));
}

#[test]
fn a_set_begins_an_era_of_the_life_that_is_there() {
    let operations = |at_read| {
        let set = Operation::Set { key: 1, total: 50 };
        vec![
            insert(1, 1, 10, 20),
            count(1, 5, 30, 40),
            done(set, 50, 60, Answer::Rows(1)),
            count(1, 7, 70, 80),
            read(seen(1, 1, at_read), 90, 95),
        ]
    };
    assert_eq!(broken(operations(57), &[(1, 1, 57)]), []);
    // The set reported success and did not write the base.
    for kept in [107, 112] {
        assert_eq!(broken(operations(kept), &[(1, 1, kept)]).len(), 3);
    }
}

#[test]
fn only_what_was_not_there_at_some_time_may_be_said_not_to_be() {
    let none = |began, ended| {
        let count = Operation::Count { key: 1, n: 5 };
        done(count, began, ended, Answer::Rows(0))
    };
    let operations = |absent| {
        vec![
            insert(1, 1, 10, 20),
            delete(1, 100, 50, 60),
            insert(1, 2, 70, 80),
            absent,
        ]
    };
    for (began, ended) in [(5, 8), (15, 30), (40, 55), (61, 69), (75, 78)] {
        let absent = operations(none(began, ended));
        assert_eq!(broken(absent, &[(1, 2, 200)]), [], "{began} to {ended}");
        let nothing = operations(read(Answer::Lives(vec![]), began, ended));
        assert_eq!(broken(nothing, &[(1, 2, 200)]), [], "{began} to {ended}");
    }
    for (began, ended) in [(21, 49), (81, 90)] {
        let absent = operations(none(began, ended));
        assert_eq!(broken(absent, &[(1, 2, 200)]).len(), 1);
        let nothing = operations(read(Answer::Lives(vec![]), began, ended));
        assert_eq!(broken(nothing, &[(1, 2, 200)]).len(), 1);
    }
    let dead = operations(read(seen(1, 1, 100), 90, 95));
    assert!(!broken(dead, &[(1, 2, 200)]).is_empty());
    assert!(!broken(operations(none(5, 8)), &[]).is_empty());
}

#[test]
fn a_named_counter_that_is_deleted_begins_again_at_zero() {
    let name = || "a".to_owned();
    let counted = |at_read, at_the_end| {
        let count = |n, began, ended| {
            let count = Operation::CountNamed { name: name(), n };
            done(count, began, ended, Answer::Rows(1))
        };
        let delete = Operation::DeleteNamed { name: name() };
        let read = Operation::ReadNamed { name: name() };
        let operations = vec![
            count(4, 1, 2),
            done(delete, 10, 20, Answer::Rows(1)),
            count(1, 30, 40),
            done(read, 50, 60, Answer::Total(at_read)),
        ];
        let aftermath = Aftermath {
            lives: vec![],
            named: vec![(name(), at_the_end)],
        };
        judged(None, operations, &aftermath)
    };
    assert_eq!(counted(1, 1), []);
    assert_eq!(counted(5, 1), [Rule::InBounds]);
    assert_eq!(counted(1, 0), [Rule::RightTotal]);
}

#[test]
fn bounds_hold_in_every_read() {
    let operations = || vec![insert(1, 1, 10, 20), read(seen(1, 1, 100), 30, 40)];
    let aftermath = Aftermath {
        lives: vec![Seen {
            key: 1,
            life: 1,
            total: 100,
        }],
        named: vec![],
    };
    assert_eq!(judged(Some(0..=100), operations(), &aftermath), []);
    let beyond = judged(Some(0..=99), operations(), &aftermath);
    assert_eq!(beyond, [Rule::Bounds, Rule::Bounds]);
}

#[test]
fn an_outcome_has_to_be_told() {
    for (kind, unknown, is_wrong) in [
        ("ConflictPersisted", false, false),
        ("OutcomeUnknown", true, true),
        ("Diesel", false, true),
    ] {
        let mut refused = count(1, 5, 30, 40);
        let error = Refused {
            unknown,
            kind: kind.into(),
            text: String::new(),
        };
        refused.outcome = match unknown {
            true => Outcome::Unknown(Some(error)),
            false => Outcome::Failed(error),
        };
        let found = broken(vec![insert(1, 1, 10, 20), refused], &[(1, 1, 100)]);
        assert_eq!(!found.is_empty(), is_wrong, "{kind}: {found:?}");
    }
}
