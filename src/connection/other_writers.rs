//! Whether other nodes of the database take writes too.

use std::sync::atomic::{AtomicBool, Ordering};

static OTHER_NODES_WRITE: AtomicBool = AtomicBool::new(false);

/// Sets whether other nodes of this process' databases take writes too. Such a node may end a transaction without the client being
/// told. Transactions of several statements are guarded against that while this is set.
pub(crate) fn set_other_nodes_write(write: bool) {
    OTHER_NODES_WRITE.store(write, Ordering::Relaxed);
}

/// Whether other nodes take writes too.
pub(crate) fn other_nodes_write() -> bool {
    OTHER_NODES_WRITE.load(Ordering::Relaxed)
}
