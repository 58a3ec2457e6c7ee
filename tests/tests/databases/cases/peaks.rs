//! Fields that keep their greatest or least value: increments, totals, folds, and what comes between.

use std::str::FromStr;

use super::support::*;
use bigdecimal::BigDecimal;
use chrono::{NaiveDate, NaiveDateTime};
use diesel_sharded_tests::players::levels::dsl as level;
use diesel_sharded_tests::players::players::dsl::*;
use diesel_sharded_tests::players::{self as tables, Level, Player, players_shards};

fn set_up() -> Connected<Conn> {
    let database = Conn::database();
    let mut conn = Conn::connect(&database);
    tables::create(&mut conn);
    Connected { conn, database }
}

fn day(text: &str) -> NaiveDate {
    NaiveDate::from_str(text).unwrap()
}

fn time(text: &str) -> NaiveDateTime {
    NaiveDateTime::from_str(text).unwrap()
}

fn player(conn: &mut Conn) -> Player {
    let player = players.find(1).select(Player::as_select());
    player.first(conn).unwrap()
}

/// The changes of a game that was won by this many points, in as many seconds.
macro_rules! game {
    ($score:expr) => {
        (
            games.eq(games + 1),
            best_score.raise_to($score),
            fastest.lower_to(f64::from($score)),
        )
    };
}

/// How many shards have a value.
fn unfolded(conn: &mut Conn) -> i64 {
    use players_shards::dsl;
    let filled = dsl::games
        .ne(0)
        .or(dsl::best_score.is_not_null())
        .or(dsl::last_game.is_not_null())
        .or(dsl::fastest.is_not_null())
        .or(dsl::first_day.is_not_null());
    let filled = players_shards::table.filter(filled).count();
    filled.get_result(conn).unwrap()
}

/// A fold of everything finds this many players with shards to fold, and changes no total.
fn fold_all(parents: u64, conn: &mut Conn) {
    let before = player(conn);
    let folded = fold(players).run(conn).unwrap();
    let left = (folded.unfit.len(), folded.busy.len(), unfolded(conn));
    assert_eq!((folded.parents, left), (parents, (0, 0, 0)), "{folded:?}");
    assert_eq!(player(conn), before);
}

#[test]
fn a_count_and_greatest_and_least_values_in_one_update() {
    let conn = &mut set_up().conn;
    let nothing = Player {
        id: 1,
        games: 0,
        best_score: None,
        last_game: time("2026-01-01T00:00:00"),
        fastest: None,
        first_day: None,
    };
    assert_eq!(player(conn), nothing);
    for (score, at, seconds, on) in [
        (40, "2026-03-01T10:00:00.250", 9.5, "2026-03-01"),
        (90, "2026-02-01T10:00:00", 7.25, "2026-02-01"),
        (70, "2026-03-01T10:00:00.500", 8.0, "2026-04-01"),
    ] {
        let changes = (
            games.eq(games + 1),
            best_score.raise_to(score),
            last_game.raise_to(time(at)),
            fastest.lower_to(seconds),
            first_day.lower_to(day(on)),
        );
        assert_eq!(count!(players.find(1), changes, conn), 1);
    }
    let played = Player {
        games: 3,
        best_score: Some(90),
        last_game: time("2026-03-01T10:00:00.500"),
        fastest: Some(7.25),
        first_day: Some(day("2026-02-01")),
        ..nothing
    };
    assert_eq!(player(conn), played);
    let base = players.select((games, best_score, last_game)).first(conn);
    assert_eq!(base, Ok((0_i64, None::<i32>, nothing.last_game)));

    // In filters, in an order, under an alias.
    let high = |score| players.filter(best_score.total().ge(score)).select(id);
    assert_eq!(high(90).load(conn), Ok(vec![1_i64]));
    assert_eq!(high(91).load::<i64>(conn), Ok(vec![]));
    let other = diesel::alias!(tables::players as other);
    let first = other.order(other.field(last_game).total().desc());
    let first = first.select(other.field(fastest).total());
    assert_eq!(first.first(conn), Ok(Some(7.25)));

    for parents in [1, 0] {
        fold_all(parents, conn);
        let base = players.select((games, best_score, last_game, fastest, first_day));
        let (score, seconds, on) = (Some(90), Some(7.25), played.first_day);
        let expected = (3_i64, score, played.last_game, seconds, on);
        assert_eq!(base.first(conn), Ok(expected));
    }

    // Neither lowers what is there.
    let changes = (best_score.raise_to(10), fastest.lower_to(100.0));
    count!(players.find(1), changes, conn);
    assert_eq!(player(conn), played);
    fold(players).run(conn).unwrap();
    assert_eq!((player(conn), unfolded(conn)), (played, 0));
}

