//! Scores that fade: what is hot now, in the order of an index, without a job that computes ranks.
//!
//! An event should weigh half as much after each half-life. Instead of fading old events, [`Decay`] makes new ones heavier: an event
//! adds 2^((now − landmark) / half-life) to a sharded `Double`. This is forward decay (Cormode, Shkapenyuk, Srivastava, Xu: "Forward
//! Decay: A Practical Time Decay Model for Streaming Systems", ICDE 2009). All rows fade at the same rate, so their order changes only
//! when an event comes. [`value`](Decay::value) turns a total into the number that it means now.
//!
//! ```
//! # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, hot -> Double, } } }
//! # use schema::videos::{self, dsl::{hot, id, videos as all, views}};
//! # use diesel::prelude::*;
//! # #[derive(diesel_sharded::ShardedField)]
//! # #[diesel(table_name = videos)]
//! # struct Video { id: i64, #[sharded] views: i64, #[sharded] hot: f64 }
//! use std::time::{Duration, SystemTime, UNIX_EPOCH};
//!
//! use diesel_sharded::prelude::*;
//! use diesel_sharded::trending::Decay;
//! use diesel_sharded::{fold, update};
//!
//! const DAY: Duration = Duration::from_secs(86_400);
//!
//! /// Hot over 7 days. Every process has the same landmark: a time shortly before the first event.
//! fn hot_over_a_week() -> Decay {
//!     let landmark = UNIX_EPOCH + Duration::from_secs(1_767_225_600); // 2026-01-01
//!     Decay::half_life(7 * DAY, landmark)
//! }
//!
//! # fn main() -> QueryResult<()> {
//! # let conn = &mut SqliteConnection::establish(":memory:").unwrap();
//! # diesel::sql_query("CREATE TABLE videos (id INTEGER PRIMARY KEY, views BIGINT NOT NULL DEFAULT 0, hot DOUBLE NOT NULL DEFAULT 0)").execute(conn)?;
//! # diesel::insert_into(all).values([id.eq(7), id.eq(8)]).execute(conn)?;
//! # diesel_sharded::ShardsTable::of(videos::table).create(conn)?;
//! # let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
//! let decay = hot_over_a_week();
//! let view = |video: i64, now: SystemTime, conn: &mut SqliteConnection| {
//!     let weight = decay.weight(now)?;
//!     update(all.find(video)).set((views.eq(views + 1), hot.eq(hot + weight))).execute(conn)
//! };
//! // Three views of one video, and a week later two of another.
//! for _ in 0..3 {
//!     view(7, now - 7 * DAY, conn)?;
//! }
//! for _ in 0..2 {
//!     view(8, now, conn)?;
//! }
//!
//! // A background fold keeps the column fresh; `top(all, hot, 10)` is exact without one.
//! fold(all).run(conn)?;
//! let page = all.select((id, hot.total())).order(hot.estimate().desc()).limit(10);
//! let page = page.load::<(i64, f64)>(conn)?;
//! let means = page.iter().map(|(video, total)| (*video, decay.value(*total, now)));
//! let means: Vec<_> = means.map(|(video, n)| (video, (n * 1e9).round() / 1e9)).collect();
//! assert_eq!(means, [(8, 2.0), (7, 1.5)]);
//! # Ok(())
//! # }
//! ```
//!
//! An index on the column serves the order: `CREATE INDEX videos_hot ON videos (hot)`.
//!
//! # A new landmark
//!
//! Weights grow without end, and a `Double` does not. [`weight`](Decay::weight) fails [`MOST_HALF_LIVES`](Decay::MOST_HALF_LIVES) after
//! the landmark: after 17 years with a half-life of 7 days, 10 months with 8 hours. Long before, at 500 half-lives, it logs a warning once
//! a process. Then the landmark has to move, and all scores with it.
//!
//! No pass can scale the column itself beside writers. A process that still counts by the old landmark would add weights that are too
//! heavy by many orders of magnitude, a reader would sort scaled rows among others, and nobody could tell which rows an interrupted pass
//! has scaled. So the scores move to a second column, in three deploys:
//!
//! 1. Add a second sharded `Double`, and count on both in one update, each by its own landmark. Nobody reads the new column yet.
//! 2. When no process counts only on the old column, and every [coalescer](crate::coalescer) of such a process is flushed: fold the table,
//!    until no row is [`busy`](crate::operation::Folded::busy) or [`unfit`](crate::operation::Folded::unfit). Then set the new column from
//!    the old one, by the statement below. Large tables are set by ranges of keys.
//! 3. Read and count only on the new column. Processes that still read the old one miss these events until they end. The old column may then
//!    be dropped, or kept for the next time and reset.
//!
//! ```
//! # mod schema { diesel::table! { videos (id) { id -> BigInt, hot -> Double, hot_2 -> Double, } } }
//! # use schema::videos::{self, dsl::{hot, hot_2, id, videos as all}};
//! # use std::time::{Duration, UNIX_EPOCH};
//! # use diesel::prelude::*;
//! # use diesel_sharded::trending::Decay;
//! # use diesel_sharded::prelude::*;
//! # use diesel_sharded::{fold, update};
//! # #[derive(diesel_sharded::ShardedField)]
//! # #[diesel(table_name = videos)]
//! # struct Video { id: i64, #[sharded] hot: f64, #[sharded] hot_2: f64 }
//! # fn main() -> QueryResult<()> {
//! # let conn = &mut SqliteConnection::establish(":memory:").unwrap();
//! # diesel::sql_query("CREATE TABLE videos (id INTEGER PRIMARY KEY, hot DOUBLE NOT NULL DEFAULT 0, hot_2 DOUBLE NOT NULL DEFAULT 0)").execute(conn)?;
//! # diesel::insert_into(all).values(id.eq(7)).execute(conn)?;
//! # diesel_sharded::ShardsTable::of(videos::table).create(conn)?;
//! # let hour = Duration::from_secs(3_600);
//! # let now = UNIX_EPOCH + 500 * hour;
//! let old = Decay::half_life(hour, UNIX_EPOCH);
//! # update(all.find(7)).set(hot.eq(hot + old.weight(now - hour)?)).execute(conn)?;
//! let new = old.later(400);
//! let weights = (hot.eq(hot + old.weight(now)?), hot_2.eq(hot_2 + new.weight(now)?));
//! update(all.find(7)).set(weights).execute(conn)?;
//!
//! let folded = fold(all).run(conn)?;
//! assert!(folded.busy.is_empty() && folded.unfit.is_empty());
//! let factor = Decay::factor(400); // 2^−400
//! let least = f64::MIN_POSITIVE / factor; // a smaller score is nothing by the new landmark
//! diesel::update(all.filter(hot.ge(least).or(hot.le(-least))))
//!     .set(hot_2.eq(hot * factor))
//!     .execute(conn)?;
//! # let total = all.find(7).select(hot_2.total()).first::<f64>(conn)?;
//! # assert_eq!(new.value(total, now), 1.5);
//! # Ok(())
//! # }
//! ```
//!
//! The fold brings every event that was counted only on the old column into its base. All others are on both columns, since one update
//! counts them on one shard, and a fold moves both columns of a shard together. So after the statement the new total is the old one ×
//! 2^−400, whatever is counted or folded meanwhile, and repeating it changes nothing. A product with a power of two is exact, and two rows
//! keep their order. As with every `Double`, totals are exact but for their rounding.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::Error;
use crate::observe;

