//! The results of folds, as text or as JSON.

use bigdecimal::BigDecimal;
use diesel_sharded::described::{DescribedTable, FoldedRows};
use serde::Serialize;
use serde_json::Value;

use crate::args::Form;
use crate::error::Error;
use crate::key::Key;
use crate::number::Number;
use crate::output::{Output, plural};
use crate::sums::moved;

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
    busy: Vec<Vec<Value>>,
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
    key: Vec<Value>,
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
