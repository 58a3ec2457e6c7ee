//! `diesel-sharded verify` and `backfill` compare totals with a recount, both read by one statement. `backfill` repairs totals that differ.

use std::time::Instant;

use bigdecimal::BigDecimal;
use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_sharded::described::{Pace, ROWS_AT_ONCE, add_to_bases, differs, lock};
use diesel_sharded::model::ShardsColumn;
use diesel_sharded::operation::Amount;
use diesel_sharded::retry::{Isolation, RetryPolicy, Transaction};
use diesel_sharded::{Error as ShardedError, Unfit};
use serde::Serialize;

use crate::args::RecountArgs;
use crate::connection::{AnyConnection, read_only};
use crate::error::{Ended, Error};
use crate::interrupt;
use crate::key::{Key, KeyValues, as_text};
use crate::live::is_integer;
use crate::output::{self, Progress, plural};
use crate::privilege::{Need, explained};
use crate::sharded::{self, Sharded};
use crate::statement::{Statement, sql, tokens};
use crate::sums::{Number, Total, fits};

/// The alias of the recount, whose key columns are named by their positions.
const RECOUNTED: &str = "recounted";

/// Compares a table with its recount, and reports or `repairs` the drifts.
pub fn run(args: &RecountArgs, repairs: bool, conn: &mut AnyConnection) -> Result<Ended, Error> {
    interrupt::handle("finishing the batch")?;
    let sharded = &sharded::find(&args.table, conn)?;
    let after = match &*args.rows.after {
        [] => None,
        after => Some(Key::parse(sharded, after)?),
    };
    let field = sharded.field(&args.field)?;
    let mut words = tokens(&args.recount).into_iter();
    let first = words.find(|token| !token.is("("));
    if !first.is_some_and(|token| token.is_any(&["SELECT", "WITH", "VALUES", "TABLE"])) {
        let says = "the recount has to be a SELECT".to_owned();
        return Err(Error::Recount(says, sharded.key.len()));
    }
    let recounting = Recounting {
        sharded,
        field,
        args,
        repairs,
    };
    recounting.run(after, conn)
}

struct Recounting<'a> {
    sharded: &'a Sharded,
    field: &'a ShardsColumn,
    args: &'a RecountArgs,
    repairs: bool,
}

