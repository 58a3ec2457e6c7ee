//! `diesel-sharded fold`: moves shards into the base while the application goes on counting. No total changes.

use std::mem;
use std::ops::ControlFlow;
use std::time::Instant;

use bigdecimal::BigDecimal;
use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_sharded::described::{
    DescribedTable, FoldSettings, FoldedRows, Pace, amounts, fold, looked_at, nothing_folded,
};
use serde::Serialize;
use serde_json::Value as JsonValue;

use crate::args::{FoldArgs, Form};
use crate::connection::AnyConnection;
use crate::error::Error;
use crate::exit::Ended;
use crate::interrupt::Interrupt;
use crate::key::{Key, Keyed, as_text};
use crate::live::LiveTables;
use crate::output::{Output, plural};
use crate::privilege::{Need, explained};
use crate::progress::bar;
use crate::statement::{Statement, Value};
use crate::sums::{self, Number, as_decimal, moved};
use crate::{shard_counts, sharded, shell};

pub fn run(
    args: &FoldArgs,
    options: &str,
    conn: &mut AnyConnection,
    interrupt: &Interrupt,
    out: &mut Output,
) -> Result<Ended, Error> {
    let dialect = conn.dialect();
    let named = sharded::named(&args.tables, conn)?;
    let tables = &named.tables;
    let after = match (&**tables, &*args.after) {
        (_, []) => None,
        ([(_, sharded)], after) if !args.tables.is_empty() => Some(Key::parse(sharded, after)?),
        _ => {
            let text = "--after goes on in one table: name it";
            return Err(Error::Refused(text.to_owned()));
        }
    };
    named.note_left_out(out);
    if tables.is_empty() && !args.form.json && !args.form.quiet {
        out.line("There is no sharded table in this database.")?;
    }
    let mut reports = FoldReports::of(args.form, out);
    let mut pauses = Pauses::at_most_per_second(args.at_most_per_second, args.batch, interrupt);
    let (mut ended, mut failed) = (Ended::Done, vec![]);
    for (i, (live, sharded)) in tables.iter().enumerate() {
        let others = tables.iter().skip(i + 1);
        let others = others.map(|(_, sharded)| sharded.table().to_string());
        let mut folding = Folding {
            keyed: Keyed { sharded, dialect },
            keep_shards: args.keep_shards,
            form: args.form,
            interrupt,
            options,
            others: others.collect(),
        };
        let mut fold = || {
            if args.keep_shards.is_none() {
                folding.keep_shards = folding.wished(live, args.dry_run, conn)?;
            }
            match args.dry_run {
                true => folding.dry_run(after.as_ref(), conn, &mut reports),
                false => folding.run(after.clone(), &mut pauses, conn, &mut reports),
            }
        };
        match fold() {
            Ok(ended_so) => ended = ended.and(ended_so),
            Err(error) if tables.len() == 1 => failed.push(error),
            // The others are folded all the same.
            Err(error) => {
                failed.push(error.of_table(sharded.table()));
                if interrupt.came() {
                    break;
                }
            }
        }
        if ended == Ended::Interrupted {
            break;
        }
    }
    reports.end()?;
    match (failed.pop(), failed.is_empty()) {
        (None, _) => Ok(ended),
        (Some(error), true) => Err(error),
        (Some(last), false) => {
            failed.push(last);
            Err(Error::Several(failed))
        }
    }
}

/// How one table is folded.
pub struct Folding<'a> {
    pub keyed: Keyed<'a>,
    /// Empty shards numbered from here on are removed, or none.
    pub keep_shards: Option<u16>,
    pub form: Form,
    pub interrupt: &'a Interrupt,
    /// Those of the command line that goes on, each behind a space.
    pub options: &'a str,
    /// The tables that are folded after this one.
    pub others: Vec<String>,
}

