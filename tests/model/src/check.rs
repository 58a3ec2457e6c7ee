//! Runs the checker.

use stateright::{Checker, HasDiscoveries, Model};

use crate::rules::Fix;
use crate::scenario::Scenario;

/// Explores all states. Every property holds in each of them, and exactly these outcomes are reached.
///
/// # Panics
/// They do not, with the shortest way there.
pub fn holds(name: &str, scenario: &Scenario, reaches: &[&'static str]) {
    let checker = scenario.clone().checker().spawn_bfs().join();
    let states = checker.unique_state_count();
    println!("{name}: {states} states, depth {}", checker.max_depth());
    let mut reached = vec![];
    for property in scenario.properties() {
        let discovery = checker.discovery(property.name);
        match (property.expectation.discovery_is_failure(), discovery) {
            (true, Some(path)) => panic!(
                "{name}: not in every state: {}\n{:#?}\n{:#?}",
                property.name,
                path.clone().into_actions(),
                path.last_state()
            ),
            (false, Some(_)) => reached.push(property.name),
            (_, None) => {}
        }
    }
    let (mut reached, mut expected) = (reached, reaches.to_vec());
    reached.sort_unstable();
    expected.sort_unstable();
    assert_eq!(reached, expected, "{name}: the outcomes that are reached");
}

/// Explores states until one breaks a property, without these fixes. It is this one.
///
/// # Panics
/// None does, or another one.
pub fn breaks(fixes: &'static [Fix], scenario: &Scenario, property: &'static str) {
    let without = scenario.clone().with(|rules| rules.left_out = fixes);
    let checker = without
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let Some(path) = checker.discovery(property) else {
        let found: Vec<_> = checker.discoveries().into_keys().collect();
        panic!("without {fixes:?} nothing breaks `{property}`; found: {found:?}");
    };
    let states = checker.unique_state_count();
    println!("without {fixes:?}: `{property}` is broken, after {states} states:");
    for action in path.into_actions() {
        println!("    {action:?}");
    }
}
