//! A counter cache by its names.

use diesel::prelude::*;

use crate::backend::{Dialect, ShardedBackend, shortened};
use crate::error::Error;
use crate::model::{ColumnType, MAX_SHARDS};
use crate::operation::shards_table::{Integrity, Quoted, identifiers, quoted_on};
use crate::query_builder::{Names, literal, with_other_table};

use super::child::ChildNames;
use super::condition::Condition;

/// A counter cache, its names quoted as the database does.
pub(super) struct Declaration<'a> {
    pub(super) tables: Quoted<'a>,
    /// The sharded field.
    pub(super) field: String,
    pub(super) field_type: ColumnType,
    /// The counted table without its schema: the name under which its rows stand in each statement.
    pub(super) child: String,
    /// The counted table.
    pub(super) child_table: String,
    pub(super) by: Vec<String>,
    pub(super) amount: Option<String>,
    pub(super) condition: Option<Condition>,
    shards: u16,
    pub(super) names: TriggerNames,
}

/// The names of the triggers and of their function begin alike.
pub(super) struct TriggerNames {
    dialect: Dialect,
    name: String,
    /// `"analytics".`, or nothing
    pub(super) schema: String,
}

impl TriggerNames {
    /// That of PostgreSQL's function.
    pub(super) fn function(&self) -> String {
        quoted_on(self.dialect, &self.name)
    }

    pub(super) fn of(&self, event: &str) -> String {
        quoted_on(self.dialect, &format!("{}_{event}", self.name))
    }
}

/// The length of a hash in a name.
const HASH: usize = 17;

/// The greatest length of a function's name, in bytes: PostgreSQL cuts names to 63, and `_truncate` may follow.
const LONGEST: usize = 63 - "_truncate".len();

impl<'a> Declaration<'a> {
    pub(super) fn new<DB: ShardedBackend>(
        names: Names<'a, DB>,
        field: &str,
        child: &ChildNames,
        condition: Option<String>,
        shards: u16,
        backend: &DB,
    ) -> QueryResult<Self> {
        if !(1..=MAX_SHARDS).contains(&shards) {
            return Err(Error::InvalidShardCount { number: shards }.into());
        }
        let dialect = backend.dialect();
        let quoted = |name: &String| quoted_on(dialect, name);
        let tables = Quoted::new(names, Integrity::default(), backend)?;
        let schema = child.schema.as_deref();
        if tables.dialect == Dialect::Sqlite && schema != tables.shards_table.schema() {
            return Err(Error::OtherSchema {
                table: [schema.unwrap_or("main"), &child.table].join("."),
                other: tables.shards_table.to_string(),
            }
            .into());
        }
        let schema = match schema {
            Some(schema) => quoted_on(dialect, schema) + ".",
            None => String::new(),
        };
        let child_name = quoted(&child.table);
        let child_table = format!("{schema}{child_name}");
        // The condition was written for the table; its rows stand under the bare name.
        let condition = condition.map(|sql| match child.schema {
            Some(_) => with_other_table(&sql, &child_table, &child_name, tables.dialect),
            None => sql,
        });
        // Of two parents of one name each has its own triggers.
        let parent = identifiers(&tables.parent).join("_");
        let read: Vec<_> = child.by.iter().chain(&child.amount).collect();
        let name = name(&child.table, &read, &parent, field, condition.as_deref());
        let field_type = names.fields.iter().find(|other| other.name == field);
        let field_type = field_type.map(|field| field.column_type);
        let condition = condition.map(|sql| Condition::new(sql, child, dialect));
        Ok(Declaration {
            field: quoted_on(dialect, field),
            field_type: field_type.unwrap_or(ColumnType::BigInt), // every field is one of the table's
            child: child_name,
            child_table,
            by: child.by.iter().map(quoted).collect(),
            amount: child.amount.as_ref().map(quoted),
            condition,
            shards,
            names: TriggerNames {
                dialect,
                name,
                schema,
            },
            tables,
        })
    }

    pub(super) fn dialect(&self) -> Dialect {
        self.tables.dialect
    }

