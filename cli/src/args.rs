//! The command line.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand};
use clap_complete::Shell;

/// Sharded counters of diesel_sharded: migrations, folds, recounts, and how they are.
#[derive(Debug, Parser)]
#[command(name = "diesel-sharded", version, after_help = include_str!("../help/exit_codes.txt").trim_end())]
pub struct Args {
    /// The database: postgres://…, mysql://… (or mariadb://…), or the path of a SQLite file (or sqlite:…). Also from a file `.env`.
    #[arg(long, global = true, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,

    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Writes the migration that gives a table shards, from what the table is in the database.
    Generate(GenerateArgs),
    /// Shows what in the database reads a plain column, and what each should read instead.
    Readers(ReadersArgs),
    /// Creates the library's own tables, which named counters, `resize`, coalescers and idempotency keys need.
    Setup(SetupArgs),
    /// Shows every shards table and the hottest keys and named counters.
    Status(StatusArgs),
    /// Checks all that counts depend on in the database, says what to do, and changes nothing.
    Doctor(DoctorArgs),
    /// Finds columns that are counted on one row and might be sharded: in how many sessions, and how many of these wait.
    Advise(AdviseArgs),
    /// Moves shards into the plain columns while the application goes on counting; no total changes.
    Fold(FoldArgs),
    /// Sets how many shards writers choose from, and folds away those beyond.
    Resize(ResizeArgs),
    /// Compares totals with a recount; changes nothing.
    #[command(after_help = include_str!("../help/recount.txt").trim_end())]
    Verify(RecountArgs),
    /// Adds to every total what it lacks of a recount; what is counted meanwhile stays counted.
    Backfill(BackfillArgs),
    /// Removes shards whose row does not exist, which a table without a foreign key may have.
    RemoveOrphans {
        /// These tables [default: all, and the named counters].
        tables: Vec<String>,
    },
    /// Prints a script that completes this tool's command line in a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
}

#[derive(Debug, ClapArgs)]
#[command(after_help = include_str!("../help/generate.txt").trim_end())]
pub struct GenerateArgs {
    /// The table.
    pub table: String,
    /// The columns to count on shards.
    #[arg(required_unless_present = "function")]
    pub columns: Vec<String>,
    /// Also creates a view of the whole table with totals in place of bases, for readers that are not Diesel [default: the table's
    /// name and `_totals`].
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, conflicts_with_all = ["counts", "function"])]
    pub view: Option<Option<String>>,
    /// Prints both files instead of writing them.
    #[arg(long, conflicts_with = "locked")]
    pub print: bool,
    /// Writes nothing, and fails if the newest migration of that name is not what would be written.
    #[arg(long)]
    pub locked: bool,
    /// The name of the shards table [default: the table's name and `_shards`].
    #[arg(long, value_name = "NAME", conflicts_with = "counts")]
    pub shards_table: Option<String>,
    /// Without a foreign key: triggers take its place. For servers that refuse one, such as MySQL Group Replication whose nodes all
    /// take writes. This tool finds such a table by its name, the table's and `_shards`.
    #[arg(long, conflicts_with_all = ["counts", "function"])]
    pub no_foreign_key: bool,
    /// Without a foreign key and without triggers, for servers that refuse both, such as PlanetScale. The application deletes the
    /// shards of a row together with the row; `remove-orphans` finds those that were left. SQLite keeps its triggers.
    #[arg(long, conflicts_with_all = ["counts", "function"])]
    pub no_triggers: bool,
    /// Writes a function instead, which adds to a shard: for triggers of the application's own. The table is sharded already.
    #[arg(long, conflicts_with_all = ["columns", "counts", "shards_table"])]
    pub function: bool,
    /// Writes triggers instead: they count the rows that name a row of the table in this column; once for each column of a
    /// composite key, in its order.
    #[arg(long, value_name = "TABLE.COLUMN")]
    pub counts: Vec<String>,
    /// Adds up this column of the counted rows instead, or an expression, written as a condition is:
    /// `CASE WHEN votes.is_up THEN 1 WHEN NOT votes.is_up THEN -1 END`.
    #[arg(long, value_name = "COLUMN OR SQL", requires = "counts")]
    pub sums: Option<String>,
    /// Counts only the rows that fulfil this condition on their own columns, each behind its table's name (`comments.shown`). It is
    /// written as it is, so it is trusted as whoever runs the tool is.
    #[arg(long = "where", value_name = "SQL", requires = "counts")]
    pub condition: Option<String>,
    /// How many shards of a row the triggers use, 1 to 4096 [default: 16; always one on SQLite].
    #[arg(long, value_name = "N", requires = "counts", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub shards: Option<u16>,
    /// The folder of migrations [default: that of `diesel.toml`, or the nearest `migrations`, here or above].
    #[arg(long, value_name = "FOLDER", env = "MIGRATION_DIRECTORY")]
    pub migration_dir: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub struct ReadersArgs {
    /// The table, which need not be sharded yet.
    pub table: String,
    /// The column.
    pub column: String,
    /// The shards table: what names it reads totals [default: the table's name and `_shards`].
    #[arg(long, value_name = "NAME")]
    pub shards_table: Option<String>,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = include_str!("../help/setup.txt").trim_end())]