/// How fast scores fade, and the time at which an event weighs 1; see [`trending`](self).
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
/// use diesel_sharded::trending::Decay;
///
/// let day = Duration::from_secs(86_400);
/// let decay = Decay::half_life(day, UNIX_EPOCH);
/// assert_eq!(decay.weight(UNIX_EPOCH + 3 * day)?, 8.0);
/// assert_eq!(decay.value(8.0, UNIX_EPOCH + 5 * day), 0.25); // two days later
/// # Ok::<_, diesel_sharded::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decay {
    /// In nanoseconds since 1970.
    landmark: i128,
    /// In nanoseconds; at least one.
    half_life: i128,
}

/// From this age of the landmark on, in half-lives, a warning is logged.
const OLD: i128 = 500;

/// How many half-lives an event may be older than the landmark: clocks differ.
const MOST_BEFORE: i128 = 100;

static HAS_WARNED: AtomicBool = AtomicBool::new(false);

impl Decay {
    /// How many half-lives after the landmark events can be weighed: 900. A sum of 2^100 such weights still fits into a `Double`.
    pub const MOST_HALF_LIVES: u16 = 900;

    /// Events weigh half as much after each half-life; one at the landmark weighs 1. All processes need the same landmark, so it is a
    /// constant: a time shortly before the first event. A half-life of zero counts as a nanosecond.
    pub fn half_life(half_life: Duration, landmark: SystemTime) -> Self {
        Decay {
            landmark: nanos(landmark),
            half_life: (half_life.as_nanos() as i128).max(1),
        }
    }