impl Folding<'_> {
    pub fn run(
        &self,
        after: Option<Key>,
        pauses: &mut Pauses<'_>,
        conn: &mut AnyConnection,
        reports: &mut FoldReports<'_>,
    ) -> Result<Ended, Error> {
        let sharded = self.keyed.sharded;
        let bar = bar(self.form, sharded.table().as_str(), || {
            Ok(self.foldable(after.as_ref(), conn)?.0)
        });
        let bar = bar.map_err(|error| self.explained(error, conn))?;
        self.interrupt.write_beside(&bar);
        let settings = FoldSettings {
            batch: pauses.batch(),
            keep_shards: self.keep_shards,
        };
        let (mut last, mut stuck) = (after.clone(), None);
        let (mut folded, mut rows) = (nothing_folded(sharded, after), 0);
        let result = fold(self.keyed, settings, &mut folded, conn, |folded| {
            if folded.last == last {
                stuck = last.as_ref().map(|last| last.no_way_behind(sharded));
                return ControlFlow::Break(());
            }
            last.clone_from(&folded.last);
            let before = mem::replace(&mut rows, looked_at(folded));
            if !folded.finished || !self.others.is_empty() {
                pauses.after_batch((rows - before) as usize);
            }
            bar.set_position(rows); // behind the pause, which is a part of the rate
            match self.interrupt.came() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        bar.finish_and_clear();
        let error = result.err().map(|error| self.explained(error, conn));
        let error = error.or(stuck);
        let error = match error {
            Some(error) if rows == 0 && folded.parents == 0 => return Err(error),
            error => error,
        };
        let is_left = !folded.finished || !self.others.is_empty();
        let interrupted = error.is_none() && self.interrupt.came() && is_left;
        let go_on = (error.is_some() || interrupted).then(|| self.go_on(&folded));
        let sums = amounts(&folded).iter().map(as_decimal);
        let sums: Vec<_> = sums.collect::<QueryResult<_>>()?;
        let report = FoldReport::of(sharded, &folded, &sums, go_on.clone(), interrupted);
        reports.add(report)?;
        if let (Some(error), Some(go_on)) = (error, go_on) {
            return Err(error.unfinished(go_on));
        }
        let left_over = !folded.unfit.is_empty() || !folded.busy.is_empty();
        Ok(match (interrupted, left_over) {
            (true, _) => Ended::Interrupted,
            (false, true) => Ended::LeftOver,
            (false, false) => Ended::Done,
        })
    }

    /// The command line that folds the rest.
    fn go_on(&self, folded: &FoldedRows<Key>) -> String {
        let sharded = self.keyed.sharded;
        let fold = |tables: &[String]| {
            let tables = tables.iter().map(String::as_str);
            shell::command(["fold"].into_iter().chain(tables)) + self.options
        };
        let mut lines = vec![];
        if !folded.finished {
            let last = folded.last.as_ref();
            let after = last.map(|last| last.after_arguments(sharded));
            lines.push(fold(&[sharded.table().to_string()]) + &after.unwrap_or_default());
        }
        // After an error they are folded still.
        if !self.others.is_empty() && self.interrupt.came() {
            lines.push(fold(&self.others));
        }
        lines.join("; ")
    }

    /// The number below which a fold keeps the shards of this table, if every field has one.
    fn wished(
        &self,
        live: &LiveTables,
        dry_run: bool,
        conn: &mut AnyConnection,
    ) -> Result<Option<u16>, Error> {
        let sharded = self.keyed.sharded;
        let numbers = shard_counts::of_table(conn, live, sharded);
        let numbers = numbers.map_err(|error| {
            let mut needs = match dry_run {
                true => self.needs_to_look().to_vec(),
                false => self.needs(true),
            };
            needs.extend(shard_counts::needs());
            explained(error.into(), &needs, conn)
        })?;
        Ok(sharded.wished(&numbers))
    }

    /// The privileges that a dry run needs.
    fn needs_to_look(&self) -> [Need<'_>; 1] {
        [Need::of("SELECT", self.keyed.sharded.shards_table())]
    }

    /// The privileges that a fold needs, which may remove shards.
    fn needs(&self, removes: bool) -> Vec<Need<'_>> {
        let sharded = self.keyed.sharded;
        let (table, shards) = (sharded.table(), sharded.shards_table());
        let mut needs = Need::to_read(sharded).to_vec();
        needs.extend(Need::to_update(sharded.fields(), table));
        needs.push(Need::of("UPDATE", shards));
        if removes {
            needs.push(Need::of("DELETE", shards));
        }
        needs
    }

    fn explained(&self, error: DieselError, conn: &mut AnyConnection) -> Error {
        explained(error.into(), &self.needs(self.keep_shards.is_some()), conn)
    }

    pub fn dry_run(
        &self,
        after: Option<&Key>,
        conn: &mut AnyConnection,
        reports: &mut FoldReports<'_>,
    ) -> Result<Ended, Error> {
        let sharded = self.keyed.sharded;
        let foldable = self.foldable(after, conn);
        let (rows, sums) =
            foldable.map_err(|error| explained(error.into(), &self.needs_to_look(), conn))?;
        reports.add(FoldReport::dry(sharded, rows, sums))?;
        Ok(Ended::Done)
    }
}

