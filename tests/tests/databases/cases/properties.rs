//! Any sequence of updates has the same effect on totals as on plain columns.

use super::support::*;
use diesel_sharded_tests::schema::videos::dsl::*;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Change {
    Views(i64),
    Likes(i32),
    Both(i64, i32),
    /// `- n`, of the base itself, by Diesel.
    Base(i64),
}

#[derive(Debug, Clone)]
enum Rows {
    Key(i64),
    Slug(&'static str),
    AtLeast(i64),
    All,
}

#[derive(Debug, Clone)]
struct Operation {
    change: Change,
    rows: Rows,
    in_transaction: bool,
    commits: bool,
}

fn rows() -> impl Strategy<Value = Rows> {
    prop_oneof![
        (0..6i64).prop_map(Rows::Key),
        prop_oneof![Just("a"), Just("c"), Just("z")].prop_map(Rows::Slug),
        (0..5i64).prop_map(Rows::AtLeast),
        Just(Rows::All),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let change = prop_oneof![
        (-1000..1000i64).prop_map(Change::Views),
        (-1000..1000i32).prop_map(Change::Likes),
        (-1000..1000i64, -1000..1000i32).prop_map(|(v, l)| Change::Both(v, l)),
        (-1000..1000i64).prop_map(Change::Base),
    ];
    (change, rows(), any::<bool>(), any::<bool>()).prop_map(
        |(change, rows, in_transaction, commits)| Operation {
            change,
            rows,
            in_transaction,
            commits: commits || !in_transaction,
        },
    )
}

/// Does `$run` with the rows as a source of statements.
macro_rules! over {
    ($rows:expr, |$source:ident| $run:expr) => {
        match *$rows {
            Rows::Key(key) => {
                let $source = videos.find(key);
                $run
            }
            Rows::Slug(name) => {
                let $source = videos.filter(slug.eq(name));
                $run
            }
            Rows::AtLeast(least) => {
                let $source = videos.filter(id.ge(least));
                $run
            }
            Rows::All => {
                let $source = videos;
                $run
            }
        }
    };
}

fn apply(conn: &mut Conn, Operation { change, rows, .. }: &Operation) -> QueryResult<usize> {
    over!(rows, |source| match *change {
        Change::Views(n) => update(source).set(views.eq(views + n)).execute(conn),
        Change::Likes(n) => update(source).set(likes.eq(likes - n)).execute(conn),
        Change::Both(v, l) => update(source)
            .set((views.eq(views - v), likes.eq(likes + l)))
            .execute(conn),
        Change::Base(n) => diesel::update(source)
            .set(views.eq(views - n))
            .execute(conn),
    })
}

/// The events in a counter's life, besides counts.
#[derive(Debug, Clone)]
enum Event {
    Count(Operation),
    /// On video 4, which may not exist yet and begins with 1000 views.
    OrInsert(i64),
    Fold {
        rows: Rows,
        batch: usize,
        keep_shards: u16,
    },
    SetViews(Rows, i64),
    Reset(Rows),
    Bounded(i64),
    Delete(i64),
}

/// Events on two connections in turn.
fn events() -> impl Strategy<Value = Vec<(usize, Event)>> {
    let event = prop_oneof![
        12 => operation().prop_map(Event::Count),
        2 => (-9..9i64).prop_map(Event::OrInsert),
        3 => (rows(), 1..4usize, 0..5u16)
            .prop_map(|(rows, batch, keep_shards)| Event::Fold { rows, batch, keep_shards }),
        2 => (rows(), -99..99i64).prop_map(|(rows, n)| Event::SetViews(rows, n)),
        1 => rows().prop_map(Event::Reset),
        2 => (-300..300i64).prop_map(Event::Bounded),
        1 => (1..5i64).prop_map(Event::Delete),
    ];
    proptest::collection::vec((0..2usize, event), 1..30)
}

/// The rows of a model by key: views and likes.
type Model = std::collections::BTreeMap<i64, (i64, i32)>;

fn matches(rows: &Rows, key: i64) -> bool {
    match *rows {
        Rows::Key(wanted) => key == wanted,
        Rows::Slug(name) => ["a", "b", "c", "d"][key as usize - 1] == name,
        Rows::AtLeast(least) => key >= least,
        Rows::All => true,
    }
}

fn live(conn: &mut Conn, event: &Event) -> QueryResult<usize> {
    match event {
        Event::Count(operation) if operation.in_transaction => {
            let mut met = Ok(0);
            let _: QueryResult<()> = conn.transaction(|conn| {
                met = apply(conn, operation);
                match operation.commits {
                    true => Ok(()),
                    false => Err(diesel::result::Error::RollbackTransaction),
                }
            });
            met
        }
        Event::Count(operation) => apply(conn, operation),
        Event::OrInsert(n) => update(videos.find(4))
            .set(views.eq(views + *n))
            .or_insert((id.eq(4), slug.eq("d"), title.eq("D"), views.eq(1000)))
            .execute(conn),
        Event::Fold {
            rows,
            batch,
            keep_shards,
        } => over!(rows, |source| {
            let fold = fold(source).batch(*batch).keep_shards(*keep_shards);
            fold.run(conn).map(|folded| usize::from(!folded.finished))
        }),
        Event::SetViews(rows, n) => {
            over!(rows, |source| set_total(source, views, *n).execute(conn))
        }
        Event::Reset(rows) => over!(rows, |source| reset(source).execute(conn)),
        Event::Bounded(n) => {
            // Other operations count on it too: this brings the shards to values that a bounded counter may find.
            let _ = fold(videos.find(1)).run(conn)?;
            let counter = RowCounter::of(views, 1).never_below(-100).never_above(100);
            match counter.add(*n, conn) {
                Err(diesel::result::Error::NotFound) => Ok(2),
                added => added.map(usize::from),
            }
        }
        Event::Delete(key) => diesel::delete(videos.find(*key)).execute(conn),
    }
}

/// Does to plain numbers what `live` does to rows, and returns the same.
fn live_on(model: &mut Model, event: &Event) -> usize {
    match event {
        Event::Count(Operation {
            change,
            rows,
            commits,
            ..
        }) => {
            let mut met = 0;
            for (_, (v, l)) in model.iter_mut().filter(|(key, _)| matches(rows, **key)) {
                met += 1;
                match *change {
                    _ if !commits => {}
                    Change::Views(n) => *v += n,
                    Change::Likes(n) => *l -= n,
                    Change::Both(dv, dl) => (*v, *l) = (*v - dv, *l + dl),
                    Change::Base(n) => *v -= n,
                }
            }
            met
        }
        Event::OrInsert(n) => {
            model.entry(4).or_insert((1000, 0)).0 += n;
            1
        }
        Event::Fold { .. } => 0,
        Event::SetViews(rows, n) => {
            let mut set = model.iter_mut().filter(|(key, _)| matches(rows, **key));
            set.by_ref().map(|(_, (v, _))| *v = *n).count()
        }
        Event::Reset(rows) => {
            let mut set = model.iter_mut().filter(|(key, _)| matches(rows, **key));
            set.by_ref().map(|(_, row)| *row = (0, 0)).count()
        }
        Event::Bounded(n) => match model.get_mut(&1) {
            None => 2,
            Some((v, _)) => {
                let fits = match *n {
                    n if n > 0 => *v + n <= 100,
                    n if n < 0 => *v + n >= -100,
                    _ => true,
                };
                *v += if fits { n } else { &0 };
                usize::from(fits)
            }
        },
        Event::Delete(key) => usize::from(model.remove(key).is_some()),
    }
}

#[test]
fn any_life_equals_that_of_a_plain_column() {
    let (database, conn) = database();
    let conns = std::cell::RefCell::new([conn, Conn::connect(&database)]);
    for_all(60, events(), |events| {
        let conns = &mut *conns.borrow_mut();
        diesel::delete(videos).execute(&mut conns[0]).unwrap();
        let mut model = Model::new();
        for (key, name) in (1..).zip(["a", "b", "c"]) {
            let row = (id.eq(key), slug.eq(name), title.eq(""));
            insert!(videos, row, &mut conns[0]);
            model.insert(key, (0, 0));
        }
        for (conn, event) in &events {
            let met = live(&mut conns[*conn], event);
            prop_assert_eq!(met, Ok(live_on(&mut model, event)), "{:?}", event);
            let read = videos
                .select((id, (views.total(), likes.total())))
                .order(id)
                .load::<(i64, (i64, i32))>(&mut conns[1 - conn]);
            prop_assert_eq!(read, Ok(model.clone().into_iter().collect()));
        }
        Ok(())
    });
}
