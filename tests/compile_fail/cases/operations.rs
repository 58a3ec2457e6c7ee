//! Operations on what is not sharded, or cannot be counted.

use diesel::prelude::*;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::prelude::*;
use diesel_sharded::{RowCounter, count_many, fold, set_total, update, verify};

diesel::table! {
    videos (id) {
        id -> BigInt,
        title -> Text,
        views -> BigInt,
        likes -> Integer,
        rating -> Nullable<BigInt>,
    }
}

#[derive(diesel_sharded::ShardedSelectable, diesel::Identifiable, diesel_sharded::ShardedField)]
struct Video {
    id: i64,
    #[sharded]
    views: i64,
    #[sharded]
    likes: i32,
}

diesel::table! {
    pages (id) {
        id -> BigInt,
        hits -> BigInt,
    }
}

diesel::table! {
    accounts (id) {
        id -> BigInt,
        balance -> Double,
        paid -> Numeric,
    }
}

#[derive(diesel_sharded::ShardedField)]
struct Account {
    id: i64,
    #[sharded]
    balance: f64,
    #[sharded]
    paid: bigdecimal::BigDecimal,
}

fn changes_that_are_no_counts(conn: &mut SqliteConnection) {
    use self::videos::dsl::*;
    let video = Video { id: 7, views: 100, likes: 0 };
    let _ = update(videos.find(7)).set(views.eq(views + views)).execute(conn);
    let _ = update(videos.find(7)).set(views.eq(likes + 1)).execute(conn);
    let _ = update(videos.find(7)).set(views.eq(views * 2)).execute(conn);
    let _ = update(videos.find(7)).set(views.eq(5)).execute(conn);
    let _ = update(videos.find(7)).set(views.eq(video.views + 1)).execute(conn);
    let _ = update(videos.find(7)).set((views.eq(views + 1), title.eq("new"))).execute(conn);
    let _ = update(videos.find(7)).set(title.eq("new")).execute(conn);
}

fn updates_of_other_sources_and_results(conn: &mut SqliteConnection) {
    use self::videos::dsl::*;
    let narrow = 7_i32;
    let _ = update(videos.find(narrow)).set(views.eq(views + 1)).execute(conn);
    let _ = update(videos.select(id)).set(views.eq(views + 1)).execute(conn);
    let _ = update(pages::table.find(7)).set(pages::hits.eq(pages::hits + 1)).execute(conn);
    let _ = update(videos.find(7)).set(views.eq(views + 1)).or_insert(pages::id.eq(7));
    let _ = update(videos.find(7)).set(views.eq(views + 1)).returning(views + 1).get_result::<i64>(conn);
}

fn filters_by_another_type() {
    use self::videos::dsl::*;
    let _ = update(videos.filter(id.eq(7_i32)));
}

fn visits_with_a_key() {
    use self::videos::dsl::*;
    let day = std::time::Duration::from_secs(86_400);
    let _ = RowCounter::of(views, 7).once_per("ann", day).idempotency_key("request 7");
    let _ = RowCounter::of(views, 7).idempotency_key("request 7").once_per("ann", day);
}

fn totals(conn: &mut SqliteConnection) {
    use self::videos::dsl::*;
    let _ = videos.group_by(views).select((views, views.total())).first::<(i64, i64)>(conn);
    let _ = videos.select(title.total()).first::<String>(conn);
    let _ = set_total(videos, rating, 5);
}

fn batches() {
    use self::videos::dsl::*;
    let _ = count_many(title, [(7, 1)]);
    let _ = count_many((views, accounts::balance), [(7, [1, 1])]);
    let _ = count_many((views, likes), [(7, 1)]);
    let _ = count_many(accounts::paid, [(7, 1)]);
}

fn folds_and_recounts(conn: &mut SqliteConnection) {
    use self::videos::dsl::*;
    let _ = fold(pages::table);
    let _ = verify(videos, rating, ());
    let _ = verify(videos, views, videos.select((id, title))).drifts(conn);
}

fn fractions(conn: &mut SqliteConnection, coalescer: &Coalescer<SqliteConnection>) {
    let balance = RowCounter::of(accounts::balance, 7);
    let _ = RowCounter::of(accounts::balance, "7");
    let _ = coalescer.add_later(&balance, 1);
    let _ = balance.never_below(0).add(-1, conn);
}

fn tables_that_are_not_one(conn: &mut SqliteConnection) {
    use self::videos::dsl::*;
    let both = (views.eq(views + 1), accounts::balance.eq(accounts::balance + 1.0));
    let _ = update(videos.find(7)).set(both).execute(conn);
    let other = diesel::alias!(self::videos as other);
    let _ = update(other.filter(other.field(id).eq(7))).set(views.eq(views + 1)).execute(conn);
}

fn main() {}
