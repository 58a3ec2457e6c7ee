//! The triggers, created and dropped.

use crate::backend::Dialect;
use crate::operation::shards_table::{
    UNLOCK_CACHES, as_one, dollar_quoted, fix_search_path, identifiers,
};
use crate::query_builder::literal;

use super::declaration::{Declaration, TriggerNames};
use super::statements::{NEW, NEW_ROWS, OLD, OLD_ROWS, Rows, Side};

/// The statements that change a child's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Insert,
    Update,
    Delete,
}

impl Event {
    const ALL: [Self; 3] = [Event::Insert, Event::Update, Event::Delete];

    /// Its name in SQL.
    fn sql(self) -> &'static str {
        match self {
            Event::Insert => "INSERT",
            Event::Update => "UPDATE",
            Event::Delete => "DELETE",
        }
    }

    fn trigger(self, names: &TriggerNames) -> String {
        names.of(&self.sql().to_lowercase())
    }
}

/// Ends MySQL's locks; also after a failure.
pub(super) fn unlock() -> String {
    format!("UNLOCK TABLES;\n{UNLOCK_CACHES}")
}

impl Declaration<'_> {
    /// The whole text that creates the triggers.
    pub(super) fn create(&self) -> String {
        let statements = self.create_statements().join(";\n");
        match self.dialect() {
            Dialect::Sqlite => {
                format!("SAVEPOINT diesel_sharded;\n{statements};\nRELEASE diesel_sharded")
            }
            _ => statements,
        }
    }

    /// The same, for a transaction that is rolled back at an error.
    pub(super) fn create_statements(&self) -> Vec<String> {
        let mut statements = vec![self.check()];
        let one_alone = || self.tables.refuse_second_cache(&self.field);
        let row_triggers = || Event::ALL.map(|event| self.create_row_trigger(event));
        match self.dialect() {
            Dialect::Postgres => statements.push(self.create_function_and_triggers()),
            Dialect::Mysql => {
                statements.extend(one_alone());
                // All appear at once. MariaDB would not prepare a statement anew for the second one.
                statements.push(format!("LOCK TABLES {} WRITE", self.child_table));
                statements.extend(row_triggers());
                statements.push(unlock());
            }
            Dialect::Sqlite => {
                statements.extend(one_alone());
                statements.extend(row_triggers());
            }
        }
        statements
    }

    /// The whole text that drops the triggers.
    pub(super) fn drop(&self) -> String {
        match self.dialect() {
            // Its triggers go with it, at once. The drop would lock child and parent in an order of its own, and writers the child first.
            Dialect::Postgres => {
                let (child, function) = (&self.child_table, self.function());
                let found = literal(self.dialect(), child);
                as_one(
                    "",
                    &format!(
                        "IF has_table_privilege(to_regclass({found}), 'UPDATE, DELETE, TRUNCATE') THEN
    LOCK TABLE {child} IN ACCESS EXCLUSIVE MODE;
END IF;
DROP FUNCTION IF EXISTS {function}() CASCADE;
"
                    ),
                )
            }
            _ => {
                let schema = &self.names.schema;
                let drop = Event::ALL.map(|event| {
                    let name = event.trigger(&self.names);
                    format!("DROP TRIGGER IF EXISTS {schema}{name}")
                });
                drop.join(";\n")
            }
        }
    }

    /// The function's name with its schema.
    fn function(&self) -> String {
        format!("{}{}", self.names.schema, self.names.function())
    }

    fn create_row_trigger(&self, event: Event) -> String {
        let name = format!("{}{}", self.names.schema, event.trigger(&self.names));
        let on = event.sql();
        let add = self.add_rows(match event {
            Event::Insert => &[NEW],
            Event::Update => &[OLD, NEW],
            Event::Delete => &[OLD],
        });
        match self.dialect() {
            Dialect::Sqlite => {
                let child = &self.child;
                format!("CREATE TRIGGER {name} AFTER {on} ON {child} BEGIN\n{add};\nEND")
            }
            // One statement alone: a client that splits the text at semicolons leaves it whole.
            _ => {
                let child = &self.child_table;
                format!("CREATE TRIGGER {name} AFTER {on} ON {child} FOR EACH ROW\n{add}")
            }
        }
    }

    /// One function for all triggers. It runs with the privileges of its owner and on the owner's tables, as the actions of foreign
    /// keys do: no row security hides a parent, or it fails, and nobody needs a privilege on the shards table.
    fn create_function_and_triggers(&self) -> String {
        let function = &self.function();
        let body = dollar_quoted(&self.function_body());
        let path = fix_search_path(function);
        let triggers = self.create_statement_triggers();
        let one_alone = self.tables.refuse_second_cache(&self.field).join(";\n");
        let (rename, parent) = (&self.names.of("rename"), &self.tables.parent);
        let text = |text: &str| literal(self.dialect(), text);
        let (child, of_parent) = (text(&self.child_table), text(parent));
        let left = text(&identifiers(rename).concat());
        let inherits = text(&format!(
            "{} is a partition, or inherits: what is written through the table above it fires none of its triggers; count the rows of that table",
            self.child_table
        ));
        as_one(
            "DECLARE\n    kept TEXT;\n",
            &format!(
                "{one_alone};
IF EXISTS (SELECT 1 FROM pg_inherits WHERE inhrelid = to_regclass({child})) THEN
    RAISE EXCEPTION USING MESSAGE = {inherits};
END IF;
-- What a counted table that was dropped has left.
IF EXISTS (SELECT 1 FROM pg_trigger WHERE tgrelid = to_regclass({of_parent}) AND tgname = {left}) THEN
    DROP TRIGGER {rename} ON {parent};
END IF;
CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET row_security = off AS {body};
REVOKE ALL ON FUNCTION {function}() FROM PUBLIC;
{path}
{triggers}"
            ),
        )
    }

    fn function_body(&self) -> String {
        let (old, new) = (self.old_rows(), self.new_rows());
        let one = |side: Side| format!("{};\n{}", self.add_one(side), self.add(&[side]));
        let (insert, update, delete) = (one(new), self.add(&[old, new]), one(old));
        let lock = self.lock_rows_of_old_parent();
        let rename = self.add(&[Side::taken_back(Rows::OfOldParent)]);
        let truncate = self.add(&[Side::taken_back(Rows::All)]);
        let isolation = literal(
            self.dialect(),
            &format!(
                "{}: truncate it in a transaction that is READ COMMITTED; in any other some of its rows may not be seen",
                self.child_table
            ),
        );
        format!(
            "#variable_conflict use_column
DECLARE
    sharded_row RECORD;
    sharded_rows INTEGER := 0;
BEGIN
IF TG_LEVEL = 'ROW' THEN
-- A parent gets another key: children that follow it are counted by their own update.
{lock};
{rename};
RETURN NEW;
ELSIF TG_OP = 'INSERT' THEN
{insert};
ELSIF TG_OP = 'UPDATE' THEN
{update};
ELSIF TG_OP = 'DELETE' THEN
{delete};
ELSE
IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
    RAISE EXCEPTION USING MESSAGE = {isolation};
END IF;
{truncate};
END IF;
RETURN NULL;
END"
        )
    }

    fn create_statement_triggers(&self) -> String {
        let (child, parent) = (&self.child_table, &self.tables.parent);
        let function = &self.function();
        let triggers = Event::ALL.map(|event| {
            let rows = match event {
                Event::Insert => format!("NEW TABLE AS {NEW_ROWS}"),
                Event::Update => format!("OLD TABLE AS {OLD_ROWS} NEW TABLE AS {NEW_ROWS}"),
                Event::Delete => format!("OLD TABLE AS {OLD_ROWS}"),
            };
            format!(
                "CREATE TRIGGER {} AFTER {} ON {child} REFERENCING {rows}
    FOR EACH STATEMENT EXECUTE FUNCTION {function}();\n",
                event.trigger(&self.names),
                event.sql()
            )
        });
        triggers.concat()
            + &format!(
                "CREATE TRIGGER {} BEFORE TRUNCATE ON {child}
    FOR EACH STATEMENT EXECUTE FUNCTION {function}();
CREATE TRIGGER {} BEFORE UPDATE OF {} ON {parent}
    FOR EACH ROW WHEN (ROW({}) IS DISTINCT FROM ROW({})) EXECUTE FUNCTION {function}();\n",
                self.names.of("truncate"),
                self.names.of("rename"),
                self.tables.key_names(),
                self.tables.key_of("OLD"),
                self.tables.key_of("NEW"),
            )
    }
}
