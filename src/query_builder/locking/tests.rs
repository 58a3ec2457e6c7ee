#![cfg(all(
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]

use std::marker::PhantomData;

use diesel::prelude::*;

use super::*;
use crate::model::ShardedTable;
use crate::query_builder::{KeysAre, Names, SelectKeys};
use crate::test_schema::videos::dsl::id;
use crate::test_schema::{assert_sql, sql, videos as table};
use diesel::mysql::Mysql;
use diesel::pg::Pg;
use diesel::sql_types::BigInt;
use diesel::sqlite::Sqlite;

macro_rules! rows {
    ($rows:ident, $keys:expr, $shard:expr) => {
        StatementRows {
            rows: RowKind::$rows,
            names: Names::of::<table::table>(),
            keys: &$keys,
            shard: $shard,
        }
    };
}

#[test]
fn parents_are_locked_and_then_shards_in_key_order() {
    let keys = KeysAre(vec![id.eq(1), id.eq(2)]);
    let names = Names::of::<table::table>();
    let lock = SelectKeys::<BigInt, _>::locking(names, &keys, " FOR UPDATE");
    assert_sql!(lock;
        Pg => r#"SELECT "videos"."id" FROM "videos" WHERE (("videos"."id" = $1) OR ("videos"."id" = $2)) ORDER BY "videos"."id" FOR UPDATE"#,
    );
    let of = rows!(Shards, keys, Some(3));
    let clause = " FOR UPDATE NOWAIT";
    assert_sql!(LockShards { of, clause };
        Mysql => "SELECT CASE WHEN `videos`.`views` <> 0 OR `videos`.`likes` <> 0 THEN 1 ELSE 0 END FROM `videos_shards` AS `videos` WHERE ((`videos`.`id` = ?) OR (`videos`.`id` = ?)) AND `videos`.`shard` = ? ORDER BY `videos`.`id`, `videos`.`shard` LIMIT 18446744073709551615 FOR UPDATE NOWAIT",
    );
}

#[test]
fn parents_that_are_not_locked_are_looked_for() {
    let (keys, locked) = (KeysAre(vec![id.eq(1), id.eq(2)]), KeysAre(vec![id.eq(1)]));
    let not_locked = NotLocked {
        names: Names::of::<table::table>(),
        keys: &keys,
        locked: &locked,
        key_sql: PhantomData::<BigInt>,
    };
    assert_sql!(not_locked;
        Pg => r#"SELECT "videos"."id" FROM "videos" WHERE (("videos"."id" = $1) OR ("videos"."id" = $2)) AND NOT (("videos"."id" = $3)) AND row_security_active('"videos"')"#,
    );
}

#[test]
fn states_are_read_as_they_are_locked() {
    let keys = KeysAre(vec![id.eq(1)]);
    let fields: Vec<_> = table::table::FIELDS.iter().collect();
    macro_rules! read {
        ($shard:expr) => {
            ReadStates {
                of: rows!(Parents, keys, $shard),
                fields: &fields,
                sums: Sums::Read,
            }
        };
    }
    assert_sql!(read!(Some(3));
        Pg => r#"SELECT CAST("videos"."views" AS TEXT), CAST((SELECT COALESCE(SUM("videos_shards"."views"), 0) FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id" AND "videos_shards"."shard" = $1) AS TEXT), CAST("videos"."likes" AS TEXT), CAST((SELECT COALESCE(SUM("videos_shards"."likes"), 0) FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id" AND "videos_shards"."shard" = $2) AS TEXT) FROM "videos" WHERE (("videos"."id" = $3)) ORDER BY "videos"."id""#,
    );
    let mysql = sql!(Mysql, read!(None));
    assert!(
        mysql.starts_with("SELECT CAST(`videos`.`views` AS CHAR), CAST((SELECT COALESCE(SUM(`videos_shards`.`views`), 0) FROM `videos_shards` WHERE `videos_shards`.`id` = `videos`.`id` FOR UPDATE) AS CHAR), "),
        "{mysql}"
    );
    assert!(
        mysql.ends_with("ORDER BY `videos`.`id` LIMIT 18446744073709551615 FOR UPDATE"),
        "{mysql}"
    );
    let bases = ReadStates {
        of: rows!(Parents, keys, None),
        fields: &fields[..1],
        sums: Sums::Replaced,
    };
    assert_sql!(bases;
        Sqlite => "SELECT CAST(`videos`.`views` AS TEXT), '0' FROM `videos` WHERE ((`videos`.`id` = ?)) ORDER BY `videos`.`id`",
    );
}

