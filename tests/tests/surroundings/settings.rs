//! Each row of the tables in the reference page on surroundings: every operation succeeds, or is refused and has changed nothing,
//! as the row says. `FURTHER` are rows that the page leaves out.

#[path = "settings"]
mod sqlite {
    use diesel_sharded as api;

    type Conn = diesel::SqliteConnection;
    const SECTION: &str = "SQLite";
    /// As an application would.
    const BEFORE: &str = "PRAGMA busy_timeout = 5000";
    const FURTHER: &[(&str, &str)] = &[];

    mod cases;
    #[path = "../../operations/mod.rs"]
    #[expect(dead_code, reason = "what other programs use")]
    mod operations;
}

#[path = "settings"]
mod postgres {
    use diesel_sharded as api;

    type Conn = diesel::PgConnection;
    const SECTION: &str = "PostgreSQL";
    const BEFORE: &str = "SELECT 1";
    const FURTHER: &[(&str, &str)] = &[
        ("`SELECT 1`", "none"),
        ("`SET idle_in_transaction_session_timeout = '5s'`", "none"),
        (
            "`SET standard_conforming_strings = off; SET escape_string_warning = off; SET backslash_quote = off`",
            "none",
        ),
        ("`SET search_path = other, public`", "none"),
        ("`SET plan_cache_mode = force_generic_plan`", "none"),
        ("`SET synchronous_commit = off`", "none"),
        ("`SET bytea_output = 'escape'`", "none"),
    ];

    mod cases;
    #[path = "../../operations/mod.rs"]
    #[expect(dead_code, reason = "what other programs use")]
    mod operations;
}

#[path = "settings"]
mod mysql {
    use diesel_sharded as api;

    type Conn = diesel::MysqlConnection;
    const SECTION: &str = "MySQL and MariaDB";
    const BEFORE: &str = "SELECT 1";
    const FURTHER: &[(&str, &str)] = &[
        ("`SELECT 1`", "none"),
        ("`SET sql_select_limit = 0`", "repair"),
        ("`SET sql_safe_updates = 1`", cases::ANY),
    ];

    mod cases;
    #[path = "../../operations/mod.rs"]
    #[expect(dead_code, reason = "what other programs use")]
    mod operations;

    /// Formats of the binary log, on a server that keeps one.
    #[test]
    fn every_operation_is_logged_or_refused() {
        use diesel::connection::SimpleConnection;
        use diesel_sharded_tests::{Server, own_server::OwnServer};

        let server = OwnServer::start_with(Server::Mysql, "--log-bin=binlog").expect("a server");
        let root = format!("{}/mysql", server.address());
        let mut root = <Conn as diesel::Connection>::establish(&root).unwrap();
        for (name, surrounding, refused) in [
            ("defaults", "`SELECT 1`", "none"),
            ("statement", "`SET binlog_format = 'STATEMENT'`", cases::ANY),
            ("mixed", "`SET binlog_format = 'MIXED'`", "none"),
        ] {
            root.batch_execute(&format!("CREATE DATABASE {name}_log"))
                .unwrap();
            let row = cases::Row {
                surrounding,
                refused,
            };
            let url = format!("{}/{name}_log", server.address());
            assert_eq!(cases::otherwise(row, &url), [""; 0]);
        }
    }
}
