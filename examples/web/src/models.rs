//! Videos, and all that is counted on them. Nothing here names a database.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chrono::{Days, NaiveDate, NaiveDateTime, Utc};
use diesel::dsl::now;
use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_sharded::prelude::*;
use diesel_sharded::retry::{self, RetryPolicy};
use diesel_sharded::trending::Decay;
use diesel_sharded::unique::Unique;
use diesel_sharded::{Counter, counters, fold, top, update};

use crate::connection::AnyConnection;
use crate::schema::videos::dsl::{hot, last_watched_at, likes, videos as all, views};
use crate::schema::{video_days, video_likes, videos, videos_shards};
use crate::visitor::Visitor;

#[derive(Debug, Clone, ShardedSelectable, Identifiable, ShardedField)]
#[diesel(table_name = videos)]
pub struct Video {
    pub id: i64,
    pub title: String,
    pub channel: String,
    pub seconds: i32,
    #[sharded]
    pub views: i64,
    #[sharded]
    pub likes: i32,
    #[sharded]
    hot: f64,
    /// UTC.
    #[sharded(max)]
    pub last_watched_at: Option<NaiveDateTime>,
}

impl Video {
    pub fn find(id: i64, conn: &mut AnyConnection) -> QueryResult<Self> {
        all.find(id).select(Video::as_select()).first(conn)
    }

    /// The newest first.
    pub fn list(conn: &mut AnyConnection) -> QueryResult<Vec<Self>> {
        all.select(Video::as_select())
            .order(videos::id.desc())
            .load(conn)
    }

    pub fn most_viewed(number: u32, conn: &mut AnyConnection) -> QueryResult<Vec<Self>> {
        top(all, views, number)
            .select(Video::as_select())
            .load(conn)
    }

    /// Without those that nobody has watched.
    pub fn hottest(number: u32, conn: &mut AnyConnection) -> QueryResult<Vec<Self>> {
        let videos = top(all, hot, number).select(Video::as_select());
        let mut videos: Vec<Self> = videos.load(conn)?;
        videos.retain(|video| video.hot > 0.0);
        Ok(videos)
    }

    /// The views, each of which counts half as much after each week, as of now.
    pub fn points(&self) -> f64 {
        hot_over_weeks().value(self.hot, SystemTime::now())
    }
}

const DAY: Duration = Duration::from_secs(86_400);

/// The same in every process: another landmark would make scores of different worth.
fn hot_over_weeks() -> Decay {
    Decay::half_life(7 * DAY, UNIX_EPOCH + 20_454 * DAY) // 2026-01-01
}

/// The numbers that change while a page is open.
#[derive(Queryable)]
pub struct Totals {
    pub views: i64,
    pub likes: i32,
}

impl Totals {
    pub fn of(video: i64, conn: &mut AnyConnection) -> QueryResult<Self> {
        all.find(video)
            .select((views.total(), likes.total()))
            .first(conn)
    }
}

/// When a video was last watched, by the clock of the database, in UTC.
pub fn last_watched(video: i64, conn: &mut AnyConnection) -> QueryResult<Option<NaiveDateTime>> {
    all.find(video).select(last_watched_at.total()).first(conn)
}

/// Adds a view, now, to the video and to its day, unless the visitor's was counted today. Returns whether it was added.
pub fn count_view(video: i64, visitor: &Visitor, conn: &mut AnyConnection) -> QueryResult<bool> {
    let weight = hot_over_weeks().weight(SystemTime::now())?;
    let today = Utc::now().date_naive();
    let new_day = (video_days::video_id.eq(video), video_days::day.eq(today));
    retry::transaction(conn, RetryPolicy::default(), |conn| {
        let view = (
            views.eq(views + 1),
            hot.eq(hot + weight),
            last_watched_at.raise_to(now),
        );
        let view = update(all.find(video)).set(view);
        match view.once_per(visitor.as_str(), DAY).count(conn)? {
            Unique::Counted => {}
            Unique::NoSuchRow => return Err(diesel::NotFound),
            _ => return Ok(false),
        }
        update(video_days::table.find((video, today)))
            .set(video_days::views.eq(video_days::views + 1))
            .or_insert(new_day)
            .execute(conn)?;
        Ok(true)
    })
}

