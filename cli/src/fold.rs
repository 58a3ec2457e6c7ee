//! `diesel-sharded fold`: moves shards into the base while the application goes on counting. No total changes.

use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::{TRIES_TO_LOCK, Told, told};
use diesel_sharded::operation::Amount;
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded::{Error as ShardedError, Unfit};

use crate::args::FoldArgs;
use crate::connection::AnyConnection;
use crate::error::Error;
use crate::exit::Ended;
use crate::held::{FoldError, Moved, Shards};
use crate::interrupt::Interrupt;
use crate::key::{Key, Keyed};
use crate::live::LiveTables;
use crate::output::{Output, plural};
use crate::pace::{Pace, bar};
use crate::shard_counts;
use crate::sharded::Sharded;
use crate::sums::{as_decimal, moved};

pub fn run(
    args: &FoldArgs,
    conn: &mut AnyConnection,
    interrupt: &Interrupt,
    out: &mut Output,
) -> Result<Ended, Error> {
    let dialect = conn.dialect();
    let live = LiveTables::read(conn)?;
    let tables = Sharded::named(dialect, &live, &args.tables)?;
    let after = match (&*tables, &*args.after) {
        (_, []) => None,
        ([sharded], after) if !args.tables.is_empty() => Some(Key::parse(sharded, after)?),
        _ => return Err(Error::AfterWithoutTable),
    };
    if tables.is_empty() {
        out.line("There is no sharded table in this database.")?;
    }
    let mut ended = Ended::Done;
    for sharded in &tables {
        let keep = match args.keep_shards {
            Some(number) => Some(number),
            None => {
                let numbers = shard_counts::of_table(conn, &live, sharded)?;
                shard_counts::wished(&numbers, sharded)
            }
        };
        let folding = Folding {
            keyed: Keyed { sharded, dialect },
            keep,
            batch: args.batch,
            per_second: args.at_most_per_second,
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
    /// Empty shards numbered from here on are removed.
    pub keep: Option<u16>,
    pub batch: usize,
    pub per_second: Option<u32>,
    pub interrupt: &'a Interrupt,
}

/// The result of a fold so far.
struct Folded {
    parents: usize,
    shards_removed: usize,
    amounts: Vec<Amount>,
    /// Their bases do not take what their shards hold.
    unfit: Vec<(Key, Unfit)>,
    /// Others held some of their shards all the time.
    busy: Vec<Key>,
    /// The last parent that was looked at.
    last: Option<Key>,
}

/// Why a fold of several parents, or of one, did not come about.
enum Trouble {
    Blocked,
    Unfit(Unfit),
    /// Parents that can be seen were not locked, and are to be tried alone.
    NotLocked,
    Other(Error),
}

impl Folding<'_> {
    pub fn run(
        &self,
        after: Option<Key>,
        conn: &mut AnyConnection,
        out: &mut Output,
    ) -> Result<Ended, Error> {
        let sharded = self.keyed.sharded;
        let bar = bar(self.foldable(after.as_ref(), conn)?.0, sharded.table);
        let mut pace = Pace::at_most_per_second(self.per_second);
        let batch = pace.batch(self.batch);
        let mut folded = Folded {
            parents: 0,
            shards_removed: 0,
            amounts: Moved::nothing(sharded).amounts,
            unfit: vec![],
            busy: vec![],
            last: after,
        };
        let result = loop {
            match self.fold_next(batch, &mut folded, conn) {
                Ok(0) => break Ok(()),
                Ok(parents) => {
                    bar.inc(parents as u64);
                    pace.after_batch(parents, self.interrupt);
                }
                Err(error) => break Err(error),
            }
            if self.interrupt.came() {
                break Ok(());
            }
        };
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
                sharded.table,
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
            sharded.table,
            plural(parents, "row"),
            moved(sharded, &amounts)
        ))?;
        Ok(Ended::Done)
    }

    fn tell(&self, folded: &Folded, out: &mut Output) -> Result<(), Error> {
        let sharded = self.keyed.sharded;
        let amounts = folded.amounts.iter().map(as_decimal);
        let amounts: Vec<_> = amounts.collect::<QueryResult<_>>()?;
        out.line(&format!(
            "{}: {} folded{}; {} removed",
            sharded.table,
            plural(folded.parents as u64, "row"),
            moved(sharded, &amounts.iter().collect::<Vec<_>>()),
            plural(folded.shards_removed as u64, "empty shard"),
        ))?;
        let more = |keys: usize| match keys {
            0..=20 => String::new(),
            n => format!(" and {} more", n - 20),
        };
        if !folded.busy.is_empty() {
            let shown = folded.busy.iter().take(20).map(|key| key.display(sharded));
            out.note(&format!(
                "{}: others held shards of these rows all the time, fold them again later: {}",
                sharded.table,
                shown.collect::<Vec<_>>().join("; ") + &more(folded.busy.len())
            ));
        }
        for (key, reason) in folded.unfit.iter().take(20) {
            out.note(&format!(
                "{}: not folded: the row {} {reason}",
                sharded.table,
                key.display(sharded)
            ));
        }
        if folded.unfit.len() > 20 {
            let more = more(folded.unfit.len());
            out.note(&format!("{}: not folded:{more}", sharded.table));
        }
        Ok(())
    }

    /// Folds the next parents that have something to fold, in key order, and gives their number.
    fn fold_next(
        &self,
        batch: usize,
        folded: &mut Folded,
        conn: &mut AnyConnection,
    ) -> Result<usize, Error> {
        let keys = self.pick(batch, folded.last.as_ref(), conn)?;
        let Some(last) = keys.last().cloned() else {
            return Ok(0);
        };
        match self.fold_keys(&keys, folded, conn) {
            Ok(()) => folded.last = Some(last),
            Err(Trouble::Other(error)) => return Err(error),
            Err(_) => {
                for key in &keys {
                    self.fold_key(key, folded, conn)?;
                    if self.interrupt.came() {
                        break; // maybe in the middle of its shards
                    }
                    folded.last = Some(key.clone());
                }
            }
        }
        Ok(keys.len())
    }

    /// Folds parents together if all their locks can be had at once.
    fn fold_keys(
        &self,
        keys: &[Key],
        folded: &mut Folded,
        conn: &mut AnyConnection,
    ) -> Result<(), Trouble> {
        // On SQLite there are no locks but that on the database.
        let retry = match self.keyed.dialect {
            Dialect::Sqlite => RetryPolicy::default(),
            _ => RetryPolicy::never(),
        };
        let moved = self.fold_held(keys, None, retry, conn)?;
        folded.add(&moved);
        Ok(())
    }

    /// Folds one parent; one that is busy shard by shard, each in a transaction of its own, which holds no lock while it waits
    /// for its turn to try again. A shard that does not fit is tried again as long as others make room.
    fn fold_key(
        &self,
        key: &Key,
        folded: &mut Folded,
        conn: &mut AnyConnection,
    ) -> Result<(), Error> {
        let keys = std::slice::from_ref(key);
        for _ in 0..TRIES_TO_LOCK {
            match self.fold_keys(keys, folded, conn) {
                Ok(()) => return Ok(()),
                Err(Trouble::Other(error)) => return Err(error),
                Err(Trouble::NotLocked) => continue, // unless it came back meanwhile, it stays so
                Err(Trouble::Unfit(_) | Trouble::Blocked) => {
                    return self.fold_shard_by_shard(key, folded, conn);
                }
            }
        }
        folded.unfit.push((key.clone(), Unfit::NotLocked));
        Ok(())
    }

    fn fold_shard_by_shard(
        &self,
        key: &Key,
        folded: &mut Folded,
        conn: &mut AnyConnection,
    ) -> Result<(), Error> {
        let keys = std::slice::from_ref(key);
        let named = self.keyed.named(keys);
        let mut left = self.keyed.locked(&named, 1, None).shards(conn)?;
        let (mut busy, mut tried, mut parents) = (false, usize::MAX, 0);
        let mut reason = None;
        while left.len() < tried {
            tried = left.len();
            let mut unfit = vec![];
            for shard in left {
                if self.interrupt.came() {
                    folded.parents += parents;
                    return Ok(());
                }
                match self.fold_held(keys, Some(shard), RetryPolicy::default(), conn) {
                    Ok(moved) => {
                        parents = parents.max(moved.parents);
                        folded.add(&Moved {
                            parents: 0,
                            ..moved
                        });
                    }
                    Err(Trouble::Unfit(why)) => {
                        unfit.push(shard);
                        reason = Some(why);
                    }
                    Err(Trouble::Blocked | Trouble::NotLocked) => busy = true,
                    Err(Trouble::Other(error)) => return Err(error),
                }
            }
            left = unfit;
        }
        folded.parents += parents;
        if let (false, Some(reason)) = (left.is_empty(), reason) {
            folded.unfit.push((key.clone(), reason));
        } else if busy {
            folded.busy.push(key.clone());
        }
        Ok(())
    }

    fn fold_held(
        &self,
        keys: &[Key],
        only: Option<i32>,
        retry: RetryPolicy,
        conn: &mut AnyConnection,
    ) -> Result<Moved, Trouble> {
        let shards = Shards {
            only,
            remove_from: self.keep,
        };
        let folded = self.keyed.fold_held(conn, keys, shards, retry);
        folded.map_err(|error| self.trouble(error))
    }

    fn trouble(&self, error: FoldError) -> Trouble {
        let error = match error {
            FoldError::Unfit(reason) => return Trouble::Unfit(reason),
            FoldError::NotLocked => return Trouble::NotLocked,
            FoldError::Diesel(error) => error,
        };
        let has_locks = self.keyed.dialect != Dialect::Sqlite;
        match told(self.keyed.dialect, &error) {
            Told::Conflict(_) if has_locks => Trouble::Blocked,
            Told::Overflow => Trouble::Unfit(Unfit::OutOfRange),
            _ => match ShardedError::from(error) {
                ShardedError::ConflictPersisted { .. } if has_locks => Trouble::Blocked,
                error => Trouble::Other(Error::Database(error)),
            },
        }
    }
}

impl Folded {
    fn add(&mut self, moved: &Moved) {
        self.parents += moved.parents;
        self.shards_removed += moved.shards_removed;
        for (sum, amount) in self.amounts.iter_mut().zip(&moved.amounts) {
            *sum += amount;
        }
    }
}
