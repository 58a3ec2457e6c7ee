//! Triggers in place of a foreign key, on PostgreSQL and MySQL.
//!
//! They do what the foreign key does: a shard is created only for a row that is there and stays until the creating transaction ends,
//! and it goes and is renamed with its row. On MySQL the key of a row that has shards cannot be changed, and a new row removes the
//! shards that it finds under its key. A node of a cluster may have created them while another one deleted the row before, and no
//! certification compares the two.

use crate::backend::Dialect;
use crate::query_builder::literal;

use super::quoted::{Quoted, as_one, dollar_quoted, each, fix_search_path};

/// MySQL's triggers on the parent, by the ends of their names.
const ON_PARENT: [&str; 3] = ["delete", "insert", "rename"];

/// Triggers that are not there.
#[derive(Debug, Clone)]
pub struct MissingTriggers {
    /// Their names; none on SQLite.
    pub names: Vec<String>,
    /// The statements that create them.
    pub sql: String,
    /// Whether none of the triggers is there, as in a shards table that was created without them.
    pub all: bool,
}

/// A trigger by the end of its name.
type Ended = (&'static str, String);

impl Quoted<'_> {
    /// The statements that create the triggers, for PostgreSQL inside a block.
    pub(super) fn create_parent_triggers(&self) -> Vec<String> {
        let mut statements = self.function();
        statements.extend(self.triggers().into_iter().map(|(_, create)| create));
        statements
    }

    /// The triggers that are not among the names that were `found` on both tables.
    pub(crate) fn missing_parent_triggers(&self, found: &[String]) -> Option<MissingTriggers> {
        let triggers = self.triggers();
        let number = triggers.len();
        let missing = triggers.into_iter().filter_map(|(end, create)| {
            let name = self.name_beside(end);
            (!found.contains(&name)).then_some((name, create))
        });
        let (names, mut statements): (Vec<_>, Vec<_>) = missing.unzip();
        let all = names.len() == number;
        if all && self.dialect == Dialect::Postgres {
            // The function may be left over.
            statements = self.drop_parent_triggers();
            statements.extend(self.create_parent_triggers());
            statements = vec![as_one("", &format!("{};\n", statements.join(";\n")))];
        }
        (!names.is_empty()).then(|| MissingTriggers {
            sql: statements.join(";\n") + ";",
            names,
            all,
        })
    }

    /// The function that PostgreSQL's triggers call.
    fn function(&self) -> Vec<String> {
        match self.dialect {
            Dialect::Postgres => self.keep_function(),
            _ => vec![],
        }
    }

    fn triggers(&self) -> Vec<Ended> {
        match self.dialect {
            Dialect::Postgres => self.keep_triggers(),
            _ => self.row_triggers(),
        }
    }

    /// The statements that drop the triggers on the parent, after the shards table was dropped.
    pub(super) fn drop_parent_triggers(&self) -> Vec<String> {
        match self.dialect {
            // Its triggers go with it.
            Dialect::Postgres => vec![format!(
                "DROP FUNCTION IF EXISTS {}() CASCADE",
                self.beside("keep")
            )],
            _ => ON_PARENT
                .map(|end| format!("DROP TRIGGER IF EXISTS {}", self.beside(end)))
                .into(),
        }
    }

    /// One function for all. It runs with the privileges of its owner, as the actions of a foreign key do. Fired with an
    /// argument, it looks for the row of a new shard.
    fn keep_function(&self) -> Vec<String> {
        let Quoted { parent, shards, .. } = self;
        let function = self.beside("keep");
        let gone = literal(
            self.dialect,
            &format!(
                "{}: there is no row with the key of a shard",
                self.shards_table
            ),
        );
        let new_row = self.key_is(parent, "NEW");
        let old_shards = self.key_is(shards, "OLD");
        let renamed = each(&self.key, ", ", |_, c| format!("{0} = NEW.{0}", c.name));
        let body = dollar_quoted(&format!(
            "#variable_conflict use_column
BEGIN
IF TG_NARGS > 0 THEN
PERFORM 1 FROM {parent} WHERE {new_row} FOR KEY SHARE;
IF NOT FOUND THEN
RAISE foreign_key_violation USING MESSAGE = {gone};
END IF;
ELSIF TG_OP = 'DELETE' THEN
DELETE FROM {shards} WHERE {old_shards};
ELSIF TG_OP = 'UPDATE' THEN
UPDATE {shards} SET {renamed} WHERE {old_shards};
ELSE
TRUNCATE {shards};
END IF;
RETURN NULL;
END"
        ));
        vec![
            format!(
                "CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET row_security = off AS {body}"
            ),
            format!("REVOKE ALL ON FUNCTION {function}() FROM PUBLIC"),
            fix_search_path(&function).trim_end_matches(';').to_owned(),
        ]
    }

    fn keep_triggers(&self) -> Vec<Ended> {
        let Quoted { parent, shards, .. } = self;
        let function = self.beside("keep");
        let (old, new) = (self.key_of("OLD"), self.key_of("NEW"));
        let trigger = |end, when: String| {
            let name = self.bare_beside(end);
            (end, format!("CREATE TRIGGER {name} AFTER {when}"))
        };
        let each_row = format!("FOR EACH ROW EXECUTE FUNCTION {function}");
        vec![
            trigger("create", format!("INSERT ON {shards} {each_row}('row')")),
            trigger("delete", format!("DELETE ON {parent} {each_row}()")),
            trigger(
                "rename",
                format!(
                    "UPDATE ON {parent} FOR EACH ROW WHEN (ROW({old}) IS DISTINCT FROM ROW({new})) EXECUTE FUNCTION {function}()"
                ),
            ),
            trigger(
                "truncate",
                format!("TRUNCATE ON {parent} FOR EACH STATEMENT EXECUTE FUNCTION {function}()"),
            ),
        ]
    }

    /// Each is one statement alone: a client that splits the text at semicolons leaves it whole. A subquery of two rows fails in every
    /// mode of the server.
    ///
    /// No trigger renames shards: MySQL refuses a statement that reads the shards table, as a fold's update of the bases, if a
    /// trigger that it may fire writes there.
    fn row_triggers(&self) -> Vec<Ended> {
        let Quoted {
            parent,
            shards,
            shard,
            ..
        } = self;
        let row = self.key_is(parent, "NEW");
        let [old, new] = ["OLD", "NEW"].map(|row| self.key_is(shards, row));
        let same = self.key_is("NEW", "OLD");
        let key = each(&self.key[..1], "", |_, c| c.name.clone());
        let refuse = "(SELECT n FROM (SELECT 1 AS n UNION ALL SELECT 2) AS refused)";
        let trigger = |end, when: String| {
            let name = self.beside(end);
            (end, format!("CREATE TRIGGER {name} {when}"))
        };
        let [delete, insert, rename] = ON_PARENT;
        vec![
            trigger(
                "create",
                format!(
                    "BEFORE INSERT ON {shards} FOR EACH ROW SET NEW.{shard} = IF(EXISTS (SELECT 1 FROM {parent} WHERE {row} LOCK IN SHARE MODE), NEW.{shard}, {refuse})"
                ),
            ),
            trigger(
                delete,
                format!("AFTER DELETE ON {parent} FOR EACH ROW DELETE FROM {shards} WHERE {old}"),
            ),
            trigger(
                insert,
                format!("AFTER INSERT ON {parent} FOR EACH ROW DELETE FROM {shards} WHERE {new}"),
            ),
            trigger(
                rename,
                format!(
                    "BEFORE UPDATE ON {parent} FOR EACH ROW SET NEW.{key} = IF({same} OR NOT EXISTS (SELECT 1 FROM {shards} WHERE {old} OR {new}), NEW.{key}, {refuse})"
                ),
            ),
        ]
    }
}
