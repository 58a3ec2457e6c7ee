//! `diesel-sharded fold` moves shards into the base while the application keeps counting. No total changes.

use std::mem;
use std::ops::ControlFlow;
use std::time::Instant;

use bigdecimal::{BigDecimal, Zero};
use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_sharded::described::{FoldedRows, Pace, fold, nothing_folded, wished};
use diesel_sharded::model::ShardsColumn;
use serde::Serialize;

use crate::args::FoldArgs;
use crate::connection::AnyConnection;
use crate::error::{Ended, Error};
use crate::interrupt;
use crate::key::{Key, KeyValues, as_text};
use crate::output::{self, Progress, joined, plural};
use crate::privilege::{Need, explained};
use crate::resize::{needs_of_counts, shard_counts};
use crate::sharded::{self, Sharded};
use crate::statement::{sql, unreadable};
use crate::sums::{self, Number};

pub fn run(args: &FoldArgs, conn: &mut AnyConnection) -> Result<Ended, Error> {
    interrupt::handle("finishing the batch")?;
    let tables = &sharded::named(&args.tables, output::note, conn)?;
    let after = match (&**tables, &*args.rows.after) {
        (_, []) => None,
        ([one], after) if !args.tables.is_empty() => Some(Key::parse(one, after)?),
        _ => return Err(Error::refused("--after goes on in one table: name it")),
    };
    if tables.is_empty() && !args.rows.json {
        output::line("There is no sharded table for this tool in this database.")?;
    }
    let mut reports = vec![];
    let mut pace = Pace::at_most_per_second(args.rows.at_most_per_second, args.batch as usize);
    let (mut ended, mut failed) = (Ended::Done, vec![]);
    for (i, sharded) in tables.iter().enumerate() {
        let mut folding = Folding {
            sharded,
            keep_shards: args.keep_shards,
            dry_run: args.dry_run,
            json: args.rows.json,
            is_last: i + 1 == tables.len(),
        };
        let mut fold = || {
            if args.keep_shards.is_none() {
                folding.keep_shards = folding.wished(conn)?;
            }
            folding.run(after.clone(), &mut pace, conn, &mut reports)
        };
        match fold() {
            Ok(ended_so) => ended = ended.max(ended_so),
            Err(error) if tables.len() == 1 => failed.push(error),
            // The other tables are folded nevertheless.
            Err(error) => {
                failed.push(error.of_table(sharded.table()));
                if interrupt::came() {
                    break;
                }
            }
        }
        if ended == Ended::Interrupted {
            break;
        }
    }
    if args.rows.json {
        output::json(&reports)?;
    }
    match failed.is_empty() {
        true => Ok(ended),
        false => Err(Error::Refused(joined("\nerror: ", failed))),
    }
}

/// The fold of one table.
pub struct Folding<'a> {
    pub sharded: &'a Sharded,
    /// The fold removes empty shards with this number or a higher one; without it, none.
    pub keep_shards: Option<u16>,
    /// Whether it only shows what there is to fold.
    pub dry_run: bool,
    /// Whether the report is printed as JSON after all tables.
    pub json: bool,
    /// Whether this table is the last to be folded.
    pub is_last: bool,
}

impl Folding<'_> {
    pub fn run(
        &self,
        after: Option<Key>,
        pace: &mut Pace,
        conn: &mut AnyConnection,
        reports: &mut Vec<FoldReport>,
    ) -> Result<Ended, Error> {
        let sharded = self.sharded;
        if self.dry_run {
            let foldable = self.foldable(after.as_ref(), conn);
            let (rows, sums) = foldable.map_err(|error| self.explained(error, conn))?;
            let report = FoldReport {
                dry_run: true,
                ..FoldReport::of(sharded, rows, sums)
            };
            reports.push(report.shown(self.json)?);
            return Ok(Ended::Done);
        }
        let mut progress = Progress::of(sharded.table());
        let (mut last, mut stuck) = (after.clone(), None);
        let (mut folded, mut rows) = (nothing_folded(&sharded.fields, after), 0);
        let mut began = Instant::now();
        let (batch, keep) = (pace.batch(), self.keep_shards);
        let result = fold(sharded, batch, keep, &mut folded, conn, |folded| {
            if folded.last == last {
                stuck = last.as_ref().map(|last| last.no_way_behind(sharded));
                return ControlFlow::Break(());
            }
            last.clone_from(&folded.last);
            let before = mem::replace(&mut rows, folded.looked_at);
            if !folded.finished || !self.is_last {
                let due = pace.next((rows - before) as usize, began, Instant::now());
                interrupt::sleep_until(due);
                began = Instant::now();
            }
            progress.at(rows);
            match interrupt::came() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        let error = result.err().map(|error| self.explained(error, conn));
        let error = match error.or(stuck) {
            Some(error) if rows == 0 && folded.parents == 0 => return Err(error),
            error => error,
        };
        let report = FoldReport::folded(sharded, &folded)?;
        reports.push(report.shown(self.json)?);
        if let Some(error) = error {
            return Err(error);
        }
        if interrupt::came() && !(folded.finished && self.is_last) {
            return Ok(Ended::interrupted("run it again"));
        }
        let left_over = !folded.unfit.is_empty() || !folded.busy.is_empty();
        Ok(Ended::left_over_if(left_over))
    }

    /// The number of shards that a fold of this table keeps, if one was set for every field.
    fn wished(&self, conn: &mut AnyConnection) -> Result<Option<u16>, Error> {
        let numbers = shard_counts(self.sharded, conn).map_err(|error| {
            let needs = [self.needs(true), needs_of_counts().to_vec()].concat();
            explained(error.into(), &needs, conn)
        })?;
        Ok(wished(self.sharded.names(), &numbers))
    }

    /// The privileges that a fold needs; `removes` tells whether it removes shards.
    fn needs(&self, removes: bool) -> Vec<Need<'_>> {
        let sharded = self.sharded;
        if self.dry_run {
            return vec![Need::of("SELECT", sharded.shards_table())];
        }
        let read = Need::to_read(sharded).into_iter();
        read.chain(Need::to_fold(sharded, removes)).collect()
    }

    fn explained(&self, error: DieselError, conn: &mut AnyConnection) -> Error {
        explained(error.into(), &self.needs(self.keep_shards.is_some()), conn)
    }

    /// The number of parents that have something to fold, and the amount of each field.
    fn foldable(
        &self,
        after: Option<&Key>,
        conn: &mut AnyConnection,
    ) -> QueryResult<(u64, Vec<BigDecimal>)> {
        let (sharded, shards) = (self.sharded, self.sharded.shards());
        let fields = &sharded.fields;
        let column = |name: &str| sharded.column(&shards, name);
        let names = fields.iter().map(ShardsColumn::name);
        let work = names.map(|name| format!("{} <> 0", column(name)));
        let empty = self.keep_shards;
        let empty = empty.map(|first| format!("{} >= {first}", column("shard")));
        let work = joined(" OR ", work.chain(empty));
        let with_work = || {
            let after = after.map(|key| sql!(" AND ", sharded.is_behind(&shards, key)));
            sql!(format!(" FROM {shards} WHERE ({work})"), after)
        };
        let sums = fields.iter().map(|field| sharded.sum(field, &shards));
        let count = as_text(sharded.dialect, "COUNT(*)");
        let row = sql!(
            format!("SELECT (SELECT {count} FROM (SELECT 1 AS parent"),
            with_work(),
            format!(" GROUP BY {}) AS foldable), ", sharded.key_of(&shards)),
            joined(", ", sums),
            with_work()
        )
        .row(conn)?;
        let sums = (1..=fields.len()).map(|i| Ok(sums::read(&row, i)?.unwrap_or_default()));
        Ok((row.parse(0)?, sums.collect::<QueryResult<_>>()?))
    }
}

