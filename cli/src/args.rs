//! The command line.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand};
use clap_complete::Shell;
use diesel_sharded::described::Integrity;

/// Sharded counters of diesel_sharded: migrations, folds, recounts and checks.
#[derive(Debug, Parser)]
#[command(name = "diesel-sharded", version, after_help = include_str!("../help/exit_codes.txt").trim_end())]
pub struct Args {
    /// The database: postgres://…, mysql://… (or mariadb://…), or the path of a SQLite file (or sqlite:…). A file `.env` can set it too.
    #[arg(long, global = true, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,

    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Writes the migration that gives a table shards, from the table in the database.
    Generate(GenerateArgs),
    /// Shows which objects in the database read a plain column, and what each should read instead.
    Readers(ReadersArgs),
    /// Creates the library's own tables, which named counters, `resize`, coalescers and idempotency keys need.
    Setup(SetupArgs),
    /// Shows every shards table and the hottest keys and named counters.
    Status(StatusArgs),
    /// Checks everything in the database that increments depend on, says what to do, and changes nothing.
    Doctor(DoctorArgs),
    /// Finds columns that are counted on one row and could be sharded: how many sessions count on them, and how many of these wait.
    Advise(AdviseArgs),
    /// Moves shards into the plain columns while the application keeps counting; no total changes.
    Fold(FoldArgs),
    /// Sets how many shards writers choose from, and folds away shards beyond that number.
    Resize(ResizeArgs),
    /// Compares totals with a recount; changes nothing.
    #[command(after_help = include_str!("../help/recount.txt").trim_end())]
    Verify(RecountArgs),
    /// Corrects every total that differs from a recount; increments made meanwhile stay.
    Backfill(BackfillArgs),
    /// Removes shards whose row does not exist. A table without a foreign key may have them.
    RemoveOrphans {
        /// The tables [default: all, and the named counters].
        tables: Vec<String>,
    },
    /// Removes the rows of visitors who were counted in windows that are over.
    RemoveExpired,
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
    /// Also creates a view of the whole table with totals instead of bases, for readers other than Diesel [default: the table's name
    /// with `_totals`].
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, conflicts_with_all = ["counts", "function"])]
    pub view: Option<Option<String>>,
    /// Prints both files instead of writing them.
    #[arg(long, conflicts_with = "locked")]
    pub print: bool,
    /// Writes nothing, and fails if the newest migration of that name differs from what would be written.
    #[arg(long)]
    pub locked: bool,
    /// The name of the shards table [default: the table's name with `_shards`].
    #[arg(long, value_name = "NAME", conflicts_with = "counts")]
    pub shards_table: Option<String>,
    /// Writes a function instead, which adds to a shard: for the application's own triggers. The table is already sharded.
    #[arg(long, conflicts_with_all = ["columns", "counts", "shards_table", "no_foreign_key", "no_triggers"])]
    pub function: bool,
    /// Writes triggers instead, which count the rows that refer to a row of the table by this column. For a composite key, give it
    /// once for each column, in the key's order.
    #[arg(long, value_name = "TABLE.COLUMN", conflicts_with_all = ["no_foreign_key", "no_triggers"])]
    pub counts: Vec<String>,
    /// Adds up this column of the counted rows instead, or an expression, with columns as in --where:
    /// `CASE WHEN votes.is_up THEN 1 WHEN NOT votes.is_up THEN -1 END`.
    #[arg(long, value_name = "COLUMN OR SQL", requires = "counts")]
    pub sums: Option<String>,
    /// Counts only rows for which this condition holds. It may use their own columns, each after its table's name (`comments.shown`).
    /// The migration contains it unchanged, so it is as trusted as the person who runs the tool.
    #[arg(long = "where", value_name = "SQL", requires = "counts")]
    pub condition: Option<String>,
    /// How many shards of a row the triggers use, 1 to 4096 [default: 16; always one on SQLite].
    #[arg(long, value_name = "N", requires = "counts", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub shards: Option<u16>,
    #[command(flatten)]
    pub migration: MigrationArgs,
}

