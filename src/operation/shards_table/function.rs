//! A function for triggers of the application's own: it adds to a shard.

use diesel::result::{Error as DieselError, QueryResult};

use crate::backend::{Dialect, SESSION_SHARDS};
use crate::error::Error;
use crate::model::ColumnType;
use crate::query_builder::literal;

use super::quoted::{Column, Quoted, as_one, dollar_quoted, each, fix_search_path};

impl Quoted<'_> {
    /// The text that creates the function, or MySQL's procedure.
    pub(super) fn create_function(&self) -> QueryResult<String> {
        match self.dialect {
            Dialect::Postgres | Dialect::Mysql if self.sums().next().is_none() => {
                let message = format!(
                    "no field of {} is counted: there is nothing to add to",
                    self.shards
                );
                Err(DieselError::QueryBuilderError(message.into()))
            }
            Dialect::Postgres => Ok(self.function_on_postgres()),
            Dialect::Mysql => Ok(self.procedure_on_mysql()),
            Dialect::Sqlite => Err(none_on_sqlite()),
        }
    }

    /// The text that drops it.
    pub(super) fn drop_function(&self) -> QueryResult<String> {
        let name = &self.add_function;
        match self.dialect {
            Dialect::Postgres => Ok(format!("DROP FUNCTION IF EXISTS {name}")),
            Dialect::Mysql => Ok(format!("DROP PROCEDURE IF EXISTS {name}")),
            Dialect::Sqlite => Err(none_on_sqlite()),
        }
    }

    /// Parameters have numbers: a name could be that of a column.
    fn function_on_postgres(&self) -> String {
        let name = &self.add_function;
        let field = self.key.len() + 1;
        let delta = field + 1;
        let branches = each(self.sums(), "ELSIF ", |_, column| {
            let text = literal(self.dialect, column.raw);
            format!(
                "${field} = {text} THEN\n{};\n",
                self.add(column, |i| format!("${i}"), delta)
            )
        });
        let unknown = literal(
            self.dialect,
            &format!("{} has no such field: ", self.shards_table),
        );
        let body = dollar_quoted(&format!(
            "#variable_conflict use_column
BEGIN
IF {branches}ELSE
RAISE EXCEPTION USING MESSAGE = {unknown} || COALESCE(${field}, 'NULL');
END IF;
RETURN FOUND;
END"
        ));
        let types = each(&self.key, "", |_, column| {
            format!("{}, ", self.key_type(column))
        });
        let delta = self.delta_type();
        as_one(
            "",
            &format!(
                "CREATE FUNCTION {name}({types}TEXT, {delta}) RETURNS BOOLEAN LANGUAGE plpgsql AS {body};
{}\n",
                fix_search_path(name)
            ),
        )
    }

    /// One statement alone, which a client that splits the text at semicolons leaves whole. A subquery of two rows fails in every mode
    /// of the server.
    fn procedure_on_mysql(&self) -> String {
        let name = &self.add_function;
        let parameters = each(&self.key, "", |i, column| {
            format!("sharded_key{i} {}, ", self.key_type(column))
        });
        let of = |raw: &str| {
            let text = literal(self.dialect, raw);
            format!("IF(sharded_field = {text}, sharded_delta, 0)")
        };
        let known = each(self.sums(), ", ", |_, c| literal(self.dialect, c.raw));
        let names = each(self.sums(), ", ", |_, c| c.name.clone());
        let values = each(self.sums(), ", ", |_, c| of(c.raw));
        let sums = each(self.sums(), ", ", |_, c| {
            format!("{0} = {1}.{0} + {2}", c.name, self.shards, of(c.raw))
        });
        let parent = &self.parent;
        let key = each(&self.key, ", ", |_, c| format!("{parent}.{}", c.name));
        let is_key = each(&self.key, " AND ", |i, c| {
            format!("{parent}.{} = sharded_key{i}", c.name)
        });
        format!(
            "CREATE PROCEDURE {name}({parameters}sharded_field VARCHAR(64), sharded_delta {})
INSERT INTO {} ({}, {}, {names})
SELECT {key}, {}, {values}
FROM {parent} WHERE {is_key} AND IF(sharded_field IN ({known}), 1, (SELECT n FROM (SELECT 1 AS n UNION ALL SELECT 2) AS no_such_field))
ON DUPLICATE KEY UPDATE {sums}",
            self.delta_type(),
            self.shards,
            self.key_names(),
            self.shard,
            self.dialect.session_shard(SESSION_SHARDS),
        )
    }

    /// Adds a parameter to one field.
    fn add(&self, field: &Column, key_value: impl Fn(usize) -> String, delta: usize) -> String {
        let Quoted {
            parent,
            shards,
            shard,
            ..
        } = self;
        let field = &field.name;
        let key_names = self.key_names();
        let key = each(&self.key, ", ", |_, c| format!("{parent}.{}", c.name));
        let is_key = each(&self.key, " AND ", |i, c| {
            format!("{parent}.{} = {}", c.name, key_value(i))
        });
        let number = self.dialect.session_shard(SESSION_SHARDS);
        format!(
            "INSERT INTO {shards} ({key_names}, {shard}, {field})
SELECT {key}, {number}, ${delta} FROM {parent} WHERE {is_key}
ON CONFLICT ({key_names}, {shard}) DO UPDATE SET {field} = {shards}.{field} + excluded.{field}"
        )
    }

    /// The type of an amount that each of the fields takes.
    fn delta_type(&self) -> &'static str {
        let has = |column_type| self.sums().any(|c| c.column_type == column_type);
        self.dialect.key_type(match () {
            () if has(ColumnType::Double) => ColumnType::Double,
            () if has(ColumnType::Numeric) => ColumnType::Numeric,
            () => ColumnType::BigInt,
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
FROM `downloads` WHERE `downloads`.`version` = sharded_key1 AND `downloads`.`day` = sharded_key2 AND IF(sharded_field IN ('number'), 1, (SELECT n FROM (SELECT 1 AS n UNION ALL SELECT 2) AS no_such_field))
ON DUPLICATE KEY UPDATE `number` = `download \"counts\"`.`number` + IF(sharded_field = 'number', sharded_delta, 0)"
        );
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
            r#"DROP FUNCTION IF EXISTS "videos_shards_add""#
        );
        assert_eq!(
            table.drop_function_sql(&Mysql).unwrap(),
            "DROP PROCEDURE IF EXISTS `videos_shards_add`"
        );
    }
}
