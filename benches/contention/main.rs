//! Measures increments under contention, by this crate and by the alternatives to it, and reads of totals.
//!
//!     cargo bench -p diesel_sharded_benches --bench contention [-- OPTION …]
//!
//! `--help` lists the options. The run fails if an increment is lost or doubled. With `--publish` the sections that were measured replace
//! those in `docs/benchmarks/report.json`, from which all figures in the documentation come:
//! `UPDATE_FIGURES=1 cargo test -p diesel_sharded_benches --test figures` writes them anew.

mod arena;
mod contenders;
mod load;
mod prepared;
mod reads;
mod schema;
mod shapes;
mod tasks;
mod top;
mod write_behind;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use diesel::prelude::*;
use diesel_sharded_benches::machine;
use diesel_sharded_benches::names::*;
use diesel_sharded_benches::report::{self, Part, Report};
use indicatif::{ProgressBar, ProgressStyle};

use crate::arena::{Arena, Disk, Stage};
use crate::contenders::{Contender, Contenders};
use crate::load::{Keys, Pace, Scene};
use crate::reads::{Extent, Reads};
use crate::schema::ROWS;
use crate::shapes::Shapes;
use crate::tasks::Tasks;
use crate::top::TopLists;
use crate::write_behind::Redis;

/// The sections of a run, in order.
const SECTIONS: [&str; 10] = [
    HOT, DISKS, COMMITS, NETWORK, OPEN, TASKS, SHAPES, KEYS, READS, TOP,
];

/// The contenders wherever not all are measured: one row, what a team would write by hand, and this crate.
const LEADING: [&str; 6] = [
    ONE_ROW,
    PREPARED,
    SLOTTED_PREPARED,
    APPEND_ONLY_PREPARED,
    DEFAULT,
    COMBINED,
];

/// Whether it is measured where not all are. SQLite, with its one writer, has nothing to gain from slots.
fn leads<Conn: Arena>(contender: &Contender<Conn>) -> bool {
    let is_slotted = contender.name == SLOTTED_PREPARED;
    LEADING.contains(&contender.name) && !(is_slotted && Conn::NAME == SQLITE)
}

/// The threads of the sections that count on one row.
const THREADS: usize = 64;

/// Measures increments under contention.
#[derive(Parser)]
struct Options {
    /// One round of short slices
    #[arg(long)]
    quick: bool,
    /// One section; without it all
    #[arg(long, value_name = "SECTION", value_parser = SECTIONS)]
    only: Option<String>,
    /// One database
    #[arg(long, value_parser = ["postgres", "mysql", "sqlite"])]
    database: Option<String>,
    /// This many rounds instead of 3
    #[arg(long)]
    rounds: Option<usize>,
    /// Slices of this many milliseconds instead of 150; `tasks` keeps its own
    #[arg(long, value_name = "MS")]
    slice: Option<u64>,
    /// Replaces the sections that are measured in the report that is published
    #[arg(long)]
    publish: bool,
    /// Cargo adds it.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    fn has(&self, section: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == section)
    }

    fn pace(&self) -> Pace {
        let (rounds, slice, warm_up) = match self.quick {
            true => (1, 40, 15),
            false => (3, 150, 1_000),
        };
        Pace {
            rounds: self.rounds.unwrap_or(rounds),
            slice: Duration::from_millis(self.slice.unwrap_or(slice)),
            warm_up: Duration::from_millis(warm_up),
        }
    }
}

struct Run {
    options: Options,
    redis: Redis,
    bar: ProgressBar,
}

/// A connection type on which every section runs.
trait Measured: Contenders + Tasks + Shapes + Reads + TopLists {}

impl<Conn: Contenders + Tasks + Shapes + Reads + TopLists> Measured for Conn {}

impl Run {
    fn all<Conn: Measured>(&self, option: &str) {
        let only = self.options.database.as_deref();
        if only.is_some_and(|only| only != option) {
            return;
        }
        let pace = self.options.pace();
        let hot = |name, disk, threads| {
            self.section::<Conn>(name, pace, |run, part| {
                run.leading(&Stage::<Conn>::new(disk), Scene::hot(threads), pace, part);
            });
        };
        // Where a difference shows the most.
        hot(HOT, Disk::Free, 1);
        self.section::<Conn>(DISKS, pace, Run::disks::<Conn>);
        self.section::<Conn>(TASKS, pace, |run, part| {
            part.cells = tasks::measure::<Conn>(run.options.quick, pace.rounds, &run.bar);
        });
        self.section::<Conn>(KEYS, pace, Run::keys::<Conn>);
        let is_quick = self.options.quick;
        self.section::<Conn>(READS, pace, |run, part| {
            let (parents, rounds) = if is_quick { (2_000, 3) } else { (100_000, 7) };
            part.readings = reads::measure::<Conn>(Extent { parents, rounds }, &run.bar);
        });
        self.section::<Conn>(TOP, pace, |run, part| {
            let (parents, rounds) = (ranked_rows(is_quick), if is_quick { 3 } else { 11 });
            part.readings = top::measure::<Conn>(Extent { parents, rounds }, &run.bar);
        });
        // One writer at a time is all there is on SQLite, however long it lasts.
        if Conn::NAME != SQLITE {
            hot(NETWORK, Disk::Remote, THREADS);
            self.section::<Conn>(COMMITS, pace, Run::commits::<Conn>);
            self.section::<Conn>(OPEN, pace, Run::open::<Conn>);
            self.section::<Conn>(SHAPES, pace, Run::shapes::<Conn>);
        }
    }

