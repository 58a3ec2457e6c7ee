//! The first ten rows by total: `top`, a sort of all totals, and the plain column with an index, over several mixes of shards.

use std::cell::RefCell;

use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::top;
use diesel_sharded_benches::names::{
    ALL_ROWS, FEW_HOT, FOLDED_KEEPING, INDEXED, NO_SHARDS, SIXTEEN_SHARDS, SORT, TOP, TOP_LIST,
};
use diesel_sharded_benches::report::Reading;
use diesel_sharded_benches::side_by_side;
use indicatif::ProgressBar;

use crate::arena::{Arena, Disk, Stage};
use crate::reads::{Extent, reading};
use crate::schema::random_128 as ranked;

/// The shards of each mix: a condition on the parent `v` and the number `s.n`, from 1 to 128, and a shard's value.
const MIXES: [(&str, &str, &str); 4] = [
    (SIXTEEN_SHARDS, "s.n <= 16", "v.id % 7"),
    (FEW_HOT, HOT, "(v.id * s.n) % 9973"),
    (FOLDED_KEEPING, HOT, "0"),
    (NO_SHARDS, "s.n < 1", "0"),
];
const HOT: &str = "(v.id % 100 = 1 AND s.n <= 16 + v.id % 113) OR (v.id % 10 = 3 AND s.n <= 1)";

type Row = (i64, i64);
type Form<'a> = (&'static str, Box<dyn FnMut() -> Vec<Row> + 'a>);

/// A connection type with its top lists.
pub trait TopLists: Arena {
    /// The first ten rows in each form.
    fn lists(conn: &RefCell<Self>) -> [Form<'_>; 3];
}

macro_rules! top_lists {
    ($connection:ty) => {
        impl TopLists for $connection {
            fn lists(conn: &RefCell<Self>) -> [Form<'_>; 3] {
                macro_rules! form {
                    ($query:expr) => {
                        Box::new(move || $query.load(&mut *conn.borrow_mut()).expect("rows"))
                    };
                }
                let order = ranked::id.desc();
                let (total, views) = (ranked::views.total(), ranked::views);
                let [sort, list, plain]: [Box<dyn FnMut() -> Vec<Row>>; 3] = [
                    form!(
                        ranked::table
                            .select((ranked::id, total))
                            .order((total.desc(), order))
                            .limit(10)
                    ),
                    form!(top(ranked::table, views, 10).select((ranked::id, views))),
                    form!(
                        ranked::table
                            .select((ranked::id, views))
                            .order((views.desc(), order))
                            .limit(10)
                    ),
                ];
                [(SORT, sort), (TOP_LIST, list), (INDEXED, plain)]
            }
        }
    };
}

top_lists!(PgConnection);
top_lists!(MysqlConnection);
top_lists!(SqliteConnection);

/// Measures each form over each mix.
///
/// # Panics
/// If `top` returns other rows than the sort.
pub fn measure<Conn: TopLists>(extent: Extent, bar: &ProgressBar) -> Vec<Reading> {
    let stage = Stage::<Conn>::new(Disk::Free);
    let mut conn = stage.connect();
    conn.run("DELETE FROM random_128");
    conn.run(&format!(
        "INSERT INTO random_128 SELECT n, (n * 7919) % 1000003 FROM ({}) AS numbers",
        Conn::numbers(extent.parents)
    ));
    conn.run("CREATE INDEX random_128_views ON random_128 (views)");
    let conn = RefCell::new(conn);
    let mut readings = vec![];
    for (mix, holds, value) in MIXES {
        bar.set_message(format!("{TOP}, {}: {mix}", Conn::NAME));
        fill(&mut *conn.borrow_mut(), holds, value);
        let mut forms = Conn::lists(&conn);
        let [sorted, listed, _] = forms.each_mut().map(|(_, read)| read());
        assert_eq!(sorted, listed, "{mix}, {}", Conn::NAME);
        let (names, mut reads): (Vec<_>, Vec<_>) = forms.into_iter().unzip();
        let mut works: Vec<_> = reads.iter_mut().map(|read| || drop(read())).collect();
        let times = side_by_side(extent.rounds, &mut works);
        let forms = names.into_iter().zip(times);
        readings
            .extend(forms.map(|(form, time)| reading(format!("{mix}, {ALL_ROWS}"), form, time)));
    }
    readings
}

fn fill<Conn: TopLists>(conn: &mut Conn, holds: &str, value: &str) {
    conn.run(&format!("{} random_128_shards", Conn::EMPTY));
    conn.run(&format!(
        "INSERT INTO random_128_shards (id, shard, views) SELECT v.id, s.n, {value} FROM random_128 AS v, ({}) AS s WHERE {holds}",
        Conn::numbers(128)
    ));
    for table in ["random_128", "random_128_shards"] {
        conn.analyze_table(table);
    }
}
