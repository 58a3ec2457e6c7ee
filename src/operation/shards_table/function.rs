//! A function for triggers of the application's own: it adds to a shard.

use diesel::result::{Error as DieselError, QueryResult};

use crate::backend::{Dialect, SESSION_SHARDS};
use crate::error::Error;
use crate::model::ColumnType;
use crate::query_builder::literal;

use super::quoted::{Column, Quoted, as_one, dollar_quoted, each, fix_search_path};

impl Quoted<'_> {
    /// The text that creates the functions, or MySQL's procedures.
    ///
    /// # Errors
    /// On SQLite, or if no field is counted.
    pub fn add_function_sql(&self) -> QueryResult<String> {
        if self.dialect == Dialect::Sqlite {
            return Err(Error::NoStoredFunctions.into());
        }
        if self.sums().next().is_none() {
            let nothing = "is counted: there is nothing to add to";
            let message = format!("no field of {} {nothing}", self.shards);
            return Err(DieselError::QueryBuilderError(message.into()));
        }
        Ok(match self.dialect {
            Dialect::Postgres => self.functions_on_postgres(),
            _ => self.procedures_on_mysql(),
        })
    }

    /// The text that drops them.
    ///
    /// # Errors
    /// On SQLite.
    pub fn drop_function_sql(&self) -> QueryResult<String> {
        let kind = match self.dialect {
            Dialect::Postgres => "FUNCTION",
            Dialect::Mysql => "PROCEDURE",
            Dialect::Sqlite => return Err(Error::NoStoredFunctions.into()),
        };
        let drop = |end: &str| format!("DROP {kind} IF EXISTS {}", self.beside(end));
        Ok(match self.adds_several() {
            true => format!("{};\n{}", drop("add"), drop("add_all")),
            false => drop("add"),
        })
    }

    /// Whether there is a function for all fields too.
    fn adds_several(&self) -> bool {
        self.sums().count() > 1
    }

    /// Parameters have numbers: a name could be that of a column.
    fn functions_on_postgres(&self) -> String {
        let field = self.key.len() + 1;
        let delta = field + 1;
        let branches = each(self.sums(), "ELSIF ", |_, column| {
            let name = literal(self.dialect, &column.name);
            let whole = self.refuse_fraction(column, delta);
            let add = self.add([(column, format!("${delta}"))], "$", "", " ");
            format!("${field} = {name} THEN\n{whole}{add};\n")
        });
        let unknown = self.says(" has no such field: ");
        let one = format!(
            "IF {branches}ELSE
RAISE EXCEPTION USING MESSAGE = {unknown} || COALESCE(${field}, 'NULL');
END IF;"
        );
        let parameters = format!("TEXT, {}", self.delta_type().unwrap_or("ANYELEMENT"));
        let mut functions = self.function_on_postgres("add", &parameters, &one);
        if self.adds_several() {
            let deltas = (field..).map(|i| format!("${i}"));
            let add = self.add(self.sums().zip(deltas), "$", "", " ");
            let parameters = each(self.sums(), ", ", |_, c| {
                format!("{c} {} DEFAULT 0", self.delta_type_of(c))
            });
            functions += &self.function_on_postgres("add_all", &parameters, &format!("{add};"));
        }
        as_one("", &functions)
    }

    fn function_on_postgres(&self, end: &str, parameters: &str, statements: &str) -> String {
        let name = self.beside(end);
        let key = each(&self.key, "", |_, c| format!("{}, ", self.key_type(c)));
        let body = dollar_quoted(&format!(
            "#variable_conflict use_column\nBEGIN\n{statements}\nRETURN FOUND;\nEND"
        ));
        let path = fix_search_path(&name);
        format!(
            "CREATE FUNCTION {name}({key}{parameters}) RETURNS BOOLEAN LANGUAGE plpgsql AS {body};\n{path};\n"
        )
    }

    /// An amount of any type may have a fraction, which an integer would round.
    fn refuse_fraction(&self, column: &Column, delta: usize) -> String {
        let is_whole = self.delta_type_of(column) == self.dialect.key_type(ColumnType::BigInt);
        if self.delta_type().is_some() || !is_whole {
            return String::new();
        }
        let text = self.says(&format!(".{} counts whole numbers: ", column.name));
        format!(
            "IF CAST(${delta} AS BIGINT) <> ${delta} THEN\nRAISE EXCEPTION USING MESSAGE = {text} || ${delta};\nEND IF;\n"
        )
    }

    /// Each is one statement alone, which a client that splits the text at semicolons leaves whole. A subquery of two rows fails in
    /// every mode of the server.
    fn procedures_on_mysql(&self) -> String {
        let given = |column: &Column| match (self.delta_type(), self.delta_type_of(column)) {
            (Some(_), _) => "sharded_delta",
            // As a text it keeps its digits, whatever it is.
            (None, "DOUBLE") => "(sharded_delta + 0e0)",
            (None, _) => "CAST(sharded_delta AS DECIMAL(65, 20))",
        };
        let name = |column: &Column| literal(self.dialect, &column.name);
        let deltas = self.sums().map(|c| {
            let delta = format!("IF(sharded_field = {}, {}, 0)", name(c), given(c));
            (c, delta)
        });
        let known = each(self.sums(), ", ", |_, c| name(c));
        let is_known = format!(
            " AND IF(sharded_field IN ({known}), 1, (SELECT n FROM (SELECT 1 AS n UNION ALL SELECT 2) AS no_such_field))"
        );
        let delta = self.delta_type().unwrap_or("VARCHAR(400)");
        let parameters = format!("sharded_field VARCHAR(64), sharded_delta {delta}");
        let procedure = |end: &str, parameters: &str, add: String| {
            let key = each(&self.key, "", |i, c| {
                format!("sharded_key{i} {}, ", self.key_type(c))
            });
            format!(
                "CREATE PROCEDURE {}({key}{parameters})\n{add}",
                self.beside(end)
            )
        };
        let add = self.add(deltas, "sharded_key", &is_known, "\n");
        let one = procedure("add", &parameters, add);
        if !self.adds_several() {
            return one;
        }
        let parameters = each(self.sums(), ", ", |i, c| {
            format!("sharded_delta{i} {}", self.delta_type_of(c))
        });
        let deltas = (1..).map(|i| format!("sharded_delta{i}"));
        let add = self.add(self.sums().zip(deltas), "sharded_key", "", "\n");
        let all = procedure("add_all", &parameters, add);
        format!("{one};\n{all}")
    }

    /// Adds to fields of the row whose key is `value` and a number, and for which `condition` holds.
    fn add<'c, 'a: 'c>(
        &self,
        deltas: impl IntoIterator<Item = (&'c Column<'a>, String)>,
        value: &str,
        condition: &str,
        space: &str,
    ) -> String {
        let Quoted { parent, shards, .. } = self;
        let deltas = deltas.into_iter();
        let fields: Vec<_> = deltas.map(|(c, delta)| (c.to_string(), delta)).collect();
        let amounts: Vec<_> = fields.iter().map(|(_, delta)| delta.as_str()).collect();
        let select = format!(
            "SELECT {key}, {number}, {amounts}{space}FROM {parent} WHERE {is_key}{condition}{lock}",
            key = self.key_of(parent),
            number = self.dialect.session_shard(SESSION_SHARDS),
            amounts = amounts.join(", "),
            is_key = self.key_is_numbered(parent, value),
            lock = self.dialect.shares_lock(),
        );
        self.upsert(shards, &fields, &select, "")
    }

    /// The type of an amount that each of the fields takes as it is; a double takes no other's.
    fn delta_type(&self) -> Option<&'static str> {
        let types: Vec<_> = self.sums().map(|c| self.delta_type_of(c)).collect();
        let double = self.dialect.key_type(ColumnType::Double);
        let first = types.first().copied()?;
        match () {
            () if types.iter().all(|t| *t == first) => Some(first),
            () if types.contains(&double) => None,
            () => Some(self.dialect.key_type(ColumnType::Numeric)),
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
