//! Measures counts under contention: by this crate, by the alternatives to it, and by programs that show the database's limits.
//!
//!     cargo bench -p diesel_sharded_benches --bench contention [-- OPTION …]
//!
//! | option | |
//! |---|---|
//! | `--quick` | one round of short slices, and fewer numbers of threads |
//! | `--only SECTION` | one section |
//! | `--database postgres\|mysql\|sqlite` | one database |
//! | `--shape TEXT` | in the section `shapes`, the shapes whose names begin with the text |
//! | `--rounds N` | so many rounds instead of 3 |
//! | `--slice MS` | slices of so many milliseconds instead of 150; `tasks` keeps its own |
//! | `--minutes N` | the time of the section `long` on all its databases, instead of 30; it runs only by `--only long` |
//! | `--publish` | replaces the sections that were measured in `docs/benchmarks/report.json` |
//!
//! The results go to `target/contention/` as JSON, Markdown and SVG. The run fails if a count is lost or doubled. All figures in
//! the documentation come from the report that is published:
//! `UPDATE_FIGURES=1 cargo test -p diesel_sharded_benches --test figures` writes them anew.

mod arena;
mod attempts;
mod by_hand;
mod charts;
mod contender;
mod contenders;
mod limits;
mod load;
mod long;
mod plan;
mod prepared;
mod process;
mod reads;
mod results;
mod schema;
mod shapes;
mod snapshot;
mod summary;
mod targets;
mod tasks;
mod text;
mod top;
mod write_behind;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel_sharded_benches::names::{DISKS, HOT, LONG, PROCESS, SNAPSHOT, ranked_rows};
use diesel_sharded_benches::report::Report;
use indicatif::{ProgressBar, ProgressStyle};

use crate::arena::{Arena, Disk, Stage};
use crate::contender::{
    APPEND_ONLY, APPEND_ONLY_PREPARED, COALESCED, Contender, DEFAULT, ONE_ROW, PREPARED,
};
use crate::contenders::Contenders;
use crate::limits::Limited;
use crate::load::{Entrant, Keys, Pace, Scene};
use crate::plan::{Plan, SECTIONS};
use crate::reads::{Extent, Reader, Reads};
use crate::results::Results;
use crate::schema::ROWS;
use crate::shapes::{SHAPES, Shapes};
use crate::summary::Summary;
use crate::tasks::Tasks;
use crate::top::TopLists;
use crate::write_behind::Redis;

const LEFT_OUT_IF_QUICK: [&str; 3] = [
    "sharded, 8 at random",
    "sharded, 16 at random",
    "sharded, 32 at random",
];
/// The contenders on SQLite where commits wait for the disk. Its waiting writers sleep so long that a slice takes seconds to end.
const ON_SYNCED_SQLITE: [&str; 5] = [ONE_ROW, PREPARED, APPEND_ONLY_PREPARED, DEFAULT, COALESCED];

/// A run: its sections, and the results so far.
struct Run {
    plan: Plan,
    redis: Redis,
    results: Results,
    bar: ProgressBar,
}

impl Run {
    fn scenes<Conn: Contenders>(
        &mut self,
        stage: &Stage<Conn>,
        contenders: &[Box<dyn Contender<Conn>>],
        scenes: impl IntoIterator<Item = Scene>,
    ) {
        let entrants: Vec<_> = contenders
            .iter()
            .filter(|contender| match (stage.disk, Conn::NAME) {
                (Disk::Local, "SQLite") => ON_SYNCED_SQLITE.contains(&contender.name()),
                _ => !(self.plan.quick && LEFT_OUT_IF_QUICK.contains(&contender.name())),
            })
            .map(|contender| Entrant::Contender(contender.as_ref()))
            .collect();
        for scene in scenes {
            let cells = load::measure(stage, scene, self.plan.pace, &entrants, &self.bar);
            self.results.cells.extend(cells);
        }
    }

    fn hot<Conn: Contenders>(&mut self) {
        let stage = Stage::<Conn>::new(Disk::Free);
        let contenders = Conn::alone(&stage, &self.redis);
        let threads = match Conn::NAME {
            // One writer at a time: more threads only wait longer.
            "SQLite" => self.plan.threads(&[1, 64], &[1, 2, 8, 32, 64]),
            _ => self
                .plan
                .threads(&[1, 32, 64], &[1, 2, 4, 8, 16, 32, 64, 128]),
        };
        self.scenes(
            &stage,
            &contenders,
            threads.iter().map(|&threads| Scene::hot(HOT, threads)),
        );
    }

