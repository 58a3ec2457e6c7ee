//! Filters that matched several parents when they were last counted by.
//!
//! A statement about one parent would be in vain for them. The types of a filter stand for it: they tell its SQL, and nothing else is
//! known of it before it is sent.

use std::any::TypeId;
use std::cell::RefCell;
use std::collections::HashSet;

use fnv::FnvBuildHasher;

thread_local! {
    static SEVERAL: RefCell<HashSet<TypeId, FnvBuildHasher>> = RefCell::default();
}

/// Whether the filter matched several parents.
pub(super) fn matched_several(filter: TypeId) -> bool {
    // While the thread ends there is no set any more.
    SEVERAL
        .try_with(|several| several.borrow().contains(&filter))
        .unwrap_or(false)
}

/// Notes how many parents the filter matched.
pub(super) fn matched(filter: TypeId, parents: usize) {
    let _ = SEVERAL.try_with(|several| match parents {
        0 => false, // that tells nothing
        1 => several.borrow_mut().remove(&filter),
        _ => several.borrow_mut().insert(filter),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_match_counts() {
        let filter = TypeId::of::<String>();
        assert!(!matched_several(filter));
        for (parents, several) in [(10, true), (0, true), (1, false), (0, false)] {
            matched(filter, parents);
            assert_eq!(matched_several(filter), several);
        }
    }
}
