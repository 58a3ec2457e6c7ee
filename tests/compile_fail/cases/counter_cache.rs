//! Counter caches of what a trigger does not know.

use diesel_sharded::CounterCache;

mod schema {
    diesel::table! {
        posts (id) {
            id -> BigInt,
            comments_count -> BigInt,
        }
    }
    diesel::table! {
        comments (id) {
            id -> BigInt,
            post_id -> BigInt,
            body -> Text,
        }
    }
    diesel::table! {
        users (id) {
            id -> Integer,
            is_local -> Bool,
        }
    }
}
use schema::{comments, posts, users};

#[derive(diesel_sharded::ShardedField)]
struct Post {
    id: i64,
    #[sharded]
    comments_count: i64,
}

fn main() {
    let comments_count = || CounterCache::of(posts::comments_count);
    let _ = comments_count().counts(users::id);
    let _ = comments_count().counts(comments::post_id).filter(users::is_local);
    let _ = comments_count().counts(comments::post_id).sums(comments::body);
}