    fn disks<Conn: Contenders>(&mut self) {
        let threads = match Conn::NAME {
            "SQLite" => self.plan.threads(&[64], &[1, 64]),
            _ => self.plan.threads(&[32, 64], &[1, 8, 32, 64, 128]),
        };
        for &disk in Conn::DISKS.iter().filter(|&&disk| disk != Disk::Free) {
            let stage = Stage::<Conn>::new(disk);
            let contenders = Conn::alone(&stage, &self.redis);
            self.scenes(
                &stage,
                &contenders,
                threads.iter().map(|&threads| Scene::hot(DISKS, threads)),
            );
        }
    }

    fn tasks<Conn: Tasks>(&mut self) {
        let extent = tasks::Extent::of(self.plan.quick, self.plan.pace.rounds);
        let stage = Stage::<Conn>::new(Disk::Local);
        let cells = tasks::measure(&stage, extent, &self.bar);
        self.results.cells.extend(cells);
    }

    fn shapes<Conn: Shapes>(&mut self) {
        let stage = Stage::<Conn>::new(Disk::Local);
        let threads = match Conn::NAME {
            "SQLite" => &[1, 16],
            _ => self.plan.threads(&[1, 16], &[1, 16, 32]),
        };
        for shape in self.plan.shapes() {
            let ways = Conn::ways(shape);
            let entrants: Vec<_> = ways.iter().map(|way| Entrant::Contender(way)).collect();
            for &threads in threads {
                shapes::create_tables(&mut stage.connect(), Conn::create_shards_table);
                let scene = Scene {
                    in_transaction: shape.is_in_transaction(),
                    shape: Some(shape.name()),
                    ..Scene::hot(SHAPES, threads)
                };
                let cells = load::measure(&stage, scene, self.plan.pace, &entrants, &self.bar);
                self.results.cells.extend(cells);
            }
        }
    }

    fn keys<Conn: Contenders>(&mut self) {
        let stage = Stage::<Conn>::new(Disk::Free);
        stage.connect().create_all_shards(ROWS);
        let keys: &[Keys] = match self.plan.quick {
            true => &[Keys::Zipf],
            false => &[Keys::Uniform, Keys::Zipf],
        };
        let contenders = Conn::alone(&stage, &self.redis);
        self.scenes(
            &stage,
            &contenders,
            keys.iter().map(|&keys| Scene {
                keys,
                ..Scene::hot("keys", 32)
            }),
        );
    }

    fn transactions<Conn: Contenders>(&mut self) {
        let stage = Stage::<Conn>::new(Disk::Free);
        let threads = self.plan.threads(&[32], &[1, 8, 32]);
        self.scenes(
            &stage,
            &Conn::in_transactions(),
            threads.iter().map(|&threads| Scene {
                in_transaction: true,
                ..Scene::hot("transactions", threads)
            }),
        );
    }

    fn limits<Conn: Contenders + Limited>(&mut self) {
        let disks: &[Disk] = match (self.plan.quick, Conn::NAME) {
            (false, "PostgreSQL") => &[Disk::Free, Disk::Local, Disk::Slow],
            (true, "PostgreSQL") => &[Disk::Local, Disk::Slow],
            _ => &[Disk::Free],
        };
        let threads = self.plan.threads(&[32], &[1, 32, 64]);
        for &disk in disks {
            let stage = Stage::<Conn>::new(disk);
            let limits = Conn::limits(&stage);
            let contenders = Conn::alone(&stage, &self.redis);
            let compared = contenders
                .iter()
                .filter(|contender| [ONE_ROW, APPEND_ONLY, DEFAULT].contains(&contender.name()))
                .map(|contender| Entrant::Contender(contender.as_ref()));
            let limits = limits.iter().map(|limit| Entrant::Limit(limit.as_ref()));
            let entrants: Vec<_> = compared.chain(limits).collect();
            for &threads in threads {
                let scene = Scene::hot("limits", threads);
                let cells = load::measure(&stage, scene, self.plan.pace, &entrants, &self.bar);
                self.results.cells.extend(cells);
            }
        }
    }

    fn reads<Conn: Reads + Contenders>(&mut self) {
        let extent = match self.plan.quick {
            true => Extent {
                parents: 2_000,
                rounds: 3,
            },
            false => Extent {
                parents: 100_000,
                rounds: 7,
            },
        };
        self.results
            .readings
            .extend(reads::measure::<Conn>(extent, &self.bar));
        let stage = Stage::<Conn>::new(Disk::Free);
        reads::prepare(&stage);
        let readers: Vec<Box<dyn Contender<Conn>>> = vec![
            Box::new(Reader {
                name: "read of the plain column",
                read: Conn::plain,
            }),
            Box::new(Reader {
                name: "read of the total, 16 shards",
                read: Conn::total,
            }),
        ];
        let threads = self.plan.threads(&[1, 8], &[1, 2, 4, 8, 16]);
        self.scenes(
            &stage,
            &readers,
            threads.iter().map(|&threads| Scene {
                keys: Keys::Uniform,
                ..Scene::hot("reads", threads)
            }),
        );
    }

