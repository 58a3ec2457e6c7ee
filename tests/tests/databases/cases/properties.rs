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
    ($rows:expr, |$source:ident| $run:expr) => {{
        macro_rules! run {
            ($rows_of_it:expr) => {{
                let $source = $rows_of_it;
                $run
            }};
        }
        match *$rows {
            Rows::Key(key) => run!(videos.find(key)),
            Rows::Slug(name) => run!(videos.filter(slug.eq(name))),
            Rows::AtLeast(least) => run!(videos.filter(id.ge(least))),
            Rows::All => run!(videos),
        }
    }};
}

fn apply(conn: &mut Conn, Operation { change, rows, .. }: &Operation) -> QueryResult<usize> {
    over!(rows, |source| match *change {
        Change::Views(n) => update(source).set(views.eq(views + n)).execute(conn).done(),
        Change::Likes(n) => update(source).set(likes.eq(likes - n)).execute(conn).done(),
        Change::Both(v, l) => {
            let changes = (views.eq(views - v), likes.eq(likes + l));
            update(source).set(changes).execute(conn).done()
        }
        Change::Base(n) => {
            let base = diesel::update(source).set(views.eq(views - n));
            base.execute(conn)
        }
    })
}

/// The events in a counter's life, besides increments.
#[derive(Debug, Clone)]
enum Event {
    Count(Operation),
    /// On video 4, which may not exist yet and begins with 1000 views.
    OrInsert(i64),
    /// This many rows a batch, and this many shards that stay.
    Fold(Rows, usize, u16),
    SetViews(Rows, i64),
    Reset(Rows),
    /// On video 1: this far below its total is the least, this far above that the most; amounts, each perhaps after a fold that keeps this many
    /// shards.
    Bounded(i64, i64, Vec<(i64, Option<u16>)>),
    Delete(i64),
}

/// Events on two connections in turn.
fn events() -> impl Strategy<Value = Vec<(usize, Event)>> {
    let amount = (-40..40i64, proptest::option::weighted(0.2, 0..3u16));
    let amounts = proptest::collection::vec(amount, 1..20);
    let bounded = (-20..50i64, 0..60i64, amounts);
    let event = prop_oneof![
        12 => operation().prop_map(Event::Count),
        2 => (-9..9i64).prop_map(Event::OrInsert),
        3 => (rows(), 1..4usize, 0..5u16).prop_map(|(rows, n, keep)| Event::Fold(rows, n, keep)),
        2 => (rows(), -99..99i64).prop_map(|(rows, n)| Event::SetViews(rows, n)),
        1 => rows().prop_map(Event::Reset),
        2 => bounded.prop_map(|(below, room, amounts)| Event::Bounded(below, room, amounts)),
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

/// What a bounded increment comes to without a row; otherwise a binary digit tells of each amount whether it was accepted.
const NO_ROW: usize = usize::MAX;

fn live(conn: &mut Conn, event: &Event) -> QueryResult<usize> {
    match event {
        Event::Count(operation) if operation.in_transaction => {
            let mut met = Ok(0);
            let _: QueryResult<()> = conn.transaction(|conn| {
                met = apply(conn, operation);
                match operation.commits {
                    true => Ok(()),
                    false => Err(DieselError::RollbackTransaction),
                }
            });
            met
        }
        Event::Count(operation) => apply(conn, operation),
        Event::OrInsert(n) => {
            let count = update(videos.find(4)).set(views.eq(views + *n));
            let row = (id.eq(4), slug.eq("d"), title.eq("D"), views.eq(1000));
            count.or_insert(row).execute(conn).done()
        }
        Event::Fold(rows, batch, keep_shards) => over!(rows, |source| {
            let fold = fold(source).batch(*batch).keep_shards(*keep_shards);
            let folded = fold.run(conn).done();
            folded.map(|folded| usize::from(!folded.finished))
        }),
        Event::SetViews(rows, n) => {
            over!(rows, |source| set_total(source, views, *n)
                .execute(conn)
                .done())
        }
        Event::Reset(rows) => over!(rows, |source| reset(source).execute(conn).done()),
        Event::Bounded(below, room, amounts) => {
            // Other operations count on it too: this brings the shards to values that a bounded counter may find.
            let _ = fold(videos.find(1)).run(conn).done()?;
            let counter = RowCounter::of(views, 1);
            let least = counter.get(conn).done()?.unwrap_or(0) - below;
            let counter = counter.never_below(least).never_above(least + room);
            let mut accepted = 0;
            for (n, folded_keeping) in amounts {
                if let Some(shards) = folded_keeping {
                    let _ = fold(videos.find(1)).keep_shards(*shards).run(conn).done()?;
                }
                accepted = 2 * accepted
                    + match counter.add(*n, conn).done() {
                        Err(DieselError::NotFound) => return Ok(NO_ROW),
                        added => usize::from(added?),
                    };
            }
            Ok(accepted)
        }
        Event::Delete(key) => diesel::delete(videos.find(*key)).execute(conn),
    }
}

/// Does to plain numbers what `live` does to rows, and returns the same.
fn live_on(model: &mut Model, event: &Event) -> usize {
    let mut each = |rows: &Rows, change: &dyn Fn(&mut (i64, i32))| {
        let met = model.iter_mut().filter(|(key, _)| matches(rows, **key));
        met.map(|(_, row)| change(row)).count()
    };
    match event {
        Event::Count(operation) => each(&operation.rows, &|(v, l)| match operation.change {
            _ if !operation.commits => {}
            Change::Views(n) => *v += n,
            Change::Likes(n) => *l -= n,
            Change::Both(dv, dl) => (*v, *l) = (*v - dv, *l + dl),
            Change::Base(n) => *v -= n,
        }),
        Event::OrInsert(n) => {
            model.entry(4).or_insert((1000, 0)).0 += n;
            1
        }
        Event::Fold(..) => 0,
        Event::SetViews(rows, n) => each(rows, &|(v, _)| *v = *n),
        Event::Reset(rows) => each(rows, &|row| *row = (0, 0)),
        Event::Bounded(below, room, amounts) => {
            let Some((v, _)) = model.get_mut(&1) else {
                return NO_ROW;
            };
            let least = *v - below;
            amounts.iter().fold(0, |accepted, (n, _)| {
                let fits = match *n {
                    n if n > 0 => *v + n <= least + room,
                    n if n < 0 => *v + n >= least,
                    _ => true,
                };
                *v += if fits { n } else { &0 };
                2 * accepted + usize::from(fits)
            })
        }
        Event::Delete(key) => usize::from(model.remove(key).is_some()),
    }
}

#[test]
fn any_life_equals_that_of_a_plain_column() {
    let Connected { conn, database } = set_up();
    let conns = std::cell::RefCell::new([conn, Conn::connect(&database)]);
    for_all(60, events(), |events| {
        let conns = &mut *conns.borrow_mut();
        delete!(videos, &mut conns[0]);
        let mut model = Model::new();
        for (key, name) in (1..).zip(["a", "b", "c"]) {
            let row = (id.eq(key), slug.eq(name), title.eq(""));
            insert!(videos, row, &mut conns[0]);
            model.insert(key, (0, 0));
        }
        for (conn, event) in &events {
            let met = live(&mut conns[*conn], event);
            prop_assert_eq!(met, Ok(live_on(&mut model, event)), "{:?}", event);
            let read = videos.select((id, (views.total(), likes.total())));
            let read = read.order(id).load(&mut conns[1 - conn]);
            prop_assert_eq!(read, Ok(model.clone().into_iter().collect()));
        }
        Ok(())
    });
}
