//! A counter cache by its names: those of a declaration, or those that `diesel-sharded`, the tool, has learnt from the database.
//!
//! Not part of the stable interface.

use diesel::prelude::*;

use crate::backend::{
    Dialect, Integrity, Quoted, SESSION_SHARDS, ShardedBackend, identifiers, quoted_on, shortened,
};
use crate::error::Error;
use crate::model::{ColumnType, MAX_SHARDS};
use crate::query_builder::Names;

use super::condition::on_row;

/// A counter cache by the names in its SQL, not quoted.
#[derive(Debug, Clone)]
pub struct DescribedCache {
    /// The sharded field that holds the number.
    pub field: String,
    /// The schema of the table whose rows are counted.
    pub schema: Option<String>,
    /// The table whose rows are counted.
    pub child: String,
    /// The columns that hold the parent's key, in the key's order.
    pub by: Vec<String>,
    /// What is summed, as SQL on the child's columns; each is qualified by the child's name. `None` counts rows.
    pub amount: Option<String>,
    /// A condition on the child's columns, as SQL, in the same way.
    pub condition: Option<String>,
    /// How many shards the triggers use.
    pub shards: Option<u16>,
}

/// A counter cache, its names quoted as the database does.
#[derive(Debug)]
pub struct Declaration<'a> {
    pub(super) tables: Quoted<'a>,
    /// The sharded field.
    pub(super) field: String,
    pub(super) field_type: ColumnType,
    /// The counted table without its schema: the name under which its rows stand in each statement.
    pub(super) child: String,
    /// The counted table.
    pub(super) child_table: String,
    pub(super) by: Vec<String>,
    /// What is summed, and the condition, on the rows' columns, qualified by the child's name.
    pub(super) amount: Option<String>,
    pub(super) condition: Option<String>,
    /// The shard that a session adds to.
    pub(super) shard: String,
    /// The names of the triggers and of their function begin with it.
    name: String,
    /// `"analytics".`, or nothing
    pub(super) schema: String,
}

/// The length of a hash in a name.
const HASH: usize = 17;

/// The greatest length of a function's name, in bytes: PostgreSQL cuts names to 63, and `_truncate` may follow.
const LONGEST: usize = 63 - "_truncate".len();

impl DescribedCache {
    /// The names in statements of a backend, which give the SQL that creates, drops and recounts.
    ///
    /// # Errors
    /// As [`CounterCache::create_sql`](crate::CounterCache::create_sql).
    pub fn declaration<'a, DB: ShardedBackend>(
        &self,
        names: Names<'a, DB>,
        backend: &DB,
    ) -> QueryResult<Declaration<'a>> {
        let number = self.shards.unwrap_or(SESSION_SHARDS);
        if !(1..=MAX_SHARDS).contains(&number) {
            return Err(Error::InvalidShardCount { number }.into());
        }
        let dialect = backend.dialect();
        let quoted = |name: &String| quoted_on(dialect, name);
        let tables = Quoted::new(names, Integrity::default(), backend)?;
        let schema = self.schema.as_deref();
        if dialect.names_bare_in_triggers() && schema != tables.shards_table.schema() {
            return Err(Error::OtherSchema {
                table: [schema.unwrap_or("main"), &self.child].join("."),
                other: tables.shards_table.to_string(),
            }
            .into());
        }
        let schema = self.schema.as_ref().map(|schema| quoted(schema) + ".");
        let schema = schema.unwrap_or_default();
        let child = quoted(&self.child);
        let child_table = format!("{schema}{child}");
        // The SQL was written for the table with its schema; the rows have the bare name.
        let of_rows = |sql: &String| match self.schema {
            Some(_) => on_row(sql, [&child_table; 2], &child, dialect),
            None => sql.clone(),
        };
        let condition = self.condition.as_ref().map(of_rows);
        let amount = self.amount.as_ref().map(of_rows);
        // Two parents of the same name each have triggers of their own.
        let parent = identifiers(&tables.parent).join("_");
        let column = amount
            .as_ref()
            .and_then(|sql| only_column(sql, &child, dialect));
        // If no column names a parent, its place in the name is empty.
        let nothing = String::new();
        let by = self.by.iter().chain(self.by.is_empty().then_some(&nothing));
        let read: Vec<_> = by.chain(&column).collect();
        let expression = amount.as_ref().filter(|_| column.is_none());
        // An expression may fail on a row that is not counted.
        let summed = expression.map(|sql| match &condition {
            Some(condition) => format!("CASE WHEN ({condition}) THEN ({sql}) END"),
            None => format!("({sql})"),
        });
        let name = name(
            &self.child,
            &read,
            &parent,
            &self.field,
            condition.as_deref(),
            expression.map(String::as_str),
        );
        let field = names.fields.iter().find(|other| other.name == self.field);
        let field_type = field.map(|field| field.column_type);
        Ok(Declaration {
            field: quoted(&self.field),
            field_type: field_type.unwrap_or(ColumnType::BigInt), // every field is one of the table's
            child,
            child_table,
            by: self.by.iter().map(quoted).collect(),
            amount: summed.or(amount),
            condition,
            shard: dialect.session_shard(number),
            name,
            schema,
            tables,
        })
    }
}

impl Declaration<'_> {
    pub(super) fn dialect(&self) -> Dialect {
        self.tables.dialect
    }

    /// The name of PostgreSQL's function, with its schema.
    pub(super) fn function(&self) -> String {
        self.schema.clone() + &quoted_on(self.dialect(), &self.name)
    }

    /// The name of a trigger by its end, neither quoted nor in its schema.
    pub(super) fn name_of_trigger(&self, end: &str) -> String {
        format!("{}_{end}", self.name)
    }

    /// The same, quoted.
    pub(super) fn trigger(&self, end: &str) -> String {
        quoted_on(self.dialect(), &self.name_of_trigger(end))
    }
}

/// The name of the column, if the SQL on rows of the `child` is a single column.
fn only_column(sql: &str, child: &str, dialect: Dialect) -> Option<String> {
    let column = sql.strip_prefix(child)?.strip_prefix('.')?;
    let mut names = identifiers(column);
    let name = names.pop().filter(|_| names.is_empty())?;
    (quoted_on(dialect, &name) == column).then_some(name)
}

/// The name of a cache. The same tables, columns, condition and summed expression always have it, and no others do, so that dropping a
/// cache drops no other.
fn name(
    child: &str,
    read: &[&String],
    parent: &str,
    field: &str,
    condition: Option<&str>,
    summed: Option<&str>,
) -> String {
    let read = read.iter().map(|name| name.as_str());
    let read = read.collect::<Vec<_>>().join("_");
    let name = format!("{child}_{read}_{parent}_{field}");
    // With parentheses around it or without.
    let condition = condition.map(|sql| format!(" {}", sql.trim_matches(['(', ')', ' '])));
    let summed = summed.map(|sql| format!(" SUM {sql}"));
    let hashed = condition.unwrap_or_default() + &summed.unwrap_or_default();
    let length = match hashed.is_empty() {
        true => name.len(),
        false => name.len() + HASH,
    };
    match length > LONGEST || !hashed.is_empty() {
        true => shortened(&(name + &hashed), length.min(LONGEST)),
        false => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_readable_and_fits() {
        let of = |child: &str, amount: &[&str], field, condition: Option<&str>| {
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
                None,
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
