//! Counters whose names begin alike.

use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::sql_types::Binary;

use super::table::counters;
use crate::backend::ShardedBackend;
use crate::query_builder::{no_query_id, push_bind, push_column};

/// A `WHERE` clause for the names that begin with a prefix.
///
/// ```sql
/// WHERE "diesel_sharded_counters"."name" >= $1 AND "diesel_sharded_counters"."name" < $2
/// ```
#[derive(Debug)]
pub(super) struct Prefixed {
    prefix: Vec<u8>,
    /// The first name after all of them; none behind an empty prefix.
    end: Option<Vec<u8>>,
}

impl Prefixed {
    pub(super) fn by(prefix: &str) -> Self {
        Prefixed {
            prefix: prefix.as_bytes().to_vec(),
            end: end_of_prefix(prefix),
        }
    }
}

impl<DB> QueryFragment<DB> for Prefixed
where
    DB: ShardedBackend,
    counters::table: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql(" WHERE ");
        push_name(out.reborrow())?;
        out.push_sql(" >= ");
        push_bind::<Binary, [u8], DB>(&self.prefix, out.reborrow())?;
        if let Some(end) = &self.end {
            out.push_sql(" AND ");
            push_name(out.reborrow())?;
            out.push_sql(" < ");
            push_bind::<Binary, [u8], DB>(end, out)?;
        }
        Ok(())
    }
}

// The text differs where there is no end.
no_query_id!([] Prefixed);

/// `counters.name`
pub(super) fn push_name<DB>(out: AstPass<'_, '_, DB>) -> QueryResult<()>
where
    DB: ShardedBackend,
    counters::table: QueryFragment<DB>,
{
    push_column::<counters::table, DB>(counters::name::NAME, out)
}

/// The first name after all those that begin with `prefix`; none for an empty one. No byte of UTF-8 is the last there is.
fn end_of_prefix(prefix: &str) -> Option<Vec<u8>> {
    let mut end = prefix.as_bytes().to_vec();
    *end.last_mut()? += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_the_next_begins() {
        assert_eq!(end_of_prefix("page:"), Some(b"page;".to_vec()));
        assert_eq!(end_of_prefix(""), None);
        let end = end_of_prefix("é").unwrap();
        assert!("é€".as_bytes() < end.as_slice() && "ê".as_bytes() >= end.as_slice());
    }
}
