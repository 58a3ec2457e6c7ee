//! The idempotency keys of a batch.

use std::collections::HashMap;

use diesel::connection::LoadConnection;
use diesel::result::QueryResult;

use crate::backend::BackendOf;
use crate::connection::{Link, now};
use crate::engine::KEYS_IN_A_STATEMENT;
use crate::operation::coalescer::batch::Batch;
use crate::operation::coalescer::chunk::{Chunk, EntrySum};
use crate::operation::idempotency::{claim, release};

use super::exceptions::Exceptions;

/// Claims the keys of these requests. Returns the sums without the requests whose keys are not new.
pub(super) fn claim_requests<Conn>(
    conn: &mut Conn,
    batch: &mut Batch<Conn>,
    part: &[Chunk],
    requests: &[usize],
) -> QueryResult<Vec<Vec<EntrySum>>>
where
    Conn: LoadConnection + 'static,
    Conn::Backend: BackendOf<Conn>,
{
    for requests in requests.chunks(KEYS_IN_A_STATEMENT) {
        let asked = requests.iter().filter_map(|caller| batch.request(*caller));
        let claimed = now(claim(&mut Link::blocking(conn), &asked.collect::<Vec<_>>()))?;
        for (caller, claimed) in requests.iter().zip(claimed) {
            batch.claimed(*caller, claimed);
        }
    }
    Ok(batch.sums(part))
}

/// Releases the keys of the requests that counted nothing.
pub(super) fn release_requests<Conn>(
    conn: &mut Conn,
    batch: &Batch<Conn>,
    requests: &[usize],
    exceptions: &Exceptions,
) -> QueryResult<()>
where
    Conn: LoadConnection + 'static,
    Conn::Backend: BackendOf<Conn>,
{
    let by_themselves: HashMap<_, _> = exceptions
        .callers
        .iter()
        .map(|(caller, result)| (caller, result))
        .collect();
    let counted_nothing =
        |caller: &&usize| match (batch.counts_on(**caller), by_themselves.get(caller)) {
            (None, _) => false, // a repeat
            (Some(_), Some(result)) => !matches!(result, Ok(1..)),
            (Some(entry), None) => exceptions.rows_of(entry) == 0,
        };
    let released = requests.iter().filter(counted_nothing);
    let keys: Vec<&[u8]> = released
        .filter_map(|caller| Some(batch.request(*caller)?.key.as_slice()))
        .collect();
    for keys in keys.chunks(KEYS_IN_A_STATEMENT) {
        now(release(&mut Link::blocking(conn), keys.to_vec()))?;
    }
    Ok(())
}
