//! A function for triggers of the application's own: it adds to a shard.

use diesel::result::{Error as DieselError, QueryResult};

use crate::backend::{
    Column, Quoted, Routine, SESSION_SHARDS, as_one, dollar_quoted, each, fix_search_path,
};
use crate::error::Error;
use crate::model::ColumnType;

impl Quoted<'_> {
    /// The text that creates the function, or MySQL's procedure.
    ///
    /// # Errors
    /// On SQLite, or if no field is counted.
    pub fn add_function_sql(&self) -> QueryResult<String> {
        let routine = self.dialect.routine().ok_or(Error::NoStoredFunctions)?;
        if self.sums().next().is_none() {
            let nothing = "is counted: there is nothing to add to";
            let message = format!("no field of {} {nothing}", self.shards);
            return Err(DieselError::QueryBuilderError(message.into()));
        }
        Ok(match routine {
            Routine::Function => self.function(),
            Routine::Procedure => self.procedure(),
        })
    }

    /// The text that drops it.
    ///
    /// # Errors
    /// On SQLite.
    pub fn drop_function_sql(&self) -> QueryResult<String> {
        let kind = match self.dialect.routine() {
            Some(Routine::Function) => "FUNCTION",
            Some(Routine::Procedure) => "PROCEDURE",
            None => return Err(Error::NoStoredFunctions.into()),
        };
        Ok(format!("DROP {kind} IF EXISTS {}", self.beside("add")))
    }

    /// The parameters of the key have numbers, because a name could be that of a column.
    fn function(&self) -> String {
        let name = self.beside("add");
        let key = each(&self.key, "", |_, c| format!("{}, ", self.key_type(c)));
        let parameters = each(self.sums(), ", ", |_, c| {
            format!("{c} {} DEFAULT 0", self.delta_type(c))
        });
        let deltas = (self.key.len() + 1..).map(|i| format!("${i}"));
        let add = self.add(self.sums().zip(deltas), "$", " ");
        let body = dollar_quoted(&format!(
            "#variable_conflict use_column\nBEGIN\n{add};\nRETURN FOUND;\nEND"
        ));
        let path = fix_search_path(&name);
        let create = format!(
            "CREATE FUNCTION {name}({key}{parameters}) RETURNS BOOLEAN LANGUAGE plpgsql AS {body};\n{path};\n"
        );
        as_one("", &create)
    }

    /// A single statement, which a client that splits the text at semicolons leaves whole.
    fn procedure(&self) -> String {
        let key = each(&self.key, "", |i, c| {
            format!("sharded_key{i} {}, ", self.key_type(c))
        });
        let parameters = each(self.sums(), ", ", |i, c| {
            format!("sharded_delta{i} {}", self.delta_type(c))
        });
        let deltas = (1..).map(|i| format!("sharded_delta{i}"));
        let add = self.add(self.sums().zip(deltas), "sharded_key", "\n");
        let name = self.beside("add");
        format!("CREATE PROCEDURE {name}({key}{parameters})\n{add}")
    }

    /// Adds to fields of the row whose key is `value` and a number.
    fn add<'c, 'a: 'c>(
        &self,
        deltas: impl IntoIterator<Item = (&'c Column<'a>, String)>,
        value: &str,
        space: &str,
    ) -> String {
        let Quoted { parent, shards, .. } = self;
        let deltas = deltas.into_iter();
        let fields: Vec<_> = deltas.map(|(c, delta)| (c.to_string(), delta)).collect();
        let amounts: Vec<_> = fields.iter().map(|(_, delta)| delta.as_str()).collect();
        let select = format!(
            "SELECT {key}, {number}, {amounts}{space}FROM {parent} WHERE {is_key}{lock}",
            key = self.key_of(parent),
            number = self.dialect.session_shard(SESSION_SHARDS),
            amounts = amounts.join(", "),
            is_key = self.key_is_numbered(parent, value),
            lock = self.dialect.shares_lock(),
        );
        self.upsert(shards, &fields, &select, "")
    }

    /// The type of an amount of this field.
    fn delta_type(&self, column: &Column) -> &'static str {
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
CREATE FUNCTION "videos_shards_add"(BIGINT, "views" BIGINT DEFAULT 0, "likes" BIGINT DEFAULT 0) RETURNS BOOLEAN LANGUAGE plpgsql AS $diesel_sharded$
#variable_conflict use_column
BEGIN
INSERT INTO "videos_shards" ("id", "shard", "views", "likes")
SELECT "videos"."id", pg_backend_pid() % 16, $2, $3 FROM "videos" WHERE "videos"."id" = $1
ON CONFLICT ("id", "shard") DO UPDATE SET "views" = "videos_shards"."views" + excluded."views", "likes" = "videos_shards"."likes" + excluded."likes";
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
            "CREATE PROCEDURE `download \"counts\"_add`(sharded_key1 INTEGER, sharded_key2 CHAR(10), sharded_delta1 DOUBLE)
INSERT INTO `download \"counts\"` (`version`, `day`, `shard`, `number`)
SELECT `downloads`.`version`, `downloads`.`day`, CONNECTION_ID() % 16, sharded_delta1
FROM `downloads` WHERE `downloads`.`version` = sharded_key1 AND `downloads`.`day` = sharded_key2 LOCK IN SHARE MODE
ON DUPLICATE KEY UPDATE `number` = `download \"counts\"`.`number` + sharded_delta1"
        );
    }

    #[test]
    fn fields_of_several_types() {
        let table = ShardsTable::of(measures::table);
        let sql = table.add_function_sql(&Pg).unwrap();
        let function = r#""measures_shards_add"(BIGINT, "large" BIGINT DEFAULT 0, "real" DOUBLE PRECISION DEFAULT 0)"#;
        assert!(sql.contains(function), "{sql}");
        let sql = table.add_function_sql(&Mysql).unwrap();
        for part in [
            "`measures_shards_add`(sharded_key1 BIGINT, sharded_delta1 BIGINT, sharded_delta2 DOUBLE)",
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
            "DROP FUNCTION IF EXISTS \"videos_shards_add\""
        );
        assert_eq!(
            table.drop_function_sql(&Mysql).unwrap(),
            "DROP PROCEDURE IF EXISTS `videos_shards_add`"
        );
    }
}
