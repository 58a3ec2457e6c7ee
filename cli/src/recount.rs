//! `diesel-sharded verify` and `backfill`: totals beside a recount of what they count, and repaired by it.

use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_sharded::described::DescribedTable;
use diesel_sharded::model::ShardsColumn;
use serde::Serialize;
use serde_json::Value as JsonValue;

use crate::args::{Form, RecountArgs};
use crate::connection::AnyConnection;
use crate::drifts::{Compared, Range, RepairError};
use crate::error::Error;
use crate::exit::Ended;
use crate::fold::Pauses;
use crate::interrupt::Interrupt;
use crate::key::{Key, Keyed, as_text};
use crate::live::LiveTables;
use crate::output::{Output, plural};
use crate::privilege::{Need, explained};
use crate::progress::bar;
use crate::repair::{Found, Mode, Reason, Repair};
use crate::statement::{Statement, Value};
use crate::sums::{Number, Plain};
use crate::within::read_only;
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
    let dialect = conn.dialect();
    let (live, table) = LiveTables::of(&args.table, conn)?;
    let sharded = &sharded::find(dialect, &live, &table)?;
    let field = sharded::field(sharded, &args.field)?;
    let after = match &*args.after {
        [] => None,
        after => Some(Key::parse(sharded, after)?),
    };
    let recounting = Recounting {
        keyed: Keyed { sharded, dialect },
        field,
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

/// The rows of a batch, in key order.
struct Batch {
    keys: Vec<Key>,
    found: Found,
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
            let Batch { keys, found } = match self.next(size, last.as_ref(), conn) {
                Ok(batch) => batch,
                Err(error) => break Some(self.explained(error, conn)),
            };
            for drift in report.add(sharded, keys.len(), &found, self.args.show) {
                if !form.json && !form.quiet {
                    bar.suspend(|| out.line(&drift))?;
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
            Some(error) if report.is_empty() => return Err(error),
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
            false => report.ended(),
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
        let (keyed, table) = (self.keyed, self.keyed.sharded.table());
        let count = Statement::default().sql("SELECT CAST(COUNT(*)");
        let count = count.sql(as_text(keyed.dialect)).sql(" FROM ").table(table);
        let count = match after {
            Some(key) => keyed.is_beyond(count.sql(" WHERE "), table, ">", false, key),
            None => count,
        };
        let rows = count.rows(conn)?;
        rows.first().map_or(Ok(0), |row| row.parse(0))
    }

    /// Compares the next rows in key order, and repairs them if it should.
    fn next(
        &self,
        size: usize,
        after: Option<&Key>,
        conn: &mut AnyConnection,
    ) -> Result<Batch, Error> {
        let (keyed, table) = (self.keyed, self.keyed.sharded.table());
        let pick = keyed.select_key(Statement::default().sql("SELECT "), table);
        let pick = pick.sql(" FROM ").table(table);
        let pick = match after {
            Some(key) => keyed.is_beyond(pick.sql(" WHERE "), table, ">", false, key),
            None => pick,
        };
        let pick = keyed.key(pick.sql(" ORDER BY "), table).sql(" LIMIT ");
        let rows = pick.bind(Value::Integer(size as i64)).rows(conn)?;
        let keys = rows
            .iter()
            .map(|row| Key::read(keyed.sharded.key().len(), row));
        let keys: Vec<_> = keys.collect::<QueryResult<_>>()?;
        let Some(last) = keys.last() else {
            return Ok(Batch {
                keys,
                found: Found::default(),
            });
        };
        if after == Some(last) {
            return Err(last.no_way_behind(keyed.sharded));
        }
        let range = Range { after, last };
        // The query may call functions that write.
        let drifts = read_only(conn, |conn| {
            keyed.drifts(self.field, &self.args.recount, &range, conn)
        });
        let drifts = drifts.map_err(|error| self.of_recount(error))?;
        let found = match self.mode {
            Mode::Repair if !drifts.is_empty() => {
                let repair = Repair {
                    keyed,
                    field: self.field,
                    recount: &self.args.recount,
                };
                repair.run(&range, &drifts, conn)?
            }
            _ => Found {
                drifts,
                ..Found::default()
            },
        };
        Ok(Batch { keys, found })
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
struct DriftReport {
    key: Vec<JsonValue>,
    total: Number,
    recounted: Number,
    lacks: Number,
    /// Why it was not repaired, if it was to be.
    not_repaired: Option<String>,
    #[serde(skip)]
    shown_key: String,
}

impl DriftReport {
    fn of(sharded: &DescribedTable, drift: &Compared, left: Option<&Reason>) -> Self {
        DriftReport {
            key: drift.key.json(sharded),
            total: Number(drift.total.clone()),
            recounted: Number(drift.expected.clone()),
            lacks: Number(&drift.expected - &drift.total),
            not_repaired: left.map(Reason::to_string),
            shown_key: drift.key.display(sharded),
        }
    }

    fn text(&self) -> String {
        let outcome = self.not_repaired.as_ref();
        let outcome = outcome.map(|reason| format!(", not repaired: {reason}"));
        format!(
            "{}: total {}, recounted {} ({:+}{})",
            self.shown_key,
            Plain(&self.total.0),
            Plain(&self.recounted.0),
            Plain(&self.lacks.0),
            outcome.unwrap_or_default(),
        )
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

    pub fn is_empty(&self) -> bool {
        self.compared == 0
    }

    /// Adds the drifts of so many rows. Those that are to be shown, up to so many in all, as texts.
    pub fn add(
        &mut self,
        sharded: &DescribedTable,
        rows: usize,
        found: &Found,
        show: usize,
    ) -> Vec<String> {
        self.compared += rows;
        self.differ += found.drifts.len();
        if let Some(repaired) = &mut self.repaired {
            *repaired += found.drifts.len() - found.left.len();
        }
        let left = show.saturating_sub(self.drifts.len());
        let mut shown = vec![];
        for drift in found.drifts.iter().take(left) {
            let left = found.left.iter().find(|(key, _)| *key == drift.key);
            let drift = DriftReport::of(sharded, drift, left.map(|(_, reason)| reason));
            shown.push(drift.text());
            self.drifts.push(drift);
        }
        shown
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

    /// How a command that reached the end ends.
    pub fn ended(&self) -> Ended {
        match self.repaired {
            None if self.differ > 0 => Ended::LeftOver,
            Some(_) if self.unfit() > 0 => Ended::LeftOver,
            _ => Ended::Done,
        }
    }
}
