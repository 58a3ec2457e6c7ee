//! The gain by shards in the library's benchmark.

use diesel_sharded::backend::Dialect;

/// How many times the counts of one row 32 threads make by `update`, as the reference page on benchmarks says.
pub fn assumption(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres => {
            "Assumed: the writers wait for one row, as the 32 threads of the library's benchmark (documentation, page benchmarks). There \
             shards made 5.1 times the counts of one row on PostgreSQL, and 14.5 times where a commit took 1 ms."
        }
        _ => {
            "Assumed: the writers wait for one row, as the 32 threads of the library's benchmark (documentation, page benchmarks). There \
             shards made 2.4 times the counts of one row on MariaDB."
        }
    }
}