    /// The weight of one event at this time, to add to the column: 2^((now − landmark) / half-life).
    ///
    /// # Errors
    /// [`LandmarkTooFar`](Error::LandmarkTooFar) for a time [`MOST_HALF_LIVES`](Self::MOST_HALF_LIVES) or more after the landmark, or more
    /// than 100 before it.
    pub fn weight(&self, now: SystemTime) -> Result<f64, Error> {
        let (half_lives, rest) = self.age(now);
        if !(-MOST_BEFORE..i128::from(Self::MOST_HALF_LIVES)).contains(&half_lives) {
            let half_lives = half_lives.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
            return Err(Error::LandmarkTooFar { half_lives });
        }
        if half_lives >= OLD && !HAS_WARNED.swap(true, Ordering::Relaxed) {
            observe::landmark_is_old(half_lives, Self::MOST_HALF_LIVES);
        }
        Ok(scaled(rest.exp2(), half_lives))
    }

    /// The number that a total means at this time: `total` × 2^(−(now − landmark) / half-life). Of n events just now it is n. It is always
    /// finite if the total is, at any time.
    pub fn value(&self, total: f64, now: SystemTime) -> f64 {
        let (half_lives, rest) = self.age(now);
        scaled(total / rest.exp2(), -half_lives).clamp(f64::MIN, f64::MAX)
    }

    /// The same decay, whose landmark is this many half-lives later: its weights are those of this one × [`factor`](Self::factor). See
    /// [a new landmark](self#a-new-landmark).
    pub fn later(self, half_lives: u16) -> Self {
        Decay {
            landmark: (self.landmark).saturating_add(i128::from(half_lives) * self.half_life),
            ..self
        }
    }

    /// The factor by which scores change with a landmark that is this many half-lives [`later`](Self::later), up to 1,074: 2^−n, exactly.
    pub fn factor(half_lives: u16) -> f64 {
        scaled(1.0, -i128::from(half_lives))
    }

    /// The time since the landmark: whole half-lives, and the rest as a part of one.
    fn age(&self, now: SystemTime) -> (i128, f64) {
        let age = nanos(now).saturating_sub(self.landmark);
        let rest = age.rem_euclid(self.half_life) as f64 / self.half_life as f64;
        (age.div_euclid(self.half_life), rest)
    }
}

/// Nanoseconds since 1970.
fn nanos(time: SystemTime) -> i128 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => after.as_nanos() as i128,
        Err(before) => -(before.duration().as_nanos() as i128),
    }
}

