//! The library's own threads, and how long it waits for them to end.

use std::convert::Infallible;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use crate::error::Error;
use crate::per_process::MadeIn;

/// A thread of the library's own.
#[derive(Debug)]
pub(crate) struct Background {
    made_in: MadeIn,
    thread: ThreadId,
    /// Sends nothing. Dropping it tells the thread to end.
    stop: Option<Sender<Infallible>>,
    /// Receives nothing. It disconnects when the thread ends.
    ended: Mutex<Receiver<Infallible>>,
}

impl Background {
    /// Starts the thread. `work` has to end when its receiver disconnects.
    pub(crate) fn spawn(
        name: &str,
        work: impl FnOnce(Receiver<Infallible>) + Send + 'static,
    ) -> io::Result<Self> {
        let (at_work, ended) = channel();
        let (stop, stopped) = channel();
        let spawned = thread::Builder::new().name(name.into()).spawn(move || {
            let _at_work = at_work; // dropped when the work ends, also by a panic
            work(stopped);
        })?;
        Ok(Background {
            made_in: MadeIn::this_process(),
            stop: Some(stop),
            thread: spawned.thread().id(),
            ended: Mutex::new(ended),
        })
    }

    /// Refuses `what`, which owns this thread, in a forked child. The thread does not exist there: a child has only the thread that forked.
    pub(crate) fn check(&self, what: &'static str) -> Result<(), Error> {
        self.made_in.check(what)
    }

    /// Tells the thread to end, and waits for its end for at most `patience`.
    pub(crate) fn stop(&mut self, patience: Duration) {
        if self.made_in.is_this_process() {
            self.stop = None; // this wakes the thread if it sleeps
            self.ends_within(patience);
        }
    }

    /// Waits for the thread for at most `patience`, and returns whether it has ended. The thread does not wait for itself.
    pub(crate) fn ends_within(&self, patience: Duration) -> bool {
        if thread::current().id() == self.thread {
            return false;
        }
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.recv_timeout(patience) == Err(RecvTimeoutError::Disconnected)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if !self.made_in.is_this_process() {
            std::mem::forget(self.stop.take()); // a drop acquires a lock, which the parent's thread may have held at the fork
        }
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
            Background::spawn("at work", move |_| assert!(stopped.recv().is_err())).unwrap();
        assert!(!thread.ends_within(Duration::from_millis(10)));
        drop(stop);
        assert!(thread.ends_within(Duration::MAX));
    }

    #[test]
    fn a_panic_is_an_end() {
        let thread = Background::spawn("panics", |_| panic!("on purpose")).unwrap();
        assert!(thread.ends_within(Duration::MAX));
    }

    #[test]
    fn none_waits_for_itself() {
        let (give, given) = sync_channel::<Background>(1);
        let (tell, told) = channel();
        let thread = Background::spawn("itself", move |_| {
            let itself = given.recv().unwrap();
            tell.send(itself.ends_within(Duration::MAX)).unwrap();
        });
        give.send(thread.unwrap()).unwrap();
        assert_eq!(told.recv(), Ok(false));
    }
}
