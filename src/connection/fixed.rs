//! Statements of a fixed text.

use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;

use super::link::{Io, Link};
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

/// How often a statement is sent that has to succeed, where others interrupt statements.
pub(super) const MOST_TRIES: u8 = 8;

/// The outcome of a step that is repeated while others interrupt it. (A macro, since no closure can lend the link to a future.)
macro_rules! again_if_interrupted {
    ($link:ident, $step:expr) => {{
        let mut tries = 1;
        loop {
            match $step {
                Err(error)
                    if tries < crate::connection::fixed::MOST_TRIES
                        && $link.dialect().may_succeed_again(&error) =>
                {
                    tries += 1;
                }
                done => break done,
            }
        }
    }};
}
pub(super) use again_if_interrupted;

/// Sends what undoes a failed operation, whose error says more than one of this. The connection is broken if it fails.
pub(crate) async fn clean_up<M: Io<Conn>, Conn>(link: &mut Link<'_, M, Conn>, sql: &str) {
    if again_if_interrupted!(link, link.batch_execute(sql).await).is_err() {
        link.transaction_status().set_in_error();
    }
}
