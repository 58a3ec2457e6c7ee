//! Idempotency keys of one field of one row.

use super::idempotent::Idempotent;
use crate::model::ShardedColumn;
use crate::operation::row_counter::RowCounter;

impl<C: ShardedColumn> RowCounter<C> {
    /// The same counter, which counts only once for all additions with this key of 1 to 255 bytes. See
    /// [`idempotency`](crate::idempotency).
    pub fn idempotency_key(&self, key: impl AsRef<[u8]>) -> Idempotent<Self> {
        Idempotent::new(self.clone(), key)
    }
}