#[test]
fn a_fold_adds_and_then_empties() {
    let keys = KeysAre(vec![id.eq(1)]);
    macro_rules! add {
        ($shard:expr) => {
            AddShardsToBases {
                of: rows!(Parents, keys, $shard),
                keys: &keys.0,
                values: &[],
            }
        };
    }
    assert_sql!(add!(None);
        Mysql => "UPDATE `videos` SET `views` = (`videos`.`views` + (SELECT COALESCE(SUM(`videos_shards`.`views`), 0) FROM `videos_shards` WHERE `videos_shards`.`id` = `videos`.`id`)), `likes` = (`videos`.`likes` + (SELECT COALESCE(SUM(`videos_shards`.`likes`), 0) FROM `videos_shards` WHERE `videos_shards`.`id` = `videos`.`id`)) WHERE ((`videos`.`id` = ?)) AND EXISTS (SELECT 1 FROM `videos_shards` WHERE `videos_shards`.`id` = `videos`.`id` AND (`videos_shards`.`views` <> 0 OR `videos_shards`.`likes` <> 0))",
    );
    let one = sql!(Pg, add!(Some(3)));
    assert_eq!(one.matches(r#"AND "videos_shards"."shard" = $"#).count(), 3);
    let empty = EmptyShards {
        of: rows!(Shards, keys, None),
        fields: &table::table::FIELDS.iter().collect::<Vec<_>>(),
    };
    assert_sql!(empty;
        Sqlite => "UPDATE `videos_shards` AS `videos` SET `views` = 0, `likes` = 0 WHERE ((`videos`.`id` = ?)) AND (`videos`.`views` <> 0 OR `videos`.`likes` <> 0)",
    );
}

#[test]
fn a_double_is_added_as_a_value_and_a_shard_keeps_the_rest() {
    use crate::test_schema::downloads::{dsl::version, table as downloads};
    let keys = KeysAre(vec![version.eq(1), version.eq(2)]);
    macro_rules! of {
        ($rows:ident) => {
            StatementRows {
                rows: RowKind::$rows,
                names: Names::of::<downloads>(),
                keys: &keys,
                shard: None,
            }
        };
    }
    let values = [BaseValues {
        field: &downloads::FIELDS[0],
        of: vec![(1, "2.5e0".to_owned())],
    }];
    let add = AddShardsToBases {
        of: of!(Parents),
        keys: &keys.0,
        values: &values,
    };
    let add = sql!(Pg, add);
    let assigned = r#"SET "number" = ("downloads"."number" + CASE WHEN ("downloads"."version" = $1) THEN 2.5e0 ELSE 0 END) WHERE"#;
    assert!(add.contains(assigned), "{add}");
    let first = SelectFirstShards { of: of!(Parents) };
    assert_sql!(first;
        Sqlite => "SELECT COALESCE((SELECT MIN(`download \"counts\"`.`shard`) FROM `download \"counts\"` WHERE `download \"counts\"`.`version` = `downloads`.`version` AND `download \"counts\"`.`day` = `downloads`.`day`), 0) FROM `downloads` WHERE ((`downloads`.`version` = ?) OR (`downloads`.`version` = ?)) ORDER BY `downloads`.`version`, `downloads`.`day`",
    );
    let write = WriteRests {
        of: of!(Shards),
        keys: &keys.0,
        shards: &[(1, "3".to_owned())],
        values: &values,
    };
    assert_sql!(write;
        Mysql => "UPDATE `download \"counts\"` AS `downloads` SET `number` = CASE WHEN (`downloads`.`version` = ?) THEN 2.5e0 ELSE `downloads`.`number` END WHERE ((`downloads`.`version` = ?) OR (`downloads`.`version` = ?)) AND `downloads`.`shard` = CASE WHEN (`downloads`.`version` = ?) THEN 3 END",
    );
}

/// As for MySQL, where the statement must not read shards.
#[test]
fn values_are_added_and_written() {
    use crate::test_schema::players::{dsl::id as player, table as players};
    let keys = KeysAre(vec![id.eq(1), id.eq(2), id.eq(3)]);
    let fields = table::table::FIELDS;
    let of = |values: &[(usize, &str)]| {
        let of = values.iter().map(|(parent, n)| (*parent, (*n).to_owned()));
        of.collect::<Vec<_>>()
    };
    let write = WriteValues {
        names: Names::of::<table::table>(),
        keys: &keys.0,
        values: &[
            BaseValues {
                field: &fields[0],
                of: of(&[(0, "5"), (2, "-1")]),
            },
            BaseValues {
                field: &fields[1],
                of: of(&[(2, "7")]),
            },
        ],
        written: KeysAre(vec![&keys.0[0], &keys.0[2]]),
    };
    assert_sql!(write;
        Mysql => "UPDATE `videos` SET `views` = (`videos`.`views` + CASE WHEN (`videos`.`id` = ?) THEN 5 WHEN (`videos`.`id` = ?) THEN -1 ELSE 0 END), `likes` = (`videos`.`likes` + CASE WHEN (`videos`.`id` = ?) THEN 7 ELSE 0 END) WHERE ((`videos`.`id` = ?) OR (`videos`.`id` = ?))",
    );
    let keys = [player.eq(1)];
    let write = WriteValues {
        names: Names::of::<players>(),
        keys: &keys,
        values: &[BaseValues {
            field: &players::FIELDS[1],
            of: of(&[(0, "'90'")]),
        }],
        written: KeysAre(vec![&keys[0]]),
    };
    assert_sql!(write;
        Mysql => "UPDATE `players` SET `best` = CASE WHEN (`players`.`id` = ?) THEN '90' END WHERE ((`players`.`id` = ?))",
    );
}

#[test]
fn shards_are_removed_from_a_number_on() {
    let keys = KeysAre(vec![id.eq(1)]);
    macro_rules! remove {
        () => {
            RemoveShards {
                of: rows!(Shards, keys, None),
                first: 4,
            }
        };
    }
    assert_sql!(remove!();
        Pg => r#"DELETE FROM "videos_shards" AS "videos" WHERE (("videos"."id" = $1)) AND "videos"."shard" >= $2 AND "videos"."views" = 0 AND "videos"."likes" = 0"#,
        Mysql => "DELETE `videos` FROM `videos_shards` AS `videos` WHERE ((`videos`.`id` = ?)) AND `videos`.`shard` >= ? AND `videos`.`views` = 0 AND `videos`.`likes` = 0",
    );
}

#[test]
fn hot_parents_have_several_filled_shards() {
    let keys = KeysAre(vec![id.eq(1)]);
    let of = rows!(Parents, keys, None);
    assert_sql!(FindHot { of, shards: 2 };
        Mysql => "SELECT CASE WHEN (SELECT COUNT(*) FROM `videos_shards` WHERE `videos_shards`.`id` = `videos`.`id` AND (`videos_shards`.`views` <> 0 OR `videos_shards`.`likes` <> 0) FOR UPDATE) >= ? THEN 1 ELSE 0 END FROM `videos` WHERE ((`videos`.`id` = ?)) ORDER BY `videos`.`id` LIMIT 18446744073709551615 FOR UPDATE",
    );
}

#[test]
fn a_fold_of_a_greatest_value_leaves_it_in_the_base() {
    use crate::test_schema::players::{dsl::id, table as players};
    let keys = KeysAre(vec![id.eq(1)]);
    macro_rules! rows {
        ($rows:ident) => {
            StatementRows {
                rows: RowKind::$rows,
                names: Names::of::<players>(),
                keys: &keys,
                shard: None,
            }
        };
    }
    let fields: Vec<_> = players::FIELDS.iter().collect();
    macro_rules! read {
        () => {
            ReadStates {
                of: rows!(Parents),
                fields: &fields[1..2],
                sums: Sums::Read,
            }
        };
    }
    let total = |from: &str| {
        format!(
            "(SELECT COALESCE(MAX(`players_shards`.`best`), `players`.`best`) FROM `players_shards` WHERE `players_shards`.`id` = `players`.`id` AND (`players`.`best` IS NULL OR `players_shards`.`best` > `players`.`best`){from})"
        )
    };
    assert_sql!(read!();
        Mysql => format!(
            "SELECT CAST(`players`.`best` AS CHAR), CAST({} AS CHAR) FROM `players` WHERE ((`players`.`id` = ?)) ORDER BY `players`.`id` LIMIT 18446744073709551615 FOR UPDATE",
            total(" FOR UPDATE")
        ),
        Sqlite => format!(
            "SELECT CAST(`players`.`best` AS TEXT), CAST({} AS TEXT) FROM `players` WHERE ((`players`.`id` = ?)) ORDER BY `players`.`id`",
            total("")
        ),
    );
    let last_game_and_fastest = ReadStates {
        of: rows!(Parents),
        fields: &fields[2..],
        sums: Sums::Read,
    };
    let mysql = sql!(Mysql, last_game_and_fastest);
    assert!(
        mysql.starts_with(
            "SELECT CAST(CAST(`players`.`last_game` AS DATETIME(6)) AS CHAR), CAST(CAST((SELECT"
        ),
        "{mysql}"
    );
    assert!(
        mysql.contains(", 0e0 + `players`.`fastest` AS `double`, 0e0 + (SELECT"),
        "{mysql}"
    );
    let add = AddShardsToBases {
        of: rows!(Parents),
        keys: &keys.0,
        values: &[],
    };
    let add = sql!(Sqlite, add);
    assert!(
        add.contains(&format!(", `best` = {}, ", total(""))),
        "{add}"
    );
    assert!(
        add.ends_with("AND (`players_shards`.`games` <> 0 OR `players_shards`.`best` IS NOT NULL OR `players_shards`.`last_game` IS NOT NULL OR `players_shards`.`fastest` IS NOT NULL))"),
        "{add}"
    );
    let empty = EmptyShards {
        of: rows!(Shards),
        fields: &fields[..2],
    };
    assert_sql!(empty;
        Sqlite => "UPDATE `players_shards` AS `players` SET `games` = 0, `best` = NULL WHERE ((`players`.`id` = ?)) AND (`players`.`games` <> 0 OR `players`.`best` IS NOT NULL)",
    );
    let remove = RemoveShards {
        of: rows!(Shards),
        first: 4,
    };
    assert!(
        sql!(Pg, remove).ends_with(r#" AND "players"."games" = 0 AND "players"."best" IS NULL AND "players"."last_game" IS NULL AND "players"."fastest" IS NULL"#)
    );
}

#[test]
fn shards_without_a_parent_are_removed() {
    let keys = KeysAre(vec![id.eq(1)]);
    let of = rows!(Shards, keys, None);
    assert_sql!(RemoveOrphans { of };
        Pg => r#"DELETE FROM "videos_shards" AS "videos" WHERE (("videos"."id" = $1)) AND NOT EXISTS (SELECT 1 FROM "videos" AS "diesel_sharded_parents" WHERE "diesel_sharded_parents"."id" = "videos"."id")"#,
    );
    let of = rows!(Shards, keys, None);
    assert_sql!(RemoveOrphans { of };
        Mysql => "DELETE `videos` FROM `videos_shards` AS `videos` WHERE ((`videos`.`id` = ?)) AND NOT EXISTS (SELECT 1 FROM `videos` AS `diesel_sharded_parents` WHERE `diesel_sharded_parents`.`id` = `videos`.`id`)",
    );
    let find = FindPolicy(&table::table);
    assert_sql!(find; Pg => r#"SELECT 1 WHERE row_security_active('"videos"')"#);
}
