//! The shards table: the types of its columns, and what it is created with.

use crate::backend::Dialect;
use crate::model::{ColumnType, Merge};

impl Dialect {
    /// The type of a sharded field's column in a shards table, where one row of a sum alone may be negative.
    pub(crate) fn field_type(self, column: ColumnType, merge: Merge) -> &'static str {
        use ColumnType::{UnsignedBigInt, UnsignedInteger, UnsignedSmallInt};
        if merge != Merge::Sum {
            return self.key_type(column);
        }
        match (self, column) {
            // `signed - unsigned` is unsigned in MySQL and fails below zero; `decimal - unsigned` is not.
            (_, UnsignedSmallInt | UnsignedInteger | UnsignedBigInt) => "DECIMAL(20, 0)",
            // Room for a value that a lax mode would cut, so that a CHECK sees it.
            (Dialect::Mysql, ColumnType::SmallInt) => "INTEGER",
            (Dialect::Mysql, ColumnType::Integer) => "BIGINT",
            (_, signed) => self.key_type(signed),
        }
    }

    /// The type of any other column in a shards table, whose values are those of the parent's.
    pub(crate) fn key_type(self, column: ColumnType) -> &'static str {
        use ColumnType::*;
        match (self, column) {
            (Dialect::Mysql, TinyInt) => "TINYINT",
            (_, TinyInt) => "SMALLINT",
            (_, SmallInt) => "SMALLINT",
            (_, Integer) => "INTEGER",
            (_, BigInt) => "BIGINT",
            (_, UnsignedTinyInt) => "TINYINT UNSIGNED",
            (_, UnsignedSmallInt) => "SMALLINT UNSIGNED",
            (_, UnsignedInteger) => "INTEGER UNSIGNED",
            (_, UnsignedBigInt) => "BIGINT UNSIGNED",
            (Dialect::Mysql, Float) => "FLOAT",
            (_, Float) => "REAL",
            (Dialect::Postgres, Double) => "DOUBLE PRECISION",
            (_, Double) => "DOUBLE",
            (Dialect::Mysql, Numeric) => "DECIMAL(65, 20)",
            (_, Numeric) => "NUMERIC",
            (Dialect::Mysql, Text) => "VARCHAR(255)",
            (_, Text) => "TEXT",
            (Dialect::Postgres, Binary) => "BYTEA",
            (Dialect::Mysql, Binary) => "VARBINARY(255)",
            (Dialect::Sqlite, Binary) => "BLOB",
            (Dialect::Postgres, Uuid) => "UUID",
            (_, Uuid) => "BINARY(16)",
            (_, Date) => "DATE",
            // Its `TIMESTAMP` ends in 2038, and a fraction that is not kept would be rounded.
            (Dialect::Mysql, Timestamp | Timestamptz) => "DATETIME(6)",
            (_, Timestamp) => "TIMESTAMP",
            (_, Timestamptz) => "TIMESTAMPTZ",
        }
    }

    /// Follows the column list of `CREATE TABLE`.
    ///
    /// Postgres: a shard that is updated in place (HOT) needs room on its page for the versions to come. A smaller fillfactor
    /// makes it prune the page at nearly every access.
    pub(crate) fn table_options(self) -> &'static str {
        match self {
            Dialect::Postgres => " WITH (fillfactor = 90)",
            Dialect::Mysql => " ENGINE = InnoDB",
            Dialect::Sqlite => " WITHOUT ROWID",
        }
    }

    /// Whether triggers have to delete the shards of a deleted row, or a new row would inherit them. SQLite enforces foreign keys
    /// only where a connection asks for it, reuses a deleted row's id, and replaces rows without deleting them (`REPLACE INTO`).
    pub(crate) fn has_triggers(self) -> bool {
        self == Dialect::Sqlite
    }

    /// The actions of the shards' foreign key. On SQLite a trigger renames the shards, whether foreign keys are enforced or not: it
    /// could not tell shards that the foreign key has renamed already from those of a row that was replaced.
    pub(crate) fn foreign_key_actions(self) -> &'static str {
        match self {
            Dialect::Sqlite => " ON DELETE CASCADE",
            _ => " ON UPDATE CASCADE ON DELETE CASCADE",
        }
    }
}