/// The most rows that are named in one text.
const NAMED: usize = 20;

/// The result for one table.
#[derive(Debug, Serialize)]
pub struct FoldReport {
    table: String,
    shards_table: String,
    /// Whether it says what there is to fold, and nothing was.
    dry_run: bool,
    rows: u64,
    fields: Vec<FieldReport>,
    shards_removed: u64,
    /// The keys of rows whose shards others held all the time.
    busy: Vec<Vec<JsonValue>>,
    unfit: Vec<UnfitReport>,
    /// The command line that folds the rest, if there is one.
    go_on: Option<String>,
    #[serde(skip)]
    interrupted: bool,
    #[serde(skip)]
    text: String,
    #[serde(skip)]
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct FieldReport {
    field: String,
    moved: Number,
}

#[derive(Debug, Serialize)]
struct UnfitReport {
    key: Vec<JsonValue>,
    reason: String,
}

impl FoldReport {
    pub fn dry(sharded: &DescribedTable, rows: u64, sums: Vec<Option<BigDecimal>>) -> Self {
        let sums: Vec<_> = sums.into_iter().map(Option::unwrap_or_default).collect();
        FoldReport {
            dry_run: true,
            rows,
            text: format!(
                "{}: {} to fold{}",
                sharded.table(),
                plural(rows, "row"),
                moved(sharded, &sums.iter().collect::<Vec<_>>())
            ),
            ..FoldReport::empty(sharded, &sums)
        }
    }

    pub fn of(
        sharded: &DescribedTable,
        folded: &FoldedRows<Key>,
        sums: &[BigDecimal],
        go_on: Option<String>,
        interrupted: bool,
    ) -> Self {
        let unfit = folded.unfit.iter().map(|(key, reason)| UnfitReport {
            key: key.json(sharded),
            reason: reason.to_string(),
        });
        FoldReport {
            rows: folded.parents,
            shards_removed: folded.shards_removed,
            busy: folded.busy.iter().map(|key| key.json(sharded)).collect(),
            unfit: unfit.collect(),
            go_on,
            interrupted,
            text: format!(
                "{}: {} folded{}; {} removed",
                sharded.table(),
                plural(folded.parents, "row"),
                moved(sharded, &sums.iter().collect::<Vec<_>>()),
                plural(folded.shards_removed, "empty shard"),
            ),
            notes: notes(sharded, folded),
            ..FoldReport::empty(sharded, sums)
        }
    }

    fn empty(sharded: &DescribedTable, sums: &[BigDecimal]) -> Self {
        let fields = sharded.fields().iter().zip(sums);
        let fields = fields.map(|(field, sum)| FieldReport {
            field: field.name().to_owned(),
            moved: Number(sum.clone()),
        });
        FoldReport {
            table: sharded.table().to_string(),
            shards_table: sharded.shards_table().to_string(),
            dry_run: false,
            rows: 0,
            fields: fields.collect(),
            shards_removed: 0,
            busy: vec![],
            unfit: vec![],
            go_on: None,
            interrupted: false,
            text: String::new(),
            notes: vec![],
        }
    }
}

/// The rows that were left, and why.
fn notes(sharded: &DescribedTable, folded: &FoldedRows<Key>) -> Vec<String> {
    let table = sharded.table();
    let more = |keys: usize| match keys {
        0..=NAMED => String::new(),
        n => format!(" and {} more", n - NAMED),
    };
    let mut notes = vec![];
    if !folded.busy.is_empty() {
        let shown = folded.busy.iter().take(NAMED);
        let shown: Vec<_> = shown.map(|key| key.display(sharded)).collect();
        notes.push(format!(
            "{table}: others held shards of these rows all the time, fold them again later: {}{}",
            shown.join("; "),
            more(folded.busy.len())
        ));
    }
    let shown = folded.unfit.iter().take(NAMED);
    notes.extend(shown.map(|(key, reason)| {
        let key = key.display(sharded);
        format!("{table}: not folded: the row {key} {reason}")
    }));
    if folded.unfit.len() > NAMED {
        notes.push(format!("{table}: not folded:{}", more(folded.unfit.len())));
    }
    notes
}

/// The results for some tables: text at once, JSON at the end.
pub struct FoldReports<'o> {
    form: Form,
    out: &'o mut Output,
    json: Vec<FoldReport>,
}

