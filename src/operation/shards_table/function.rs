//! A function for triggers of the application's own: it adds to a shard.

use diesel::result::{Error as DieselError, QueryResult};

use crate::backend::{Dialect, SESSION_SHARDS};
use crate::error::Error;
use crate::model::ColumnType;
use crate::query_builder::literal;

use super::quoted::{Column, Quoted, as_one, dollar_quoted, each, fix_search_path};

impl Quoted<'_> {
    /// The text that creates the function, or MySQL's procedure.
    pub(crate) fn create_function(&self) -> QueryResult<String> {
        match self.dialect {
            Dialect::Postgres | Dialect::Mysql if self.sums().next().is_none() => {
                let message = format!(
                    "no field of {} is counted: there is nothing to add to",
                    self.shards
                );
                Err(DieselError::QueryBuilderError(message.into()))
            }
            Dialect::Postgres => Ok(self.functions_on_postgres()),
            Dialect::Mysql => Ok(self.procedures_on_mysql()),
            Dialect::Sqlite => Err(none_on_sqlite()),
        }
    }

    /// The text that drops it.
    pub(crate) fn drop_function(&self) -> QueryResult<String> {
        let kind = match self.dialect {
            Dialect::Postgres => "FUNCTION",
            Dialect::Mysql => "PROCEDURE",
            Dialect::Sqlite => return Err(none_on_sqlite()),
        };
        let mut names = vec![self.beside("add")];
        names.extend(self.adds_several().then(|| self.beside("add_all")));
        let drop = names
            .iter()
            .map(|name| format!("DROP {kind} IF EXISTS {name}"));
        Ok(drop.collect::<Vec<_>>().join(";\n"))
    }

    /// Whether there is a function for all fields too.
    fn adds_several(&self) -> bool {
        self.sums().count() > 1
    }

    /// Parameters have numbers: a name could be that of a column.
    fn functions_on_postgres(&self) -> String {
        let field = self.key.len() + 1;
        let branches = each(self.sums(), "ELSIF ", |_, column| {
            let text = literal(self.dialect, &column.of.name);
            let whole = self.refuse_fraction(column, field + 1);
            let add = self.add(&[column], |_| format!("${}", field + 1));
            format!("${field} = {text} THEN\n{whole}{add};\n")
        });
        let unknown = literal(
            self.dialect,
            &format!("{} has no such field: ", self.shards_table),
        );
        let one = format!(
            "IF {branches}ELSE
RAISE EXCEPTION USING MESSAGE = {unknown} || COALESCE(${field}, 'NULL');
END IF;"
        );
        let parameters = format!("TEXT, {}", self.delta_type().unwrap_or("ANYELEMENT"));
        let mut functions = self.function_on_postgres(&self.beside("add"), &parameters, &one);
        if self.adds_several() {
            let sums: Vec<_> = self.sums().collect();
            let add = self.add(&sums, |i| format!("${}", self.key.len() + i));
            let parameters = each(self.sums(), ", ", |_, c| {
                format!("{} {} DEFAULT 0", c.name, self.delta_type_of(c))
            });
            let name = &self.beside("add_all");
            functions += &self.function_on_postgres(name, &parameters, &format!("{add};"));
        }
        as_one("", &functions)
    }

    fn function_on_postgres(&self, name: &str, parameters: &str, statements: &str) -> String {
        let key = each(&self.key, "", |_, c| format!("{}, ", self.key_type(c)));
        let body = dollar_quoted(&format!(
            "#variable_conflict use_column\nBEGIN\n{statements}\nRETURN FOUND;\nEND"
        ));
        format!(
            "CREATE FUNCTION {name}({key}{parameters}) RETURNS BOOLEAN LANGUAGE plpgsql AS {body};
{}\n",
            fix_search_path(name)
        )
    }

    /// An amount of any type may have a fraction, which an integer would round.
    fn refuse_fraction(&self, column: &Column, delta: usize) -> String {
        let is_whole = self.delta_type_of(column) == self.dialect.key_type(ColumnType::BigInt);
        if self.delta_type().is_some() || !is_whole {
            return String::new();
        }
        let text = format!(
            "{}.{} counts whole numbers: ",
            self.shards_table, column.of.name
        );
        let text = literal(self.dialect, &text);
        format!(
            "IF CAST(${delta} AS BIGINT) <> ${delta} THEN\nRAISE EXCEPTION USING MESSAGE = {text} || ${delta};\nEND IF;\n"
        )
    }

    /// Each is one statement alone, which a client that splits the text at semicolons leaves whole. A subquery of two rows fails in
    /// every mode of the server.
    fn procedures_on_mysql(&self) -> String {
        let given = |column: &Column| match self.delta_type() {
            Some(_) => "sharded_delta".to_owned(),
            // As a text it keeps its digits, whatever it is.
            None => match self.delta_type_of(column) {
                "DOUBLE" => "(sharded_delta + 0e0)".to_owned(),
                _ => "CAST(sharded_delta AS DECIMAL(65, 20))".to_owned(),
            },
        };
        let of = |column: &Column| {
            let text = literal(self.dialect, &column.of.name);
            format!("IF(sharded_field = {text}, {}, 0)", given(column))
        };
        let known = each(self.sums(), ", ", |_, c| literal(self.dialect, &c.of.name));
        let is_known = format!(
            " AND IF(sharded_field IN ({known}), 1, (SELECT n FROM (SELECT 1 AS n UNION ALL SELECT 2) AS no_such_field))"
        );
        let delta = self.delta_type().unwrap_or("VARCHAR(400)");
        let parameters = format!("sharded_field VARCHAR(64), sharded_delta {delta}");
        let name = &self.beside("add");
        let one = self.procedure_on_mysql(name, &parameters, |_, c| of(c), &is_known);
        if !self.adds_several() {
            return one;
        }
        let parameters = each(self.sums(), ", ", |i, c| {
            format!("sharded_delta{i} {}", self.delta_type_of(c))
        });
        let name = &self.beside("add_all");
        let all =
            self.procedure_on_mysql(name, &parameters, |i, _| format!("sharded_delta{i}"), "");
        format!("{one};\n{all}")
    }

    fn procedure_on_mysql(
        &self,
        name: &str,
        parameters: &str,
        delta: impl Fn(usize, &Column) -> String,
        is_known: &str,
    ) -> String {
        let key_parameters = each(&self.key, "", |i, column| {
            format!("sharded_key{i} {}, ", self.key_type(column))
        });
        let fields = self.sums().zip(1..);
        let fields = fields.map(|(c, i)| (&*c.name, delta(i, c)));
        let upsert = self.upsert(&fields.collect::<Vec<_>>(), "sharded_key", is_known, "\n");
        format!("CREATE PROCEDURE {name}({key_parameters}{parameters})\n{upsert}")
    }

    /// Adds parameters to fields.
    fn add(&self, fields: &[&Column], delta: impl Fn(usize) -> String) -> String {
        let fields = fields.iter().zip(1..);
        let fields = fields.map(|(c, i)| (&*c.name, delta(i)));
        self.upsert(&fields.collect::<Vec<_>>(), "$", "", " ")
    }

    /// Adds to fields of the row whose key is `value` and a number, and for which `condition` holds.
    fn upsert(
        &self,
        fields: &[(&str, String)],
        value: &str,
        condition: &str,
        space: &str,
    ) -> String {
        let Quoted { parent, shards, .. } = self;
        let names: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
        let amounts: Vec<_> = fields.iter().map(|(_, n)| n.as_str()).collect();
        format!(
            "{insert}
SELECT {key}, {number}, {amounts}{space}FROM {parent} WHERE {is_key}{condition}{lock}
{or_add}",
            insert = self.insert_into(shards, &names.join(", ")),
            key = self.key_of(parent),
            number = self.dialect.session_shard(SESSION_SHARDS),
            amounts = amounts.join(", "),
            is_key = self.key_is_numbered(parent, value),
            lock = self.dialect.shares_lock(),
            or_add = self.or_add(shards, fields),
        )
    }

    /// The type of an amount that each of the fields takes as it is; a double takes no other's.
    fn delta_type(&self) -> Option<&'static str> {
        let types: Vec<_> = self.sums().map(|c| self.delta_type_of(c)).collect();
        let double = self.dialect.key_type(ColumnType::Double);
        let numeric = self.dialect.key_type(ColumnType::Numeric);
        let first = types.first().copied()?;
        match () {
            () if types.iter().all(|t| *t == first) => Some(first),
            () if types.contains(&double) => None,
            () => Some(numeric),
        }
    }

    /// The type of an amount of this field.
    fn delta_type_of(&self, column: &Column) -> &'static str {
        self.dialect.key_type(match column.column_type {
            ColumnType::Double => ColumnType::Double,
            ColumnType::Numeric => ColumnType::Numeric,
            _ => ColumnType::BigInt,
        })
    }
}

