//! Whether a pooler stands between this connection and PostgreSQL, as far as the session tells.

use diesel::prelude::*;
use diesel_sharded::backend::Dialect;

use crate::connection::AnyConnection;

use super::finding::Finding;

const CHECK: &str = "pooler";

const REMEDY: &str = "Counts are safe behind any pooler. If it pools transactions and does not keep prepared statements (PgBouncer before 1.21, or \
without max_prepared_statements), give the application's connections set_prepared_statement_cache_size(CacheSize::Disabled); see \
docs/poolers.md";

pub fn check(url: Option<&str>, conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
    if conn.dialect() != Dialect::Postgres {
        return Ok(vec![]);
    }
    let session = "SELECT CAST(CAST(EXTRACT(EPOCH FROM clock_timestamp() - backend_start) AS BIGINT) AS TEXT), \
         CAST((SELECT COUNT(*) FROM pg_prepared_statements) AS TEXT), CAST(inet_server_port() AS TEXT) \
         FROM pg_stat_activity WHERE pid = pg_backend_pid()";
    let rows = conn.rows(session, &[])?;
    let Some(row) = rows.first() else {
        return Ok(vec![]);
    };
    let (age, prepared): (i64, u64) = (row.parse(0)?, row.parse(1)?);
    let server_port = row.get(2).and_then(|port| port.parse::<u16>().ok());
    let found = match server_port.zip(url.and_then(port)) {
        _ if prepared > 0 => format!(
            "this session came with {prepared} prepared statements of another client: a pooler shares it"
        ),
        _ if age >= 2 => {
            format!("the server's session is {age} s older than this connection: a pooler keeps it")
        }
        Some((server, asked)) if server != asked => format!(
            "the server listens on port {server}, and this connection goes to {asked}: a pooler, a proxy or a forwarded port"
        ),
        _ => {
            return Ok(vec![Finding::ok(
                CHECK,
                "none is seen; one that has just opened its session is not",
            )]);
        }
    };
    Ok(vec![Finding::warning(CHECK, found, REMEDY)])
}

/// The port in a database's address, which is 5432 where it names a host alone.
fn port(url: &str) -> Option<u16> {
    let (_, place) = url.split_once("://")?;
    let host = place.split(['/', '?']).next()?;
    let host = host.rsplit('@').next()?;
    match host.rsplit_once(':') {
        Some((_, port)) => port.parse().ok(),
        None => (!host.is_empty()).then_some(5432),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports() {
        for (url, expected) in [
            ("postgres://a:b@h:6432/db", Some(6432)),
            ("postgres://h/db?x=y:1", Some(5432)),
            ("postgresql:///db?host=/tmp", None),
            ("postgres://h:x/db", None),
            ("file.db", None),
        ] {
            assert_eq!(port(url), expected, "{url}");
        }
    }
}
