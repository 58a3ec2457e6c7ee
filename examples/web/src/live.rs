//! Live totals: the site reads them once for all browsers that look at them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;

use crate::error::PageError;

/// Polls the videos that browsers look at, and no others: one task for each video, however many browsers look at it.
pub struct Live<T> {
    every: Duration,
    /// By video; `None` once it is closed.
    feeds: Mutex<Option<Feeds<T>>>,
}

type Feeds<T> = HashMap<i64, Feed<T>>;

struct Feed<T> {
    sender: watch::Sender<T>,
    /// How often others pushed newer data to the feed. A read that was under way at that moment returns older data.
    shown: u64,
}

impl<T: Clone + PartialEq + Send + Sync + 'static> Live<T> {
    pub fn new(every: Duration) -> Arc<Self> {
        Arc::new(Live {
            every,
            feeds: Mutex::new(Some(HashMap::new())),
        })
    }

    /// Starts with `now`, and sends the result of `read` whenever it has changed. Ends when `read` fails, or it is closed; browsers
    /// then reconnect by themselves.
    pub fn look<R>(
        self: &Arc<Self>,
        video: i64,
        now: T,
        read: impl Fn() -> R + Send + 'static,
    ) -> Result<WatchStream<T>, PageError>
    where
        R: Future<Output = Result<T, PageError>> + Send + 'static,
    {
        let mut feeds = self.feeds();
        let feeds = feeds.as_mut().ok_or(PageError::Stopping)?;
        let receiver = match feeds.entry(video) {
            Entry::Occupied(mut feed) => {
                feed.get_mut().show(now);
                feed.get().sender.subscribe()
            }
            Entry::Vacant(place) => {
                let (sender, receiver) = watch::channel(now);
                place.insert(Feed { sender, shown: 0 });
                tokio::spawn(Arc::clone(self).feed(video, read));
                receiver
            }
        };
        Ok(WatchStream::new(receiver))
    }

    /// Sends data that has just been read to all browsers that look.
    pub fn show(&self, video: i64, now: T) {
        if let Some(feed) = self
            .feeds()
            .as_mut()
            .and_then(|feeds| feeds.get_mut(&video))
        {
            feed.show(now);
        }
    }

    async fn feed<R>(self: Arc<Self>, video: i64, read: impl Fn() -> R)
    where
        R: Future<Output = Result<T, PageError>>,
    {
        loop {
            tokio::time::sleep(self.every).await;
            let Some(shown) = self.shown(video) else {
                return;
            };
            let now = read().await;
            let mut feeds = self.feeds();
            let Some(feeds) = feeds.as_mut() else { return };
            match now {
                Ok(now) => {
                    if let Some(feed) = feeds.get_mut(&video).filter(|feed| feed.shown == shown) {
                        feed.show(now);
                    }
                }
                Err(error) => {
                    eprintln!("no longer live, until somebody asks again: {error:?}");
                    feeds.remove(&video);
                    return;
                }
            }
        }
    }

    /// How often others have pushed data to the feed. If nobody looks, removes the feed and returns `None`.
    fn shown(&self, video: i64) -> Option<u64> {
        let mut feeds = self.feeds();
        let feeds = feeds.as_mut()?;
        let feed = feeds.get(&video)?;
        if feed.sender.receiver_count() == 0 {
            feeds.remove(&video);
            return None;
        }
        Some(feed.shown)
    }

    /// Ends all streams, which would otherwise keep their connections open for ever.
    pub fn close(&self) {
        *self.feeds() = None;
    }

    fn feeds(&self) -> MutexGuard<'_, Option<Feeds<T>>> {
        self.feeds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: PartialEq> Feed<T> {
    fn show(&mut self, now: T) {
        self.shown += 1;
        self.sender.send_if_modified(|before| {
            let is_new = *before != now;
            *before = now;
            is_new
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use tokio_stream::StreamExt;

    #[tokio::test(start_paused = true)]
    async fn many_look_and_one_reads_until_nobody_looks() {
        let live = Live::new(Duration::from_secs(1));
        let reads = Arc::new(AtomicU64::new(0));
        let read = {
            let reads = Arc::clone(&reads);
            move || {
                let number = reads.fetch_add(1, Ordering::Relaxed) + 1;
                async move { Ok(number) }
            }
        };
        let mut streams = vec![];
        for _ in 0..100 {
            streams.push(live.look(7, 0, read.clone()).unwrap());
        }
        for stream in &mut streams {
            assert_eq!(stream.next().await, Some(0));
        }
        for stream in &mut streams {
            assert_eq!(stream.next().await, Some(1));
        }
        assert_eq!(reads.load(Ordering::Relaxed), 1);
        drop(streams);
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(reads.load(Ordering::Relaxed) <= 2);
        assert!(live.feeds().as_ref().is_some_and(HashMap::is_empty));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_sees_what_is_older_than_what_was_there() {
        let live = Live::new(Duration::from_secs(1));
        let slow = || async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(1) // as it was when the read began
        };
        let mut stream = live.look(7, 1, slow).unwrap();
        assert_eq!(stream.next().await, Some(1));
        tokio::time::sleep(Duration::from_millis(1500)).await; // the read is under way
        let mut later = live.look(7, 2, slow).unwrap();
        assert_eq!(stream.next().await, Some(2));
        assert_eq!(later.next().await, Some(2));
        tokio::time::sleep(Duration::from_millis(400)).await;
        live.show(7, 3);
        assert_eq!(later.next().await, Some(3));
        let until_read = tokio::time::timeout(Duration::from_millis(500), later.next());
        assert!(until_read.await.is_err(), "something older came");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_or_the_end_ends_the_streams() {
        let live = Live::new(Duration::from_secs(1));
        let mut failing = live
            .look(7, 0, || async { Err(PageError::NotFound) })
            .unwrap();
        let mut stream = live.look(8, 0, || async { Ok(0) }).unwrap();
        assert_eq!(failing.next().await, Some(0));
        assert_eq!(failing.next().await, None);
        assert_eq!(stream.next().await, Some(0));
        live.close();
        assert_eq!(stream.next().await, None);
        assert!(live.look(8, 0, || async { Ok(0) }).is_err());
    }
}
