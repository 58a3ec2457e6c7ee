//! `diesel-sharded verify` and `backfill`: totals beside a recount of what they count, and repaired by it.

use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_sharded::described::DescribedTable;
use diesel_sharded::model::ShardsColumn;
use serde::Serialize;

use crate::args::{Form, RecountArgs};
use crate::connection::{AnyConnection, read_only};
use crate::error::Error;
use crate::exit::Ended;
use crate::fold::Pauses;
use crate::interrupt::Interrupt;
use crate::key::{Key, KeyValues, Keyed, as_text};
use crate::output::{Output, bar, plural};
use crate::privilege::{Need, explained};
use crate::repair::{Compared, Found, Mode, Range, Reason, Recount, RepairError};
use crate::statement::sql;
use crate::sums::Number;
use crate::{sharded, shell};

/// The subcommand that runs, and its options for the command line that goes on, each behind a space.
#[derive(Debug, Clone, Copy)]
pub struct Again<'a> {
    pub command: &'static str,
    pub options: &'a str,
}

pub fn run(
    args: &RecountArgs,
    mode: Mode,
    again: Again<'_>,
    conn: &mut AnyConnection,
    interrupt: &Interrupt,
    out: &mut Output,
) -> Result<Ended, Error> {
    let found = sharded::find(&args.table, conn)?;
    let sharded = &found.table;
    let after = match &*args.after {
        [] => None,
        after => Some(Key::parse(sharded, after)?),
    };
    let recounting = Recounting {
        keyed: found.keyed(),
        field: sharded::field(sharded, &args.field)?,
        args,
        mode,
        again,
    };
    recounting.run(after, conn, interrupt, out)
}

struct Recounting<'a> {
    keyed: Keyed<'a>,
    field: &'a ShardsColumn,
    args: &'a RecountArgs,
    mode: Mode,
    again: Again<'a>,
}

impl Recounting<'_> {
    fn run(
        &self,
        mut last: Option<Key>,
        conn: &mut AnyConnection,
        interrupt: &Interrupt,
        out: &mut Output,
    ) -> Result<Ended, Error> {
        let (sharded, form) = (self.keyed.sharded, self.args.form);
        let bar = bar(form, sharded.table().as_str(), || {
            self.count(last.as_ref(), conn)
        });
        let bar = bar.map_err(|error| self.explained(error.into(), conn))?;
        interrupt.write_beside(&bar);
        let batch = self.args.batch as usize;
        let mut pauses = Pauses::at_most_per_second(self.args.at_most_per_second, batch, interrupt);
        let size = pauses.batch();
        let mut report = RecountReport::of(sharded, self.field, self.mode);
        let mut is_left = true;
        let error = loop {
            let (keys, found) = match self.next(size, last.as_ref(), conn) {
                Ok(batch) => batch,
                Err(error) => break Some(self.explained(error, conn)),
            };
            for drift in report.add(sharded, keys.len(), &found, self.args.show) {
                if form.is_text() {
                    bar.suspend(|| out.line(&drift.text()))?;
                }
            }
            is_left = keys.len() == size;
            last = keys.last().cloned().or(last);
            if !is_left {
                break None;
            }
            pauses.after_batch(keys.len());
            bar.inc(keys.len() as u64); // behind the pause, which is a part of the rate
            if interrupt.came() {
                break None;
            }
        };
        bar.finish_and_clear();
        let error = match error {
            Some(error) if report.compared == 0 => return Err(error),
            error => error,
        };
        let interrupted = error.is_none() && is_left;
        let go_on = (error.is_some() || interrupted).then(|| self.go_on(last.as_ref()));
        report.end(form, go_on.clone(), interrupted, out)?;
        if let (Some(error), Some(go_on)) = (error, go_on) {
            return Err(error.unfinished(go_on));
        }
        Ok(match interrupted {
            true => Ended::Interrupted,
            false => Ended::left_over_if(report.is_left_over()),
        })
    }

    /// The command line that compares the rest.
    fn go_on(&self, last: Option<&Key>) -> String {
        let sharded = self.keyed.sharded;
        let after = last.map(|last| last.after_arguments(sharded));
        let words = [
            self.again.command,
            sharded.table().as_str(),
            self.field.name(),
        ];
        shell::command(words) + self.again.options + &after.unwrap_or_default()
    }

    fn explained(&self, error: Error, conn: &mut AnyConnection) -> Error {
        let sharded = self.keyed.sharded;
        let mut needs = Need::to_read(sharded).to_vec();
        if self.mode == Mode::Repair {
            let field = std::slice::from_ref(self.field);
            needs.extend(Need::to_update(field, sharded.table()));
        }
        explained(error, &needs, conn)
    }

    fn count(&self, after: Option<&Key>, conn: &mut AnyConnection) -> QueryResult<u64> {
        let parent = self.keyed.parent();
        let count = as_text(self.keyed.dialect, "COUNT(*)");
        let behind = self.keyed.where_behind(&parent, after);
        sql!(format!("SELECT {count} FROM {parent}"), behind).number(conn)
    }

    /// Compares the next rows, and repairs them if it should. Their keys, in order.
    fn next(
        &self,
        size: usize,
        after: Option<&Key>,
        conn: &mut AnyConnection,
    ) -> Result<(Vec<Key>, Found), Error> {
        let (keyed, parent) = (self.keyed, self.keyed.parent());
        let pick = sql!(
            format!("SELECT {} FROM {parent}", keyed.key_as_texts(&parent)),
            keyed.where_behind(&parent, after),
            format!(" ORDER BY {} LIMIT {size}", keyed.key(&parent))
        );
        let columns = keyed.sharded.key().len();
        let rows = pick.rows(conn)?;
        let keys = rows.iter().map(|row| Key::read(columns, row));
        let keys: Vec<_> = keys.collect::<QueryResult<_>>()?;
        let Some(last) = keys.last() else {
            return Ok((keys, Found::default()));
        };
        if after == Some(last) {
            return Err(last.no_way_behind(keyed.sharded));
        }
        let range = Range { after, last };
        let recount = Recount {
            keyed,
            field: self.field,
            query: &self.args.recount,
        };
        // The query may call functions that write.
        let drifts = read_only(conn, |conn| recount.drifts(&range, conn));
        let drifts = drifts.map_err(|error| self.of_recount(error))?;
        let found = match self.mode {
            Mode::Repair if !drifts.is_empty() => recount.repair(&range, &drifts, conn)?,
            _ => Found {
                drifts,
                ..Found::default()
            },
        };
        Ok((keys, found))
    }

    /// An error of the first comparison, which is the recount's unless the connection was lost.
    fn of_recount(&self, error: RepairError) -> Error {
        match error {
            RepairError::Diesel(DieselError::DatabaseError(kind, information))
                if !matches!(kind, DatabaseErrorKind::ClosedConnection) =>
            {
                let columns = self.keyed.sharded.key().len();
                Error::Recount(information.message().to_owned(), columns)
            }
            error => error.into(),
        }
    }
}

