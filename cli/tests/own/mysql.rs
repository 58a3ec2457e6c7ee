//! The tool on MariaDB or MySQL.

use super::cases::{self, Script, assert_says, run_at, session};
use super::servers;
use diesel::prelude::*;
use diesel_sharded_tests::Server;
use diesel_sharded_tests::own_server::OwnServer;

#[test]
fn sessions() {
    cases::sessions(include_str!("../sessions/mysql.txt"));
}

#[test]
fn addresses_of_mariadb_are_taken() {
    let (database, _conn) = cases::videos(1, 1);
    let url = database.url().replacen("mysql://", "mariadb://", 1);
    assert!(url.starts_with("mariadb://"), "{url}");
    let folded = format!("0: fold --dry-run --database-url {url} => videos: 1 row to fold");
    session(&database, &folded);
}

/// A server with one more option, a connection to its database `shop`, and the address of that.
fn server_with_shop(option: &str) -> (OwnServer, MysqlConnection, String) {
    let server = OwnServer::start_with(Server::Mysql, option).unwrap();
    let address = server.address();
    let mut conn = MysqlConnection::establish(&format!("{address}/mysql")).unwrap();
    conn.script("CREATE DATABASE shop; USE shop");
    let shop = format!("{address}/shop");
    (server, conn, shop)
}

const POSTS: &str = "CREATE TABLE posts (id BIGINT PRIMARY KEY, views BIGINT NOT NULL);
    CREATE TABLE posts_shards (id BIGINT, shard INT, views BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (id, shard), \
        FOREIGN KEY (id) REFERENCES posts (id) ON UPDATE CASCADE ON DELETE CASCADE)";

const OTHER_ENGINE: &str = "CREATE TABLE posts (id BIGINT PRIMARY KEY, views BIGINT NOT NULL);
    CREATE TABLE posts_shards (id BIGINT, shard INT, views BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (id, shard)) ENGINE = MyISAM";

/// Those of the reference page on surroundings that are wrong or may be.
#[test]
fn doctor_reads_the_settings_of_its_server() {
    let (_server, mut conn, shop) = server_with_shop("--log-bin");
    conn.script(OTHER_ENGINE);
    let mut doctor = |check: &str, set: &str| {
        conn.script(&format!("SET GLOBAL {set}"));
        let doctor = cases::at(&shop, &std::env::temp_dir(), "doctor --json").output();
        let json: serde_json::Value = serde_json::from_slice(&doctor.unwrap().stdout).unwrap();
        let mut all = json.as_array().unwrap().iter();
        let found = all.find(|f| f["check"] == check);
        found.map(|f| f["level"].as_str().unwrap().to_owned())
    };
    let settings = "
        sql_mode | warning | sql_mode | '' | DEFAULT
        foreign keys | problem | foreign_key_checks | OFF | ON
        binlog_format | problem | binlog_format | 'STATEMENT' | 'ROW'
        completion_type | problem | completion_type | CHAIN | DEFAULT
        sql_safe_updates | warning | sql_safe_updates | ON | OFF
        sql_select_limit | warning | sql_select_limit | 2000 | DEFAULT
        read-only | problem | read_only | ON | OFF
        isolation | warning | tx_isolation | 'SERIALIZABLE' | DEFAULT";
    for line in settings.lines().skip(1) {
        let fields: Vec<_> = line.trim().split(" | ").collect();
        let [check, level, setting, wrong, right] = fields[..] else {
            panic!("{line}");
        };
        let [wrong, right] = [wrong, right].map(|value| format!("{setting} = {value}"));
        let level = Some(level);
        assert_eq!(doctor(check, &wrong).as_deref(), level, "{wrong}");
        assert_ne!(doctor(check, &right).as_deref(), level, "{right}");
    }
}

/// The catalogs do not show what a user has from a role.
#[test]
fn doctor_does_not_judge_a_user_by_a_role() {
    let (server, mut conn, _) = server_with_shop("--skip-log-bin");
    conn.script(POSTS);
    conn.script(
        "CREATE ROLE counter; CREATE USER app; GRANT counter TO app; SET DEFAULT ROLE counter FOR app;
         GRANT SELECT ON shop.posts TO counter; GRANT SELECT, INSERT, UPDATE ON shop.posts_shards TO counter",
    );
    let url = server.address().replace("root@", "app@") + "/shop";
    let (shown, _) = run_at(&url, "doctor", 0);
    assert_says(&shown, "what its roles may do the catalogs do not show");
    assert_says(&shown, "SHOW GRANTS FOR `counter`;");
}

/// The wait for a table ends when the server says so, and then as an error that says how to go on.
#[test]
fn a_fold_waits_for_a_locked_table_as_long_as_the_server_lets_it() {
    let (_server, mut conn, shop) = server_with_shop("--lock-wait-timeout=1");
    conn.script(POSTS);
    conn.script(
        "INSERT INTO posts VALUES (1, 0); INSERT INTO posts_shards VALUES (1, 0, 1); LOCK TABLES posts_shards WRITE",
    );
    let (_, says) = run_at(&shop, "fold", 1);
    assert_says(&says, "Lock wait timeout exceeded");
}

#[test]
fn advise_names_the_hot_column() {
    servers::advise::names_the_hot_column();
}

#[test]
fn advise_names_tables_and_columns_as_statements_do() {
    servers::advise::names_are_those_of_the_statements('`');
}

#[test]
fn an_address_without_a_database_is_refused() {
    let (database, _conn) = cases::empty_database();
    let (server, _) = database.url().rsplit_once('/').unwrap();
    for end in ["", "/"] {
        let refused = "=> no database behind => mysql://";
        let doctor = format!("1: doctor --database-url {server}{end} {refused}");
        session(&database, &doctor);
    }
}
