//! Queries for the numbers from 1 to `n`, in a column `n`, to fill tables by.

use std::fmt::Display;

/// On PostgreSQL.
pub fn on_postgres(n: impl Display) -> String {
    format!("SELECT n FROM generate_series(1, {n}) AS n")
}

/// On MariaDB.
pub fn on_mariadb(n: impl Display) -> String {
    format!("SELECT seq AS n FROM seq_1_to_{n}")
}

/// On SQLite.
pub fn on_sqlite(n: impl Display) -> String {
    format!(
        "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {n}) SELECT n FROM c"
    )
}
