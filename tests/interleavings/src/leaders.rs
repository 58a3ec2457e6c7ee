//! As many leaders as a slot may have: the model checker repeats what it has seen, so nothing may depend on the time.

use std::time::Duration;

#[derive(Default)]
pub struct Leaders(());

impl Leaders {
    pub fn choose(&self, _callers: usize) -> usize {
        usize::MAX
    }

    pub fn answered(&self, _callers: usize, _: Duration) {}

    pub fn learn(&self, _callers: usize, _spent: Duration, _calls: usize) {}
}

#[derive(Default)]
pub struct Peak {
    callers: usize,
}

impl Peak {
    pub fn see(&mut self, callers: usize) {
        self.callers = self.callers.max(callers);
    }

    pub fn fall(&mut self) {}

    pub fn callers(&self) -> usize {
        self.callers
    }
}
