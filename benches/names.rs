//! The names in the report: contenders, databases, disks and sections.

/// The contenders.
pub const ONE_ROW: &str = "one row, diesel::update";
pub const PREPARED: &str = "one row, prepared by hand";
pub const SLOTTED: &str = "slotted counters, Diesel's upsert";
pub const SLOTTED_PREPARED: &str = "slotted counters, prepared by hand";
pub const APPEND_ONLY: &str = "append-only INSERT";
pub const APPEND_ONLY_PREPARED: &str = "append-only INSERT, prepared by hand";
pub const WRITE_BEHIND: &str = "Redis INCR, written behind";
pub const WRITE_BEHIND_LOGGED: &str = "Redis INCR with appendfsync everysec, written behind";
pub const RANDOM: &str = "sharded, 128 at random";
pub const STRIPED: &str = "sharded, striped";
pub const DEFAULT: &str = "sharded, default";
pub const COMBINED: &str = "sharded, combined";

pub const POSTGRESQL: &str = "PostgreSQL";
pub const MARIADB: &str = "MariaDB";
pub const SQLITE: &str = "SQLite";

/// The disks that a commit waits for.
pub const NO_DISK: &str = "no fsync";
pub const LOCAL_DISK: &str = "local disk";
pub const REMOTE: &str = "local disk, 0.5 ms away";
pub const SLOW_DISK: &str = "local disk + 1 ms";

/// The sections whose results are published.
pub const HOT: &str = "hot";
pub const KEYS: &str = "keys";
pub const DISKS: &str = "disks";
pub const TASKS: &str = "tasks";
pub const SHAPES: &str = "shapes";
pub const READS: &str = "reads";
pub const TOP: &str = "top";
pub const COMMITS: &str = "commits";
pub const NETWORK: &str = "network";
pub const OPEN: &str = "open";
pub const SOAK: &str = "soak";
pub const PROCESSES: &str = "processes";
pub const UNIQUE: &str = "unique";

/// The rates of the section [`OPEN`], as shares of the rate of 64 threads that wait for nothing else.
pub const OPEN_RATES: [(&str, f64); 3] = [
    ("at 50 % of the best rate", 0.5),
    ("at 80 % of the best rate", 0.8),
    ("at 95 % of the best rate", 0.95),
];

/// The forms of a read.
pub const PLAIN: &str = "plain column";
pub const TOTAL: &str = "total()";

/// What is counted in the section [`UNIQUE`].
pub const VISITOR: &str = "visitor";

/// The forms of a top list.
pub const SORT: &str = "sort of all totals";
pub const TOP_LIST: &str = "top";
pub const INDEXED: &str = "plain column with an index";
/// The pages whose forms are compared.
pub const ONE_TOTAL: &str = "one row";
pub const PAGE: &str = "page of 50, by key";
/// Follows the name of a page of a table whose folds run: nine of ten rows have no shard, and the others sixteen.
pub const FOLDED: &str = ", 90 % folded";

/// The mixes of shards in the section [`TOP`].
pub const SIXTEEN_SHARDS: &str = "16 shards each";
pub const FEW_HOT: &str = "1 % hot, 10 % one shard";
pub const FOLDED_KEEPING: &str = "the same, folded, shards kept";
pub const NO_SHARDS: &str = "no shards";
/// Follows the name of a mix.
pub const ALL_ROWS: &str = "all rows";

/// The rows of the table in the section [`TOP`], by whether the run was quick.
pub fn ranked_rows(quick: bool) -> i64 {
    if quick { 10_000 } else { 100_000 }
}