impl<'o> FoldReports<'o> {
    pub fn of(form: Form, out: &'o mut Output) -> Self {
        FoldReports {
            form,
            out,
            json: vec![],
        }
    }

    pub fn add(&mut self, report: FoldReport) -> Result<(), Error> {
        if !self.form.json && !self.form.quiet {
            self.out.line(&report.text)?;
        }
        for note in &report.notes {
            self.out.note(note);
        }
        // An error names it itself.
        if let (true, Some(go_on)) = (report.interrupted, &report.go_on) {
            self.out.note(&format!("interrupted: go on with: {go_on}"));
        }
        self.json.push(report);
        Ok(())
    }

    pub fn end(self) -> Result<(), Error> {
        match self.form.json {
            true => self.out.json(&self.json),
            false => Ok(()),
        }
    }
}

impl Folding<'_> {
    /// How many parents have something to fold, and how much of each field it is.
    pub fn foldable(
        &self,
        after: Option<&Key>,
        conn: &mut AnyConnection,
    ) -> QueryResult<(u64, Vec<Option<BigDecimal>>)> {
        let (keyed, shards) = (self.keyed, self.keyed.sharded.shards_table());
        let fields = keyed.sharded.fields();
        let with_work = |statement: Statement| {
            let of = statement.sql(" FROM ").table(shards).sql(" WHERE (");
            let of = of.each(" OR ", fields, |of, field| {
                of.column(shards, field.name()).sql(" <> 0")
            });
            let of = match self.keep_shards {
                Some(first) => {
                    let of = of.sql(" OR ").column(shards, "shard").sql(" >= ");
                    of.bind(Value::Integer(first.into()))
                }
                None => of,
            };
            let of = of.sql(")");
            match after {
                Some(key) => keyed.is_beyond(of.sql(" AND "), shards, ">", false, key),
                None => of,
            }
        };
        let count = Statement::default().sql("SELECT (SELECT CAST(COUNT(*)");
        let count = count.sql(as_text(keyed.dialect));
        let count = with_work(count.sql(" FROM (SELECT 1 AS parent")).sql(" GROUP BY ");
        let count = keyed.key(count, shards).sql(") AS foldable)");
        let count = fields.iter().fold(count, |count, field| {
            sums::select(count.sql(", "), keyed.dialect, field, |count| {
                count.column(shards, field.name())
            })
        });
        let rows = with_work(count).rows(conn)?;
        let Some(row) = rows.first() else {
            return Ok((0, vec![]));
        };
        let amounts = (1..=fields.len()).map(|i| sums::read(row, i));
        Ok((row.parse(0)?, amounts.collect::<QueryResult<_>>()?))
    }
}

/// Keeps to so many rows in a second.
#[derive(Debug)]
pub struct Pauses<'a> {
    pace: Option<Pace>,
    batch: usize,
    /// When the open batch began.
    began: Instant,
    interrupt: &'a Interrupt,
}

impl<'a> Pauses<'a> {
    /// The first batch, of `batch` rows at most, begins now. `None` is no limit.
    pub fn at_most_per_second(rows: Option<u32>, batch: usize, interrupt: &'a Interrupt) -> Self {
        Pauses {
            pace: Pace::at_most_per_second(rows, batch),
            batch,
            began: Instant::now(),
            interrupt,
        }
    }

    /// The size of batches that fit into a second.
    pub fn batch(&self) -> usize {
        self.pace.as_ref().map_or(self.batch, Pace::batch)
    }

    /// Waits until the next batch is due, after one of `rows`.
    pub fn after_batch(&mut self, rows: usize) {
        if let Some(pace) = &mut self.pace {
            let due = pace.next(rows, self.began, Instant::now());
            self.interrupt.sleep_until(due);
        }
        self.began = Instant::now();
    }
}
