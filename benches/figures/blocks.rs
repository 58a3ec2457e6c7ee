//! The blocks, and what renders them.

use super::{hot_row, long_runs, reading, scale, shapes};
use crate::report::{Missing, Report};

type Render = fn(&Report) -> Result<String, Missing>;

/// The blocks, by name.
pub const BLOCKS: [(&str, Render); 25] = [
    ("lead", hot_row::lead),
    ("why", hot_row::why),
    ("machine", hot_row::machine),
    ("one hot row", hot_row::table),
    ("more and fewer threads", hot_row::more_and_fewer_threads),
    ("comparison", hot_row::comparison),
    ("coalescer", hot_row::coalescer),
    ("one coalescer", hot_row::one_coalescer),
    ("several processes", hot_row::several_processes),
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
    ("a million a second", scale::a_million_a_second),
    ("many keys", scale::many_keys),
    ("read fan-out", scale::read_fan_out),
    ("simulation errors", scale::simulation_errors),
    ("simulation", scale::simulation),
    ("enough shards", scale::enough_shards),
];

/// Renders the block of this name.
pub fn render(name: &str, report: &Report) -> Result<String, String> {
    let block = BLOCKS.iter().find(|(of, _)| *of == name);
    let (_, render) = block.ok_or_else(|| format!("there is no block of figures {name:?}"))?;
    render(report).map_err(|Missing(what)| format!("{name:?}: the report lacks {what}"))
}
