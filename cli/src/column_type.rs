//! Which of the library's column types a declared type is.

use diesel_sharded::backend::Dialect;
use diesel_sharded::described;
use diesel_sharded::model::{ColumnType, ShardsColumn};

use crate::live::LiveColumn;

pub fn is_integer(column: ColumnType) -> bool {
    use ColumnType::{
        BigInt, Integer, SmallInt, UnsignedBigInt, UnsignedInteger, UnsignedSmallInt,
    };
    matches!(
        column,
        SmallInt | Integer | BigInt | UnsignedSmallInt | UnsignedInteger | UnsignedBigInt
    )
}

/// A column that is to be counted on shards, with its declaration in the shards table where the type alone does not say it.
pub fn field(dialect: Dialect, column: &LiveColumn) -> Option<ShardsColumn> {
    let found = column_type(dialect, column)?;
    let declared = match found {
        // Its precision and scale. A column without them takes any on PostgreSQL.
        ColumnType::Numeric => Some(column.sql_type.to_uppercase()),
        ColumnType::Double => None,
        found if is_integer(found) => None,
        _ => return None,
    };
    Some(described::column(column.name.clone(), found, declared))
}

/// The same for a column of the primary key.
pub fn key(dialect: Dialect, column: &LiveColumn) -> Option<ShardsColumn> {
    let found = column_type(dialect, column)?;
    let declared = match found {
        ColumnType::Double | ColumnType::Numeric => return None,
        // Its length and collation, as a foreign key wants them.
        ColumnType::Text | ColumnType::Binary => {
            let mut declared = column.sql_type.to_uppercase();
            if let Some(collation) = &column.collation {
                declared = format!("{declared} {collation}");
            }
            let is_plain =
                dialect != Dialect::Mysql && matches!(&*declared, "TEXT" | "BYTEA" | "BLOB");
            (!is_plain).then_some(declared)
        }
        _ => None,
    };
    Some(described::column(column.name.clone(), found, declared))
}

fn column_type(dialect: Dialect, column: &LiveColumn) -> Option<ColumnType> {
    let sql_type = column.sql_type.as_str();
    let name = sql_type.split('(').next().unwrap_or_default().trim();
    match dialect {
        Dialect::Postgres => match name {
            "smallint" => Some(ColumnType::SmallInt),
            "integer" => Some(ColumnType::Integer),
            "bigint" => Some(ColumnType::BigInt),
            "double precision" => Some(ColumnType::Double),
            "numeric" => Some(ColumnType::Numeric),
            // Not `character(n)`, which does not equal its own padded text.
            "text" | "character varying" => Some(ColumnType::Text),
            "bytea" => Some(ColumnType::Binary),
            "uuid" => Some(ColumnType::Uuid),
            "date" => Some(ColumnType::Date),
            _ => None,
        },
        Dialect::Mysql => {
            let unsigned = sql_type.ends_with(" unsigned") || sql_type.contains(" unsigned ");
            match (name.trim_end_matches(" unsigned"), unsigned) {
                ("smallint", false) => Some(ColumnType::SmallInt),
                ("int", false) => Some(ColumnType::Integer),
                ("bigint", false) => Some(ColumnType::BigInt),
                ("smallint", true) => Some(ColumnType::UnsignedSmallInt),
                ("int", true) => Some(ColumnType::UnsignedInteger),
                ("bigint", true) => Some(ColumnType::UnsignedBigInt),
                ("double", false) => Some(ColumnType::Double),
                ("decimal", false) => Some(ColumnType::Numeric),
                // Not `text` and `blob`, which only have a key of a prefix.
                ("varchar" | "char", false) => Some(ColumnType::Text),
                ("varbinary" | "binary", false) => Some(ColumnType::Binary),
                ("date", false) => Some(ColumnType::Date),
                _ => None,
            }
        }
        // As `diesel print-schema` reads what SQLite lets anybody write.
        _ => {
            let has = |parts: &[&str]| parts.iter().any(|part| sql_type.contains(part));
            match sql_type {
                "" | "bool" | "boolean" | "tinyint" => None,
                "datetime" | "timestamp" | "time" | "timestamptz" => None,
                "date" => Some(ColumnType::Date),
                _ if has(&["smallint", "int2"]) => Some(ColumnType::SmallInt),
                _ if has(&["bigint", "int8"]) => Some(ColumnType::BigInt),
                _ if has(&["int"]) => Some(ColumnType::Integer),
                _ if has(&["char", "clob", "text"]) => Some(ColumnType::Text),
                _ if has(&["blob"]) => Some(ColumnType::Binary),
                // `Float` to Diesel, which is no sharded field.
                _ if has(&["float", "real"]) => None,
                _ if has(&["double", "num", "dec"]) => Some(ColumnType::Double),
                _ => None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(sql_type: &str, collation: Option<&str>) -> LiveColumn {
        LiveColumn {
            name: "c".into(),
            sql_type: sql_type.into(),
            collation: collation.map(str::to_owned),
            nullable: false,
            generated: false,
            default: None,
            key: None,
        }
    }

    #[test]
    fn declared_types_are_the_librarys() {
        for (dialect, sql_type, expected) in [
            (Dialect::Postgres, "bigint", Some(ColumnType::BigInt)),
            (
                Dialect::Postgres,
                "numeric(30,6)",
                Some(ColumnType::Numeric),
            ),
            (Dialect::Postgres, "real", None),
            (Dialect::Postgres, "character varying(9)", None),
            (
                Dialect::Mysql,
                "int(10) unsigned",
                Some(ColumnType::UnsignedInteger),
            ),
            (
                Dialect::Mysql,
                "bigint unsigned",
                Some(ColumnType::UnsignedBigInt),
            ),
            (Dialect::Mysql, "int", Some(ColumnType::Integer)),
            (Dialect::Mysql, "tinyint(1)", None),
            (Dialect::Mysql, "decimal(10,2) unsigned", None),
            (Dialect::Sqlite, "integer", Some(ColumnType::Integer)),
            (
                Dialect::Sqlite,
                "unsigned big int",
                Some(ColumnType::Integer),
            ),
            (
                Dialect::Sqlite,
                "double precision",
                Some(ColumnType::Double),
            ),
            (Dialect::Sqlite, "real", None),
        ] {
            let found = field(dialect, &column(sql_type, None));
            let found = found.map(|field| field.column_type());
            assert_eq!(found, expected, "{sql_type}");
        }
    }

    #[test]
    fn keys_keep_their_length_and_collation() {
        let declared = |dialect, sql_type, collation| {
            let key = key(dialect, &column(sql_type, collation)).unwrap();
            described::declared_type(dialect, &key).to_owned()
        };
        let plain = format!("{:?}", key(Dialect::Postgres, &column("text", None)));
        assert!(plain.contains("sql_type: None"), "{plain}");
        let collation = Some("COLLATE pg_catalog.\"C\"");
        let with_collation = declared(Dialect::Postgres, "text", collation);
        assert_eq!(with_collation, "TEXT COLLATE pg_catalog.\"C\"");
        let with_length = declared(Dialect::Mysql, "varchar(36)", None);
        assert_eq!(with_length, "VARCHAR(36)");
        assert!(key(Dialect::Mysql, &column("longtext", None)).is_none());
        assert!(key(Dialect::Postgres, &column("character(3)", None)).is_none());
    }
}
