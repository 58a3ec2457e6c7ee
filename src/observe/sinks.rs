//! Where observations go: to `tracing` and `metrics`, or without their features to nowhere. Nothing is evaluated for what goes nowhere.

use std::future::Future;

#[cfg(feature = "tracing")]
pub(super) use tracing::{
    Span,
    field::{Empty, display},
};

/// The future inside the span in which this is called, wherever it is polled.
#[cfg(feature = "async")]
pub(crate) fn in_callers_span<F: Future>(future: F) -> impl Future<Output = F::Output> {
    #[cfg(feature = "tracing")]
    {
        tracing::Instrument::in_current_span(future)
    }
    #[cfg(not(feature = "tracing"))]
    future
}

/// Uses values without evaluating them.
#[cfg(not(all(feature = "tracing", feature = "metrics")))]
macro_rules! unused {
    ($($value:expr),* $(,)?) => {{
        let _ = || {
            $(let _ = &$value;)*
        };
    }};
}

/// A span: `span!(FOLD, table = table)`, or inside another one `span!(ATTEMPT in &parent, …)`.
macro_rules! span {
    ($name:ident $(in $parent:expr)?, $($field:ident = $value:expr),+ $(,)?) => {{
        #[cfg(feature = "tracing")]
        {
            use $crate::observe::names::{$name, TARGET};
            tracing::span!(target: TARGET, $(parent: $parent,)? $name.level, $name.text, $($field = $value),+)
        }
        #[cfg(not(feature = "tracing"))]
        {
            unused!($($parent,)? $($value),+);
            $crate::observe::sinks::Span
        }
    }};
}

/// An event: `event!(LOST)`, with fields, or inside a span.
macro_rules! event {
    ($name:ident $(in $parent:expr)? $(, $field:ident = $value:expr)* $(,)?) => {{
        #[cfg(feature = "tracing")]
        {
            use $crate::observe::names::{$name, TARGET};
            tracing::event!(target: TARGET, $(parent: $parent,)? $name.level, $($field = $value,)* "{}", $name.text);
        }
        #[cfg(not(feature = "tracing"))]
        unused!($($parent,)? $($value),*);
    }};
}

/// Whether a subscriber would get an event.
macro_rules! is_enabled {
    ($name:ident) => {{
        #[cfg(feature = "tracing")]
        {
            use $crate::observe::names::{$name, TARGET};
            tracing::event_enabled!(target: TARGET, $name.level)
        }
        #[cfg(not(feature = "tracing"))]
        false
    }};
}

/// Adds to a counter: `count!(LOSSES += 1)`, with labels; to several by `count!(A += 1, B += 2; { label = value })`. With one label that is a literal, the key is made when it is compiled, which
/// costs next to nothing.
macro_rules! count {
    ($metric:ident += $by:expr, $label:ident = $value:literal) => {{
        #[cfg(feature = "metrics")]
        {
            use metrics::{Key, Label};
            static LABELS: [Label; 1] = [Label::from_static_parts(stringify!($label), $value)];
            static KEY: Key = Key::from_static_parts($crate::observe::names::$metric.name, &LABELS);
            $crate::observe::sinks::increment(&KEY, $by);
        }
        #[cfg(not(feature = "metrics"))]
        unused!($by);
    }};
    ($($metric:ident += $by:expr),+; $labels:tt) => {{
        $(count!(@labelled $metric += $by, $labels);)+
    }};
    (@labelled $metric:ident += $by:expr, { $($label:ident = $value:expr),+ }) => {
        count!($metric += $by $(, $label = $value)+)
    };
    ($metric:ident += $by:expr $(, $label:ident = $value:expr)* $(,)?) => {{
        #[cfg(feature = "metrics")]
        metrics::counter!($crate::observe::names::$metric.name $(, stringify!($label) => $value)*)
            .increment($by as u64);
        #[cfg(not(feature = "metrics"))]
        unused!($by $(, $value)*);
    }};
}

#[cfg(feature = "metrics")]
#[inline]
pub(super) fn increment(key: &metrics::Key, by: u64) {
    use metrics::{Level, Metadata};
    static METADATA: Metadata<'static> = Metadata::new("diesel_sharded", Level::INFO, None);
    metrics::with_recorder(|recorder| recorder.register_counter(key, &METADATA)).increment(by);
}

/// Records a value in a histogram: `measure!(WAIT_TIME, seconds)`, with labels.
macro_rules! measure {
    ($metric:ident, $measured:expr $(, $label:ident = $value:expr)*) => {{
        #[cfg(feature = "metrics")]
        metrics::histogram!($crate::observe::names::$metric.name $(, stringify!($label) => $value)*)
            .record($measured);
        #[cfg(not(feature = "metrics"))]
        unused!($measured $(, $value)*);
    }};
}

/// Whether any subscriber may be there: without one, nothing more is looked at.
#[inline]
pub(super) fn is_listened_to() -> bool {
    #[cfg(feature = "tracing")]
    return tracing::level_filters::LevelFilter::current()
        != tracing::level_filters::LevelFilter::OFF;
    #[cfg(not(feature = "tracing"))]
    false
}

/// Something that takes time.
#[derive(Debug, Clone)]
pub(crate) struct Scope(pub(super) Span);

#[cfg(feature = "tracing")]
type Within<F> = tracing::instrument::Instrumented<F>;
#[cfg(not(feature = "tracing"))]
type Within<F> = F;

impl Scope {
    /// A step of it.
    #[inline]
    pub(crate) fn within<F: Future>(&self, step: F) -> Within<F> {
        #[cfg(feature = "tracing")]
        let step = tracing::Instrument::instrument(step, self.0.clone());
        step
    }

    /// A step of it that blocks.
    #[inline]
    pub(crate) fn block<T>(&self, step: impl FnOnce() -> T) -> T {
        #[cfg(feature = "tracing")]
        let _entered = self.0.enter();
        step()
    }
}

#[cfg(not(feature = "tracing"))]
mod nowhere {
    /// The twin of `tracing`'s.
    #[derive(Debug, Clone)]
    pub(crate) struct Span;

    impl Span {
        pub(crate) fn none() -> Self {
            Span
        }

        pub(crate) fn is_disabled(&self) -> bool {
            true
        }

        pub(crate) fn record<V>(&self, _field: &str, _value: V) {}
    }

    pub(crate) struct Empty;

    pub(crate) fn display<T>(value: T) -> T {
        value
    }
}

#[cfg(not(feature = "tracing"))]
pub(super) use self::nowhere::{Empty, Span, display};
