//! Expressions over a table inside a schema, where an alias for other rows replaces it.
//!
//! Diesel writes a column of `table! { analytics.videos (id) { .. } }` as `"analytics"."videos"."views"`. An alias has no schema, so
//! such a column never means the rows of an alias. The expression is therefore written to a text first, and then copied with the
//! alias in place of the table. A table without a schema needs none of that: the alias is its own name.

use std::cell::Cell;

use diesel::backend::Backend;
use diesel::internal::derives::multiconnection::AstPassHelper;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::sql_types::Integer;

use crate::backend::{Dialect, ShardedBackend, word};
use crate::query_builder::names::Names;
use crate::query_builder::sql::{Sql, bind, id, sql, text_of};

/// Stands in place of a table inside a schema. No table of the application's is likely to have this name.
const ALIAS: &str = "sharded_parent";

/// A name in place of a table's.
pub(super) struct Alias(pub(super) &'static str);

impl<DB: Backend> QueryFragment<DB> for Alias {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_identifier(self.0)
    }
}

impl<'b, DB: ShardedBackend> Names<'b, DB> {
    /// The names in a clause where other rows stand under the parent's name, or under an alias if the parent is inside a schema.
    pub(crate) fn under_alias(self) -> Self {
        match self.shards_table.is_qualified() {
            true => Names {
                parent: &Alias(ALIAS),
                ..self
            },
            false => self,
        }
    }

    /// Writes an expression over the parent's key and fields in such a clause.
    pub(crate) fn aliased<F>(self, expression: &'b F) -> impl Sql<'b, DB>
    where
        F: QueryFragment<DB> + ?Sized,
    {
        move |out: AstPass<'_, 'b, DB>| match self.shards_table.is_qualified() {
            true => self.copy_under_alias(expression, out),
            false => expression.walk_ast(out),
        }
    }

    #[cold]
    fn copy_under_alias<F>(self, expression: &'b F, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()>
    where
        F: QueryFragment<DB> + ?Sized,
    {
        if !writes_text(out.reborrow()) {
            return expression.walk_ast(out); // for its binds
        }
        let backend = out.backend();
        let text = text_of(expression, backend)?;
        let table = text_of(self.parent, backend)? + ".";
        push_pieces(pieces(&text, &table, backend.dialect()), out)
    }
}

/// Writes a statement's text, with its binds at their places; a pass that collects them has another source.
pub(crate) fn push_text<DB: ShardedBackend>(
    text: &str,
    dialect: Dialect,
    out: AstPass<'_, '_, DB>,
) -> QueryResult<()> {
    push_pieces(pieces(text, "", dialect), out)
}

fn push_pieces<DB: ShardedBackend>(
    pieces: Vec<Piece<'_>>,
    mut out: AstPass<'_, '_, DB>,
) -> QueryResult<()> {
    for piece in pieces {
        match piece {
            Piece::Sql(sql) => out.push_sql(sql),
            Piece::Table => sql!(out.reborrow(); id(ALIAS), ".")?,
            // Only its place is written here.
            Piece::Bind => sql!(out.reborrow(); bind(Integer, &0))?,
        }
    }
    Ok(())
}

/// Whether this pass writes the statement's text. The others collect its binds, or look at it.
pub(crate) fn writes_text<DB: Backend>(out: AstPass<'_, '_, DB>) -> bool {
    let writes = Cell::new(false);
    let _: AstPass<'_, '_, DB> = out.cast_database(
        |binds| binds,
        |builder| {
            writes.set(true);
            builder
        },
        |backend| backend,
        |lookup| lookup,
    );
    writes.get()
}

/// A part of an expression's text.
#[derive(Debug, PartialEq, Eq)]
enum Piece<'t> {
    Sql(&'t str),
    /// The table and the dot before a column.
    Table,
    Bind,
}

/// Splits the text of an expression at `table`, if that is one, and at the places of its binds; neither is looked for between quotes.
fn pieces<'t>(text: &'t str, table: &str, dialect: Dialect) -> Vec<Piece<'t>> {
    let mut pieces = vec![];
    let (mut begun, mut at) = (0, 0);
    while at < text.len() {
        let rest = &text[at..];
        let (piece, length) = match !table.is_empty() && rest.starts_with(table) {
            true => (Some(Piece::Table), table.len()),
            false => match place_of_bind(rest, dialect) {
                Some(length) => (Some(Piece::Bind), length),
                None => (None, word(rest, dialect)),
            },
        };
        if let Some(piece) = piece {
            if begun < at {
                pieces.push(Piece::Sql(&text[begun..at]));
            }
            pieces.push(piece);
            begun = at + length;
        }
        at += length;
    }
    if begun < text.len() {
        pieces.push(Piece::Sql(&text[begun..]));
    }
    pieces
}

