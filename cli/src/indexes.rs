//! The indexes of bases, by which a top list needs to read only its first rows.

use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::fitting_name;

use crate::connection::AnyConnection;
use crate::key::Keyed;
use crate::output::Note;
use crate::statement::quoted;

/// The columns of a table with which an index begins that can sort all rows by them.
pub fn sorted_columns(conn: &mut AnyConnection, table: &str) -> QueryResult<Vec<String>> {
    let columns = match conn.dialect() {
        Dialect::Postgres => {
            "SELECT a.attname::text FROM pg_index i \
                 JOIN pg_class c ON c.oid = i.indrelid \
                 JOIN pg_class x ON x.oid = i.indexrelid \
                 JOIN pg_am m ON m.oid = x.relam \
                 JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0] \
             WHERE i.indisvalid AND i.indpred IS NULL AND m.amname = 'btree' \
                 AND pg_table_is_visible(c.oid) AND c.relname = ?"
        }
        Dialect::Mysql => {
            "SELECT CAST(COLUMN_NAME AS CHAR) FROM information_schema.STATISTICS \
             WHERE SEQ_IN_INDEX = 1 AND INDEX_TYPE = 'BTREE' AND TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?"
        }
        _ => {
            "SELECT c.name FROM pragma_index_list(?) AS l JOIN pragma_index_info(l.name) AS c ON c.seqno = 0 WHERE l.partial = 0"
        }
    };
    // The column of an index on an expression has no name.
    conn.texts(columns, &[table])
}

/// The indexes of a table beside its primary key.
pub fn other_indexes(conn: &mut AnyConnection, table: &str) -> QueryResult<Vec<String>> {
    let indexes = match conn.dialect() {
        Dialect::Postgres => {
            "SELECT x.relname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_class x ON x.oid = i.indexrelid \
             WHERE NOT i.indisprimary AND pg_table_is_visible(c.oid) AND c.relname = ?"
        }
        Dialect::Mysql => {
            "SELECT DISTINCT CAST(INDEX_NAME AS CHAR) FROM information_schema.STATISTICS \
             WHERE INDEX_NAME <> 'PRIMARY' AND TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?"
        }
        _ => {
            "SELECT l.name FROM pragma_table_list AS t JOIN pragma_index_list(t.name) AS l WHERE l.origin <> 'pk' AND t.name = ?"
        }
    };
    conn.texts(indexes, &[table])
}

/// The cost of a missing index, and the statement that creates it.
pub fn note(keyed: Keyed<'_>, field: &str) -> Note {
    let table = keyed.sharded.table();
    let quoted = |name: &str| quoted(keyed.dialect, name);
    let index = fitting_name(keyed.dialect, format!("{}_{field}", table.name()));
    let (index, parent, column) = (quoted(&index), keyed.parent(), quoted(field));
    Note::new(
        format!(
            "No index begins with {table}.{field}: the library's `top` reads all bases of the table for a list by this field. \
             Create one if you read such lists:"
        ),
        format!("CREATE INDEX {index} ON {parent} ({column});"),
    )
}

#[cfg(test)]
mod tests {
    use diesel_sharded::described::{DescribedTable, column};
    use diesel_sharded::model::ColumnType;

    use super::*;
    use crate::live::LiveTables;

    #[test]
    fn the_note_quotes_names() {
        let columns = |name: &str| vec![column(name.into(), ColumnType::BigInt, None)];
        let sharded = &DescribedTable::new(None, "a`\"b", "s", columns("id"), columns("n"));
        let live = &LiveTables::default();
        let created = |dialect| {
            let keyed = Keyed {
                sharded,
                live,
                dialect,
            };
            note(keyed, "n").remedy
        };
        let sql = r#"CREATE INDEX "a`""b_n" ON "a`""b" ("n");"#;
        assert_eq!(created(Dialect::Postgres), sql);
        let sql = "CREATE INDEX `a``\"b_n` ON `a``\"b` (`n`);";
        assert_eq!(created(Dialect::Mysql), sql);
    }
}