#[derive(ShardedField)]
#[diesel(table_name = video_days, primary_key(video_id, day))]
#[expect(dead_code, reason = "the derive reads the fields' types")]
struct VideoDay {
    video_id: i64,
    /// UTC.
    day: NaiveDate,
    #[sharded]
    views: i64,
}

/// How many days [`views_by_day`] shows.
pub const DAYS: u64 = 30;

/// The views of a video on each of the last days. The last one is today.
pub fn views_by_day(video: i64, conn: &mut AnyConnection) -> QueryResult<Vec<(NaiveDate, i64)>> {
    let today = Utc::now().date_naive();
    let days = (0..DAYS)
        .rev()
        .filter_map(|ago| today.checked_sub_days(Days::new(ago)));
    let days: Vec<_> = days.collect();
    let counted = video_days::table
        .filter(video_days::video_id.eq(video))
        .filter(video_days::day.ge(days.first().copied().unwrap_or(today)))
        .select((video_days::day, video_days::views.total()));
    let counted: BTreeMap<NaiveDate, i64> = counted.load(conn)?.into_iter().collect();
    let of = |day| (day, counted.get(&day).copied().unwrap_or(0));
    Ok(days.into_iter().map(of).collect())
}

/// Stores a like, which a trigger counts in the same transaction: however often it is requested, a visitor's like is stored once and
/// counted once.
pub fn like(video: i64, visitor: &Visitor, conn: &mut AnyConnection) -> QueryResult<()> {
    let row = (
        video_likes::video_id.eq(video),
        video_likes::visitor.eq(visitor.as_str()),
    );
    let liked = retry::transaction(conn, RetryPolicy::default(), |conn| {
        diesel::insert_into(video_likes::table)
            .values(row)
            .execute(conn)
    });
    match liked {
        Err(DieselError::DatabaseError(DatabaseErrorKind::UniqueViolation, _)) => Ok(()), // it is there
        Err(DieselError::DatabaseError(DatabaseErrorKind::ForeignKeyViolation, _)) => {
            Err(diesel::NotFound)
        }
        liked => liked.map(drop),
    }
}

/// Takes a like back, if there is one.
pub fn unlike(video: i64, visitor: &Visitor, conn: &mut AnyConnection) -> QueryResult<()> {
    let row = video_likes::table.find((video, visitor.as_str()));
    let deleted = retry::transaction(conn, RetryPolicy::default(), |conn| {
        diesel::delete(row).execute(conn)
    });
    deleted.map(drop)
}

pub fn is_liked(video: i64, visitor: &Visitor, conn: &mut AnyConnection) -> QueryResult<bool> {
    let row = video_likes::table.find((video, visitor.as_str()));
    Ok(row.count().get_result::<i64>(conn)? == 1)
}

/// The views of a video, as the database keeps them.
pub struct Shards {
    /// The plain column.
    pub base: i64,
    /// The number and the value of each shard.
    pub shards: Vec<(i32, i64)>,
}

impl Shards {
    /// Reads both in one snapshot, since a fold may be running.
    pub fn of(video: i64, conn: &mut AnyConnection) -> QueryResult<Self> {
        let rows: Vec<(i64, Option<(i32, i64)>)> = all
            .left_join(videos_shards::table.on(videos_shards::id.eq(videos::id)))
            .filter(videos::id.eq(video))
            .select((
                views,
                (videos_shards::shard, videos_shards::views).nullable(),
            ))
            .order(videos_shards::shard)
            .load(conn)?;
        let (base, _) = rows.first().ok_or(diesel::NotFound)?;
        Ok(Shards {
            base: *base,
            shards: rows.iter().filter_map(|(_, shard)| *shard).collect(),
        })
    }

    pub fn on_shards(&self) -> i64 {
        self.shards.iter().map(|(_, value)| value).sum()
    }
}

/// Moves all shards into the plain columns and removes them, so that the effect shows: by default a fold keeps empty ones for the
/// next increments.
pub fn fold_all(conn: &mut AnyConnection) -> QueryResult<()> {
    fold(counters::table).run(conn)?;
    fold(all).keep_shards(0).run(conn)?;
    Ok(())
}

/// Pages served, by all processes of the site.
pub fn pages_served() -> Counter {
    Counter::named("site:pages served")
}
