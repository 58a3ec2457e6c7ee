//! The shards of a video.

use maud::{Markup, html};

use super::drawing::{bar, column};
use super::number::{counted, grouped, noun, short};
use crate::models::Shards;

/// The coalescer's shard is drawn apart: it takes the counts of all callers, and would flatten the others.
pub fn of_video(of: &Shards, number: u16, coalescers: Option<i32>) -> Markup {
    let (apart, others): (Vec<_>, Vec<_>) = of
        .shards
        .iter()
        .copied()
        .partition(|(shard, _)| Some(*shard) == coalescers);
    let greatest = others.iter().map(|(_, value)| *value).max().unwrap_or(0);
    html! {
        dl.sum {
            div { dt { "Plain column" } dd id="base" { (grouped(of.base)) } }
            div { dt { "+ " (counted(of.shards.len() as u64, "shard")) } dd id="on-shards" { (grouped(of.on_shards())) } }
            div { dt { "= Total" } dd id="total" { (grouped(of.total())) } }
        }
        @if of.shards.is_empty() {
            p.empty { "No shards: the video was folded, or nobody has watched it yet." }
        }
        @if !others.is_empty() {
            ol.shards {
                @for (shard, value) in &others {
                    li title={ "shard " (shard) ": " (grouped(*value)) } {
                        span.value { (short(*value)) }
                        (column(*value, greatest))
                        span.shard { span.hidden { "in shard " } (shard) }
                    }
                }
            }
        }
        @for (shard, value) in &apart {
            div.apart id="coalescers-shard" {
                p { strong { "Shard " (shard) } span.unit { ", where the coalescer counts" } }
                (bar(*value as f64, of.on_shards() as f64))
                p.number { (grouped(*value)) span.unit { " of " (grouped(of.on_shards())) " on shards" } }
            }
        }
        p.note {
            "Writers choose from " strong id="number" { (number) } " " (noun(number, "shard")) ", and use as many as they need. The coalescer begins on shard 0, and \
             keeps to one of its own as soon as a video is busy, however many call it."
        }
    }
}