impl Recounting<'_> {
    fn run(&self, mut last: Option<Key>, conn: &mut AnyConnection) -> Result<Ended, Error> {
        let (sharded, args) = (self.sharded, &self.args.rows);
        let mut progress = Progress::of(sharded.table());
        let batch = self.args.batch as usize;
        let mut pace = Pace::at_most_per_second(args.at_most_per_second, batch);
        let size = pace.batch();
        let mut report = RecountReport {
            table: sharded.table().to_string(),
            field: self.field.name().to_owned(),
            repaired: self.repairs.then_some(0),
            ..RecountReport::default()
        };
        let mut is_left = true;
        let error = loop {
            let began = Instant::now();
            let (keys, drifts) = match self.next(size, last.as_ref(), conn) {
                Ok(batch) => batch,
                Err(error) => break Some(self.explained(error, conn)),
            };
            for drift in report.add(keys.len(), drifts, self.args.show) {
                if !args.json {
                    output::line(&drift.text())?;
                }
            }
            is_left = keys.len() == size;
            last = keys.last().cloned().or(last);
            if !is_left {
                break None;
            }
            interrupt::sleep_until(pace.next(keys.len(), began, Instant::now()));
            progress.at(report.compared as u64);
            if interrupt::came() {
                break None;
            }
        };
        let error = match error {
            Some(error) if report.compared == 0 => return Err(error),
            error => error,
        };
        // The command can continue after the last row that was compared.
        let rest = last.filter(|_| error.is_some() || is_left);
        report.go_on = rest.map(|last| last.after_arguments(sharded));
        report.end(args.json)?;
        let rest = report.go_on.as_ref();
        let rest = rest.map(|after| format!("continue with {after}"));
        match (error, rest) {
            (Some(error), rest) => {
                let rest = rest.unwrap_or_default();
                Err(Error::Refused(format!("{error}\n{rest}")))
            }
            (None, Some(rest)) => Ok(Ended::interrupted(&rest)),
            (None, None) => Ok(Ended::left_over_if(report.is_left_over())),
        }
    }

    fn explained(&self, error: Error, conn: &mut AnyConnection) -> Error {
        let mut needs = Need::to_read(self.sharded).to_vec();
        if self.repairs {
            let field = std::slice::from_ref(self.field);
            needs.extend(Need::to_update(field, self.sharded.table()));
        }
        explained(error, &needs, conn)
    }

    /// Compares the next rows, and repairs them if it should. Returns their keys, in order, and the drifts.
    fn next(
        &self,
        size: usize,
        after: Option<&Key>,
        conn: &mut AnyConnection,
    ) -> Result<(Vec<Key>, Vec<Drift>), Error> {
        let (sharded, parent) = (self.sharded, self.sharded.parent());
        let pick = sql!(
            format!("SELECT {} FROM {parent}", sharded.key_as_texts(&parent)),
            after.map(|key| sql!(" WHERE ", sharded.is_behind(&parent, key))),
            format!(" ORDER BY {} LIMIT {size}", sharded.key_of(&parent))
        );
        let columns = sharded.key.len();
        let rows = pick.rows(conn)?;
        let keys = rows.iter().map(|row| Key::read(columns, row));
        let keys: Vec<_> = keys.collect::<QueryResult<_>>()?;
        let Some(last) = keys.last() else {
            return Ok((keys, vec![]));
        };
        if after == Some(last) {
            return Err(last.no_way_behind(sharded));
        }
        // The query may call functions that write.
        let drifts = read_only(conn, |conn| self.drifts(after, last, conn));
        let drifts = drifts.map_err(|error| self.of_recount(error))?;
        let drifts = match self.repairs && !drifts.is_empty() {
            true => self.repair(after, last, &drifts, conn)?,
            false => drifts,
        };
        Ok((keys, drifts))
    }

    /// The error of the first comparison. Unless the connection was lost, the recount has caused it.
    fn of_recount(&self, error: Error) -> Error {
        match error {
            Error::Database(ShardedError::Diesel(DieselError::DatabaseError(
                kind,
                information,
            ))) if !matches!(kind, DatabaseErrorKind::ClosedConnection) => {
                let columns = self.sharded.key.len();
                Error::Recount(information.message().to_owned(), columns)
            }
            error => error,
        }
    }

    /// The rows of a range whose totals differ from the recount, read by one statement.
    ///
    /// ```sql
    /// WITH diesel_sharded_recount (key_1, number) AS (…)
    /// SELECT CAST("videos"."id" AS TEXT), CAST("recounted"."key_1" AS TEXT), CAST(COALESCE("recounted"."number", 0) AS TEXT),
    ///     CAST("videos"."likes" AS TEXT),
    ///     (SELECT … FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id")     -- as `sums::sum`
    /// FROM "videos" LEFT JOIN (SELECT * FROM diesel_sharded_recount WHERE key_1 >= $1 AND key_1 <= $2) AS "recounted"
    ///     ON "videos"."id" = "recounted"."key_1"         -- in this order: SQLite compares by the collation of the first
    /// WHERE "videos"."id" > $3 AND "videos"."id" <= $4 ORDER BY "videos"."id"
    /// ```
    fn drifts(
        &self,
        after: Option<&Key>,
        last: &Key,
        conn: &mut AnyConnection,
    ) -> Result<Vec<Drift>, Error> {
        let (sharded, field) = (self.sharded, self.field);
        let parent = sharded.parent();
        let (mut names, mut recounted, mut same) = (String::new(), String::new(), vec![]);
        for (column, i) in sharded.key.iter().zip(1..) {
            let own = sharded.column(&parent, column.name());
            let (before, behind) = sharded.dialect.key_as_text(column.column_type());
            names += &format!("key_{i}, ");
            recounted += &format!("{before}{RECOUNTED}.key_{i}{behind}, ");
            same.push(format!("{own} = {RECOUNTED}.key_{i}"));
        }
        let query = self.args.recount.trim().trim_end_matches(';');
        let compare = sql!(
            format!("WITH diesel_sharded_recount ({names}number) AS (\n{query}\n) SELECT "),
            format!("{}, {recounted}", sharded.key_as_texts(&parent)),
            as_text(sharded.dialect, &format!("COALESCE({RECOUNTED}.number, 0)")),
            format!(", {} FROM {parent} ", sharded.total(field)),
            "LEFT JOIN (SELECT * FROM diesel_sharded_recount",
            self.narrowed(after, last),
            format!(") AS {RECOUNTED} ON {} WHERE ", same.join(" AND ")),
            after.map(|key| sql!(sharded.is_behind(&parent, key), " AND ")),
            sharded.is_beyond(&parent, "<=", last),
            format!(" ORDER BY {}", sharded.key_of(&parent))
        );
        let mut compared: Vec<Drift> = vec![];
        let mut recounted_keys = vec![]; // of one row: its collation may consider several keys equal
        let columns = sharded.key.len();
        for row in compare.rows(conn)? {
            let key = Key::read(columns, &row)?;
            let shown = key.values(sharded);
            let recounted_key = columns..2 * columns;
            let recounted_key = recounted_key.map(|i| row.get(i).map(str::to_owned));
            let recounted_key: Vec<_> = recounted_key.collect();
            let recounted = row.text(2 * columns)?;
            let expected: BigDecimal = recounted.trim().parse().map_err(|_| {
                Error::Refused(format!(
                    "the recount gives `{recounted}` for the key {shown}, which is no number"
                ))
            })?;
            if let Some(before) = compared.last_mut().filter(|before| before.key == key) {
                if recounted_keys.contains(&recounted_key) {
                    return Err(Error::Refused(format!(
                        "the recount gave more than one number for the key {shown}: group it by the key alone"
                    )));
                }
                before.recounted.0 += expected;
                recounted_keys.push(recounted_key);
                continue;
            }
            let total = Total::read(&row, 2 * columns + 1)?;
            let Some((base, sum)) = total.base.clone().zip(total.sum()) else {
                return Err(Error::Refused(format!(
                    "`{}.{}` of the row {shown} is NULL, and NULL + 1 is NULL: fill it, and make the column NOT NULL DEFAULT 0",
                    sharded.table(),
                    field.name()
                )));
            };
            recounted_keys = vec![recounted_key];
            compared.push(Drift {
                shown,
                key,
                base,
                total: Number(sum),
                recounted: Number(expected),
                lacks: Number::default(),
                not_repaired: None,
            });
        }
        let mut drifts = vec![];
        for mut drift in compared {
            if self.differs(&drift)? {
                drift.lacks = Number(&drift.recounted.0 - &drift.total.0);
                drifts.push(drift);
            }
        }
        Ok(drifts)
    }

    /// Whether total and recount differ. Sums of doubles may differ a little by the order of addition.
    fn differs(&self, drift: &Drift) -> QueryResult<bool> {
        let column = self.field.column_type();
        if is_integer(column) {
            return Ok(drift.total != drift.recounted); // the recount may have a fraction
        }
        let amount = |number: &Number| Amount::parse(&number.to_string(), column);
        let (total, recounted) = (amount(&drift.total)?, amount(&drift.recounted)?);
        Ok(differs(self.sharded.dialect, column, &total, &recounted))
    }

    /// A condition by which the planner recounts only this range, if the keys are integers. For any type that the recount gives them, they
    /// compare here as they do with the parent's keys, and in one order. Text and dates might not.
    fn narrowed(&self, after: Option<&Key>, last: &Key) -> Statement {
        let bounds = [("key_1 <= ", Some(last)), ("key_1 >= ", after)].into_iter();
        let bounds = bounds.filter_map(|(order, key)| {
            let bound = self.sharded.first_integer(key?)?;
            Some(sql!(order, bound))
        });
        let bounds: Vec<_> = bounds.collect();
        let narrowed = (!bounds.is_empty()).then(|| Statement::joined(" AND ", bounds));
        narrowed.map(|bounds| sql!(" WHERE ", bounds)).into()
    }

    /// Locks the rows that differ against other repairs, folds and sets, compares again in one snapshot, and corrects the bases. On
    /// PostgreSQL the lock takes the snapshot. If a row was written since then, the update is a serialization failure, and the repair is
    /// tried again.
    ///
    /// ```sql
    /// BEGIN ISOLATION LEVEL REPEATABLE READ;                  -- SQLite: BEGIN IMMEDIATE
    /// SELECT 1 FROM "videos" WHERE … ORDER BY "videos"."id" FOR NO KEY UPDATE;     -- MySQL: FOR UPDATE; SQLite: none
    /// WITH … SELECT …;                                        -- as `drifts`
    /// UPDATE "videos" SET "likes" = ("videos"."likes" + CASE WHEN ("videos"."id" = $1) THEN 5 … ELSE 0 END) WHERE …;
    /// COMMIT
    /// ```
    fn repair(
        &self,
        after: Option<&Key>,
        last: &Key,
        suspects: &[Drift],
        conn: &mut AnyConnection,
    ) -> Result<Vec<Drift>, Error> {
        let suspects: Vec<_> = suspects.iter().map(|drift| drift.key.clone()).collect();
        Transaction::new()
            .isolation(Isolation::RepeatableRead)
            .retry(RetryPolicy::default())
            .run(conn, |conn| {
                let [locked, not_locked] = lock(self.sharded, &suspects, conn)?;
                let (mut drifts, mut lacking) = (self.drifts(after, last, conn)?, vec![]);
                // Only locked rows: the range may now contain others.
                drifts
                    .retain(|drift| locked.contains(&drift.key) || not_locked.contains(&drift.key));
                for drift in &mut drifts {
                    let lacks = match not_locked.contains(&drift.key) {
                        true => Err(reason(Unfit::NotLocked)),
                        false => self.lacks(drift),
                    };
                    match lacks {
                        Ok(lacks) => lacking.push((drift.key.clone(), lacks)),
                        Err(reason) => drift.not_repaired = Some(reason),
                    }
                }
                for rows in lacking.chunks(ROWS_AT_ONCE) {
                    self.add(rows, &mut drifts, conn)?;
                }
                Ok(drifts)
            })
    }

    /// The difference to add to the base, or the reason why the base cannot accept it.
    fn lacks(&self, drift: &Drift) -> Result<Amount, String> {
        let column = self.field.column_type();
        let Number(recounted) = &drift.recounted;
        if is_integer(column) && !recounted.is_integer() {
            return Err("the recount gives no whole number".to_owned());
        }
        let fits = |n: &BigDecimal| fits(self.sharded.dialect, self.field, n);
        if !fits(&(&drift.base + &drift.lacks.0)) || !fits(recounted) {
            return Err(reason(Unfit::OutOfRange));
        }
        Amount::parse(&drift.lacks.to_string(), column).map_err(|_| reason(Unfit::OutOfRange))
    }

    /// Corrects bases in a savepoint. If a base does not accept its difference, rolls back the savepoint and tries each row by itself.
    fn add(
        &self,
        rows: &[(Key, Amount)],
        drifts: &mut [Drift],
        conn: &mut AnyConnection,
    ) -> QueryResult<()> {
        let added = conn.transaction(|conn| add_to_bases(self.sharded, rows, self.field, conn));
        let unfit = match added.map_err(ShardedError::from) {
            Ok(()) => return Ok(()),
            Err(ShardedError::Unfit { reason, .. }) => reason,
            // On SQLite also if no sum holds the shards.
            Err(ShardedError::Overflow { source }) => self.sharded.dialect.refused(&source),
            Err(error) => return Err(error.into()),
        };
        let [(key, _)] = rows else {
            let mut each = rows.chunks(1);
            return each.try_for_each(|row| self.add(row, drifts, conn));
        };
        for drift in drifts.iter_mut().filter(|drift| drift.key == *key) {
            drift.not_repaired = Some(reason(unfit.clone()));
        }
        Ok(())
    }
}

