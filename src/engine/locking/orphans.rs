//! Removing shards that have no parent.

use diesel::prelude::*;

use crate::backend::{ShardedBackend, Strength};
use crate::connection::{Link, LoadIo};
use crate::engine::keyed::Parents;
use crate::query_builder::{FindPolicy, RemoveOrphans, RowKind};
use crate::unfit::Unfit;

use super::locked::LockedKeys;

/// Removes the shards of these keys that have no parent, in the transaction that is open. The number removed.
///
/// The shards are locked before the parents are looked for. So no count is removed with them that was committed for a parent
/// which is being inserted meanwhile.
///
/// # Errors
/// [`Unfit::NoRow`] where row security may hide parents from this role.
pub(crate) async fn remove_orphans<P, DB, M, Conn>(
    of: P,
    link: &mut Link<'_, M, Conn>,
    keys: &[P::Key],
) -> QueryResult<usize>
where
    P: Parents<DB>,
    M: LoadIo<Conn, Backend = DB>,
    DB: ShardedBackend,
{
    let Some(first) = keys.first() else {
        return Ok(0);
    };
    if link.dialect().hides_rows_from_locks() {
        let find = FindPolicy(of.names().parent);
        let active = link.load::<i32, _>(find).await?;
        if !active.is_empty() {
            return Err(of.unfit(first, Unfit::NoRow).into());
        }
    }
    let named = of.are(keys);
    let shards = LockedKeys {
        names: of.names(),
        keys: &named,
        parents: keys.len(),
        shard: None,
        filled: None,
    };
    shards.lock_shards(link, Strength::Exclusive).await?;
    let of = shards.rows(RowKind::Shards);
    link.execute(RemoveOrphans { of }).await
}
