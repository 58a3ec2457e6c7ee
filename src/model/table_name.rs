//! The name of a table, with its schema if it has one.

use std::fmt;

use diesel::internal::table_macro::{Identifier, InfixNode, StaticQueryFragment};

/// The unquoted name of a table, with its schema (on MySQL, its database) if it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TableName<'a> {
    /// `videos_shards`, or `analytics.videos_shards`
    text: &'a str,
    /// The length of the schema's name, if there is a schema.
    schema: Option<usize>,
}

impl<'a> TableName<'a> {
    /// The name of a table without a schema. The connection finds the table by itself.
    pub const fn new(name: &'a str) -> Self {
        TableName {
            text: name,
            schema: None,
        }
    }

    /// The name of a table inside a schema. `text` is both names with a dot between them, `schema` the length of the first in bytes.
    ///
    /// # Panics
    /// If no dot follows the schema's name.
    pub const fn in_schema(text: &'a str, schema: usize) -> Self {
        assert!(
            schema < text.len() && text.as_bytes()[schema] == b'.',
            "a dot stands between the names of a schema and of its table"
        );
        TableName {
            text,
            schema: Some(schema),
        }
    }

    /// `videos_shards`, or `analytics.videos_shards`
    pub const fn as_str(self) -> &'a str {
        self.text
    }

    /// `analytics`
    pub fn schema(self) -> Option<&'a str> {
        self.schema.map(|length| &self.text[..length])
    }

    /// `videos_shards`
    pub fn name(self) -> &'a str {
        match self.schema {
            Some(length) => &self.text[length + 1..],
            None => self.text,
        }
    }

    /// Whether it has a schema.
    pub const fn is_qualified(self) -> bool {
        self.schema.is_some()
    }
}

impl fmt::Display for TableName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text)
    }
}

/// Fails to compile if a `table!` is inside a schema that the derive does not name, or if the derive names a schema for any other `table!`.
#[doc(hidden)]
pub const fn assert_schema<T>(shards_table: TableName<'_>)
where
    T: StaticQueryFragment,
    T::Component: TableForm<T>,
{
    if T::Component::OWN_NAME.is_empty() {
        assert!(
            shards_table.is_qualified(),
            "this `table!` is inside a schema: name it on the struct too, as in `#[sharded(schema = analytics, table_name = videos_shards)]`"
        );
    } else {
        assert!(
            !shards_table.is_qualified(),
            "this `table!` is inside no schema: leave out `#[sharded(schema = ..)]`, or write the schema before the name in the `table!`"
        );
    }
}

/// The name of `T` in SQL, even if it is imported under another name. Empty for a table inside a schema: [`assert_schema`] refuses that.
#[doc(hidden)]
pub const fn own_name<T>() -> &'static str
where
    T: StaticQueryFragment,
    T::Component: TableForm<T>,
{
    T::Component::OWN_NAME
}

/// Appends `_shards` to a table's name.
///
/// # Panics
/// If the result is not `N` bytes long.
#[doc(hidden)]
pub const fn with_suffix<const N: usize>(name: &str) -> [u8; N] {
    let name = name.as_bytes();
    assert!(name.len() + SUFFIX.len() == N);
    let (mut text, mut i) = ([0; N], 0);
    while i < N {
        text[i] = match i < name.len() {
            true => name[i],
            false => SUFFIX.as_bytes()[i - name.len()],
        };
        i += 1;
    }
    text
}

/// The suffix that makes a parent's name the name of its shards table.
#[doc(hidden)]
pub const SUFFIX: &str = "_shards";

/// The form in which a `table!` writes its name in SQL.
#[doc(hidden)]
pub trait TableForm<T> {
    /// The name. Empty inside a schema: no constant could hold that name.
    const OWN_NAME: &'static str;
}

impl<T> TableForm<T> for Identifier<'static>
where
    T: StaticQueryFragment<Component = Self>,
{
    const OWN_NAME: &'static str = T::STATIC_COMPONENT.0;
}

impl<T, L, R, M> TableForm<T> for InfixNode<L, R, M> {
    const OWN_NAME: &'static str = "";
}

#[cfg(test)]
mod tests {
    use super::TableName;

    #[test]
    fn names_and_schemas() {
        let name = TableName::new("a.b");
        assert_eq!(
            (name.schema(), name.name(), name.as_str()),
            (None, "a.b", "a.b")
        );
        let name = TableName::in_schema("a.b.c", 3);
        assert_eq!((name.schema(), name.name()), (Some("a.b"), "c"));
        assert_eq!(name.to_string(), "a.b.c");
        assert!(name.is_qualified());
        assert_ne!(name, TableName::in_schema("a.b.c", 1));
    }

    #[test]
    #[should_panic = "a dot stands between"]
    fn a_schema_ends_at_a_dot() {
        let _ = TableName::in_schema("analytics.videos", 4);
    }
}
