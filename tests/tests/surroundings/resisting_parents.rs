//! Parents whose updates are suppressed, altered or hidden by row security, triggers and rules: no total changes, and the
//! operation reports why.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::{Error, RowCounter, Unfit, fold, reset, set_total, update, verify};
use diesel_sharded_tests::schema::{self, comments, videos::dsl::*};
use diesel_sharded_tests::{Database, TestConnection, count};

macro_rules! on_every_database {
    ($($name:ident: $conn:ty;)+) => {$(
        mod $name {
            use super::*;

            type Conn = $conn;

            /// Video 2 with a total of 210: 200 and 10 on shards.
            fn counted() -> (Database, Conn) {
                let (database, mut conn) = schema::database::<Conn>();
                assert_eq!(count!(videos.find(2), views.eq(views + 10), &mut conn), 1);
                (database, conn)
            }

            fn total(conn: &mut Conn) -> i64 {
                videos.find(2).select(views.total()).first(conn).unwrap()
            }

            fn unfit<T: std::fmt::Debug>(result: QueryResult<T>) -> Unfit {
                match Error::from(result.unwrap_err()) {
                    Error::Unfit { table, key, reason } => {
                        assert_eq!((&*table, &*key), ("videos_shards", "2"));
                        reason
                    }
                    other => panic!("{other:?}"),
                }
            }

            /// Every operation that writes the base refuses video 2 for the same reason, and leaves it as it was.
            pub fn refused(conn: &mut Conn, is_reason: impl Fn(&Unfit) -> bool) {
                let before = total(conn);
                let check = |operation: &str, reason: Unfit, conn: &mut Conn| {
                    assert!(is_reason(&reason), "{operation}: {reason:?}");
                    assert_eq!(total(conn), before, "{operation}");
                };
                // In a batch with others, which are folded.
                assert_eq!(count!(videos.find(3), views.eq(views + 1), conn), 1);
                let folded = fold(videos).run(conn).unwrap();
                let [(2, reason)] = &folded.unfit[..] else {
                    panic!("{folded:?}")
                };
                check("fold", reason.clone(), conn);
                assert_eq!((folded.parents, folded.finished), (1, true));
                let three = videos.find(3);
                assert_eq!(three.select(views).first::<i64>(conn), three.select(views.total()).first(conn));
                let folded = conn.transaction(|conn| fold(videos.find(2)).run(conn)).unwrap();
                check("fold in a transaction", folded.unfit[0].1.clone(), conn);
                let set = set_total(videos.find(2), views, 500).execute(conn);
                check("set_total", unfit(set), conn);
                let set = set_total(videos.filter(slug.eq("b")), views, 500).execute(conn);
                check("set_total by a filter", unfit(set), conn);
                check("reset", unfit(reset(videos.find(2)).execute(conn)), conn);
                let bounded = RowCounter::of(views, 2).never_below(0);
                check("bounded", unfit(bounded.add(-11, conn)), conn); // no shard has so much
                let of_comments = comments::table.filter(comments::video_id.eq(-1));
                let recount = of_comments
                    .group_by(comments::video_id)
                    .select((comments::video_id, diesel::dsl::count_star()));
                let repair = verify(videos.find(2), views, recount).repair(conn);
                check("repair", unfit(repair), conn);
                // Counting goes on.
                assert_eq!(count!(videos.find(2), views.eq(views + 1), conn), 1);
                assert_eq!(total(conn), before + 1);
            }

            fn not_written(reason: &Unfit) -> bool {
                matches!(reason, Unfit::NotWritten { field } if field == "views")
            }

            fn altered(reason: &Unfit) -> bool {
                matches!(reason, Unfit::Altered { field, .. } if field == "views")
            }

            /// A fold lists such a row, and goes on.
            #[test]
            fn an_error_of_one_row_stops_no_other() {
                let (_database, conn) = &mut counted();
                conn.batch_execute(&raises()).unwrap();
                for other in [1, 3] {
                    assert_eq!(count!(videos.find(other), views.eq(views + 1), conn), 1);
                }
                for batch in [100, 1] {
                    let folded = fold(videos).batch(batch).run(conn).unwrap();
                    let [(2, Unfit::Refused { says })] = &folded.unfit[..] else {
                        panic!("{folded:?}")
                    };
                    assert_eq!(says, "archived");
                    assert!(folded.finished);
                    assert_eq!(videos.select(views).order(id).load(conn), Ok(vec![101_i64, 200, 301]));
                    for other in [1, 3] {
                        assert_eq!(count!(videos.find(other), views.eq(views + 1), conn), 1);
                        let lowered = diesel::update(videos.find(other)).set(views.eq(views - 1));
                        assert_eq!(lowered.execute(conn), Ok(1));
                    }
                }
                // Where nothing else is to be folded, the error is the answer.
                let alone = fold(videos.find(2)).run(conn).unwrap_err();
                assert_eq!(alone.to_string(), "archived");
                let inside = conn.transaction(|conn| fold(videos).run(conn)).unwrap_err();
                assert_eq!(inside.to_string(), "archived");
                assert_eq!(total(conn), 210);
            }

            $name!();
        }
    )+};
}