    /// Measures a section if it was asked for, and publishes it: it is kept if a later one fails.
    fn section<Conn: Arena>(&self, name: &str, pace: Pace, measure: impl FnOnce(&Self, &mut Part)) {
        if !self.options.has(name) {
            return;
        }
        let published = report::Pace {
            quick: self.options.quick,
            rounds: pace.rounds,
            slice_ms: pace.slice.as_millis() as u64,
        };
        let mut part = Part::new(name, Conn::NAME, machine::with::<Conn>(), published);
        measure(self, &mut part);
        let report = Report { parts: vec![part] };
        self.bar.suspend(|| println!("{}", report.to_json()));
        if self.options.publish {
            Report::publish(report.parts);
        }
        self.bar.inc(1);
    }

    fn disks<Conn: Contenders>(&self, part: &mut Part) {
        let threads = if Conn::NAME == SQLITE {
            &[64][..]
        } else {
            &[32, 64]
        };
        for &disk in Conn::DISKS {
            let scenes = threads.iter().map(|&threads| Scene::hot(threads));
            self.alone(&Stage::<Conn>::new(disk), scenes, part);
        }
    }

    /// Measures few and many callers by how long a commit takes.
    fn commits<Conn: Contenders>(&self, part: &mut Part) {
        let ways = [ONE_ROW, SLOTTED_PREPARED, DEFAULT, COMBINED];
        for disk in [Disk::Local, Disk::Slow, Disk::Remote] {
            let stage = Stage::<Conn>::new(disk);
            let all = Conn::alone(&stage, &self.redis);
            let chosen: Vec<_> = all.iter().filter(|one| ways.contains(&one.name)).collect();
            for threads in [2, 4, 8, 16, 32, THREADS] {
                let (scene, pace) = (Scene::hot(threads), self.options.pace());
                let cells = load::measure(&stage, scene, pace, &chosen, &self.bar);
                part.cells.extend(cells);
            }
        }
    }

    fn keys<Conn: Contenders>(&self, part: &mut Part) {
        let stage = Stage::<Conn>::new(Disk::Local);
        stage.connect().create_all_shards(ROWS);
        for keys in [Keys::Uniform, Keys::Zipf] {
            let scene = Scene {
                keys,
                ..Scene::hot(32)
            };
            self.leading(&stage, scene, self.options.pace(), part);
        }
    }

    /// Measures the leading contenders.
    fn leading<Conn: Contenders>(
        &self,
        stage: &Stage<Conn>,
        scene: Scene,
        pace: Pace,
        part: &mut Part,
    ) {
        let all = Conn::alone(stage, &self.redis);
        let chosen: Vec<_> = all.iter().filter(|one| leads(one)).collect();
        part.cells
            .extend(load::measure(stage, scene, pace, &chosen, &self.bar));
    }

    /// Measures how long increments that begin at a fixed rate wait: a part of the contender's best.
    fn open<Conn: Contenders>(&self, part: &mut Part) {
        let stage = Stage::<Conn>::new(Disk::Local);
        let all = Conn::alone(&stage, &self.redis);
        for contender in all.iter().filter(|one| leads(one)) {
            let mut measure = |scene| {
                let cells =
                    load::measure(&stage, scene, self.options.pace(), &[contender], &self.bar);
                let rate = cells.first().map(|cell| cell.per_second);
                part.cells.extend(cells);
                rate
            };
            let best = measure(Scene::hot(THREADS)).unwrap_or_default();
            for (shape, share) in OPEN_RATES {
                let rate = Some(best * share);
                measure(Scene {
                    shape: Some(shape),
                    rate,
                    ..Scene::hot(THREADS)
                });
            }
        }
    }

    /// Measures the contenders whose increments commit by themselves.
    fn alone<Conn: Contenders>(
        &self,
        stage: &Stage<Conn>,
        scenes: impl IntoIterator<Item = Scene>,
        part: &mut Part,
    ) {
        let contenders = Conn::alone(stage, &self.redis);
        // SQLite's waiting writers sleep so long that a slice takes seconds to end where commits wait for the disk.
        let is_slow = (stage.disk, Conn::NAME) == (Disk::Local, SQLITE);
        let fits = |one: &&Contender<Conn>| !is_slow || leads(one);
        let contenders: Vec<_> = contenders.iter().filter(fits).collect();
        for scene in scenes {
            let cells = load::measure(stage, scene, self.options.pace(), &contenders, &self.bar);
            part.cells.extend(cells);
        }
    }

    fn shapes<Conn: Shapes>(&self, part: &mut Part) {
        let stage = Stage::<Conn>::new(Disk::Local);
        for (shape, ways) in Conn::shapes() {
            let ways: Vec<_> = ways.iter().collect();
            stage.connect().create_links();
            let scene = Scene {
                shape: Some(shape),
                ..Scene::hot(32)
            };
            let cells = load::measure(&stage, scene, self.options.pace(), &ways, &self.bar);
            part.cells.extend(cells);
        }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(code) = machine::with_binary_log() {
        return code;
    }
    let report_panic = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report_panic(panic);
        std::process::exit(101); // the other threads would wait for this one forever
    }));
    let bar = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{elapsed_precise} {pos} sections {wide_msg}");
    bar.set_style(style.expect("a template"));
    let redis = Redis::start();
    let run = Run {
        options,
        redis,
        bar,
    };
    run.all::<PgConnection>("postgres");
    run.all::<MysqlConnection>("mysql");
    run.all::<SqliteConnection>("sqlite");
    run.bar.finish_and_clear();
    ExitCode::SUCCESS
}