#[test]
fn a_greatest_value_alone() {
    let conn = &mut set_up().conn;
    assert_eq!(count!(players.find(2), best_score.raise_to(1), conn), 0);
    for score in [5, 7, 6, 7] {
        assert_eq!(count!(players.find(1), best_score.raise_to(score), conn), 1);
    }
    assert_eq!(player(conn).best_score, Some(7));
    // An option that is none leaves the field out.
    let no_score = None::<i32>.map(|score| best_score.raise_to(score));
    let changes = (games.eq(games + 1), no_score);
    assert_eq!(count!(players.find(1), changes, conn), 1);
    assert_eq!((player(conn).games, player(conn).best_score), (1, Some(7)));
    // A negative one is greater than none.
    insert!(players, id.eq(2), conn);
    count!(players.find(2), best_score.raise_to(-3), conn);
    let total = players.find(2).select(best_score.total()).first(conn);
    assert_eq!(total, Ok(Some(-3)));
    // By the database's own clock.
    count!(players.find(1), last_game.raise_to(diesel::dsl::now), conn);
    assert!(player(conn).last_game > time("2026-01-02T00:00:00"));
}

#[test]
fn by_a_filter_and_with_rows_back() {
    let conn = &mut set_up().conn;
    for key in [2, 3] {
        insert!(players, id.eq(key), conn);
    }
    for (least, score) in [(2, 30), (1, 20), (2, 10)] {
        let counted = update(players.filter(id.ge(least))).set(game!(score));
        let counted = counted.returning((id, games, best_score, fastest));
        let mut counted: Vec<(i64, i64, Option<i32>, Option<f64>)> =
            counted.get_results(conn).unwrap();
        counted.sort_by_key(|row| row.0);
        let all = players.filter(id.ge(least)).order(id);
        let all = all.select((id, games.total(), best_score.total(), fastest.total()));
        assert_eq!(all.load(conn), Ok(counted), "{score}");
    }
    let totals = players.order(id);
    let totals = totals.select((best_score.total(), fastest.total()));
    let (one, two) = ((Some(20), Some(20.0)), (Some(30), Some(10.0)));
    assert_eq!(totals.load(conn), Ok(vec![one, two, two]));
    let row = update(players.find(1)).set(best_score.raise_to(99));
    let row = row.returning(Player::as_returning());
    let row: Player = row.get_result(conn).unwrap();
    assert_eq!(row.best_score, Some(99));
    let rows = players.filter(best_score.total().ge(99));
    assert_eq!(count!(rows, best_score.raise_to(100), conn), 1);
}

#[test]
fn a_model_of_nothing_else() {
    let conn = &mut set_up().conn;
    let exact = |text| BigDecimal::from_str(text).unwrap();
    let level_1 = |conn: &mut Conn| {
        let model = level::levels.find(1).select(Level::as_select());
        model.first(conn).unwrap()
    };
    for (n, amount) in [(3_i16, "1.50"), (9, "0.25"), (-4, "1.25")] {
        let changes = (
            level::tiny.raise_to(n),
            level::wide.lower_to(i64::from(n) * 3_000_000_000),
            level::single.raise_to(f32::from(n) + 0.1),
            level::exact.raise_to(exact(amount)),
        );
        assert_eq!(count!(level::levels.find(1), changes, conn), 1);
    }
    let expected = Level {
        id: 1,
        tiny: 9,
        wide: -12_000_000_000,
        single: 9.1,
        exact: exact("1.5"),
    };
    assert_eq!(level_1(conn), expected);
    let folded = fold(level::levels).run(conn).unwrap();
    assert_eq!((folded.parents, folded.unfit.len()), (1, 0), "{folded:?}");
    assert_eq!(level_1(conn), expected);
    let base = level::levels.select((level::tiny, level::wide, level::single, level::exact));
    let base = base.first::<(i16, i64, f32, BigDecimal)>(conn);
    assert_eq!(base, Ok((9, -12_000_000_000, 9.1, exact("1.5"))));
    // Leaving takes the values along.
    count!(level::levels.find(1), level::tiny.raise_to(50), conn);
    ShardsTable::of(level::levels).drop(conn).unwrap();
    assert_eq!(level::levels.select(level::tiny).first(conn), Ok(50_i16));
}

