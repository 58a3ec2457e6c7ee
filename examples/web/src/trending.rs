//! Views by hour: the recipe of the guide's chapter on reading.

use chrono::Utc;
use diesel::dsl::sum;
use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::{self, RetryPolicy};
use diesel_sharded::{fold, update};

use crate::database::AnyConnection;
use crate::models::{self, Video};
use crate::schema::videos::dsl::{id, videos};
use crate::schema::views_by_hour::{self, dsl::*};

/// The hours of the window, the current one among them.
const WINDOW: i64 = 24;

/// The hours after which buckets are deleted: 30 days.
const KEPT: i64 = 24 * 30;

#[derive(ShardedField)]
#[diesel(table_name = views_by_hour, primary_key(video_id, hour))]
#[expect(dead_code, reason = "nobody reads a bucket by itself")]
struct ViewsByHour {
    video_id: i64,
    hour: i64,
    #[sharded]
    number: i32,
}

/// The hours since 1970, by the clock of this process.
pub fn this_hour() -> i64 {
    Utc::now().timestamp().div_euclid(3_600)
}

/// Adds a view to the video and to its bucket of this hour, whose first view creates it: in one transaction, so that both agree.
pub fn count_view(video: i64, now: i64, conn: &mut AnyConnection) -> QueryResult<()> {
    retry::transaction(conn, RetryPolicy::default(), |conn| {
        models::count_view(video, conn)?;
        update(views_by_hour.find((video, now)))
            .set(number.eq(number + 1))
            .or_insert((video_id.eq(video), hour.eq(now)))
            .execute(conn)?;
        Ok(())
    })
}

/// The most viewed videos of the last 24 hours, behind their views in these. The window moves by the hour.
pub fn most_viewed(
    limit: i64,
    now: i64,
    conn: &mut AnyConnection,
) -> QueryResult<Vec<(i64, Video)>> {
    let ranking: Vec<(i64, Option<i64>)> = views_by_hour
        .filter(hour.gt(now - WINDOW))
        .group_by(video_id)
        .select((video_id, sum(number.total())))
        .order((sum(number.total()).desc(), video_id))
        .limit(limit)
        .load(conn)?;
    let ids: Vec<i64> = ranking.iter().map(|(video, _)| *video).collect();
    let known = videos
        .filter(id.eq_any(ids))
        .select(Video::as_select())
        .load::<Video>(conn)?;
    let of = |ranked: &i64| known.iter().find(|video| video.id == *ranked).cloned();
    let ranking = ranking.iter();
    Ok(ranking
        .filter_map(|(video, views)| Some(((*views)?, of(video)?)))
        .collect())
}

/// Folds the buckets, so that an hour that is over is one row, and deletes those that are older than 30 days, with their shards.
pub fn tidy(now: i64, conn: &mut AnyConnection) -> QueryResult<()> {
    // Of the whole table: that reads only the buckets with shards, while a filter by hour would read all that are kept.
    fold(views_by_hour).keep_shards(0).run(conn)?;
    diesel::delete(views_by_hour.filter(hour.lt(now - KEPT))).execute(conn)?;
    Ok(())
}
