//! The twin of the spans and events without the feature `tracing`: empty.

use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use diesel::result::Error as DieselError;

use super::work::Work;
use crate::backend::Dialect;
use crate::conflict::Conflict;

#[derive(Debug, Clone)]
pub(crate) struct Scope;

impl Scope {
    #[inline]
    pub(crate) fn within<F: Future>(&self, step: F) -> F {
        step
    }

    #[inline]
    pub(crate) fn block<T>(&self, step: impl FnOnce() -> T) -> T {
        step()
    }
}

#[derive(Debug)]
pub(super) struct UpdateSpans;

impl UpdateSpans {
    #[inline]
    pub(super) fn begin(_: Dialect, _: &'static str) -> Self {
        UpdateSpans
    }

    #[inline]
    pub(super) fn attempt(&mut self, _: u32, _: i32) {}

    #[inline]
    pub(super) fn probe(&mut self, _: &'static str, _: i32) -> Scope {
        Scope
    }

    #[inline]
    pub(super) fn step(&mut self, _: &'static str) -> Scope {
        Scope
    }

    #[inline]
    pub(super) fn stepped(&mut self, _: Option<usize>, _: Option<&DieselError>) {}

    #[inline]
    pub(super) fn failed(&mut self, _: u32, _: Option<Conflict>, _: Option<Duration>) {}

    #[inline]
    pub(super) fn ended(&mut self, _: u32, _: Option<usize>) {}
}

#[derive(Debug)]
pub(super) struct TransactionSpans;

impl TransactionSpans {
    #[inline]
    pub(super) fn begin(_: Dialect, _: Work) -> Self {
        TransactionSpans
    }

    #[inline]
    pub(super) fn attempt(&mut self, _: u32) {}

    #[inline]
    pub(super) fn scope(&self) -> Scope {
        Scope
    }

    #[inline]
    pub(super) fn failed(&mut self, _: u32, _: Option<Conflict>, _: Option<Duration>) {}

    #[inline]
    pub(super) fn ended(&mut self, _: u32, _: bool) {}
}

#[inline]
pub(super) fn fold(_: Dialect, _: &str, _: usize) -> Scope {
    Scope
}

#[inline]
pub(super) fn folded(_: usize, _: usize, _: usize) {}

#[inline]
pub(super) fn folder_failed(_: &'static str) {}

#[inline]
pub(super) fn flush(_: usize, _: usize) -> Scope {
    Scope
}

#[inline]
pub(super) fn flush_conflict(_: Dialect, _: Conflict) {}

#[inline]
pub(super) fn lost() {}

#[inline]
pub(super) fn cache_left_out() {}

#[inline]
pub(super) fn cache_failed(_: &dyn Display) {}

#[inline]
pub(super) fn warned(_: &'static str, _: &'static str, _: u16) -> bool {
    false
}