#[test]
fn leaving_takes_greatest_and_least_values_along() {
    let conn = &mut set_up().conn;
    for key in [2, 3] {
        insert!(players, (id.eq(key), best_score.eq(50)), conn);
    }
    let at = time("2026-05-01T00:00:00.125");
    for (key, score) in [(1, 10), (2, 40), (3, 60)] {
        let changes = (
            games.eq(games + 2),
            best_score.raise_to(score),
            last_game.raise_to(at),
        );
        count!(players.find(key), changes, conn);
    }
    ShardsTable::of(players).drop(conn).unwrap();
    let bases = players.select((games, best_score, last_game, fastest));
    let row = |score| (2_i64, Some(score), at, None::<f64>);
    let expected = vec![row(10), row(50), row(60)];
    assert_eq!(bases.order(id).load(conn), Ok(expected));
}

#[test]
fn a_parent_that_comes_back_has_no_old_value() {
    let conn = &mut set_up().conn;
    count!(players.find(1), best_score.raise_to(500), conn);
    delete!(players.find(1), conn);
    insert!(players, id.eq(1), conn);
    assert_eq!(player(conn).best_score, None);
    count!(players.find(1), best_score.raise_to(3), conn);
    fold_all(1, conn);
    assert_eq!(player(conn).best_score, Some(3));
}

/// A fold inside a transaction holds the row with its shards, so that the plain update sets the total.
#[test]
fn a_value_is_corrected_in_one_transaction() {
    let Connected { conn, database } = &mut set_up();
    count!(players.find(1), best_score.raise_to(900), conn);
    let counts = AtomicI64::new(0);
    let correct = |_, conn: &mut Conn| {
        let corrected = in_transaction(conn, |conn| {
            fold(players.find(1)).run(conn).done()?;
            let correction = diesel::update(players.find(1)).set(best_score.eq(20));
            correction.execute(conn)
        });
        assert_eq!(corrected, Ok(1));
    };
    // Increments that are under way wait, and are kept. Each thread counts until the correction is there, and once more after it.
    on_threads_beside(1, database, correct, 3, |_, rounds, conn| {
        for _ in rounds.chain([0]) {
            for score in 0..20 {
                let changes = (games.eq(games + 1), best_score.raise_to(score + 10));
                assert_eq!(count!(players.find(1), changes, conn), 1);
                counts.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    let corrected = player(conn);
    let counts = counts.into_inner();
    assert_eq!((corrected.games, corrected.best_score), (counts, Some(29)));
}

/// A fold that removes shards does so after it has folded them.
#[test]
fn a_fold_that_removes_shards_keeps_the_value() {
    let conn = &mut set_up().conn;
    count!(players.find(1), best_score.raise_to(5), conn);
    let folding = fold(players.filter(id.eq(1))).keep_shards(0);
    let folded = folding.run(conn).unwrap();
    assert_eq!((folded.parents, folded.shards_removed), (1, 1));
    assert_eq!(player(conn).best_score, Some(5));
}

#[test]
fn writers_and_folds_beside_each_other_keep_the_greatest() {
    const EACH: i64 = 60;
    let score = |writer: i64, round: i64| ((round * 37 + writer * 11) % 1_000) as i32;
    let Connected { conn, database } = &mut set_up();
    on_threads(10, database, |number, conn| {
        if number >= 8 {
            for _ in 0..20 {
                let folded = fold(players).run(conn).unwrap();
                assert!(folded.unfit.is_empty(), "{folded:?}");
            }
            return;
        }
        let mut last = None;
        for score in (0..EACH).map(|round| score(number, round)) {
            assert_eq!(count!(players.find(1), game!(score), conn), 1);
            let total = player(conn).best_score;
            let rises = total >= Some(score) && total >= last;
            assert!(rises, "{total:?} after {last:?} and {score}");
            last = total;
        }
    });
    let scores = (0..8).flat_map(|writer| (0..EACH).map(move |round| score(writer, round)));
    let played = player(conn);
    assert_eq!(played.games, 8 * EACH);
    assert_eq!(played.best_score, scores.clone().max());
    assert_eq!(played.fastest, scores.min().map(f64::from));
    fold(players).run(conn).unwrap();
    assert_eq!((player(conn), unfolded(conn)), (played, 0));
}

/// A NaN is out of every range, also where it compares as nothing.
#[test]
fn no_field_keeps_a_nan() {
    let conn = &mut set_up().conn;
    let refused = |conn: &mut Conn| {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let kept = update(players.find(1)).set(fastest.lower_to(value));
            let kept = kept.execute(conn).done();
            // A value that is not less is not kept, and MySQL's driver sends none of these three.
            if value != f64::INFINITY || kept.is_err() {
                refused!(kept, Error::Overflow { .. });
            }
        }
    };
    refused(conn);
    assert_eq!(count!(players.find(1), fastest.lower_to(7.5), conn), 1);
    refused(conn);
    assert_eq!(player(conn).fastest, Some(7.5));
}