fn none_on_sqlite() -> DieselError {
    Error::NoStoredFunctions.into()
}

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use crate::ShardsTable;
    use crate::error::Error;
    use crate::test_schema::{downloads, videos};
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::sqlite::Sqlite;

    diesel::table! { measures (id) { id -> BigInt, large -> BigInt, real -> Double, } }

    #[derive(crate::ShardedField)]
    #[expect(dead_code, reason = "the derive reads the fields' types")]
    struct Measure {
        id: i64,
        #[sharded]
        large: i64,
        #[sharded]
        real: f64,
    }

    #[test]
    fn a_function_on_postgres() {
        assert_eq!(
            ShardsTable::of(videos::table)
                .add_function_sql(&Pg)
                .unwrap(),
            r#"DO $diesel_sharded_1$
BEGIN
CREATE FUNCTION "videos_shards_add"(BIGINT, TEXT, BIGINT) RETURNS BOOLEAN LANGUAGE plpgsql AS $diesel_sharded$
#variable_conflict use_column
BEGIN
IF $2 = 'views' THEN
INSERT INTO "videos_shards" ("id", "shard", "views")
SELECT "videos"."id", pg_backend_pid() % 16, $3 FROM "videos" WHERE "videos"."id" = $1
ON CONFLICT ("id", "shard") DO UPDATE SET "views" = "videos_shards"."views" + excluded."views";
ELSIF $2 = 'likes' THEN
INSERT INTO "videos_shards" ("id", "shard", "likes")
SELECT "videos"."id", pg_backend_pid() % 16, $3 FROM "videos" WHERE "videos"."id" = $1
ON CONFLICT ("id", "shard") DO UPDATE SET "likes" = "videos_shards"."likes" + excluded."likes";
ELSE
RAISE EXCEPTION USING MESSAGE = 'videos_shards has no such field: ' || COALESCE($2, 'NULL');
END IF;
RETURN FOUND;
END
$diesel_sharded$;
-- The tables are those that are found now, whatever the path of a session is, and no temporary ones.
EXECUTE 'ALTER FUNCTION "videos_shards_add" SET search_path = ' || COALESCE((SELECT string_agg(quote_ident(path.name), ', ' ORDER BY path.place)
    FROM unnest(current_schemas(false)) WITH ORDINALITY AS path(name, place)) || ', ', '') || 'pg_temp';
CREATE FUNCTION "videos_shards_add_all"(BIGINT, "views" BIGINT DEFAULT 0, "likes" BIGINT DEFAULT 0) RETURNS BOOLEAN LANGUAGE plpgsql AS $diesel_sharded$
#variable_conflict use_column
BEGIN
INSERT INTO "videos_shards" ("id", "shard", "views", "likes")
SELECT "videos"."id", pg_backend_pid() % 16, $2, $3 FROM "videos" WHERE "videos"."id" = $1
ON CONFLICT ("id", "shard") DO UPDATE SET "views" = "videos_shards"."views" + excluded."views", "likes" = "videos_shards"."likes" + excluded."likes";
RETURN FOUND;
END
$diesel_sharded$;
-- The tables are those that are found now, whatever the path of a session is, and no temporary ones.
EXECUTE 'ALTER FUNCTION "videos_shards_add_all" SET search_path = ' || COALESCE((SELECT string_agg(quote_ident(path.name), ', ' ORDER BY path.place)
    FROM unnest(current_schemas(false)) WITH ORDINALITY AS path(name, place)) || ', ', '') || 'pg_temp';
END
$diesel_sharded_1$"#
        );
    }

    #[test]
    fn a_procedure_on_mysql() {
        assert_eq!(
            ShardsTable::of(downloads::table)
                .add_function_sql(&Mysql)
                .unwrap(),
            "CREATE PROCEDURE `download \"counts\"_add`(sharded_key1 INTEGER, sharded_key2 CHAR(10), sharded_field VARCHAR(64), sharded_delta DOUBLE)
INSERT INTO `download \"counts\"` (`version`, `day`, `shard`, `number`)
SELECT `downloads`.`version`, `downloads`.`day`, CONNECTION_ID() % 16, IF(sharded_field = 'number', sharded_delta, 0)
FROM `downloads` WHERE `downloads`.`version` = sharded_key1 AND `downloads`.`day` = sharded_key2 AND IF(sharded_field IN ('number'), 1, (SELECT n FROM (SELECT 1 AS n UNION ALL SELECT 2) AS no_such_field)) LOCK IN SHARE MODE
ON DUPLICATE KEY UPDATE `number` = `download \"counts\"`.`number` + IF(sharded_field = 'number', sharded_delta, 0)"
        );
    }

    /// Beside a double no integer is one: 2⁵³ + 1 would lose 1.
    #[test]
    fn fields_of_several_types() {
        let table = ShardsTable::of(measures::table);
        let sql = table.add_function_sql(&Pg).unwrap();
        for part in [
            r#""measures_shards_add"(BIGINT, TEXT, ANYELEMENT)"#,
            "'large' THEN\nIF CAST($3 AS BIGINT) <> $3 THEN\nRAISE EXCEPTION USING MESSAGE = 'measures_shards.large counts whole numbers: ' || $3;\nEND IF;\nINSERT",
            "'real' THEN\nINSERT",
            r#""measures_shards_add_all"(BIGINT, "large" BIGINT DEFAULT 0, "real" DOUBLE PRECISION DEFAULT 0)"#,
        ] {
            assert!(sql.contains(part), "{part} in {sql}");
        }
        let sql = table.add_function_sql(&Mysql).unwrap();
        for part in [
            "sharded_delta VARCHAR(400))",
            "IF(sharded_field = 'large', CAST(sharded_delta AS DECIMAL(65, 20)), 0), IF(sharded_field = 'real', (sharded_delta + 0e0), 0)",
            "`measures_shards_add_all`(sharded_key1 BIGINT, sharded_delta1 BIGINT, sharded_delta2 DOUBLE)",
            "sharded_delta1, sharded_delta2\nFROM `measures` WHERE `measures`.`id` = sharded_key1 LOCK IN SHARE MODE",
            "`real` = `measures_shards`.`real` + sharded_delta2",
        ] {
            assert!(sql.contains(part), "{part} in {sql}");
        }
    }

    #[test]
    fn sqlite_has_none() {
        let refused = ShardsTable::of(videos::table).add_function_sql(&Sqlite);
        let refused = Error::from(refused.unwrap_err());
        assert!(matches!(refused, Error::NoStoredFunctions), "{refused:?}");
    }

    #[test]
    fn drop_the_function() {
        let table = ShardsTable::of(videos::table);
        assert_eq!(
            table.drop_function_sql(&Pg).unwrap(),
            "DROP FUNCTION IF EXISTS \"videos_shards_add\";\nDROP FUNCTION IF EXISTS \"videos_shards_add_all\""
        );
        assert_eq!(
            table.drop_function_sql(&Mysql).unwrap(),
            "DROP PROCEDURE IF EXISTS `videos_shards_add`;\nDROP PROCEDURE IF EXISTS `videos_shards_add_all`"
        );
    }
}