    /// The query for the type of the summed column.
    pub(super) fn select_sum_type(&self) -> Option<String> {
        let column = self.amount.as_ref()?;
        let text = |name: &str| literal(self.dialect(), &identifiers(name).concat());
        let (table, name) = (text(&self.child), text(column));
        let schema = identifiers(&self.names.schema);
        let schema = schema.first().map(|schema| literal(self.dialect(), schema));
        Some(match self.dialect() {
            Dialect::Postgres => format!(
                "SELECT format_type(COALESCE(NULLIF(t.typbasetype, 0), t.oid), NULL) FROM pg_type t
    WHERE t.oid = CAST(pg_typeof((SELECT {column} FROM {} LIMIT 0)) AS OID)",
                self.child_table
            ),
            Dialect::Mysql => format!(
                "SELECT CAST(DATA_TYPE AS CHAR) FROM information_schema.COLUMNS
    WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {table} AND COLUMN_NAME = {name}",
                schema.as_deref().unwrap_or("DATABASE()")
            ),
            Dialect::Sqlite => format!(
                "SELECT type FROM pragma_table_info({table}, {}) WHERE name = {name} COLLATE NOCASE",
                schema.as_deref().unwrap_or("'main'")
            ),
        })
    }

    /// Fails if the field cannot hold the sums of a column of this type.
    pub(super) fn check_sum(&self, sql_type: &str) -> QueryResult<()> {
        match &self.amount {
            Some(column) if !self.dialect().holds_sums_of(sql_type, self.field_type) => {
                let of =
                    |table: &str, column: &str| identifiers(&format!("{table}.{column}")).join(".");
                Err(Error::SumOfOtherType {
                    column: of(&self.child_table, column),
                    sql_type: sql_type.to_owned(),
                    field: of(&self.tables.parent, &self.field),
                }
                .into())
            }
            _ => Ok(()),
        }
    }

    /// The shard that a session adds to.
    pub(super) fn shard(&self) -> String {
        self.dialect().session_shard(self.shards)
    }
}

/// The name that the same tables, columns and condition always have, and no others: what drops it drops no other cache.
fn name(
    child: &str,
    read: &[&String],
    parent: &str,
    field: &str,
    condition: Option<&str>,
) -> String {
    let read = read.iter().map(|name| name.as_str());
    let read = read.collect::<Vec<_>>().join("_");
    let name = format!("{child}_{read}_{parent}_{field}");
    match condition {
        // With parentheses around it or without.
        Some(condition) => {
            let condition = condition.trim_matches(['(', ')', ' ']);
            let length = name.len() + HASH;
            shortened(&format!("{name} {condition}"), length.min(LONGEST))
        }
        None if name.len() > LONGEST => shortened(&name, LONGEST),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_readable_and_fits() {
        let of = |child: &str, amount: &[&str], field, condition| {
            let read: Vec<_> = ["post_id"]
                .iter()
                .chain(amount)
                .map(|c| c.to_string())
                .collect();
            name(
                child,
                &read.iter().collect::<Vec<_>>(),
                "posts",
                field,
                condition,
            )
        };
        let count = of("comments", &[], "comments_count", None);
        assert_eq!(count, "comments_post_id_posts_comments_count");
        let sum = of("comments", &["votes"], "score", None);
        assert_eq!(sum, "comments_post_id_votes_posts_score");
        let shown = of("comments", &[], "comments_count", Some("shown"));
        assert_eq!(
            shown,
            "comments_post_id_posts_comments_count_b60547ad73964454"
        );
        assert_eq!(
            shown,
            of("comments", &[], "comments_count", Some("(shown)"))
        );
        assert_ne!(shown, of("comments", &[], "comments_count", Some("hidden")));
        let long = of(&"ä".repeat(30), &[], "comments_count", None);
        assert!(long.len() <= 54, "{long}");
        assert!(long.starts_with("äää"), "{long}");
        assert_ne!(long, of(&"ä".repeat(30), &[], "other_count", None));
    }
}