/// A row with its total and its recount.
#[derive(Debug, Serialize)]
struct Drift {
    #[serde(rename = "key")]
    shown: KeyValues,
    #[serde(skip)]
    key: Key,
    #[serde(skip)]
    base: BigDecimal,
    /// The total, which may be out of the range of its column.
    total: Number,
    recounted: Number,
    lacks: Number,
    /// The reason why it was not repaired, although it should be.
    not_repaired: Option<String>,
}

impl Drift {
    fn text(&self) -> String {
        let (key, total, recounted) = (&self.shown, &self.total, &self.recounted);
        let outcome = match &self.not_repaired {
            Some(reason) => format!(", not repaired: {reason}"),
            None => String::new(),
        };
        let lacks = &self.lacks;
        format!("{key}: total {total}, recounted {recounted} ({lacks:+}{outcome})")
    }
}

/// The reason why a total was not repaired.
fn reason(unfit: Unfit) -> String {
    match unfit {
        Unfit::OutOfRange => "out of range".to_owned(),
        unfit => format!("the row {unfit}"),
    }
}

#[derive(Debug, Default, Serialize)]
struct RecountReport {
    table: String,
    field: String,
    compared: usize,
    differ: usize,
    /// `None` if the command only compares.
    repaired: Option<usize>,
    /// The first drifts.
    drifts: Vec<Drift>,
    /// The options that continue after the last row, if there are more rows.
    go_on: Option<String>,
}

