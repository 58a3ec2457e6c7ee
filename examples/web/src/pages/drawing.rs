//! Drawings, as SVG, since the policy of [`layout`](super::layout) allows no `style` attribute.

use chrono::NaiveDate;
use maud::{Markup, html};

use super::number::{grouped, noun};

/// A picture for a video that nobody has filmed: a sun in a sky, always the same for one video.
pub fn still(video: i64) -> Markup {
    let draw = |part: i64, below: i64| (video * part).rem_euclid(below);
    let (hue, sky) = (draw(137, 360), format!("sky{video}"));
    let (sun_x, sun_y) = (40 + draw(83, 240), 40 + draw(29, 90));
    html! {
        svg viewBox="0 0 320 180" preserveAspectRatio="xMidYMid slice" aria-hidden="true" {
            defs {
                linearGradient id=(sky) x2="0" y2="1" {
                    stop stop-color=(format!("hsl({hue} 60% 42%)")) {}
                    stop offset="1" stop-color=(format!("hsl({} 75% 74%)", (hue + 40) % 360)) {}
                }
            }
            rect width="320" height="180" fill=(format!("url(#{sky})")) {}
            circle cx=(sun_x) cy=(sun_y) r="24" fill=(format!("hsl({} 90% 88%)", (hue + 50) % 360)) {}
        }
    }
}

/// A bar that is full at `greatest`.
pub fn bar(value: f64, greatest: f64) -> Markup {
    range(value, value, greatest)
}

/// A bar up to `value`, and a lighter one on to `further`.
pub fn range(value: f64, further: f64, greatest: f64) -> Markup {
    html! {
        svg.bar aria-hidden="true" {
            rect width="100%" height="100%" rx="3" class="track" {}
            rect width=(percent(further, greatest)) height="100%" rx="3" class="further" {}
            rect width=(percent(value, greatest)) height="100%" rx="3" {}
        }
    }
}

/// A bar, upright.
pub fn column(value: i64, greatest: i64) -> Markup {
    let height = percent(value as f64, greatest as f64);
    html! {
        svg.column aria-hidden="true" {
            rect width="100%" height="100%" rx="3" class="track" {}
            g transform="scale(1 -1)" {
                rect width="100%" height=(height) y="-100%" rx="3" {}
            }
        }
    }
}

/// A bar for each day.
pub fn days(views: &[(NaiveDate, i64)]) -> Markup {
    let greatest = views.iter().map(|(_, n)| *n).max().unwrap_or(0).max(1);
    let sum: i64 = views.iter().map(|(_, n)| n).sum();
    let counted = |n: i64| format!("{} {}", grouped(n), noun(n, "view"));
    html! {
        svg.days viewBox={ "0 0 " (10 * views.len()) " 80" } preserveAspectRatio="none" role="img" aria-label={ (counted(sum)) " in " (views.len()) " days" } {
            @for (i, (day, n)) in views.iter().enumerate() {
                @let height = (*n as f64 / greatest as f64 * 76.0).clamp(1.0, 76.0);
                rect x=(10 * i + 1) y=(format!("{:.1}", 80.0 - height)) width="8" height=(format!("{height:.1}")) rx="1" {
                    title { (day) ": " (counted(*n)) }
                }
            }
        }
    }
}

fn percent(value: f64, greatest: f64) -> String {
    let share = if greatest > 0.0 {
        value / greatest
    } else {
        0.0
    };
    format!("{:.1}%", share.clamp(0.0, 1.0) * 100.0)
}

/// A thumb, up.
pub fn thumb() -> Markup {
    html! {
        svg.icon viewBox="0 0 24 24" aria-hidden="true" {
            path d="M7 10v11H3.5A1.5 1.5 0 0 1 2 19.500v-8A1.5 1.5 0 0 1 3.500 10H7zm2 0 3.600-7.200c.900-.500 2.900.100 2.900 2.200 0 1.500-.600 3-.600 4h5.100c1.200 0 2.100 1.100 1.900 2.300l-1.500 7.800c-.200 1.100-1.100 1.900-2.200 1.900H9V10z" {}
        }
    }
}
