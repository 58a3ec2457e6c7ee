//! Threads that are waited for, but not for ever.

use std::convert::Infallible;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// A thread of the library's own.
#[derive(Debug)]
pub(crate) struct Background {
    thread: ThreadId,
    /// Nothing is ever sent: it is hung up when the thread ends.
    ended: Mutex<Receiver<Infallible>>,
}

impl Background {
    pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let (at_work, ended) = channel();
        let spawned = thread::Builder::new().name(name.into()).spawn(move || {
            let _at_work = at_work; // until the work ends, be it by a panic
            work();
        })?;
        Ok(Background {
            thread: spawned.thread().id(),
            ended: Mutex::new(ended),
        })
    }

    /// Waits until it ends, and tells whether it did in that time. From the thread itself it is not waited for.
    pub(crate) fn ends_within(&self, patience: Duration) -> bool {
        if thread::current().id() == self.thread {
            return false;
        }
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.recv_timeout(patience) == Err(RecvTimeoutError::Disconnected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn one_that_is_at_work_is_waited_for_no_longer_than_that() {
        let (stop, stopped) = channel::<()>();
        let thread =
            Background::spawn("at work", move || assert!(stopped.recv().is_err())).unwrap();
        assert!(!thread.ends_within(Duration::from_millis(10)));
        drop(stop);
        assert!(thread.ends_within(Duration::MAX));
    }

    #[test]
    fn a_panic_is_an_end() {
        let thread = Background::spawn("panics", || panic!("on purpose")).unwrap();
        assert!(thread.ends_within(Duration::MAX));
    }

    #[test]
    fn none_waits_for_itself() {
        let (give, given) = sync_channel::<Background>(1);
        let (tell, told) = channel();
        let thread = Background::spawn("itself", move || {
            let itself = given.recv().unwrap();
            tell.send(itself.ends_within(Duration::MAX)).unwrap();
        });
        give.send(thread.unwrap()).unwrap();
        assert_eq!(told.recv(), Ok(false));
    }
}
