//! PostgreSQL's row security beside counts: a role that may read all videos and update its own.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::update;
use diesel_sharded_tests::role::Role;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{Database, schema};

/// Videos 2 and 3 are of the channel that the role owns, video 1 is of none.
const POLICIES: &str = "ALTER TABLE videos ENABLE ROW LEVEL SECURITY;
    CREATE POLICY everybody_reads ON videos FOR SELECT USING (true);
    CREATE POLICY owners_update ON videos FOR UPDATE USING (channel = 'news')";

const POLICIES_OF_SHARDS: &str = "ALTER TABLE videos_shards ENABLE ROW LEVEL SECURITY;
    CREATE POLICY everybody_reads ON videos_shards FOR SELECT USING (true);
    CREATE POLICY owners_insert ON videos_shards FOR INSERT
        WITH CHECK (EXISTS (SELECT 1 FROM videos WHERE videos.id = videos_shards.id AND channel = 'news'));
    CREATE POLICY owners_update ON videos_shards FOR UPDATE
        USING (EXISTS (SELECT 1 FROM videos WHERE videos.id = videos_shards.id AND channel = 'news'))";

fn database(policies: &[&str]) -> (Database, PgConnection) {
    let (database, mut conn) = schema::database::<PgConnection>();
    for policies in policies {
        conn.batch_execute(policies).unwrap();
    }
    (database, conn)
}

fn counting_role<'a>(database: &'a Database, conn: &mut PgConnection) -> (Role<'a>, PgConnection) {
    Role::acting(&["Counting"], |_| false, database, conn)
}

fn count(video: i64, conn: &mut PgConnection) -> QueryResult<usize> {
    update(videos.find(video))
        .set(views.eq(views + 1))
        .execute(conn)
}

fn total_of(video: i64, conn: &mut PgConnection) -> i64 {
    let total = videos.find(video).select(views.total());
    total.first(conn).unwrap()
}

/// A count does not write to the video, so that a policy for updates of videos does not concern it.
#[test]
fn a_policy_of_the_parent_stops_no_count() {
    let (database, mut conn) = database(&[POLICIES]);
    let (_role, mut own) = counting_role(&database, &mut conn);
    for video in [1, 1, 2] {
        assert_eq!(count(video, &mut own), Ok(1));
    }
    assert_eq!((total_of(1, &mut own), total_of(2, &mut own)), (102, 201));
}

/// A policy of the shards table does: a count that it hides is not acknowledged.
#[test]
fn a_policy_of_the_shards_table_stops_counts() {
    let (database, mut conn) = database(&[POLICIES, POLICIES_OF_SHARDS]);
    let (_role, mut own) = counting_role(&database, &mut conn);
    assert_eq!(count(2, &mut own), Ok(1));
    assert_eq!(count(2, &mut own), Ok(1));
    let refused = count(1, &mut own).unwrap_err().to_string(); // no shard is there yet
    assert!(refused.contains("row-level security"), "{refused}");
    assert_eq!(count(1, &mut conn), Ok(1)); // the tables' owner, who is exempt
    let refused = count(1, &mut own).unwrap_err().to_string(); // it is there, and hidden from updates
    assert!(refused.contains("row-level security"), "{refused}");
    assert_eq!((total_of(1, &mut own), total_of(2, &mut own)), (101, 202));
}
