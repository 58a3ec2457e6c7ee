//! What a parent made before the fork: its child is refused at once, and takes nothing away from it.

use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::{Error, RowCounter, fold, reset, shard_counts};
use diesel_sharded_tests::schema::videos::dsl::*;

use super::operations::{connect, pool, total};
use super::{Conn, DATABASE_OF_CHILD};
use crate::{ends_well, in_child};

const NEVER: Duration = Duration::from_secs(3600);
/// A wait for a thread that is not there would add up to more than [`AT_ONCE`].
const FOLDERS: usize = 10;
const AT_ONCE: Duration = Duration::from_secs(30);

pub fn inherit(url: &str) {
    reset(videos)
        .execute(&mut connect(url))
        .expect("totals of 0");
    let before = total(url);
    let coalescer = Coalescer::builder(pool(url))
        .max_delay(NEVER)
        .deadline(2 * AT_ONCE);
    let coalescer = coalescer.build().expect("a coalescer");
    let views_of_1 = RowCounter::of(views, 1);
    coalescer.add_later(&views_of_1, 5).expect("room");
    let connection = || {
        let url = url.to_owned();
        move || Conn::establish(&url)
    };
    let folders: Vec<_> = (0..FOLDERS)
        .map(|_| {
            fold(videos)
                .every(NEVER)
                .start(connection())
                .expect("a folder")
        })
        .collect();
    let following = shard_counts::follow(NEVER, connection()).expect("numbers");

    let (mut of_child, mut others) = (Some(coalescer.clone()), Some((folders, following)));
    let child = in_child(|| {
        let began = Instant::now();
        let coalescer = of_child.take().expect("the parent's");
        let refused = |done: Result<(), Error>| {
            let error = done.expect_err("it is the parent's");
            assert!(
                matches!(error, Error::MadeBeforeFork { what: "coalescer" }),
                "{error:?}"
            );
        };
        refused(coalescer.add_later(&views_of_1, 1));
        refused(coalescer.flush());
        let mut conn = Conn::establish(DATABASE_OF_CHILD(url)).expect("a connection");
        let done = coalescer.transaction(&mut conn, |_, _| -> QueryResult<()> { unreachable!() });
        refused(done.map_err(Error::from));
        let why = Error::MadeBeforeFork { what: "coalescer" }.to_string();
        assert_eq!(coalescer.stats().last_error, Some(why));
        assert!(format!("{coalescer:?}").contains("Coalescer"));
        refused(coalescer.clone().close());
        drop(coalescer);
        let (folders, following) = others.take().expect("the parent's");
        for folder in folders {
            let why = Error::MadeBeforeFork { what: "folder" }.to_string();
            assert_eq!(folder.stats().last_error, Some(why));
        }
        assert!(following.last_error().is_some());
        drop(following);
        assert!(began.elapsed() < AT_ONCE);
    });
    let (well, of_child) = (usize::from(ends_well(child)), total(url) - before);
    drop(others);
    coalescer.close().expect("its own count");
    println!(
        "made before the fork\t{well}, {of_child}, {}\t1, 0, 5",
        total(url) - before
    );
}
