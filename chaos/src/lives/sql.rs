//! The operations on lives, as statements on a database.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel::sql_types::BigInt;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::{Isolation, Transaction};
use diesel_sharded::{Counter, Error, RowCounter, ShardsTable, counters};
use diesel_sharded::{fold, set_total, update, verify};

use super::workload::MOST;
use super::{Answer, Operation, Seen};
use crate::backend::ChaosConnection;
use crate::on_each_connection;
use crate::operation::Refused;
use crate::schema::chaos_lives::dsl::*;
use crate::sql_store::refused;
use crate::store::Store;

/// A store on a connection.
pub struct SqlLives<Conn>(pub Conn);

impl<Conn: LivesConnection> Store<Operation, Answer> for SqlLives<Conn> {
    fn run(&mut self, operation: &Operation) -> Result<Answer, Refused> {
        self.0.live(operation).map_err(|error| refused(&error))
    }
}

/// A transaction that is retried, at an isolation level where each statement reads all that is committed before it.
fn transaction() -> Transaction {
    Transaction::new().isolation(Isolation::ReadCommitted)
}

/// Locks a row and its shards until the open transaction ends. Meanwhile no count on the row commits. On SQLite, a transaction that
/// may write holds the database's one lock from its beginning on.
///
/// It uses no prepared statement: MariaDB's client waits forever if such a statement's last result ends in an error, as it does when
/// taking a lock ends in a deadlock.
fn hold<Conn: ChaosConnection>(conn: &mut Conn, key: i64) -> QueryResult<()> {
    if Conn::SQL.sessions.is_none() {
        return Ok(());
    }
    conn.batch_execute(&format!(
        "SELECT 1 FROM chaos_lives WHERE id = {key} FOR UPDATE; \
         SELECT 1 FROM chaos_lives_shards WHERE id = {key} ORDER BY shard FOR UPDATE"
    ))
}

/// Returns the result of a write, or `taken` if the key was taken.
fn unless_taken<T>(written: QueryResult<T>, taken: T) -> Result<T, Error> {
    match written {
        Err(DieselError::DatabaseError(DatabaseErrorKind::UniqueViolation, _)) => Ok(taken),
        written => Ok(written?),
    }
}

on_each_connection! {
    /// A connection of a client.
    pub trait LivesConnection {
        /// Creates the table and its shards table.
        fn create_lives(&mut self) {
            let create = "CREATE TABLE chaos_lives (id BIGINT PRIMARY KEY, \
                          life BIGINT NOT NULL, views BIGINT NOT NULL)";
            self.batch_execute(create).expect("a table");
            ShardsTable::of(chaos_lives)
                .create(self)
                .expect("a shards table");
        }

        /// Runs one operation of the library.
        ///
        /// # Errors
        /// The library's errors, unchanged.
        fn live(&mut self, operation: &Operation) -> Result<Answer, Error> {
            let conn = self;
            let columns = (id, life, views.total());
            match operation {
                Operation::Insert { key, life: number, total } => {
                    let inserted = transaction().run(conn, |conn| {
                        let row = (id.eq(key), life.eq(number), views.eq(total));
                        diesel::insert_into(chaos_lives).values(row).execute(conn)
                    });
                    Ok(Answer::Rows(unless_taken(inserted, 0)?))
                }
                Operation::Delete { key } | Operation::Rename { from: key, .. } => {
                    let row = chaos_lives.find(key);
                    let changed: QueryResult<Vec<Seen>> = transaction().run(conn, |conn| {
                        hold(conn, *key)?;
                        let there = row.select(columns).load(conn)?;
                        match operation {
                            Operation::Rename { to, .. } => diesel::update(row).set(id.eq(to)).execute(conn)?,
                            _ => diesel::delete(row).execute(conn)?,
                        };
                        Ok(there)
                    });
                    let mut changed = unless_taken(changed, vec![])?;
                    if let Operation::Rename { to, .. } = operation {
                        changed.iter_mut().for_each(|seen| seen.key = *to);
                    }
                    Ok(Answer::Lives(changed))
                }
                Operation::Count { key, n } => {
                    let counted = update(chaos_lives.find(key)).set(views.eq(views + n));
                    Ok(Answer::Rows(counted.execute(conn)?))
                }
                Operation::CountBounded { key, n } => {
                    let counter = RowCounter::of(views, *key).never_below(0).never_above(MOST);
                    match counter.add(*n, conn) {
                        Ok(true) => Ok(Answer::Rows(1)),
                        Ok(false) => Ok(Answer::Unchanged),
                        Err(DieselError::NotFound) => Ok(Answer::Rows(0)),
                        Err(error) => Err(error.into()),
                    }
                }
                Operation::Set { key, total } => {
                    let set = set_total(chaos_lives.find(*key), views, *total);
                    Ok(Answer::Rows(set.execute(conn)?))
                }
                Operation::Repair { key, total } => {
                    let row = chaos_lives.find(*key);
                    let recount = row.select((id, total.into_sql::<BigInt>()));
                    match verify(row, views, recount).repair(conn)?.len() {
                        0 => Ok(Answer::Unchanged),
                        rows => Ok(Answer::Rows(rows)),
                    }
                }
                Operation::Fold { keep } => {
                    let folded = fold(chaos_lives).keep_shards(*keep).run(conn)?;
                    Ok(Answer::Rows(folded.parents as usize))
                }
                Operation::Read { first, last } => {
                    // MariaDB misses removed shards now and then in a read outside a transaction; see decision 0003.
                    let read: QueryResult<_> = conn.transaction(|conn| {
                        let rows = chaos_lives.filter(id.between(first, last));
                        rows.select(columns).load(conn)
                    });
                    Ok(Answer::Lives(read?))
                }
                Operation::CountNamed { name, n } => {
                    Counter::named(name).add(*n, conn)?;
                    Ok(Answer::Rows(1))
                }
                Operation::DeleteNamed { name } => {
                    let was_there = Counter::named(name).delete(conn)?;
                    Ok(Answer::Rows(usize::from(was_there)))
                }
                Operation::FoldNamed { keep } => {
                    let folded = fold(counters::table).keep_shards(*keep).run(conn)?;
                    Ok(Answer::Rows(folded.parents as usize))
                }
                Operation::ReadNamed { name } => Ok(Answer::Total(Counter::named(name).get(conn)?)),
            }
        }
    }
}