    fn top<Conn: TopLists>(&mut self) {
        let extent = Extent {
            parents: ranked_rows(self.plan.quick),
            rounds: if self.plan.quick { 3 } else { 11 },
        };
        self.results
            .lists
            .extend(top::measure::<Conn>(extent, &self.bar));
    }

    fn long<Conn: Contenders>(&mut self, pace: Pace) {
        let (cells, upkeep) = long::measure::<Conn>(pace, &self.redis, &self.bar);
        self.results.cells.extend(cells);
        self.results.upkeep.extend(upkeep);
    }

    fn snapshot(&mut self) {
        if !self.plan.is_on(PgConnection::NAME) {
            return;
        }
        let counts = if self.plan.quick { 5_000 } else { 30_000 };
        for (name, table) in [(ONE_ROW, "one_row"), (DEFAULT, "adaptive_shards")] {
            let courses = snapshot::measure(name, table, counts, &self.redis, &self.bar);
            self.results.courses.extend(courses);
        }
    }

    fn process(&mut self) {
        self.bar.set_message("process");
        let (duration, keys) = match self.plan.quick {
            true => (Duration::from_millis(300), 20_000),
            false => (Duration::from_secs(2), 1_000_000),
        };
        self.results.in_process = Some(process::measure(duration, keys));
    }

    fn run(&mut self) {
        macro_rules! everywhere {
            ($section:ident) => {
                self.section(stringify!($section), self.plan.pace, |run| {
                    if run.plan.is_on(PgConnection::NAME) {
                        run.$section::<PgConnection>();
                    }
                    if run.plan.is_on(MysqlConnection::NAME) {
                        run.$section::<MysqlConnection>();
                    }
                    if run.plan.is_on(SqliteConnection::NAME) {
                        run.$section::<SqliteConnection>();
                    }
                });
            };
        }
        everywhere!(hot);
        everywhere!(disks);
        everywhere!(tasks);
        everywhere!(shapes);
        everywhere!(keys);
        everywhere!(transactions);
        everywhere!(limits);
        everywhere!(reads);
        everywhere!(top);
        self.section(SNAPSHOT, self.plan.pace, Run::snapshot);
        self.section(PROCESS, self.plan.pace, Run::process);
        let pace = self.plan.long_pace(long::CONTENDERS.len());
        self.section(LONG, pace, |run| {
            // One writer at a time is all there is on SQLite, however long it lasts.
            if run.plan.is_on(PgConnection::NAME) {
                run.long::<PgConnection>(pace);
            }
            if run.plan.is_on(MysqlConnection::NAME) {
                run.long::<MysqlConnection>(pace);
            }
        });
    }

    /// Measures a section if the plan has it, and writes the results: they are kept if a later section fails.
    fn section(&mut self, name: &'static str, pace: Pace, measure: impl FnOnce(&mut Self)) {
        if self.plan.has(name) {
            let start = Instant::now();
            measure(self);
            self.results.sections.push((name, pace, start.elapsed()));
            Summary(&self.results).write(&folder());
            if self.plan.publish {
                let parts = self.results.parts().into_iter();
                Report::publish(parts.filter(|part| part.section == name));
            }
            self.bar.inc(1);
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, process::IDLE_KEYS, keys] =
        arguments.iter().map(String::as_str).collect::<Vec<_>>()[..]
    {
        println!(
            "{}",
            process::bytes_of_idle_key(keys.parse().expect("a number"))
        );
        return ExitCode::SUCCESS;
    }
    let plan = match Plan::from_arguments() {
        Ok(plan) => plan,
        Err(wrong) => {
            eprintln!("{wrong}");
            return ExitCode::FAILURE;
        }
    };
    let report_panic = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report_panic(panic);
        std::process::exit(101); // the other threads would wait for this one forever
    }));
    let sections = SECTIONS.iter().filter(|section| plan.has(section)).count();
    let bar = ProgressBar::new(sections as u64);
    let style = ProgressStyle::with_template("{elapsed_precise} [{bar:30}] {pos}/{len} {wide_msg}");
    bar.set_style(style.expect("a template"));
    let results = Results::new(plan.quick);
    let mut run = Run {
        plan,
        redis: Redis::start(),
        results,
        bar,
    };
    run.run();
    run.bar.finish_and_clear();
    println!("{}", Summary(&run.results).markdown());
    ExitCode::SUCCESS
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/contention")
}
