//! Names of named counters.

use std::cell::RefCell;
use std::collections::BTreeMap;

use diesel::prelude::*;
use diesel_sharded::{Counter, Error, counters};
use proptest::prelude::*;

use super::{Conn, database, for_all, fragments, texts};

#[derive(Debug, Clone, Copy)]
enum Event {
    Add(i64),
    Set(i64),
    Fold,
    Delete,
    Resize(u16),
}

fn names() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => texts(6),
        1 => texts(300),
        // Around the longest one.
        1 => (fragments(), 60..260usize)
            .prop_map(|(piece, times)| piece.repeat(times)),
    ]
}

/// By their bytes, as the database should sort and compare them.
type Model = BTreeMap<Vec<u8>, i64>;

fn number_of_counters(conn: &mut Conn) -> i64 {
    counters::table.count().get_result(conn).unwrap()
}

#[test]
fn hostile_names_name_exactly_one_counter() {
    let (_database, conn) = database();
    let conn = RefCell::new((conn, Model::new()));
    let event = prop_oneof![
        5 => (-9..9i64).prop_map(Event::Add),
        1 => any::<i64>().prop_map(|n| Event::Set(n / 2)),
        1 => Just(Event::Fold),
        1 => Just(Event::Delete),
        1 => (1..9u16).prop_map(Event::Resize),
    ];
    let cases = (names(), event, any::<prop::sample::Index>(), names());
    for_all(250, cases, |(name, event, cut, other)| {
        let (conn, model) = &mut *conn.borrow_mut();
        let counter = Counter::named(name.clone());
        let done = match event {
            Event::Add(n) => counter.add(n, conn),
            Event::Set(n) => counter.set(n, conn),
            Event::Fold => counter.fold(conn).map(drop),
            Event::Delete => counter.delete(conn).map(drop),
            Event::Resize(n) => counter.resize(n, conn),
        };
        let key = name.clone().into_bytes();
        if (1..=255).contains(&name.len()) {
            prop_assert_eq!(done, Ok(()));
            match event {
                Event::Add(0) => {} // which creates no counter
                Event::Add(n) => *model.entry(key.clone()).or_insert(0) += n,
                Event::Set(n) => drop(model.insert(key.clone(), n)),
                Event::Delete => drop(model.remove(&key)),
                Event::Fold | Event::Resize(_) => {}
            }
            let total = model.get(&key).copied().unwrap_or(0);
            prop_assert_eq!(counter.get(conn), Ok(total));
            if let (1..=255, expected) = (other.len(), model.get(other.as_bytes())) {
                let both = Counter::get_many(&[other.as_str(), &name], conn);
                let expected = expected.copied().unwrap_or(0);
                prop_assert_eq!(both, Ok(vec![expected, total]));
            }
        } else {
            let error = Error::from(done.unwrap_err());
            let bytes = name.len();
            let is_refused =
                matches!(error, Error::InvalidCounterName { bytes: told } if told == bytes);
            prop_assert!(is_refused, "{:?}", error);
        }
        prop_assert_eq!(number_of_counters(conn), model.len() as i64);
        // Names that begin with this prefix, and no others, by their bytes.
        let cuts: Vec<usize> = name.char_indices().map(|(at, _)| at).collect();
        let cut = if cuts.is_empty() { 0 } else { *cut.get(&cuts) };
        let prefix = &name[..cut];
        let begin = model.range(prefix.as_bytes().to_vec()..);
        let expected: Vec<(String, i64)> = begin
            .take_while(|(name, _)| name.starts_with(prefix.as_bytes()))
            .take(50)
            .map(|(name, total)| (String::from_utf8(name.clone()).unwrap(), *total))
            .collect();
        let listed = Counter::list(prefix).limit(50).load(conn);
        prop_assert_eq!(listed, Ok(expected));
        Ok(())
    });
}
