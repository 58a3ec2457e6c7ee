//! Each row of the tables in the reference page on surroundings: every operation succeeds, or is refused and has changed nothing,
//! as the row says.

#[path = "settings"]
mod sqlite {
    type Conn = diesel::SqliteConnection;
    const SECTION: &str = "SQLite";
    /// As an application would.
    const BEFORE: &str = "PRAGMA busy_timeout = 5000";

    mod cases;
}

#[path = "settings"]
mod postgres {
    type Conn = diesel::PgConnection;
    const SECTION: &str = "PostgreSQL";
    const BEFORE: &str = "SELECT 1";

    mod cases;
}

#[path = "settings"]
mod mysql {
    type Conn = diesel::MysqlConnection;
    const SECTION: &str = "MySQL and MariaDB";
    const BEFORE: &str = "SELECT 1";

    mod cases;

    /// InnoDB has no foreign keys to a partitioned table: the shards table is refused when it is created.
    #[test]
    fn a_partitioned_parent_is_refused() {
        use diesel::connection::SimpleConnection;
        use diesel_sharded::ShardsTable;
        use diesel_sharded_tests::{TestConnection, schema};

        let database = Conn::database();
        let mut conn = Conn::connect(&database);
        schema::create(&mut conn);
        let shards = ShardsTable::of(schema::videos::table);
        shards.drop(&mut conn).unwrap();
        let partition = "ALTER TABLE videos DROP INDEX slug; ALTER TABLE videos PARTITION BY HASH (id) PARTITIONS 2";
        conn.batch_execute(partition).unwrap();
        let refused = shards.create(&mut conn).unwrap_err().to_string();
        assert!(refused.contains("oreign key"), "{refused}");
    }
}