/// The length of the place of a bind, if the text begins with one: `$1`, `?`.
fn place_of_bind(text: &str, dialect: Dialect) -> Option<usize> {
    if !dialect.numbers_binds() {
        return text.starts_with('?').then_some(1);
    }
    let number = text.strip_prefix('$')?;
    let digits = number.bytes().take_while(u8::is_ascii_digit).count();
    (digits > 0).then_some(digits + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POSTGRES: &str = r#""a"."b"."#;

    #[test]
    fn tables_and_binds_are_found() {
        assert_eq!(
            pieces(r#""n" = ("a"."b"."n" + $12)"#, POSTGRES, Dialect::Postgres),
            [
                Piece::Sql(r#""n" = ("#),
                Piece::Table,
                Piece::Sql(r#""n" + "#),
                Piece::Bind,
                Piece::Sql(")"),
            ]
        );
        assert_eq!(
            pieces("`a`.`b`.`n` + ?", "`a`.`b`.", Dialect::Mysql),
            [Piece::Table, Piece::Sql("`n` + "), Piece::Bind]
        );
        assert!(pieces("", POSTGRES, Dialect::Postgres).is_empty());
    }

    #[test]
    fn neither_is_found_between_quotes() {
        for text in [
            r#"'"a"."b"."n" $1'"#,
            r#""x""a""."" $1""#,
            r#""z"."b"."n" $ é"#,
            r#"'it''s "a"."b".'"#,
            r#""a"."c"."b"."#,
            r#"'never closed "a"."b"."#,
        ] {
            assert_eq!(
                pieces(text, POSTGRES, Dialect::Postgres),
                [Piece::Sql(text)]
            );
        }
        let text = "`why?` '?'";
        assert_eq!(
            pieces(text, "`a`.`b`.", Dialect::Sqlite),
            [Piece::Sql(text)]
        );
    }
}

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod sql_tests {
    use super::*;
    use crate::query_builder::{Clauses, CountByKey, CountPicked, ShardedExpressionMethods};
    use crate::test_schema::analytics::sites as table;
    use crate::test_schema::analytics::sites::dsl::*;
    use crate::test_schema::assert_sql;
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::query_builder::{AsChangeset, IntoUpdateTarget};
    use diesel::sqlite::Sqlite;

    #[test]
    fn a_count_by_key() {
        let changes = hits.eq(hits + 1).as_changeset();
        macro_rules! count {
            () => {
                CountByKey(Clauses {
                    names: Names::of::<table::table>(),
                    changes: &changes,
                    filter: &sites.find(7).into_update_target().where_clause,
                    insert: None,
                    shard: 3,
                })
            };
        }
        let others = "UPDATE `analytics`.`sites_shards` AS `sharded_parent` SET `hits` = (`sharded_parent`.`hits` + ?) WHERE (`sharded_parent`.`id` = ?) AND `sharded_parent`.`shard` = ?";
        assert_sql!(count!();
            Pg => r#"UPDATE "analytics"."sites_shards" AS "sharded_parent" SET "hits" = ("sharded_parent"."hits" + $1) WHERE ("sharded_parent"."id" = $2) AND "sharded_parent"."shard" = $3"#,
            Mysql => others,
            Sqlite => others,
        );
        let shown = diesel::debug_query::<Pg, _>(&count!()).to_string();
        assert!(shown.ends_with("-- binds: [1, 7, 3]"), "{shown}");
    }

    #[test]
    fn a_count_by_a_filter() {
        let changes = hits.eq(hits - 1).as_changeset();
        let rows = sites.filter(name.eq("a"));
        macro_rules! count {
            () => {
                CountPicked(Clauses {
                    names: Names::of::<table::table>(),
                    changes: &changes,
                    filter: &rows.into_update_target().where_clause,
                    insert: None,
                    shard: 3,
                })
            };
        }
        assert_sql!(count!();
            Pg => r#"UPDATE "analytics"."sites_shards" AS "sharded_parent" SET "hits" = ("sharded_parent"."hits" - $1) FROM (SELECT "analytics"."sites"."id" AS "sharded_key_0" FROM "analytics"."sites" WHERE ("analytics"."sites"."name" = $2)) AS "sharded_picked" WHERE "sharded_picked"."sharded_key_0" = "sharded_parent"."id" AND "sharded_parent"."shard" = $3"#,
            Mysql => "UPDATE (SELECT `analytics`.`sites`.`id` AS `sharded_key_0` FROM `analytics`.`sites` WHERE (`analytics`.`sites`.`name` = ?) ORDER BY `analytics`.`sites`.`id` LIMIT 18446744073709551615) AS `sharded_picked` STRAIGHT_JOIN `analytics`.`sites_shards` AS `sharded_parent` ON `sharded_picked`.`sharded_key_0` = `sharded_parent`.`id` SET `hits` = (`sharded_parent`.`hits` - ?) WHERE `sharded_parent`.`shard` = ?",
        );
    }

    #[test]
    fn a_total() {
        assert_sql!(hits.total();
            Pg => r#"CAST(("analytics"."sites"."hits" + (SELECT COALESCE(SUM("sites_shards"."hits"), 0) FROM "analytics"."sites_shards" WHERE "sites_shards"."id" = "analytics"."sites"."id")) AS bigint)"#,
            Mysql => "(`analytics`.`sites`.`hits` + (SELECT COALESCE(SUM(`sites_shards`.`hits`), 0) FROM `analytics`.`sites_shards` WHERE `sites_shards`.`id` = `analytics`.`sites`.`id`))",
            Sqlite => "(SELECT CASE WHEN total IS NULL OR typeof(total) = 'integer' THEN total ELSE abs(-9223372036854775807 - 1) END FROM (SELECT `analytics`.`sites`.`hits` + COALESCE(SUM(`sites_shards`.`hits`), 0) AS total FROM `analytics`.`sites_shards` WHERE `sites_shards`.`id` = `analytics`.`sites`.`id`))",
        );
    }
}
