//! The indexes of bases, by which a top list needs to read only its first rows.

use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::fitting_name;

use crate::connection::AnyConnection;
use crate::output::Note;
use crate::sharded::Sharded;
use crate::statement::quoted;

/// The columns of a table with which an index begins that can sort all rows by them.
pub fn sorted_columns(conn: &mut AnyConnection, table: &str) -> QueryResult<Vec<String>> {
    conn.texts(catalog!(conn.dialect(), "sorted_columns"), &[table])
}

/// The cost of a missing index, and the statement that creates it.
pub fn note(sharded: &Sharded, field: &str) -> Note {
    let table = sharded.table();
    let quoted = |name: &str| quoted(sharded.dialect, name);
    let index = fitting_name(sharded.dialect, format!("{}_{field}", table.name()));
    let (index, parent, column) = (quoted(&index), sharded.parent(), quoted(field));
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
    use std::sync::Arc;

    use diesel_sharded::described::{DescribedTable, column};
    use diesel_sharded::model::ColumnType;

    use super::*;

    #[test]
    fn the_note_quotes_names() {
        let columns = |name: &str| vec![column(name.into(), ColumnType::BigInt, None)];
        let created = |dialect| {
            let sharded = Sharded {
                described: DescribedTable::new(None, "a`\"b", "s", columns("id"), columns("n")),
                live: Arc::default(),
                dialect,
            };
            note(&sharded, "n").remedy
        };
        let sql = r#"CREATE INDEX "a`""b_n" ON "a`""b" ("n");"#;
        assert_eq!(created(Dialect::Postgres), sql);
        let sql = "CREATE INDEX `a``\"b_n` ON `a``\"b` (`n`);";
        assert_eq!(created(Dialect::Mysql), sql);
    }
}
