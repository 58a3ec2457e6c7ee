//! Live numbers, for as long as a browser looks at them.

use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use serde::Serialize;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};

use crate::error::PageError;

/// The time between two reads.
const EVERY: Duration = Duration::from_millis(500);

/// Server-sent events.
pub type Events<S> = Result<Sse<S>, PageError>;

/// Ends all streams once it is closed: they would otherwise keep their connections open for ever.
pub struct Live(watch::Sender<bool>);

impl Live {
    pub fn new() -> Self {
        Live(watch::Sender::new(false))
    }

    /// Answers by events with the result of `read`, now and whenever it has changed.
    pub async fn events<T, R, F>(
        &self,
        read: F,
    ) -> Events<impl Stream<Item = Result<Event, axum::Error>> + use<T, R, F>>
    where
        F: Fn() -> R + Send + 'static,
        T: Clone + PartialEq + Serialize + Send + 'static,
        R: Future<Output = Result<T, PageError>> + Send + 'static,
    {
        let first = read().await?;
        let events = self.look(first, read);
        let events = events.map(|now| Event::default().json_data(now));
        Ok(Sse::new(events).keep_alive(KeepAlive::default()))
    }

    /// Starts with `first`, and sends the result of `read` whenever it has changed. Ends when `read` fails, or it is closed; browsers
    /// then reconnect by themselves.
    fn look<T, R>(&self, first: T, read: impl Fn() -> R + Send + 'static) -> ReceiverStream<T>
    where
        T: Clone + PartialEq + Send + 'static,
        R: Future<Output = Result<T, PageError>> + Send + 'static,
    {
        let (sender, receiver) = mpsc::channel(1);
        let mut closing = self.0.subscribe();
        tokio::spawn(async move {
            let (mut shown, mut now) = (None, Ok(first));
            // An error was reported where it arose.
            while let Ok(read_now) = now {
                if shown.as_ref() != Some(&read_now) {
                    shown = Some(read_now.clone());
                    if sender.send(read_now).await.is_err() {
                        return;
                    }
                }
                tokio::select! {
                    () = tokio::time::sleep(EVERY) => {}
                    () = sender.closed() => return,
                    _ = closing.wait_for(|is_closed| *is_closed) => return,
                }
                now = read().await;
            }
        });
        ReceiverStream::new(receiver)
    }

    pub fn close(&self) {
        self.0.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[tokio::test(start_paused = true)]
    async fn changes_are_sent_until_a_read_fails_or_it_is_closed() {
        let live = Live::new();
        let reads = AtomicU64::new(0);
        let read = move || {
            let number = reads.fetch_add(1, Ordering::Relaxed);
            async move {
                match number {
                    0 | 1 => Ok(7),
                    2 => Ok(9),
                    _ => Err(PageError::not_found()),
                }
            }
        };
        let sent: Vec<u64> = live.look(7, read).collect().await;
        assert_eq!(sent, [7, 9]);
        let mut stream = live.look(8, || async { Ok(8) });
        assert_eq!(stream.next().await, Some(8));
        live.close();
        assert_eq!(stream.next().await, None);
    }
}
