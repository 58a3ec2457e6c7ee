//! The operations of scenarios, each in a word.

use crate::operation::{
    Application, Bounded, Coalescer, Count, Fold, Idempotent, Operation, SetTotal,
};

/// A parent's key.
pub const A: u8 = 0;
/// Another one.
pub const B: u8 = 1;

/// A fold that keeps the shards.
pub fn fold(keys: &'static [u8]) -> Operation {
    Operation::Fold(Fold::of(keys))
}

/// A fold that removes them.
pub fn fold_away(keys: &'static [u8]) -> Operation {
    let keep = Some(0);
    Operation::Fold(Fold {
        keep,
        ..Fold::of(keys)
    })
}

/// A fold of A that waits for no lock.
pub fn fold_at_once() -> Operation {
    let at_once = true;
    Operation::Fold(Fold {
        at_once,
        ..Fold::of(&[A])
    })
}

/// A fold of one shard of A, which it removes.
pub fn fold_one(shard: u8) -> Operation {
    let (only, keep) = (Some(shard), Some(0));
    Operation::Fold(Fold {
        only,
        keep,
        ..Fold::of(&[A])
    })
}

/// A fold of A in a caller's transaction, which removes its shards.
pub fn fold_inside() -> Operation {
    let (inside, keep) = (true, Some(0));
    Operation::Fold(Fold {
        inside,
        keep,
        ..Fold::of(&[A])
    })
}

/// A count of 1 outside a transaction.
pub fn count(key: u8, shard: u8) -> Operation {
    Operation::Count(Count::of(key, shard, 1))
}

/// The same in a caller's transaction.
pub fn count_inside(key: u8, shard: u8) -> Operation {
    let inside = true;
    Operation::Count(Count {
        inside,
        ..Count::of(key, shard, 1)
    })
}

/// A new total.
pub fn set(key: u8, total: i8) -> Operation {
    Operation::SetTotal(SetTotal { key, total })
}

/// A count on A that must not lead below 0.
pub fn bounded(n: i8) -> Operation {
    Operation::Bounded(Bounded::of(A, n))
}

/// The same in a caller's transaction.
pub fn bounded_inside(n: i8) -> Operation {
    let inside = true;
    Operation::Bounded(Bounded {
        inside,
        ..Bounded::of(A, n)
    })
}

/// A count on A with the one idempotency key.
pub fn request(shard: u8, n: i8) -> Operation {
    Operation::Idempotent(Idempotent {
        request: 7,
        key: A,
        shard,
        n,
    })
}

/// A coalescer's batch of 1 on A's first shard.
pub fn batch(at_once: bool) -> Operation {
    Operation::Coalescer(Coalescer {
        key: A,
        shard: 0,
        n: 1,
        at_once,
    })
}

/// Something that the application does.
pub fn does(application: Application) -> Operation {
    Operation::Application(application)
}
