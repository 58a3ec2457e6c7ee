//! A picture, its colours, and text on it.

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub const TEXT: RGBColor = RGBColor(125, 133, 144);
pub const THEIRS: RGBColor = RGBColor(140, 155, 171);
pub const OURS: RGBColor = RGBColor(47, 129, 247);
pub const SECOND: RGBColor = RGBColor(219, 109, 40);

pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub type Drawn = Result<(), Box<dyn Error>>;

pub fn svg(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Drawn) -> String {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        let drawn = draw(&area).and_then(|()| Ok(area.present()?));
        drawn.expect("a text takes any drawing");
    }
    text
}

pub fn write(area: &Area<'_>, text: &str, size: i32, at: (i32, i32), horizontal: HPos) -> Drawn {
    let style = TextStyle::from(("sans-serif", size)).color(&TEXT);
    let style = style.pos(Pos::new(horizontal, VPos::Center));
    area.draw(&Text::new(text.to_owned(), at, style))?;
    Ok(())
}
