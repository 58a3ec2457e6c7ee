//! `diesel-sharded fold`: moves shards into the base while the application goes on counting. No total changes.

use std::ops::ControlFlow;

use diesel::prelude::*;
use diesel_sharded::described::{
    FoldSettings, FoldedRows, amounts, fold, looked_at, nothing_folded,
};

use crate::args::FoldArgs;
use crate::connection::AnyConnection;
use crate::error::Error;
use crate::exit::Ended;
use crate::interrupt::Interrupt;
use crate::key::{Key, Keyed};
use crate::output::{Output, plural};
use crate::pace::bar;
use crate::shard_counts;
use crate::sharded;
use crate::sums::{as_decimal, moved};

pub fn run(
    args: &FoldArgs,
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
    if tables.is_empty() {
        out.line("There is no sharded table in this database.")?;
    }
    let mut ended = Ended::Done;
    for (live, sharded) in tables {
        let keep_shards = match args.keep_shards {
            Some(number) => Some(number),
            None => {
                let numbers = shard_counts::of_table(conn, live, sharded)?;
                sharded.wished(&numbers)
            }
        };
        let folding = Folding {
            keyed: Keyed { sharded, dialect },
            settings: FoldSettings {
                batch: args.batch,
                per_second: args.at_most_per_second,
                keep_shards,
            },
            interrupt,
        };
        ended = ended.and(match args.dry_run {
            true => folding.dry_run(after.as_ref(), conn, out)?,
            false => folding.run(after.clone(), conn, out)?,
        });
        if ended == Ended::Interrupted {
            break;
        }
    }
    Ok(ended)
}

/// How one table is folded.
pub struct Folding<'a> {
    pub keyed: Keyed<'a>,
    pub settings: FoldSettings,
    pub interrupt: &'a Interrupt,
}

impl Folding<'_> {
    pub fn run(
        &self,
        after: Option<Key>,
        conn: &mut AnyConnection,
        out: &mut Output,
    ) -> Result<Ended, Error> {
        let sharded = self.keyed.sharded;
        let bar = bar(
            self.foldable(after.as_ref(), conn)?.0,
            sharded.table().as_str(),
        );
        let mut folded = nothing_folded(sharded, after);
        let result = fold(self.keyed, self.settings, &mut folded, conn, |folded| {
            bar.set_position(looked_at(folded));
            match self.interrupt.came() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        bar.finish_and_clear();
        self.tell(&folded, out)?;
        if result.is_err() || self.interrupt.came() {
            let from = match &folded.last {
                Some(last) => last.after_arguments(sharded),
                None => String::new(),
            };
            out.note(&format!(
                "{}: go on with: diesel-sharded fold {}{from}",
                match result.is_err() {
                    true => "ended by an error",
                    false => "interrupted",
                },
                sharded.table(),
            ));
        }
        result?;
        let left_over = !folded.unfit.is_empty() || !folded.busy.is_empty();
        Ok(match (self.interrupt.came(), left_over) {
            (true, _) => Ended::Interrupted,
            (false, true) => Ended::LeftOver,
            (false, false) => Ended::Done,
        })
    }

    pub fn dry_run(
        &self,
        after: Option<&Key>,
        conn: &mut AnyConnection,
        out: &mut Output,
    ) -> Result<Ended, Error> {
        let (parents, amounts) = self.foldable(after, conn)?;
        let sharded = self.keyed.sharded;
        let amounts: Vec<_> = amounts.iter().flatten().collect();
        out.line(&format!(
            "{}: {} to fold{}",
            sharded.table(),
            plural(parents, "row"),
            moved(sharded, &amounts)
        ))?;
        Ok(Ended::Done)
    }

    fn tell(&self, folded: &FoldedRows<Key>, out: &mut Output) -> Result<(), Error> {
        let sharded = self.keyed.sharded;
        let amounts = amounts(folded).iter().map(as_decimal);
        let amounts: Vec<_> = amounts.collect::<QueryResult<_>>()?;
        out.line(&format!(
            "{}: {} folded{}; {} removed",
            sharded.table(),
            plural(folded.parents, "row"),
            moved(sharded, &amounts.iter().collect::<Vec<_>>()),
            plural(folded.shards_removed, "empty shard"),
        ))?;
        let more = |keys: usize| match keys {
            0..=20 => String::new(),
            n => format!(" and {} more", n - 20),
        };
        if !folded.busy.is_empty() {
            let shown = folded.busy.iter().take(20).map(|key| key.display(sharded));
            out.note(&format!(
                "{}: others held shards of these rows all the time, fold them again later: {}",
                sharded.table(),
                shown.collect::<Vec<_>>().join("; ") + &more(folded.busy.len())
            ));
        }
        for (key, reason) in folded.unfit.iter().take(20) {
            out.note(&format!(
                "{}: not folded: the row {} {reason}",
                sharded.table(),
                key.display(sharded)
            ));
        }
        if folded.unfit.len() > 20 {
            let more = more(folded.unfit.len());
            out.note(&format!("{}: not folded:{more}", sharded.table()));
        }
        Ok(())
    }
}