/// `number` × 2^`n`, exactly within the range of doubles. No single power reaches from one end of it to the other.
fn scaled(number: f64, n: i128) -> f64 {
    let n = n.clamp(-2_200, 2_200) as i32; // is in this range
    let third = 2.0_f64.powi(n / 3);
    number * third * third * 2.0_f64.powi(n - 2 * (n / 3))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn decay() -> Decay {
        Decay::half_life(HOUR, UNIX_EPOCH + HOUR)
    }

    /// Minutes since the landmark.
    fn at(minutes: i64) -> SystemTime {
        let since = Duration::from_secs(60 * minutes.unsigned_abs());
        match minutes < 0 {
            true => UNIX_EPOCH + HOUR - since,
            false => UNIX_EPOCH + HOUR + since,
        }
    }

    #[test]
    fn a_weight_doubles_with_each_half_life() {
        for (minutes, weight) in [(0, 1.0), (60, 2.0), (180, 8.0), (-60, 0.5)] {
            assert_eq!(decay().weight(at(minutes)).unwrap(), weight);
        }
        let half = decay().weight(at(30)).unwrap();
        assert!((half * half - 2.0).abs() < 1e-15);
        // Other tests weigh events of old landmarks too: one of them may warn instead, or as well.
        let warnings = |f: &mut dyn FnMut()| observe::tests::logged("half-lives old", f).len();
        let (before, mut last) = (warnings(&mut || ()), 0.0);
        let after = warnings(&mut || {
            HAS_WARNED.store(false, Ordering::Relaxed);
            last = decay().weight(at(60 * 900 - 1)).unwrap();
        });
        assert!(after > before);
        assert!(last > 2.0_f64.powi(899) && last < 2.0_f64.powi(900));
        let first = decay().weight(at(-60 * 100)).unwrap();
        assert_eq!(first, 2.0_f64.powi(-100));
    }

    #[test]
    fn no_weight_is_beyond_the_range_of_doubles() {
        for (minutes, age) in [(60 * 900, 900), (60 * 1_000_000, 1_000_000), (-6001, -101)] {
            let refused = decay().weight(at(minutes));
            assert!(
                matches!(refused, Err(Error::LandmarkTooFar { half_lives }) if half_lives == age),
                "{refused:?}"
            );
        }
        let none = Decay::half_life(Duration::ZERO, UNIX_EPOCH);
        assert!(none.weight(at(0)).is_err());
        assert_eq!(none.weight(UNIX_EPOCH).unwrap(), 1.0);
    }

    #[test]
    fn a_value_is_finite_at_any_time() {
        let longest = Decay::half_life(Duration::MAX, UNIX_EPOCH).later(u16::MAX);
        let shortest = Decay::half_life(Duration::ZERO, UNIX_EPOCH);
        for decay in [decay(), longest, shortest] {
            for total in [0.0, 1.0, -1.0, 1e300, f64::MAX, f64::MIN_POSITIVE] {
                for minutes in [0, 60 * 900, 60 * 100_000, -1_000_000] {
                    assert!(decay.value(total, at(minutes)).is_finite());
                }
            }
        }
        assert_eq!(decay().value(8.0, at(60 * 100_000)), 0.0);
        assert_eq!(
            decay().value(2.0_f64.powi(1_000), at(60 * 2_000)),
            2.0_f64.powi(-1_000)
        );
        let mut latest = longest;
        for _ in 0..200_000 {
            latest = latest.later(u16::MAX); // as far as there is time
        }
        assert!(latest.value(1.0, UNIX_EPOCH - HOUR).is_finite());
    }

    /// To the last bit, so that scores that were counted by both landmarks agree.
    #[test]
    fn a_later_landmark_divides_weights_by_a_power_of_two() {
        let later = decay().later(400);
        for minutes in (24_000..54_000).step_by(7) {
            let (old, new) = (decay().weight(at(minutes)), later.weight(at(minutes)));
            assert_eq!(old.unwrap() * Decay::factor(400), new.unwrap());
        }
        assert_eq!(Decay::factor(0), 1.0);
        assert_eq!(Decay::factor(1022), f64::MIN_POSITIVE);
    }
}
