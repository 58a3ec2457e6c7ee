//! Folding every shard and dropping the table, as SQL text that checks its own fold.
//!
//! The bases and the sums of shards are copied to a temporary table before anything is written. Afterwards each base must be the
//! earlier base plus its sum, and each shard must have a row. This check finds a trigger, a policy or a column that suppresses,
//! changes, rounds or cuts the update, on every database. Then nothing is dropped, and every count stays where it was.

use crate::backend::Dialect;
use crate::query_builder::literal;

use super::fold_check::total;
use super::quoted::{Column, Integrity, Quoted, as_one, each};
use super::triggers::ON_SQLITE;

/// The program that runs the text of SQLite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// It may continue after an error, as `sqlite3` does, and may be outside any transaction.
    Any,
    /// It ends at an error, and rolls its transaction back.
    StopsAtErrors,
}

/// Which row does not fit, for MySQL and SQLite, once it is known.
pub(super) fn select_unfit(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Mysql => "SELECT CAST(@diesel_sharded_unfit AS CHAR)",
        _ => "SELECT unfit FROM temp.diesel_sharded_unfit",
    }
}

/// Undoes on MySQL what a failure of another kind leaves behind.
pub(super) const CLEAN_UP: &str = "ROLLBACK; UNLOCK TABLES; DROP TEMPORARY TABLE IF EXISTS `diesel_sharded_totals`; \
    SET autocommit = COALESCE(@diesel_sharded_autocommit, @@autocommit)";

