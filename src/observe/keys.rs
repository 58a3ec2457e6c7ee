//! The keys of the metrics of each update of a table, made when the crate is compiled: making one takes as long as a tenth of an update on
//! SQLite in memory.

use crate::backend::Dialect;
use crate::model::ShardedTable;

/// The keys of the updates of one table in one database.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keys(#[cfg(feature = "metrics")] &'static made::UpdateKeys);

impl Keys {
    #[inline]
    pub(crate) fn of<T: ShardedTable>(dialect: Dialect) -> Self {
        #[cfg(feature = "metrics")]
        return Keys(made::of::<T>(dialect));
        #[cfg(not(feature = "metrics"))]
        {
            unused!(dialect, T::SHARDS_TABLE);
            Keys()
        }
    }

    /// An update ended after so many attempts.
    #[inline]
    pub(super) fn ended(self, attempts: u32, succeeded: bool) {
        #[cfg(feature = "metrics")]
        {
            let Keys(keys) = self;
            increment(&keys.outcomes[usize::from(succeeded)], 1);
            increment(&keys.attempts, attempts.into());
        }
        #[cfg(not(feature = "metrics"))]
        unused!(attempts, succeeded);
    }
}

#[cfg(feature = "metrics")]
#[inline]
pub(super) fn increment(key: &metrics::Key, by: u64) {
    use metrics::{Level, Metadata};
    static METADATA: Metadata<'static> = Metadata::new("diesel_sharded", Level::INFO, None);
    metrics::with_recorder(|recorder| recorder.register_counter(key, &METADATA)).increment(by);
}

#[cfg(feature = "metrics")]
mod made {
    use std::marker::PhantomData;

    use metrics::{Key, Label};

    use crate::backend::Dialect;
    use crate::model::ShardedTable;
    use crate::observe::names::{ATTEMPTS, UPDATES};
    use crate::observe::operation::outcome_of;

    #[derive(Debug)]
    pub(super) struct UpdateKeys {
        /// Of updates that failed, and of those that succeeded.
        pub(super) outcomes: [Key; 2],
        pub(super) attempts: Key,
    }

    pub(super) fn of<T: ShardedTable>(dialect: Dialect) -> &'static UpdateKeys {
        match dialect {
            Dialect::Postgres => KeysOf::<T, { Dialect::Postgres as usize }>::KEYS,
            Dialect::Mysql => KeysOf::<T, { Dialect::Mysql as usize }>::KEYS,
            Dialect::Sqlite => KeysOf::<T, { Dialect::Sqlite as usize }>::KEYS,
        }
    }

    struct KeysOf<T, const DIALECT: usize>(PhantomData<T>);

    impl<T: ShardedTable, const DIALECT: usize> KeysOf<T, DIALECT> {
        const BACKEND: Label =
            Label::from_static_parts("backend", Dialect::ALL[DIALECT].capabilities().name);
        const TABLE: Label = Label::from_static_parts("table", T::SHARDS_TABLE.as_str());
        const LABELS: &'static [Label] = &[Self::BACKEND, Self::TABLE];
        const FAILED: &'static [Label] = &[Self::BACKEND, Self::TABLE, outcome(false)];
        const SUCCEEDED: &'static [Label] = &[Self::BACKEND, Self::TABLE, outcome(true)];
        const KEYS: &'static UpdateKeys = &UpdateKeys {
            outcomes: [
                Key::from_static_parts(UPDATES.name, Self::FAILED),
                Key::from_static_parts(UPDATES.name, Self::SUCCEEDED),
            ],
            attempts: Key::from_static_parts(ATTEMPTS.name, Self::LABELS),
        };
    }

    const fn outcome(succeeded: bool) -> Label {
        Label::from_static_parts("outcome", outcome_of(succeeded))
    }
}
