//! Blocks and functions, and the triggers that call them.

use crate::backend::capabilities::{Trigger, triggers};
use crate::backend::dialect::Dialect;
use crate::backend::quoted::{Quoted, literal};

/// Several statements as one step.
pub(super) fn in_a_block(statements: Vec<String>) -> Vec<String> {
    if statements.len() < 2 {
        return statements;
    }
    let statements = statements.join(";\n    ");
    vec![as_one("", &format!("    {statements};\n"))]
}

/// `DO $$ BEGIN … END $$`: several statements that PostgreSQL runs as one, inside a transaction and outside.
pub(crate) fn as_one(declare: &str, statements: &str) -> String {
    let body = dollar_quoted(&format!("{declare}BEGIN\n{statements}END"));
    format!("DO {body}")
}

/// The body of a block or a function on PostgreSQL, between tags that do not occur in it.
pub(crate) fn dollar_quoted(body: &str) -> String {
    let tags = (0..).map(|n| match n {
        0 => "$diesel_sharded$".to_owned(),
        n => format!("$diesel_sharded_{n}$"),
    });
    let mut free = tags.filter(|tag| !body.contains(tag.as_str()));
    let tag = free.next().unwrap_or_default(); // no text contains all tags
    format!("{tag}\n{body}\n{tag}")
}

/// The statements that create a function for triggers of PostgreSQL, inside a block. It runs with the privileges of its owner and on the
/// owner's tables, as the actions of foreign keys do: no row security hides a row, or it fails.
pub(crate) fn trigger_function(create: &str, function: &str, body: &str) -> [String; 3] {
    let body = dollar_quoted(body);
    [
        format!(
            "{create} {function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET row_security = off AS {body}"
        ),
        format!("REVOKE ALL ON FUNCTION {function}() FROM PUBLIC"),
        fix_search_path(function),
    ]
}

/// Makes a function of PostgreSQL find the same tables at any time as at its creation, inside a block.
pub(crate) fn fix_search_path(function: &str) -> String {
    let alter = format!("ALTER FUNCTION {function} SET search_path = ");
    let alter = literal(Dialect::Postgres, &alter);
    format!(
        "-- The tables are those that are found now, whatever the path of a session is, and no temporary ones.
EXECUTE {alter} || COALESCE((SELECT string_agg(quote_ident(path.name), ', ' ORDER BY path.place)
    FROM unnest(current_schemas(false)) WITH ORDINALITY AS path(name, place)) || ', ', '') || 'pg_temp'"
    )
}

/// The one function that the triggers of a shards table call. Fired with an argument, it looks for the row of a new shard.
pub(super) fn function_of_shards(tables: &Quoted<'_>) -> Vec<String> {
    let body = format!(
        include_str!("keep.sql"),
        parent = tables.parent,
        shards = tables.shards,
        new_row = tables.key_is(&tables.parent, "NEW"),
        gone = tables.says(": there is no row with the key of a shard"),
        isolation = tables.says(
            ": a key changes in READ COMMITTED alone, since an older snapshot may miss a shard"
        ),
        old_shards = tables.key_is(&tables.shards, "OLD"),
        renamed = tables.renamed(),
    );
    let function = tables.beside("keep");
    trigger_function("CREATE FUNCTION", &function, body.trim_end()).into()
}

pub(super) fn triggers_of_shards(tables: &Quoted<'_>) -> Vec<Trigger> {
    let Quoted { parent, shards, .. } = tables;
    let (old, new) = (tables.key_of("OLD"), tables.key_of("NEW"));
    let call = format!("EXECUTE FUNCTION {}", tables.beside("keep"));
    triggers! {
        create: "AFTER INSERT ON {shards} FOR EACH ROW {call}('row')";
        delete: "AFTER DELETE ON {parent} FOR EACH ROW {call}()";
        rename: "AFTER UPDATE ON {parent} FOR EACH ROW WHEN (ROW({old}) IS DISTINCT FROM ROW({new})) {call}()";
        truncate: "AFTER TRUNCATE ON {parent} FOR EACH STATEMENT {call}()";
    }
}

/// The triggers whose functions contain a text, a literal.
pub(super) fn triggers_that_contain(text: &str, tables: &Quoted<'_>) -> String {
    let found = format!(
        "FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid WHERE strpos(p.prosrc, {text}) > 0"
    );
    match tables.schema.is_empty() {
        true => format!("{found} AND {}", is_found_by_function(tables)),
        false => found,
    }
}

/// Whether the path of the function leads to this table: another schema may have a table of the same name.
fn is_found_by_function(tables: &Quoted<'_>) -> String {
    let table = literal(Dialect::Postgres, tables.shards_table.name());
    let quoted = literal(Dialect::Postgres, &tables.shards);
    format!(
        "to_regclass({quoted}) = (SELECT c.oid FROM unnest(p.proconfig) AS setting(text),
            regexp_split_to_table(substr(setting.text, 13), ', ') WITH ORDINALITY AS path(name, place),
            pg_namespace n, pg_class c
        WHERE setting.text LIKE 'search_path=%' AND quote_ident(n.nspname) = path.name AND c.relnamespace = n.oid AND c.relname = {table}
        ORDER BY path.place LIMIT 1)"
    )
}

/// Fails where `cache` reads a text, inside a block with a variable `kept`. The lock waits for the creation of another cache, and for no
/// increment.
pub(super) fn refuse_second_cache(shards: &str, cache: &str, _: &str) -> String {
    format!(
        "LOCK TABLE {shards} IN SHARE UPDATE EXCLUSIVE MODE;
kept := ({cache});
IF kept IS NOT NULL THEN
    RAISE EXCEPTION USING MESSAGE = kept;
END IF"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_does_not_end_the_block() {
        let block = as_one("", "    \"$diesel_sharded$\";\n");
        assert_eq!(
            block,
            "DO $diesel_sharded_1$\nBEGIN\n    \"$diesel_sharded$\";\nEND\n$diesel_sharded_1$"
        );
    }
}
