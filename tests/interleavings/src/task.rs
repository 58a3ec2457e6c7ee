//! A task, as far as it sleeps until it is woken.

use std::task::{Context, Poll, Wake, Waker};

use loom::sync::{Condvar, Mutex};

struct Task {
    woken: Mutex<bool>,
    wakes: Condvar,
}

impl Wake for Task {
    fn wake(self: std::sync::Arc<Self>) {
        *self.woken.lock().expect("no poison") = true;
        self.wakes.notify_one();
    }
}

/// Polls until it is ready, and sleeps in between.
pub(crate) fn awaited<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    let task = std::sync::Arc::new(Task {
        woken: Mutex::new(false),
        wakes: Condvar::new(),
    });
    let waker = Waker::from(std::sync::Arc::clone(&task));
    loop {
        if let Poll::Ready(done) = poll(&mut Context::from_waker(&waker)) {
            return done;
        }
        let mut woken = task.woken.lock().expect("no poison");
        while !std::mem::take(&mut *woken) {
            woken = task.wakes.wait(woken).expect("no poison");
        }
    }
}
