//! The results of recounts, as text or as JSON.

use diesel_sharded::described::DescribedTable;
use diesel_sharded::model::ShardsColumn;
use serde::Serialize;
use serde_json::Value;

use crate::args::Form;
use crate::drifts::Compared;
use crate::error::Error;
use crate::exit::Ended;
use crate::number::Number;
use crate::output::{Output, plural};
use crate::repair::{Found, Mode, Reason};
use crate::sums::Plain;

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
    key: Vec<Value>,
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
