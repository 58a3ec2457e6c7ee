//! Turns of threads: one of them runs at a time, and a seed decides which one goes on. No scheduler can keep one of them waiting.

use std::sync::{Condvar, Mutex};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

pub struct Turns {
    state: Mutex<State>,
    passed: Condvar,
}

struct State {
    /// The threads that have not ended.
    running: Vec<usize>,
    whose: usize,
    random: SmallRng,
}

impl State {
    fn draw(&mut self) {
        if !self.running.is_empty() {
            let drawn = self.random.random_range(0..self.running.len());
            self.whose = self.running[drawn];
        }
    }
}

impl Turns {
    /// Turns of threads numbered from 0. Number 0 begins.
    pub fn new(threads: usize, seed: u64) -> Self {
        Turns {
            state: Mutex::new(State {
                running: (0..threads).collect(),
                whose: 0,
                random: SmallRng::seed_from_u64(seed),
            }),
            passed: Condvar::new(),
        }
    }

    /// Waits for the first turn of the thread `me`. Whatever ends it, its turns end with the returned value.
    pub fn take_part(&self, me: usize) -> TakesPart<'_> {
        let state = self.state.lock().unwrap();
        drop(self.passed.wait_while(state, |state| state.whose != me));
        TakesPart { turns: self, me }
    }

    /// Ends the turn of the thread `me`, and waits for its next one. Nothing waits once all threads have ended.
    pub fn pass(&self, me: usize) {
        let mut state = self.state.lock().unwrap();
        state.draw();
        self.passed.notify_all();
        let is_anothers = |state: &mut State| !state.running.is_empty() && state.whose != me;
        drop(self.passed.wait_while(state, is_anothers));
    }
}

pub struct TakesPart<'t> {
    turns: &'t Turns,
    me: usize,
}

impl Drop for TakesPart<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.state.lock().unwrap();
        state.running.retain(|thread| *thread != self.me);
        state.draw();
        self.turns.passed.notify_all();
    }
}
