//! `diesel-sharded verify` and `backfill`: totals beside a recount of what they count, and repaired by it.

use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_sharded::Error as ShardedError;
use diesel_sharded::model::ShardsColumn;
use serde::Serialize;

use crate::args::{Form, RecountArgs};
use crate::connection::{AnyConnection, read_only};
use crate::error::Error;
use crate::exit::Ended;
use crate::fold::Pauses;
use crate::interrupt;
use crate::key::{Key, KeyValues, as_text};
use crate::output::{self, bar, end_bar, plural};
use crate::privilege::{Need, explained};
use crate::repair::{Compared, Mode};
use crate::sharded::{self, Sharded};
use crate::shell;
use crate::statement::sql;
use crate::sums::Number;

/// `command` is the one that runs. `options` are those of the command line that goes on, each behind a space.
pub fn run(
    args: &RecountArgs,
    mode: Mode,
    command: &str,
    options: &str,
    conn: &mut AnyConnection,
) -> Result<Ended, Error> {
    interrupt::handle_in_batches()?;
    let sharded = &sharded::find(&args.table, conn)?;
    let after = match &*args.after {
        [] => None,
        after => Some(Key::parse(sharded, after)?),
    };
    let field = sharded.field(&args.field)?;
    let words = [command, sharded.table().as_str(), field.name()];
    let recounting = Recounting {
        sharded,
        field,
        args,
        mode,
        again: shell::command(words) + options,
    };
    recounting.run(after, conn)
}

pub struct Recounting<'a> {
    pub sharded: &'a Sharded,
    pub field: &'a ShardsColumn,
    pub args: &'a RecountArgs,
    mode: Mode,
    /// The command line that begins anew.
    again: String,
}

impl Recounting<'_> {
    fn run(&self, mut last: Option<Key>, conn: &mut AnyConnection) -> Result<Ended, Error> {
        let (sharded, form) = (self.sharded, self.args.form);
        let bar = bar(form, sharded.table().as_str(), || {
            self.count(last.as_ref(), conn)
        });
        let bar = bar.map_err(|error| self.explained(error.into(), conn))?;
        let batch = self.args.batch as usize;
        let mut pauses = Pauses::at_most_per_second(self.args.at_most_per_second, batch);
        let size = pauses.batch();
        let mut report = RecountReport {
            table: sharded.table().to_string(),
            field: self.field.name().to_owned(),
            repaired: (self.mode == Mode::Repair).then_some(0),
            ..RecountReport::default()
        };
        let mut is_left = true;
        let error = loop {
            let (keys, drifts) = match self.next(size, last.as_ref(), conn) {
                Ok(batch) => batch,
                Err(error) => break Some(self.explained(error, conn)),
            };
            for drift in report.add(sharded, keys.len(), &drifts, self.args.show) {
                if form.is_text() {
                    output::line(&drift.text())?;
                }
            }
            is_left = keys.len() == size;
            last = keys.last().cloned().or(last);
            if !is_left {
                break None;
            }
            pauses.after_batch(keys.len());
            bar.inc(keys.len() as u64); // behind the pause, which is a part of the rate
            if interrupt::came() {
                break None;
            }
        };
        end_bar(&bar);
        let error = match error {
            Some(error) if report.compared == 0 => return Err(error),
            error => error,
        };
        let go_on = (error.is_some() || is_left).then(|| {
            let after = last.map(|last| last.after_arguments(sharded));
            self.again.clone() + &after.unwrap_or_default()
        });
        report.end(form, go_on.clone())?;
        Ended::of(error, go_on, report.is_left_over())
    }

    fn explained(&self, error: Error, conn: &mut AnyConnection) -> Error {
        let mut needs = Need::to_read(self.sharded).to_vec();
        if self.mode == Mode::Repair {
            let field = std::slice::from_ref(self.field);
            needs.extend(Need::to_update(field, self.sharded.table()));
        }
        explained(error, &needs, conn)
    }

    fn count(&self, after: Option<&Key>, conn: &mut AnyConnection) -> QueryResult<u64> {
        let parent = self.sharded.parent();
        let count = as_text(self.sharded.dialect, "COUNT(*)");
        let behind = self.sharded.where_behind(&parent, after);
        sql!(format!("SELECT {count} FROM {parent}"), behind).number(conn)
    }

    /// Compares the next rows, and repairs them if it should. Their keys, in order, and those that differ.
    fn next(
        &self,
        size: usize,
        after: Option<&Key>,
        conn: &mut AnyConnection,
    ) -> Result<(Vec<Key>, Vec<Compared>), Error> {
        let (sharded, parent) = (self.sharded, self.sharded.parent());
        let pick = sql!(
            format!("SELECT {} FROM {parent}", sharded.key_as_texts(&parent)),
            sharded.where_behind(&parent, after),
            format!(" ORDER BY {} LIMIT {size}", sharded.key_of(&parent))
        );
        let columns = sharded.key().len();
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
        let drifts = match self.mode {
            Mode::Repair if !drifts.is_empty() => self.repair(after, last, &drifts, conn)?,
            _ => drifts,
        };
        Ok((keys, drifts))
    }

    /// An error of the first comparison, which is the recount's unless the connection was lost.
    fn of_recount(&self, error: Error) -> Error {
        match error {
            Error::Database(ShardedError::Diesel(DieselError::DatabaseError(
                kind,
                information,
            ))) if !matches!(kind, DatabaseErrorKind::ClosedConnection) => {
                let columns = self.sharded.key().len();
                Error::Recount(information.message().to_owned(), columns)
            }
            error => error,
        }
    }
}

