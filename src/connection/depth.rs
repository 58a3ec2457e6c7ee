//! The transactions that Diesel knows of.

use std::num::NonZeroU32;

use diesel::connection::TransactionManagerStatus;
use diesel::result::QueryResult;

use super::link::{Io, Link};
use crate::error::Error;

/// How deep the transactions on a connection are nested, as far as Diesel knows; 0 outside of any. Fails after the connection was
/// lost, when Diesel does not know: nothing is sent on it then.
pub(super) fn depth<M: Io<Conn>, Conn>(link: &mut Link<'_, M, Conn>) -> QueryResult<u32> {
    depth_of(link.transaction_status())
}

/// The same, by Diesel's own record.
pub(crate) fn depth_of(status: &TransactionManagerStatus) -> QueryResult<u32> {
    let depth = status.transaction_depth();
    let depth = depth.map_err(|source| Error::ConnectionLost { source })?;
    Ok(depth.map_or(0, NonZeroU32::get))
}

/// Whether a transaction that Diesel knows is open.
pub(crate) fn in_transaction<M: Io<Conn>, Conn>(link: &mut Link<'_, M, Conn>) -> QueryResult<bool> {
    Ok(depth(link)? > 0)
}
