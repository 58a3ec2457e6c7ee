//! A table that keeps greatest or least values, which the tool leaves to the library.

use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::update;
use diesel_sharded_tests::players::players::dsl::{best_score, players};
use diesel_sharded_tests::players::{self as tables};

use super::{assert_says, empty_database, run_noting};

#[test]
fn a_greatest_value_is_no_sum() {
    let (database, mut conn) = empty_database();
    tables::create(&mut conn);
    for score in [3, 9] {
        update(players.find(1))
            .set(best_score.raise_to(score))
            .execute(&mut conn)
            .unwrap();
    }
    for command in ["fold", "status"] {
        let (_, says) = run_noting(&database, &format!("{command} players"), 1);
        assert_says(
            &says,
            "`players_shards` keeps the greatest or the least value of `players.best_score`",
        );
        let (printed, noted) = run_noting(&database, command, 0);
        assert_says(&noted, "use the library for this table");
        assert!(!printed.contains("players"), "{printed}");
    }
    let total = players.find(1).select(best_score.total()).first(&mut conn);
    assert_eq!(total, Ok(Some(9)));
    let base = players.find(1).select(best_score).first(&mut conn);
    assert_eq!(base, Ok(None::<i32>));
}