pub struct SetupArgs {
    /// Writes the migrations for the `diesel` CLI instead of running them.
    #[arg(long)]
    pub write: bool,
    /// The folder of migrations [default: that of `diesel.toml`, or the nearest `migrations`, here or above].
    #[arg(long, value_name = "FOLDER", env = "MIGRATION_DIRECTORY")]
    pub migration_dir: Option<PathBuf>,
    /// Without the foreign key of the named counters' shards: triggers take its place.
    #[arg(long)]
    pub no_foreign_key: bool,
    /// Without that foreign key and without triggers. SQLite keeps its triggers.
    #[arg(long)]
    pub no_triggers: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = include_str!("../help/status.txt").trim_end())]
pub struct StatusArgs {
    /// These tables [default: all].
    pub tables: Vec<String>,
    /// Prints JSON instead of tables.
    #[arg(long)]
    pub json: bool,
    /// How many of the keys with the most shards are shown.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub hottest: u32,
    /// Reads every row and every shard.
    #[arg(long)]
    pub exact: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = include_str!("../help/doctor.txt").trim_end())]
pub struct DoctorArgs {
    /// These tables [default: all].
    pub tables: Vec<String>,
    /// Prints JSON instead of lines.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = include_str!("../help/advise.txt").trim_end())]
pub struct AdviseArgs {
    /// How long it looks.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub seconds: u32,
    /// Prints JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// What commands that go through rows in batches have in common.
#[derive(Debug, ClapArgs)]
pub struct RowsArgs {
    /// Goes on after this key; once for each column of a composite key.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub after: Vec<String>,
    /// Takes no more rows than this in any second, with smaller batches if it has to [default: no limit].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub at_most_per_second: Option<u32>,
    /// Prints JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = include_str!("../help/fold.txt").trim_end())]
pub struct FoldArgs {
    /// These tables [default: all, and the named counters].
    pub tables: Vec<String>,
    /// How many rows are folded in one transaction, 1 to 100.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub batch: u32,
    /// Removes empty shards numbered from N on [default: the number that `resize` has set for every field; else none is removed].
    #[arg(long, value_name = "N")]
    pub keep_shards: Option<u16>,
    /// Shows what there is to fold, and changes nothing.
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub rows: RowsArgs,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = include_str!("../help/resize.txt").trim_end())]
pub struct ResizeArgs {
    /// The table, and its sharded field.
    #[arg(required_unless_present = "counter", conflicts_with = "counter")]
    pub table: Option<String>,
    #[arg(required_unless_present = "counter")]
    pub field: Option<String>,
    /// A named counter instead of a field.
    #[arg(long, value_name = "NAME")]
    pub counter: Option<String>,
    /// The number of shards, 1 to 4096.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub to: u16,
    /// Shows the number that holds and what would be folded, and changes nothing.
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, ClapArgs)]
pub struct RecountArgs {
    /// The table.
    pub table: String,
    /// Its sharded field.
    pub field: String,
    /// A query for keys and numbers: the columns of the key, then the number. It is run as it is, so it is trusted as whoever
    /// runs the tool is; it looks in a transaction that is read only. A row that it leaves out is expected to have 0.
    #[arg(long, value_name = "SQL")]
    pub recount: String,
    /// How many rows are compared in one statement.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub batch: u32,
    /// How many drifts are printed.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub show: usize,
    #[command(flatten)]
    pub rows: RowsArgs,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = include_str!("../help/recount.txt").trim_end())]
pub struct BackfillArgs {
    #[command(flatten)]
    pub recount: RecountArgs,
    /// Shows what would be repaired, and changes nothing.
    #[arg(long)]
    pub dry_run: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }
}
