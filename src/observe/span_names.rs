//! The names of spans, and the messages of events.

/// The target of all of them.
pub(super) const TARGET: &str = "diesel_sharded";

macro_rules! names {
    ($($name:ident: $kind:literal, $level:literal, $text:literal;)+) => {
        $(pub(super) const $name: &str = $text;)+
        #[cfg(test)]
        const ALL: &[(&str, &str, &str)] = &[$(($kind, $level, $text)),+];
    };
}

names! {
    UPDATE: "span", "INFO", "update";
    TRANSACTION: "span", "INFO", "transaction";
    ATTEMPT: "span", "DEBUG", "attempt";
    STATEMENT: "span", "DEBUG", "statement";
    FOLD: "span", "INFO", "fold";
    FLUSH: "span", "INFO", "flush";
    CONFLICT: "event", "DEBUG", "conflict";
    CONFLICT_OF_BATCH: "event", "DEBUG", "conflict of a batch";
    FAILED: "event", "DEBUG", "failed";
    FOLDED: "event", "INFO", "folded";
    FOLDER_FAILED: "event", "WARN", "a pass of a folder failed: see 'on_error'";
    CACHE_LEFT_OUT: "event", "WARN", "the cache could not be used and is left out for a while";
    CACHE_FAILED: "event", "DEBUG", "the cache failed";
    LOST: "event", "ERROR",
        "what was added without waiting could not be counted: see 'on_loss'";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_has_a_row_for_each_span_and_event() {
        let docs = include_str!("../observability.rs");
        let (spans, events) = docs.split_once("Events, by their messages").unwrap();
        for (kind, level, name) in ALL {
            let docs = match *kind {
                "span" => spans,
                _ => events,
            };
            let row = format!("//! | `{name}` | {level} |");
            assert!(docs.contains(&row), "{row}");
        }
    }
}