impl RecountReport {
    /// Adds the drifts among this many rows. Returns those to print, so that at most `show` are printed in all.
    fn add(&mut self, rows: usize, drifts: Vec<Drift>, show: usize) -> &[Drift] {
        self.compared += rows;
        self.differ += drifts.len();
        if let Some(repaired) = &mut self.repaired {
            let well = drifts.iter().filter(|drift| drift.not_repaired.is_none());
            *repaired += well.count();
        }
        let shown = self.drifts.len();
        let more = drifts.into_iter().take(show.saturating_sub(shown));
        self.drifts.extend(more);
        &self.drifts[shown..]
    }

    /// Prints the sums, or everything as JSON.
    fn end(&self, json: bool) -> Result<(), Error> {
        match json {
            true => output::json(self)?,
            false => self.sums()?,
        }
        if let Some(repaired) = self.repaired.filter(|_| self.is_left_over()) {
            let unfit = self.differ - repaired;
            output::note(&format!(
                "{unfit} could not be repaired, for the reasons above: give whole numbers, fold first, widen the column, change the CHECK, or let this \
                 role update the rows"
            ));
        }
        Ok(())
    }

    fn sums(&self) -> Result<(), Error> {
        let shown = self.drifts.len();
        if self.differ > shown {
            let more = self.differ - shown;
            output::line(&format!("… and {more} more (--show N prints more)"))?;
        }
        let differ = match self.repaired {
            None => format!("{} differ from the recount", self.differ),
            Some(repaired) => format!("{} were not as recounted, {repaired} repaired", self.differ),
        };
        let (table, field) = (&self.table, &self.field);
        let compared = plural(self.compared as u64, "row");
        output::line(&format!("{table}.{field}: {compared} compared, {differ}"))
    }

    fn is_left_over(&self) -> bool {
        self.differ > self.repaired.unwrap_or(0)
    }
}