#[derive(Debug, Serialize)]
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
    fn of(sharded: &DescribedTable, drift: &Compared, left: Option<&Reason>) -> Self {
        DriftReport {
            key: drift.key.values(sharded),
            total: Number(drift.total.clone()),
            recounted: Number(drift.expected.clone()),
            lacks: Number(&drift.expected - &drift.total),
            not_repaired: left.map(Reason::to_string),
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
    pub fn of(sharded: &DescribedTable, field: &ShardsColumn, mode: Mode) -> Self {
        RecountReport {
            table: sharded.table().to_string(),
            field: field.name().to_owned(),
            compared: 0,
            differ: 0,
            repaired: (mode == Mode::Repair).then_some(0),
            drifts: vec![],
            go_on: None,
        }
    }

    /// Adds the drifts of so many rows. Those that are to be shown, up to so many in all.
    pub fn add(
        &mut self,
        sharded: &DescribedTable,
        rows: usize,
        found: &Found,
        show: usize,
    ) -> &[DriftReport] {
        self.compared += rows;
        self.differ += found.drifts.len();
        if let Some(repaired) = &mut self.repaired {
            *repaired += found.drifts.len() - found.left.len();
        }
        let shown = self.drifts.len();
        for drift in found.drifts.iter().take(show.saturating_sub(shown)) {
            let left = found.left.iter().find(|(key, _)| *key == drift.key);
            let left = left.map(|(_, reason)| reason);
            self.drifts.push(DriftReport::of(sharded, drift, left));
        }
        &self.drifts[shown..]
    }

    /// Prints the sums, or everything as JSON.
    pub fn end(
        &mut self,
        form: Form,
        go_on: Option<String>,
        interrupted: bool,
        out: &mut Output,
    ) -> Result<(), Error> {
        self.go_on = go_on;
        match form {
            Form { json: true, .. } => out.json(self)?,
            Form { quiet: true, .. } => {}
            _ => self.sums(out)?,
        }
        let unfit = self.unfit();
        if unfit > 0 {
            out.note(&format!(
                "{unfit} could not be repaired, for the reasons above: give whole numbers, fold first, widen the column, change the CHECK, or let this \
                 role update the rows"
            ));
        }
        // An error names it itself.
        if let (true, Some(go_on)) = (interrupted, &self.go_on) {
            out.note(&format!("interrupted: go on with: {go_on}"));
        }
        Ok(())
    }

    fn sums(&self, out: &mut Output) -> Result<(), Error> {
        let shown = self.drifts.len();
        if self.differ > shown {
            out.line(&format!("… and {} more", self.differ - shown))?;
        }
        let differ = match self.repaired {
            None => format!("{} differ from the recount", self.differ),
            Some(repaired) => format!("{} were not as recounted, {repaired} repaired", self.differ),
        };
        out.line(&format!(
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