/// The greatest number of rows that are named in a report.
const NAMED: usize = 20;

/// The result for one table.
#[derive(Debug, Default, Serialize)]
pub struct FoldReport {
    table: String,
    shards_table: String,
    /// Whether nothing was folded: the report shows what there is to fold.
    dry_run: bool,
    rows: u64,
    fields: Vec<FieldReport>,
    shards_removed: u64,
    /// The keys of rows whose shards other sessions held all the time.
    busy: Vec<KeyValues>,
    unfit: Vec<UnfitReport>,
}

#[derive(Debug, Serialize)]
struct FieldReport {
    field: String,
    moved: Number,
}

#[derive(Debug, Serialize)]
struct UnfitReport {
    key: KeyValues,
    reason: String,
}

impl FoldReport {
    fn of(sharded: &Sharded, rows: u64, moved: Vec<BigDecimal>) -> Self {
        let fields = sharded.fields.iter().zip(moved);
        let fields = fields.map(|(field, moved)| FieldReport {
            field: field.name().to_owned(),
            moved: Number(moved),
        });
        FoldReport {
            table: sharded.table().to_string(),
            shards_table: sharded.shards_table().to_string(),
            rows,
            fields: fields.collect(),
            ..FoldReport::default()
        }
    }

    fn folded(sharded: &Sharded, folded: &FoldedRows<Key>) -> QueryResult<Self> {
        let moved = folded.amounts.iter().map(|amount| {
            let digits = amount.to_string();
            let moved = digits.parse::<BigDecimal>();
            moved.map_err(|_| unreadable(format!("`{digits}` is no number")))
        });
        let moved = moved.collect::<QueryResult<_>>()?;
        let busy = folded.busy.iter().map(|key| key.values(sharded));
        let unfit = folded.unfit.iter().map(|(key, reason)| UnfitReport {
            key: key.values(sharded),
            reason: reason.to_string(),
        });
        Ok(FoldReport {
            shards_removed: folded.shards_removed,
            busy: busy.collect(),
            unfit: unfit.collect(),
            ..FoldReport::of(sharded, folded.parents, moved)
        })
    }

    /// Prints the result as text, unless it is printed as JSON later. Also notes the rows that were left, with the reasons.
    fn shown(self, json: bool) -> Result<Self, Error> {
        if !json {
            output::line(&self.text())?;
        }
        let busy = self.busy.iter().map(|key| {
            format!("others held shards of the row {key} all the time, fold it again later")
        });
        let unfit = self.unfit.iter();
        let unfit = unfit.map(|unfit| format!("the row {} {}", unfit.key, unfit.reason));
        let left = busy.len() + unfit.len();
        let more = (left > NAMED).then(|| format!("{} more rows", left - NAMED));
        for what in busy.chain(unfit).take(NAMED).chain(more) {
            output::note(&format!("{}: not folded: {what}", self.table));
        }
        Ok(self)
    }

    fn text(&self) -> String {
        let moved = self.fields.iter().filter(|field| !field.moved.0.is_zero());
        let moved = moved.map(|field| format!("{} {:+}", field.field, field.moved));
        let moved = match joined(", ", moved) {
            none if none.is_empty() => none,
            moved => format!(" ({moved})"),
        };
        let (table, rows) = (&self.table, plural(self.rows, "row"));
        let removed = plural(self.shards_removed, "empty shard");
        match self.dry_run {
            true => format!("{table}: {rows} to fold{moved}"),
            false => format!("{table}: {rows} folded{moved}; {removed} removed"),
        }
    }
}