/// Tests in which all is refused for a reason, since something resists that a text of SQL has made.
macro_rules! resisted {
    ($($name:ident: $sql:expr, $reason:ident;)+) => {$(
        #[test]
        fn $name() {
            let (_database, mut conn) = counted();
            conn.batch_execute(&$sql).unwrap();
            refused(&mut conn, $reason);
        }
    )+};
}

macro_rules! postgres {
    () => {
        /// Before each update of video 2.
        fn trigger(body: &str) -> String {
            format!(
                "CREATE FUNCTION resist() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$;
                 CREATE TRIGGER resist BEFORE UPDATE ON videos FOR EACH ROW WHEN (OLD.id = 2) EXECUTE FUNCTION resist()"
            )
        }

        fn raises() -> String {
            trigger("RAISE EXCEPTION 'archived';")
        }

        resisted! {
            a_trigger_suppresses_the_update: trigger("RETURN NULL;"), not_written;
            a_trigger_keeps_the_old_value: trigger("NEW.views := OLD.views; RETURN NEW;"), not_written;
            a_trigger_writes_another_value: trigger("NEW.views := NEW.views + 1; RETURN NEW;"), altered;
            a_rule_redirects_the_update:
                "CREATE RULE resist AS ON UPDATE TO videos WHERE OLD.id = 2 DO INSTEAD NOTHING", not_written;
        }

        /// A role that sees every row and may update its own.
        #[test]
        fn row_security_hides_the_row_from_updates() {
            let (_database, mut conn) = counted();
            let role = format!("member_{}", std::process::id());
            conn.batch_execute(&format!(
                "CREATE ROLE {role};
                 GRANT ALL ON ALL TABLES IN SCHEMA public TO {role};
                 ALTER TABLE videos ENABLE ROW LEVEL SECURITY;
                 CREATE POLICY sees_all ON videos FOR SELECT USING (true);
                 CREATE POLICY updates_own ON videos FOR UPDATE USING (id <> 2);
                 SET ROLE {role}"
            ))
            .unwrap();
            refused(&mut conn, |reason| *reason == Unfit::NotLocked);
            conn.batch_execute(&format!("RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}"))
                .unwrap();
        }

        /// A roll-up: each update of video 2 counts on a shard of video 3, which the same batch folds.
        #[test]
        fn a_trigger_counts_on_a_row_that_is_being_folded() {
            let (_database, conn) = &mut counted();
            assert_eq!(count!(videos.find(3), views.eq(views + 10), conn), 1);
            conn.batch_execute(
                "CREATE FUNCTION roll_up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                     UPDATE videos_shards SET views = views + 1 WHERE id = 3; RETURN NULL; END $$;
                 CREATE TRIGGER roll_up AFTER UPDATE OF views ON videos FOR EACH ROW WHEN (OLD.id = 2)
                     EXECUTE FUNCTION roll_up()",
            )
            .unwrap();
            let folded = fold(videos).run(conn).unwrap();
            assert!(folded.unfit.is_empty(), "{folded:?}");
            let totals = videos.select(views.total()).order(id);
            assert_eq!(totals.load::<i64>(conn), Ok(vec![100, 210, 311]));
        }

        /// A role that does not see every shard cannot compute a total.
        #[test]
        fn row_security_hides_shards() {
            let (database, mut conn) = counted();
            let role = format!("tenant_{}", database.url().rsplit_once('/').unwrap().1);
            conn.batch_execute(&format!(
                "CREATE ROLE {role};
                 GRANT ALL ON ALL TABLES IN SCHEMA public TO {role};
                 ALTER TABLE videos_shards ENABLE ROW LEVEL SECURITY;
                 CREATE POLICY own ON videos_shards USING (id <> 2);
                 SET ROLE {role}"
            ))
            .unwrap();
            let set = set_total(videos.find(2), views, 500).execute(&mut conn);
            assert_eq!(unfit(set), Unfit::HiddenShards);
            assert_eq!(unfit(reset(videos.find(2)).execute(&mut conn)), Unfit::HiddenShards);
            let bounded = RowCounter::of(views, 2).never_below(0);
            assert_eq!(unfit(bounded.add(-11, &mut conn)), Unfit::HiddenShards);
            // As far as this role sees, the bound forbids it.
            assert_eq!(unfit(bounded.add(-1_000, &mut conn)), Unfit::HiddenShards);
            conn.batch_execute("RESET ROLE").unwrap();
            assert_eq!(total(&mut conn), 210);
            conn.batch_execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}"))
                .unwrap();
        }

        /// Keys of a `CHAR(n)`, which are given out with spaces.
        mod padded_keys {
            use super::*;
            use diesel_sharded::ShardsTable;

            diesel_sharded_tests::counted_table! {
                Page of pages (code) {
                    code -> Text = String,
                    #[sharded] hits -> BigInt = i64,
                }
            }

            #[test]
            fn are_counted_folded_and_set() {
                use self::pages::dsl::*;
                let database = Conn::database();
                let conn = &mut Conn::connect(&database);
                conn.batch_execute(
                    "CREATE TABLE pages (code CHAR(8) PRIMARY KEY, hits BIGINT NOT NULL);
                     INSERT INTO pages VALUES ('ab', 0), ('abcdefgh', 0)",
                )
                .unwrap();
                ShardsTable::of(pages).create(conn).unwrap();
                for key in ["ab", "abcdefgh"] {
                    assert_eq!(count!(pages.find(key), hits.eq(hits + 1), conn), 1);
                }
                let count = update(pages).set(hits.eq(hits + 1)).returning(hits);
                assert_eq!(count.get_results(conn), Ok(vec![2_i64, 2]));
                let folded = fold(pages).batch(1).run(conn).unwrap();
                assert_eq!((folded.parents, folded.finished), (2, true));
                assert!(folded.unfit.is_empty());
                let bases = pages.select(hits).order(code);
                assert_eq!(bases.load::<i64>(conn), Ok(vec![2, 2]));
                assert_eq!(set_total(pages, hits, 7).execute(conn), Ok(2));
                let bounded = RowCounter::of(hits, "ab".to_owned()).never_below(0);
                assert_eq!(bounded.add(-7, conn), Ok(true));
                assert_eq!(bounded.add(-1, conn), Ok(false));
                let totals = pages.select(hits.total()).order(code);
                assert_eq!(totals.load::<i64>(conn), Ok(vec![0, 7]));
                let recount = pages.select((code, hits));
                let refused = verify(pages, hits, recount).drifts(conn);
                assert!(matches!(
                    Error::from(refused.unwrap_err()),
                    Error::PaddedKey { .. }
                ));
            }
        }
    };
}

