//! Statements of a fixed text.

use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::link::{Io, Link, MOST_TRIES};
use crate::backend::ShardedBackend;
use crate::query_builder::no_query_id;

/// A statement without binds.
pub(super) struct Fixed(pub(super) &'static str);

impl<DB: ShardedBackend> QueryFragment<DB> for Fixed {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql(self.0);
        Ok(())
    }
}

no_query_id!([] Fixed);

/// Sends what undoes a failed operation, whose error says more than one of this. The connection is broken if it fails.
pub(crate) async fn clean_up<M: Io<Conn>, Conn>(link: &mut Link<'_, M, Conn>, sql: &str) {
    for _ in 0..MOST_TRIES {
        match link.batch_execute(sql).await {
            Ok(()) => return,
            Err(error) if link.dialect().may_succeed_again(&error) => {}
            Err(_) => break,
        }
    }
    link.transaction_status().set_in_error();
}
