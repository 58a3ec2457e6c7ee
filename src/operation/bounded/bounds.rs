//! Bounds, and the room up to them.

use crate::model::ColumnType;

/// The least and the greatest total.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bounds {
    pub(super) least: Option<i64>,
    pub(super) most: Option<i64>,
}

impl Bounds {
    /// Whether `n` may be added to `total`.
    pub(super) fn allow(self, total: i128, n: i64) -> bool {
        let total = total + i128::from(n);
        let falls_below = n < 0 && self.least.is_some_and(|least| total < i128::from(least));
        let rises_above = n > 0 && self.most.is_some_and(|most| total > i128::from(most));
        !(falls_below || rises_above)
    }

    /// Whether `n` takes from the room up to the upper bound, and not from that down to the lower one. A direction without a
    /// bound takes from what it can never use up: it gives there.
    pub(super) fn uses_room_above(self, n: i64) -> bool {
        if n > 0 {
            self.most.is_some()
        } else {
            self.least.is_none()
        }
    }

    /// Whether no bound limits `n`: adding it gives room to the others.
    pub(super) fn leave_free(self, n: i64) -> bool {
        (n > 0 && self.most.is_none()) || (n < 0 && self.least.is_none())
    }

    /// The share of each shard in the room below `total`, positive, and in that above it, negative. All of it is handed out,
    /// as far as it is not more than half of what the column's type holds: SQLite could not add up the shards of a bound at
    /// the edge. The base keeps the remainder.
    pub(super) fn shares(self, total: i128, slots: u16, column: ColumnType) -> (i64, i64) {
        let (smallest, largest) = column.integers();
        let share = |room: i128| {
            let share = room.clamp(0, i128::from(largest / 2)) / i128::from(slots);
            share as i64 // not above `largest`
        };
        let below = |least: i64| share(total - i128::from(least.max(smallest)));
        let above = |most: i64| share(i128::from(most.min(largest)) - total);
        (self.least.map_or(0, below), -self.most.map_or(0, above))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ColumnType::{BigInt, Integer, SmallInt};

    const SEATS: Bounds = Bounds {
        least: Some(0),
        most: Some(100),
    };

    #[test]
    fn only_what_leads_out_of_the_bounds_is_refused() {
        assert!(SEATS.allow(5, -5) && !SEATS.allow(5, -6));
        assert!(SEATS.allow(95, 5) && !SEATS.allow(95, 6));
        assert!(SEATS.allow(-10, 1) && SEATS.allow(110, -1)); // towards them
        assert!(!SEATS.allow(-10, -1) && !SEATS.allow(110, 1));
        assert!(Bounds::default().allow(i128::from(i64::MAX), i64::MAX));
    }

    /// Whatever is taken from the shards of one direction alone, the total stays within the bounds.
    #[test]
    pub(super) fn shares_never_exceed_the_room() {
        let edges = [i64::MIN, -1000, -1, 0, 1, 7, 1000, i64::MAX];
        for column in [SmallInt, Integer, BigInt] {
            let (smallest, largest) = column.integers();
            for least in edges {
                for most in edges.into_iter().filter(|most| *most >= least) {
                    for total in edges.map(|total| total.clamp(smallest, largest)) {
                        for slots in [1, 2, 8, 2048] {
                            let bounds = Bounds {
                                least: Some(least),
                                most: Some(most),
                            };
                            let (down, up) = bounds.shares(total.into(), slots, column);
                            assert!(down >= 0 && up <= 0);
                            let (total, slots) = (i128::from(total), i128::from(slots));
                            let (down, up) = (i128::from(down) * slots, i128::from(up) * slots);
                            assert!(down == 0 || total - down >= least.into());
                            assert!(up == 0 || total - up <= most.into());
                            let base = total - down - up;
                            assert!((smallest.into()..=largest.into()).contains(&base));
                        }
                    }
                }
            }
        }
    }
}