/// The arguments of commands that write migrations.
#[derive(Debug, ClapArgs)]
pub struct MigrationArgs {
    /// The folder of migrations [default: the one in `diesel.toml`, or the nearest `migrations`, here or above].
    #[arg(long, value_name = "FOLDER", env = "MIGRATION_DIRECTORY")]
    pub migration_dir: Option<PathBuf>,
    /// Creates triggers instead of a foreign key, for servers that refuse one, such as MySQL Group Replication with several writable
    /// nodes. This tool finds such a shards table by its name: the table's name with `_shards`.
    #[arg(long)]
    pub no_foreign_key: bool,
    /// Creates neither a foreign key nor triggers, for servers that refuse both, such as PlanetScale. The application deletes the
    /// shards of a row together with the row; `remove-orphans` finds shards that were left. SQLite keeps its triggers.
    #[arg(long)]
    pub no_triggers: bool,
}

impl MigrationArgs {
    pub fn integrity(&self) -> Integrity {
        match (self.no_triggers, self.no_foreign_key) {
            (true, _) => Integrity::Application,
            (false, true) => Integrity::Triggers,
            (false, false) => Integrity::ForeignKey,
        }
    }
}

#[derive(Debug, ClapArgs)]
pub struct ReadersArgs {
    /// The table, which need not be sharded yet.
    pub table: String,
    /// The column.
    pub column: String,
    /// The shards table; an object that names it reads totals [default: the table's name with `_shards`].
    #[arg(long, value_name = "NAME")]
    pub shards_table: Option<String>,
    /// Prints JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = include_str!("../help/setup.txt").trim_end())]
pub struct SetupArgs {
    /// Writes the migrations for the `diesel` CLI instead of running them.
    #[arg(long)]
    pub write: bool,
    #[command(flatten)]
    pub migration: MigrationArgs,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = include_str!("../help/status.txt").trim_end())]
pub struct StatusArgs {
    /// The tables [default: all].
    pub tables: Vec<String>,
    /// Prints JSON instead of tables.
    #[arg(long)]
    pub json: bool,
    /// How many of the keys with the most shards to show.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub hottest: u32,
    /// Reads every row and every shard.
    #[arg(long)]
    pub exact: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = include_str!("../help/doctor.txt").trim_end())]
pub struct DoctorArgs {
    /// The tables [default: all].
    pub tables: Vec<String>,
    /// Prints JSON instead of lines.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = include_str!("../help/advise.txt").trim_end())]
pub struct AdviseArgs {
    /// How long to look at running statements.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub seconds: u32,
    /// Prints JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// The arguments of all commands that process rows in batches.
#[derive(Debug, ClapArgs)]
pub struct RowsArgs {
    /// Continues after this key. For a composite key, give it once for each column.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub after: Vec<String>,
    /// Processes no more rows than this in any second, in smaller batches if necessary [default: no limit].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub at_most_per_second: Option<u32>,
    /// Prints JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, ClapArgs)]
#[command(after_help = include_str!("../help/fold.txt").trim_end())]
pub struct FoldArgs {
    /// The tables [default: all, and the named counters].
    pub tables: Vec<String>,
    /// How many rows to fold in one transaction, 1 to 100.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub batch: u32,
    /// Removes empty shards numbered N or higher [default: the number that `resize` has set for every field; otherwise removes none].
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
    /// Shows the current number and what would be folded, and changes nothing.
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, ClapArgs)]
pub struct RecountArgs {
    /// The table.
    pub table: String,
    /// Its sharded field.
    pub field: String,
    /// A query for keys and numbers: the columns of the key, then the number. The tool runs it unchanged, so it is as trusted as the
    /// person who runs the tool; the comparison runs in a read-only transaction. A row without a result is expected to have 0.
    #[arg(long, value_name = "SQL")]
    pub recount: String,
    /// How many rows to compare in one statement.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub batch: u32,
    /// How many drifts to print.
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
