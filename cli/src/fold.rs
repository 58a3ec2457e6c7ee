//! `diesel-sharded fold`: moves shards into the base while the application goes on counting. No total changes.

use std::mem;
use std::ops::ControlFlow;

use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_sharded::described::{
    FoldSettings, FoldedRows, amounts, fold, looked_at, nothing_folded,
};

use crate::args::{FoldArgs, Form};
use crate::connection::AnyConnection;
use crate::error::Error;
use crate::exit::Ended;
use crate::fold_report::{FoldReport, FoldReports};
use crate::interrupt::Interrupt;
use crate::key::{Key, Keyed};
use crate::live::LiveTables;
use crate::output::Output;
use crate::pauses::Pauses;
use crate::privilege::{Need, explained};
use crate::progress::bar;
use crate::shard_counts;
use crate::sharded;
use crate::shell;
use crate::sums::as_decimal;

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
        _ => return Err(Error::AfterWithoutTable),
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
