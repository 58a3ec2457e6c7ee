//! Keys by their hashes.

use std::fmt::{self, Write};
use std::hash::{DefaultHasher, Hasher};

use diesel::query_builder::QueryFragment;

use crate::backend::ShardedBackend;

/// A number for the rows that `filter` matches. It is the same as long as the process runs.
pub(crate) fn hash_of<DB: ShardedBackend>(table: &str, filter: &impl QueryFragment<DB>) -> u64 {
    let mut hash = Hash(DefaultHasher::new());
    hash.0.write(table.as_bytes());
    // A filter that cannot be written takes the hash of its first part. The statement then reports the error.
    let _ = DB::show(filter, &mut hash);
    hash.0.finish()
}

struct Hash(DefaultHasher);

impl Write for Hash {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

#[cfg(all(test, feature = "postgres_backend"))]
mod tests {
    use super::*;

    #[test]
    fn filters_are_told_apart_by_their_values() {
        use crate::test_schema::videos::dsl::*;
        use diesel::pg::Pg;
        use diesel::prelude::*;
        use diesel::query_builder::IntoUpdateTarget;

        let of = |key: i64| {
            let filter = videos.find(key).into_update_target().where_clause;
            hash_of::<Pg>("videos_shards", &filter)
        };
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
        let by_filter = videos.filter(id.eq(7)).into_update_target().where_clause;
        assert_eq!(hash_of::<Pg>("videos_shards", &by_filter), of(7));
        assert_ne!(hash_of::<Pg>("others", &by_filter), of(7));
    }
}
