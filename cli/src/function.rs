//! `diesel-sharded generate --function`: the migration of a function that adds to a shard.

use crate::args::GenerateArgs;
use crate::connection::AnyConnection;
use crate::error::Error;
use crate::exit::Ended;
use crate::live::LiveTables;
use crate::migration_files::{Files, deliver, file_name};
use crate::output::Output;
use crate::sharded;

pub fn run(
    args: &GenerateArgs,
    conn: &mut AnyConnection,
    out: &mut Output,
) -> Result<Ended, Error> {
    let (live, table) = LiveTables::of(&args.table, conn)?;
    let sharded = sharded::find(conn.dialect(), &live, &table)?;
    let backend = conn.backend();
    let files = Files {
        up: sharded.add_function_sql(&backend)? + ";\n",
        down: sharded.drop_function_sql(&backend)? + ";\n",
    };
    let name = format!("function_{}", file_name(sharded.shards_table().as_str()));
    deliver(&files, &name, args, out)
}