#[derive(Debug, Default, Serialize)]
pub struct RecountReport {
    table: String,
    field: String,
    compared: usize,
    differ: usize,
    /// Nothing if it only compares.
    repaired: Option<usize>,
    /// The first ones.
    drifts: Vec<DriftReport>,
    /// The command line that compares the rest, if there is one.
    go_on: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct DriftReport {
    key: KeyValues,
    total: Number,
    recounted: Number,
    lacks: Number,
    /// Why it was not repaired, if it was to be.
    not_repaired: Option<String>,
}

impl DriftReport {
    fn of(sharded: &Sharded, drift: &Compared) -> Self {
        DriftReport {
            key: drift.key.values(sharded),
            total: Number(drift.total.clone()),
            recounted: Number(drift.expected.clone()),
            lacks: Number(&drift.expected - &drift.total),
            not_repaired: drift.left.clone(),
        }
    }

    fn text(&self) -> String {
        let DriftReport {
            key,
            total,
            recounted,
            lacks,
            not_repaired,
        } = self;
        let outcome = not_repaired.as_ref();
        let outcome = outcome.map(|reason| format!(", not repaired: {reason}"));
        let outcome = outcome.unwrap_or_default();
        format!("{key}: total {total}, recounted {recounted} ({lacks:+}{outcome})")
    }
}

impl RecountReport {
    /// Adds the drifts of so many rows. Those that are to be shown, up to so many in all.
    fn add(
        &mut self,
        sharded: &Sharded,
        rows: usize,
        drifts: &[Compared],
        show: usize,
    ) -> &[DriftReport] {
        self.compared += rows;
        self.differ += drifts.len();
        if let Some(repaired) = &mut self.repaired {
            *repaired += drifts.iter().filter(|drift| drift.left.is_none()).count();
        }
        let shown = self.drifts.len();
        let more = drifts.iter().take(show.saturating_sub(shown));
        self.drifts
            .extend(more.map(|drift| DriftReport::of(sharded, drift)));
        &self.drifts[shown..]
    }

    /// Prints the sums, or everything as JSON.
    fn end(&mut self, form: Form, go_on: Option<String>) -> Result<(), Error> {
        self.go_on = go_on;
        match form {
            Form { json: true, .. } => output::json(self)?,
            Form { quiet: true, .. } => {}
            _ => self.sums()?,
        }
        let unfit = self.unfit();
        if unfit > 0 {
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
            output::line(&format!("… and {} more", self.differ - shown))?;
        }
        let differ = match self.repaired {
            None => format!("{} differ from the recount", self.differ),
            Some(repaired) => format!("{} were not as recounted, {repaired} repaired", self.differ),
        };
        output::line(&format!(
            "{}.{}: {} compared, {differ}",
            self.table,
            self.field,
            plural(self.compared as u64, "row"),
        ))
    }

    fn unfit(&self) -> usize {
        self.repaired.map_or(0, |repaired| self.differ - repaired)
    }

    fn is_left_over(&self) -> bool {
        match self.repaired {
            None => self.differ > 0,
            Some(_) => self.unfit() > 0,
        }
    }
}
