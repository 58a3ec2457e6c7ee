//! Drawings, as SVG, since the policy of [`layout`](super::layout) allows no `style` attribute.

use maud::{Markup, html};

/// A picture for a video that nobody has filmed: hills under a sky, always the same for one video.
pub fn still(video: i64) -> Markup {
    let mut seed = video.unsigned_abs().wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut draw = |below: u64| {
        // xorshift, which is random enough for hills
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let hue = draw(360);
    let (sun_x, sun_y, sun) = (30 + draw(260), 25 + draw(50), 12 + draw(16));
    let mut hill = |top: u64| {
        let [a, b, c, d] = [(); 4].map(|()| top + draw(45));
        format!("M0 {a} C 80 {b}, 120 {c}, 200 {d} S 290 {a}, 320 {b} V180 H0 Z")
    };
    let hills = [hill(70), hill(95), hill(120)];
    let sky = format!("sky{video}");
    html! {
        svg viewBox="0 0 320 180" preserveAspectRatio="xMidYMid slice" aria-hidden="true" {
            defs {
                linearGradient id=(sky) x2="0" y2="1" {
                    stop stop-color=(format!("hsl({hue} 60% 42%)")) {}
                    stop offset="1" stop-color=(format!("hsl({} 75% 74%)", (hue + 40) % 360)) {}
                }
            }
            rect width="320" height="180" fill=(format!("url(#{sky})")) {}
            circle cx=(sun_x) cy=(sun_y) r=(sun) fill=(format!("hsl({} 90% 88%)", (hue + 50) % 360)) {}
            @for (hill, light) in hills.iter().zip([38, 27, 17]) {
                path d=(hill) fill=(format!("hsl({} 42% {light}%)", (hue + 330) % 360)) {}
            }
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