impl Quoted<'_> {
    /// The whole text.
    pub(crate) fn fold_and_drop(&self, program: Program) -> String {
        match self.dialect {
            Dialect::Postgres => self.on_postgres(),
            Dialect::Mysql => self.on_mysql(),
            Dialect::Sqlite => self.on_sqlite(program),
        }
    }

    /// One block: `LOCK TABLE` wants a transaction, and `psql -f` has none around each of several statements. Above READ
    /// COMMITTED the sums may be older than the lock.
    fn on_postgres(&self) -> String {
        let (parent, shards) = (&self.parent, &self.shards);
        let totals = self.totals(shards);
        let update = self.update();
        let unfit = self.unfit();
        let orphan = self.orphan(shards);
        let cache = self.cache(shards, None);
        let says = |text: &str| literal(self.dialect, &format!("{}{text}", self.shards_table));
        let hidden = says(
            ": row security may hide some of its rows; drop it as a role that bypasses row security",
        );
        let isolation = says(
            ": drop it in a transaction that is READ COMMITTED; in any other some counts may not be seen",
        );
        let seen = literal(self.dialect, shards);
        let drop_triggers = self.drop_triggers().map(|drop| format!("    {drop};\n"));
        let drop_triggers = drop_triggers.collect::<String>();
        as_one(
            "DECLARE\n    unfit TEXT;\n",
            &format!(
                "    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION USING MESSAGE = {isolation};
    END IF;
    LOCK TABLE {parent}, {shards} IN ACCESS EXCLUSIVE MODE;
    IF row_security_active({seen}) THEN
        RAISE EXCEPTION USING MESSAGE = {hidden};
    END IF;
    unfit := ({cache});
    IF unfit IS NOT NULL THEN
        RAISE EXCEPTION USING MESSAGE = unfit;
    END IF;
    CREATE TEMPORARY TABLE diesel_sharded_totals ON COMMIT DROP AS
        {totals};
    {update};
    -- Each base has to be the one before plus its sum, and each shard has to have a row.
    unfit := ({unfit});
    unfit := COALESCE(unfit, ({orphan}));
    IF unfit IS NOT NULL THEN
        RAISE EXCEPTION USING MESSAGE = unfit, HINT = '{HINT}';
    END IF;
    DROP TABLE pg_temp.diesel_sharded_totals;
    DROP TABLE {shards};
{drop_triggers}"
            ),
        )
    }

    /// MySQL commits at `LOCK TABLES` and at `DROP TABLE`, so that no transaction encloses the two: the fold takes the counts
    /// out of the shards in a transaction of its own, and what is dropped is empty. The locked tables may stand only once in a
    /// statement. `UPDATE IGNORE` leaves to the check what strict mode would end at, locks and all.
    fn on_mysql(&self) -> String {
        let (parent, shards) = (&self.parent, &self.shards);
        let totals = self.totals(shards);
        let primary_key = each(&self.key, ", ", |i, _| format!("key{i}"));
        let update = self.update();
        let unfit = self.unfit();
        let orphan = self.orphan(shards);
        let cache = self.cache(shards, None);
        let drop = literal(self.dialect, &format!("DROP TABLE {shards}"));
        let unless_unfit = |sql: &str| {
            format!(
                "SET @diesel_sharded_sql = IF(@diesel_sharded_unfit IS NULL, {sql}, 'DO 0');
PREPARE diesel_sharded FROM @diesel_sharded_sql;
EXECUTE diesel_sharded"
            )
        };
        let (commit, drop) = (unless_unfit("'COMMIT'"), unless_unfit(&drop));
        let drop_triggers = self.drop_triggers().map(|drop| format!(";\n{drop}"));
        let drop_triggers = drop_triggers.collect::<String>();
        format!(
            "SET @diesel_sharded_cache = 'not checked', @diesel_sharded_row = 'not checked', @diesel_sharded_orphan = 'not checked',
    @diesel_sharded_unfit = 'not checked', @diesel_sharded_autocommit = @@autocommit;
SET autocommit = 0;
LOCK TABLES {parent} WRITE, {shards} WRITE;
CREATE TEMPORARY TABLE `diesel_sharded_totals` (PRIMARY KEY ({primary_key})) ENGINE = InnoDB AS
    {totals};
{update};
-- Each base has to be the one before plus its sum, each shard has to have a row, and no cache may add to them. Else all this is rolled back.
SET @diesel_sharded_cache = ({cache});
SET @diesel_sharded_row = ({unfit});
SET @diesel_sharded_orphan = ({orphan});
-- A check that was interrupted may be NULL without an error: nothing fits but what was found empty.
SET @diesel_sharded_unfit = IF(CONCAT(@diesel_sharded_cache, @diesel_sharded_row, @diesel_sharded_orphan) = '', NULL,
    COALESCE(NULLIF(@diesel_sharded_cache, ''), NULLIF(@diesel_sharded_row, ''), NULLIF(@diesel_sharded_orphan, ''), 'not checked'));
DELETE FROM {shards};
{commit};
ROLLBACK;
DROP TEMPORARY TABLE `diesel_sharded_totals`;
{drop};
DEALLOCATE PREPARE diesel_sharded;
UNLOCK TABLES;
SET autocommit = @diesel_sharded_autocommit;
-- Fails by a duplicate that names a row, if one did not fit.
CREATE TEMPORARY TABLE `diesel_sharded_unfit` (PRIMARY KEY (unfit)) ENGINE = InnoDB AS
    SELECT CAST(@diesel_sharded_unfit AS CHAR(180)) AS unfit FROM (SELECT 1 UNION ALL SELECT 2) AS twice
    WHERE @diesel_sharded_unfit IS NOT NULL;
DROP TEMPORARY TABLE `diesel_sharded_unfit`{drop_triggers}"
        )
    }

    /// On MySQL behind all that may fail: no statement drops a trigger under a condition.
    pub(crate) fn drop_triggers(&self) -> impl Iterator<Item = String> {
        let are_there = self.integrity == Integrity::Triggers && !self.dialect.has_triggers();
        let drop = are_there.then(|| self.drop_parent_triggers());
        drop.into_iter().flatten()
    }

    /// A program that continues after an error must not drop shards that it could not fold. So the table is renamed first: if
    /// everything was rolled back there is no table of the other name. And the check that fails is made twice, since the first
    /// time only its own statement is undone, so that a program that stops there finds its transaction open.
    fn on_sqlite(&self, program: Program) -> String {
        const DROPPED: &str = "`diesel_sharded_dropped`";
        let in_schema = format!("{}{DROPPED}", self.schema);
        let mut statements = vec![];
        if program == Program::Any {
            statements.push("SAVEPOINT diesel_sharded".to_owned());
        }
        statements.extend(self.fold_on_sqlite(match program {
            Program::Any => Some(DROPPED),
            Program::StopsAtErrors => None,
        }));
        let dropped = match program {
            Program::Any => &in_schema,
            Program::StopsAtErrors => &self.shards,
        };
        let message = format!(
            "{}: a row did not take what its shards hold, or a counter cache adds to it",
            self.shards_table
        );
        let check = "INTO temp.diesel_sharded_fits SELECT COUNT(*) = 1 AND COUNT(unfit) = 0 FROM temp.diesel_sharded_unfit";
        statements.push(format!(
            "CREATE TEMPORARY TABLE diesel_sharded_fits (fits CONSTRAINT {} CHECK (fits))",
            format_args!("`{}`", message.replace('`', "``"))
        ));
        if program == Program::Any {
            statements.push(
                "SELECT unfit FROM temp.diesel_sharded_unfit WHERE unfit IS NOT NULL".to_owned(),
            );
        }
        statements.push(format!("INSERT {check}"));
        if program == Program::Any {
            statements.push(format!(
                "-- For a program that has gone on after that error: everything is as it was.\nINSERT OR ROLLBACK {check}"
            ));
        }
        statements.push(format!("DROP TABLE {dropped}"));
        statements.push("DROP TABLE temp.diesel_sharded_fits".to_owned());
        statements.extend(DROP_TEMPORARY_ON_SQLITE.map(str::to_owned));
        if program == Program::Any {
            statements.push("RELEASE diesel_sharded".to_owned());
        }
        statements.join(";\n")
    }

    /// Up to the row that does not fit, which is in a temporary table then.
    pub(super) fn fold_on_sqlite(&self, renamed: Option<&str>) -> Vec<String> {
        let shards = match renamed {
            Some(renamed) => &format!("{}{renamed}", self.schema),
            None => &self.shards,
        };
        // So SQLite renames it in them.
        let in_triggers = match renamed {
            Some(renamed) => renamed.replace('`', "\""),
            None => self.bare_shards.clone(),
        };
        let columns =
            |columns: &[Column], name: &str| each(columns, ", ", |i, _| format!("{name}{i}"));
        // Rebuilding the parent's table has dropped them.
        let mut statements = ON_SQLITE
            .map(|end| format!("DROP TRIGGER IF EXISTS {}", self.beside(end)))
            .to_vec();
        statements.push(format!(
            "CREATE TEMPORARY TABLE diesel_sharded_totals ({}, {}, {})",
            columns(&self.key, "key"),
            columns(&self.fields, "base"),
            columns(&self.fields, "sum")
        ));
        statements.push("CREATE TEMPORARY TABLE diesel_sharded_unfit (unfit)".to_owned());
        if let Some(renamed) = renamed {
            statements.push(format!("ALTER TABLE {} RENAME TO {renamed}", self.shards)); // stays in its schema
        }
        statements.push(format!(
            "INSERT INTO temp.diesel_sharded_totals\n    {}",
            self.totals(shards)
        ));
        statements.push(self.update());
        statements.push(format!(
            "-- Each base has to be the one before plus its sum, each shard has to have a row, and no cache may add to them.
INSERT INTO temp.diesel_sharded_unfit SELECT COALESCE(({}), ({}), ({}))",
            self.cache(&in_triggers, None),
            self.unfit(),
            self.orphan(shards)
        ));
        statements
    }

    /// Drops the table after [`fold_on_sqlite`](Self::fold_on_sqlite) found no row that does not fit.
    pub(super) fn drop_on_sqlite(&self) -> String {
        let drop = format!("DROP TABLE {}", self.shards);
        let temporary = DROP_TEMPORARY_ON_SQLITE.map(str::to_owned);
        [vec![drop], temporary.to_vec()].concat().join(";\n")
    }

    /// The bases, and the sums of shards, of the rows that have some.
    fn totals(&self, shards: &str) -> String {
        let parent = &self.parent;
        let key = each(&self.key, ", ", |i, c| {
            format!("{parent}.{} AS key{i}", c.name)
        });
        let bases = each(&self.fields, ", ", |i, c| {
            format!("{parent}.{} AS base{i}", c.name)
        });
        let sums = each(&self.fields, ", ", |i, _| {
            format!("diesel_sharded_sums.sum{i}")
        });
        let shards_key = each(&self.key, ", ", |i, c| {
            format!("{shards}.{} AS key{i}", c.name)
        });
        let group = self.key_of(shards);
        let summed = each(&self.fields, ", ", |i, c| {
            format!("{}({shards}.{}) AS sum{i}", c.merge.aggregate(), c.name)
        });
        let on = each(&self.key, " AND ", |i, c| {
            format!("diesel_sharded_sums.key{i} = {parent}.{}", c.name)
        });
        format!(
            "SELECT {key}, {bases}, {sums} FROM {parent}
        JOIN (SELECT {shards_key}, {summed} FROM {shards} GROUP BY {group}) AS diesel_sharded_sums ON {on}"
        )
    }

    /// Adds the sums to the bases.
    fn update(&self) -> String {
        let parent = &self.parent;
        let is_row = self.is_row();
        let assignments = |table: &str| {
            each(&self.fields, ", ", |i, c| {
                format!("{table}{} = {}", c.name, total(i, c))
            })
        };
        match self.dialect {
            Dialect::Mysql => {
                let assignments = assignments(&format!("{parent}."));
                format!(
                    "UPDATE IGNORE {parent} JOIN diesel_sharded_totals ON {is_row} SET {assignments}"
                )
            }
            _ => format!(
                "UPDATE {parent} SET {} FROM {} WHERE {is_row}",
                assignments(""),
                self.totals_table()
            ),
        }
    }
}

const DROP_TEMPORARY_ON_SQLITE: [&str; 2] = [
    "DROP TABLE temp.diesel_sharded_unfit",
    "DROP TABLE temp.diesel_sharded_totals",
];

const HINT: &str = "Nothing was changed. Look for a trigger, a policy, or a column that rounds or cuts what it is given.";