macro_rules! mysql {
    () => {
        fn trigger(value: &str) -> String {
            format!(
                "CREATE TRIGGER resist BEFORE UPDATE ON videos FOR EACH ROW
                 SET NEW.views = CASE OLD.id WHEN 2 THEN {value} ELSE NEW.views END"
            )
        }

        fn raises() -> String {
            "CREATE TRIGGER resist BEFORE UPDATE ON videos FOR EACH ROW
             IF OLD.id = 2 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'archived'; END IF"
                .to_owned()
        }

        resisted! {
            a_trigger_keeps_the_old_value: trigger("OLD.views"), not_written;
            a_trigger_writes_another_value: trigger("NEW.views + 1"), altered;
        }
    };
}

macro_rules! sqlite {
    () => {
        fn trigger(when: &str, body: &str) -> String {
            format!(
                "CREATE TRIGGER resist {when} UPDATE OF views ON videos WHEN OLD.id = 2 BEGIN {body}; END"
            )
        }

        fn raises() -> String {
            trigger("BEFORE", "SELECT RAISE(ABORT, 'archived')")
        }

        resisted! {
            a_trigger_suppresses_the_update: trigger("BEFORE", "SELECT RAISE(IGNORE)"), not_written;
            a_trigger_writes_the_old_value_back:
                trigger("AFTER", "UPDATE videos SET views = OLD.views WHERE id = 2"), not_written;
            a_trigger_writes_another_value:
                trigger("AFTER", "UPDATE videos SET views = NEW.views + 1 WHERE id = 2"), altered;
        }

        /// Of another field of the row that is being folded.
        #[test]
        fn a_trigger_counts_on_a_row_that_is_being_folded() {
            let (_database, conn) = &mut counted();
            assert_eq!(count!(videos.find(2), likes.eq(likes + 10), conn), 1);
            let likes_too = "UPDATE videos_shards SET likes = likes + 1 WHERE id = NEW.id";
            conn.batch_execute(&format!(
                "CREATE TRIGGER likes_too AFTER UPDATE OF views ON videos BEGIN {likes_too}; END"
            ))
            .unwrap();
            let folded = fold(videos).run(conn).unwrap();
            let [(2, Unfit::Altered { field, .. })] = &folded.unfit[..] else {
                panic!("{folded:?}")
            };
            assert_eq!(field, "likes");
            let totals = videos.find(2).select((views.total(), likes.total()));
            assert_eq!(totals.first::<(i64, i32)>(conn), Ok((210, 12)));
        }
    };
}

on_every_database! {
    postgres: PgConnection;
    mysql: MysqlConnection;
    sqlite: SqliteConnection;
}
