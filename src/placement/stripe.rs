//! The part of the shards that a process keeps to.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::connection::set_other_nodes_write;
use crate::error::Error;
use crate::model::MAX_SHARDS;

/// The part of each key's shards that the counting updates of this process keep to. Of `of` stripes, the one with the index `index` (from
/// 0) has the shards `index`, `index + of`, `index + 2 * of` and so on.
///
/// It is for databases of several nodes that all accept writes, such as MariaDB Galera. If two nodes there count on the same shard
/// at once, neither waits for a lock: one transaction fails at its commit. Give the processes that write to one node a stripe
/// that processes of no other node have, and the two never meet:
///
/// ```
/// use diesel_sharded::shard_choice::Stripe;
///
/// # fn main() -> Result<(), diesel_sharded::Error> {
/// // This process writes to the first of three nodes.
/// Stripe::new(0, 3)?.set_global();
/// # Stripe::ALL.set_global();
/// # Ok(())
/// # }
/// ```
///
/// Within the stripe the [`ShardChoice`](super::ShardChoice) chooses as it would without one: by default a key that is not hot has one
/// shard in each stripe, and a hot one as many as it has writers at once.
///
/// A stripe is advice: an increment is right on any shard. It may change at any time, and processes may
/// disagree on the number of stripes. The number of shards in each stripe follows from
/// [`#[sharded(shards = ..)]`](derive@crate::ShardedField) and [`ShardCount`](crate::shard_counts::ShardCount): 128 shards make
/// three stripes of 43, 43 and 42. Where there are fewer shards than stripes, a stripe has one shard, which is the shard `index`.
///
/// A stripe also means that other nodes write. Such a node may end a transaction without an error to the client. A process that
/// has a stripe guards MySQL's transactions of several statements against that, at the cost of some more round trips. On such
/// clusters, give a stripe to every process that does not only count by key.
///
/// Counting updates, named counters and coalescers keep to the stripe. [Bounded](crate::bounded) counters do not, because room is
/// handed out to all of their shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stripe {
    index: u16,
    of: u16,
}

/// The index in the upper half, the number of stripes in the lower one.
static PROCESS_WIDE: AtomicU32 = AtomicU32::new(Stripe::ALL.packed());

impl Stripe {
    /// All shards: the default.
    pub const ALL: Self = Stripe { index: 0, of: 1 };

    /// One of `of` stripes.
    ///
    /// ```
    /// use diesel_sharded::Error;
    /// use diesel_sharded::shard_choice::Stripe;
    ///
    /// assert!(Stripe::new(2, 3).is_ok());
    /// assert!(matches!(Stripe::new(3, 3), Err(Error::InvalidStripe { index: 3, of: 3 })));
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidStripe`] if `index` is not below `of`, or there are more stripes than shards can be, 4096.
    pub fn new(index: u16, of: u16) -> Result<Self, Error> {
        match index < of && of <= MAX_SHARDS {
            true => Ok(Stripe { index, of }),
            false => Err(Error::InvalidStripe { index, of }),
        }
    }

    /// Makes every counting update in this process keep to this stripe.
    pub fn set_global(self) {
        PROCESS_WIDE.store(self.packed(), Ordering::Relaxed);
        set_other_nodes_write(self != Stripe::ALL);
    }

    /// The stripe that the counting updates of this process keep to.
    pub fn global() -> Self {
        let packed = PROCESS_WIDE.load(Ordering::Relaxed);
        Stripe {
            index: (packed >> 16) as u16,
            of: packed as u16,
        }
    }

    const fn packed(self) -> u32 {
        (self.index as u32) << 16 | self.of as u32
    }

    /// The number of shards in the stripe out of this many, at least 1.
    pub(crate) fn shards(self, shards: u16) -> u16 {
        let others = shards.saturating_sub(1).saturating_sub(self.index);
        1 + others / self.of
    }

    /// The shard with this index in the stripe.
    pub(crate) fn shard(self, index: u16) -> i32 {
        i32::from(self.index) + i32::from(index) * i32::from(self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_of(stripe: Stripe, shards: u16) -> Vec<i32> {
        let indexes = 0..stripe.shards(shards);
        indexes.map(|index| stripe.shard(index)).collect()
    }

    #[test]
    fn stripes_share_out_all_shards_and_none_twice() {
        for of in [1, 2, 3, 7, 4096] {
            for shards in [of, of + 1, 128, 4096] {
                if shards < of {
                    continue;
                }
                let mut all: Vec<_> = (0..of)
                    .flat_map(|index| all_of(Stripe::new(index, of).unwrap(), shards))
                    .collect();
                all.sort_unstable();
                let expected: Vec<_> = (0..i32::from(shards)).collect();
                assert_eq!(all, expected, "{shards} in {of}");
            }
        }
    }

    #[test]
    fn a_stripe_keeps_its_shards_when_there_are_more_of_them() {
        let stripe = Stripe::new(1, 3).unwrap();
        assert_eq!(all_of(stripe, 8), [1, 4, 7]);
        assert_eq!(all_of(stripe, 10), [1, 4, 7]);
        assert_eq!(all_of(stripe, 11), [1, 4, 7, 10]);
    }

    #[test]
    fn fewer_shards_than_stripes_are_one_each() {
        for index in 0..5 {
            let stripe = Stripe::new(index, 5).unwrap();
            for shards in 0..=5 {
                assert_eq!(all_of(stripe, shards), [i32::from(index)]);
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for (index, of) in [(0, 0), (1, 1), (3, 3), (4, 3), (0, 4097), (u16::MAX, 0)] {
            let refused = Stripe::new(index, of);
            let error = refused.unwrap_err();
            assert!(
                matches!(error, Error::InvalidStripe { index: i, of: o } if (i, o) == (index, of))
            );
        }
    }

    #[test]
    fn any_stripe_survives_its_packing() {
        let last = Stripe::new(4095, 4096).unwrap();
        for stripe in [Stripe::ALL, last] {
            let packed = stripe.packed();
            assert_eq!(
                ((packed >> 16) as u16, packed as u16),
                (stripe.index, stripe.of)
            );
        }
        assert_eq!(Stripe::global(), Stripe::ALL);
    }
}
