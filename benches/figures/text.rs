//! Paragraphs and tables.

use crate::report::Part;

/// The note on when a table was measured, and whether its figures are rough.
pub fn measured(part: &Part) -> String {
    let rough = if part.pace.quick {
        ", by a quick run, so the figures are rough"
    } else {
        ""
    };
    format!("Measured on {}{rough}.", part.date)
}

/// The width of a line of text.
const WIDTH: usize = 130;

/// Breaks a paragraph into lines.
pub fn paragraph(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("at least one line");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}

/// Renders a table; the first row is its head.
pub fn table(rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| {
        let cells: String = cells.iter().map(|cell| format!(" {cell} |")).collect();
        format!("|{cells}")
    };
    let mut lines: Vec<String> = rows.iter().map(|row| line(row)).collect();
    let columns = rows.first().map_or(0, Vec::len);
    lines.insert(1, format!("|{}", "---|".repeat(columns)));
    lines.join("\n")
}

/// A row of a table.
macro_rules! row {
    ($($cell:expr),+ $(,)?) => { vec![$($cell.to_string()),+] };
}
pub(super) use row;
