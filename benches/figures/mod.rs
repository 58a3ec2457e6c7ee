//! The figures in the documentation: each block between `<!-- figures: NAME -->` and `<!-- /figures -->` is rendered from the
//! report, tables and sentences alike.

mod documents;
mod hot_row;
mod long_runs;
mod numbers;
mod reading;
mod shapes;

pub use self::documents::{Document, documents};
pub use self::long_runs::soaks;
pub use self::numbers::rate;
use crate::report::{Missing, Part, Report};

type Render = fn(&Report) -> Result<String, Missing>;

/// The blocks, by name.
pub const BLOCKS: [(&str, Render); 18] = [
    ("lead", hot_row::lead),
    ("why", hot_row::why),
    ("machine", hot_row::machine),
    ("one hot row", hot_row::table),
    ("more and fewer threads", hot_row::more_and_fewer_threads),
    ("comparison", hot_row::comparison),
    ("coalescer", hot_row::coalescer),
    ("one coalescer", hot_row::one_coalescer),
    ("shapes", shapes::table),
    ("tasks", shapes::tasks),
    ("old snapshot", shapes::old_snapshot),
    ("reading", reading::table),
    ("cost of reading", reading::cost),
    ("sort of all totals", reading::sort),
    ("top", reading::top),
    ("top without shards", reading::top_without_shards),
    ("long run", long_runs::table),
    ("soak", long_runs::soak),
];

/// Renders the block of this name.
pub fn render(name: &str, report: &Report) -> Result<String, String> {
    let block = BLOCKS.iter().find(|(of, _)| *of == name);
    let (_, render) = block.ok_or_else(|| format!("there is no block of figures {name:?}"))?;
    render(report).map_err(|Missing(what)| format!("{name:?}: the report lacks {what}"))
}

/// The note on when a table was measured, and whether its figures are rough.
fn measured(part: &Part) -> String {
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
fn paragraph(text: &str) -> String {
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
fn table(rows: &[Vec<String>]) -> String {
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
use row;
