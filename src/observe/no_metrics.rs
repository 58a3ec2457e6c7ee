//! The twin of the metrics without the feature `metrics`: empty.

use std::time::{Duration, Instant};

use super::cache_read::CacheRead;
use super::work::Work;
use crate::backend::Dialect;
use crate::conflict::Conflict;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Keys;

impl Keys {
    #[inline]
    #[expect(
        clippy::extra_unused_type_parameters,
        reason = "its twin needs the table's type"
    )]
    pub(crate) fn of<T>(_: Dialect) -> Self {
        Keys
    }
}

#[derive(Debug)]
pub(super) struct UpdateMetrics;

impl UpdateMetrics {
    #[inline]
    pub(super) fn begin(_: Dialect, _: &'static str, _: Keys) -> Self {
        UpdateMetrics
    }

    #[inline]
    pub(super) fn created(&mut self, _: usize) {}

    #[inline]
    pub(super) fn failed(&mut self, _: Option<Conflict>) {}

    #[inline]
    pub(super) fn ended(&self, _: u32, _: bool) {}
}

#[derive(Debug)]
pub(super) struct TransactionMetrics;

impl TransactionMetrics {
    #[inline]
    pub(super) fn begin(_: Dialect, _: Work) -> Self {
        TransactionMetrics
    }

    #[inline]
    pub(super) fn failed(&self, _: Option<Conflict>) {}

    #[inline]
    pub(super) fn ended(&self, _: u32, _: bool) {}
}

#[inline]
pub(super) fn folded(_: Dialect, _: &str, _: usize, _: usize, _: usize) {}

#[inline]
pub(super) fn folder_passed(_: &'static str, _: Duration, _: bool) {}

#[inline]
pub(super) fn flush(_: usize, _: usize) {}

#[inline]
pub(super) fn flushed(_: Duration) {}

#[inline]
pub(super) fn waited(_: Instant) {}

#[inline]
pub(super) fn flush_conflict(_: Dialect, _: Conflict) {}

#[inline]
pub(super) fn lost() {}

#[inline]
pub(super) fn cache_read(_: CacheRead) {}

#[inline]
pub(super) fn cache_unavailable() {}

#[inline]
pub(super) fn not_a_total() {}

#[inline]
pub(super) fn crowded(_: &'static str) {}
