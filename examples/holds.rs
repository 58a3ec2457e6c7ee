//! Seats that visitors hold for a while: 32 threads hold, buy, give back and walk away, processes are killed in the middle of a hold, a sale
//! and an expiry, and no seat is lost or sold twice.
//!
//! ```sh
//! cargo run --example holds
//! DATABASE_URL=postgres://user@localhost/database cargo run --example holds --features postgres
//! DATABASE_URL=mysql://user@127.0.0.1/database cargo run --example holds --features mysql
//! ```
//!
//! Without `DATABASE_URL` it runs on a SQLite file in the temporary folder. A hold is two things in one transaction: a bounded increment of the
//! free seats, and a row that says who holds them until when. The row is deleted once: by a sale, by its visitor or by its expiry. Only the
//! transaction that deletes it sells the seats or gives them back.

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::bounded::Bounded;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::{self, RetryPolicy};
use diesel_sharded::{RowCounter, ShardsTable};
use support::{AnyConnection, Result, connect, in_threads};

const THREADS: i64 = 32;
const VISITORS: i64 = 20;
const SEATS: i64 = 300;
const CONCERT: i64 = 1;

/// How long a hold lasts, in seconds.
const HOLD: i64 = 600;

type Step = fn(&mut AnyConnection) -> QueryResult<bool>;

/// What processes do when they are killed, for a visitor who holds seats already.
const KILLED: [(&str, Step); 3] = [
    ("hold", |conn| hold(-2, 1, conn)),
    ("sale", |conn| buy(-1, conn)),
    ("expiry", |conn| give_back(-1, i64::MAX, conn)),
];

mod schema {
    diesel::table! {
        demo_concerts (id) {
            id -> BigInt,
            free -> BigInt,
        }
    }

    diesel::table! {
        demo_holds (visitor) {
            visitor -> BigInt,
            concert -> BigInt,
            seats -> BigInt,
            expires -> BigInt,
        }
    }

    diesel::table! {
        demo_tickets (visitor) {
            visitor -> BigInt,
            concert -> BigInt,
            seats -> BigInt,
        }
    }
}

use schema::{demo_concerts as concerts, demo_holds as holds, demo_tickets as tickets};

#[derive(ShardedField)]
#[diesel(table_name = concerts)]
#[sharded(table_name = demo_concerts_shards)]
#[expect(dead_code, reason = "the derive reads the fields' types")]
struct Concert {
    id: i64,
    #[sharded]
    free: i64,
}

#[derive(Queryable, Insertable)]
#[diesel(table_name = holds)]
struct Hold {
    visitor: i64,
    concert: i64,
    seats: i64,
    /// In seconds since 1970, by the clock of the application.
    expires: i64,
}

fn main() -> Result<ExitCode> {
    if let Some(step) = std::env::args().nth(1) {
        return wait_to_be_killed(&step);
    }
    let tables = [
        "demo_tickets",
        "demo_holds",
        "demo_concerts_shards",
        "demo_concerts",
    ];
    support::run("holds", &tables, |url, conn| {
        create_tables(conn)?;
        hold(-1, 3, conn)?;
        for (step, _) in KILLED {
            kill_a_process_in(step, url)?;
        }
        let is_held = report("they were killed", conn)? && held(conn)? == 3;
        println!("{THREADS} threads serve {VISITORS} visitors each, who want {SEATS} seats");
        in_threads(THREADS, |number| serve(url, number))?;
        let is_exact = report("they have left", conn)?;

        // The job, which any number of processes may run.
        expire(now() + HOLD, conn)?;
        let is_given_back = report("all holds have expired", conn)? && held(conn)? == 0;
        Ok(is_held && is_exact && is_given_back)
    })
}

/// The application's own code: what one thread does for its visitors.
fn serve(url: &str, thread: i64) -> Result<()> {
    let conn = &mut connect(url)?;
    for round in 0..VISITORS {
        let visitor = thread * VISITORS + round;
        if !hold(visitor, 1 + visitor % 3, conn)? {
            continue; // sold out, or nearly
        }
        match visitor % 4 {
            0 => {} // walks away
            1 => drop(give_back(visitor, i64::MAX, conn)?),
            _ => drop(buy(visitor, conn)?),
        }
    }
    Ok(())
}

/// The seats that nobody holds or has bought.
fn free_seats() -> Bounded<concerts::free> {
    RowCounter::of(concerts::free, CONCERT).never_below(0)
}

/// Holds seats for a visitor. Returns `false` if too few are free.
fn hold(visitor: i64, seats: i64, conn: &mut AnyConnection) -> QueryResult<bool> {
    retry::transaction(conn, patient(), |conn| {
        let are_free = free_seats().add(-seats, conn)?;
        if are_free {
            let hold = Hold {
                visitor,
                concert: CONCERT,
                seats,
                expires: now() + HOLD,
            };
            diesel::insert_into(holds::table)
                .values(hold)
                .execute(conn)?;
        }
        Ok(are_free)
    })
}

/// Sells the seats that a visitor holds. Returns `false` if the hold has expired or was given back.
fn buy(visitor: i64, conn: &mut AnyConnection) -> QueryResult<bool> {
    retry::transaction(conn, patient(), |conn| {
        let lasts = holds::table.find(visitor).filter(holds::expires.gt(now()));
        let Some(held) = lasts.first::<Hold>(conn).optional()? else {
            return Ok(false);
        };
        let as_read = lasts.filter(holds::seats.eq(held.seats)); // the visitor may have changed it since
        if diesel::delete(as_read).execute(conn)? != 1 {
            return Ok(false);
        }
        let ticket = (
            tickets::visitor.eq(visitor),
            tickets::concert.eq(held.concert),
            tickets::seats.eq(held.seats),
        );
        diesel::insert_into(tickets::table)
            .values(ticket)
            .execute(conn)?;
        Ok(true)
    })
}

/// Gives back the seats of a hold that expires by `time`. Returns `false` if no such hold is left: its seats were sold or given back.
fn give_back(visitor: i64, time: i64, conn: &mut AnyConnection) -> QueryResult<bool> {
    let over = holds::table.find(visitor).filter(holds::expires.le(time));
    retry::transaction(conn, patient(), |conn| {
        let Some(held) = over.first::<Hold>(conn).optional()? else {
            return Ok(false);
        };
        let as_read = over.filter(holds::seats.eq(held.seats));
        if diesel::delete(as_read).execute(conn)? != 1 {
            return Ok(false);
        }
        free_seats().add(held.seats, conn)
    })
}

/// Gives back all holds that expire by `time`, each in a transaction of its own.
fn expire(time: i64, conn: &mut AnyConnection) -> QueryResult<()> {
    let expired = holds::table.filter(holds::expires.le(time));
    for visitor in expired.select(holds::visitor).load(conn)? {
        give_back(visitor, time, conn)?;
    }
    Ok(())
}

/// Prints what has become of the seats, and returns whether all are accounted for.
fn report(when: &str, conn: &mut AnyConnection) -> QueryResult<bool> {
    let free = concerts::table.find(CONCERT).select(concerts::free.total());
    let free = free.first::<i64>(conn)?;
    let held = held(conn)?;
    let sold = tickets::table.select(tickets::seats).load::<i64>(conn)?;
    let sold: i64 = sold.into_iter().sum();
    println!("{when}: {free} free, {held} held, {sold} sold");
    Ok(free >= 0 && free + held + sold == SEATS)
}

fn held(conn: &mut AnyConnection) -> QueryResult<i64> {
    let seats = holds::table.select(holds::seats).load::<i64>(conn)?;
    Ok(seats.into_iter().sum())
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() as i64)
}

/// As many attempts as a crowd needs close to the last seat.
fn patient() -> RetryPolicy {
    RetryPolicy::new().with_attempts(1_000)
}

/// Does this in a transaction that does not end.
fn wait_to_be_killed(step: &str) -> Result<ExitCode> {
    let conn = &mut connect(&std::env::var("DATABASE_URL")?)?;
    let work = KILLED.iter().find(|(name, _)| *name == step);
    let (_, work) = work.ok_or("it has another name")?;
    conn.transaction(|conn| {
        println!("{}", work(conn)?);
        loop {
            thread::park();
        }
    })
}

fn kill_a_process_in(step: &str, url: &str) -> Result<()> {
    let mut process = Command::new(std::env::current_exe()?)
        .env("DATABASE_URL", url)
        .arg(step)
        .stdout(Stdio::piped())
        .spawn()?;
    let output = process.stdout.take().ok_or("it has no output")?;
    let done = BufReader::new(output).lines().next().transpose()?;
    process.kill()?;
    process.wait()?;
    if done.as_deref() != Some("true") {
        return Err(format!("it did not come to its {step}").into());
    }
    println!("a process was killed in mid {step}");
    Ok(())
}

/// The tables, as an application has them already; and the shards table.
fn create_tables(conn: &mut AnyConnection) -> Result<()> {
    conn.batch_execute("CREATE TABLE demo_concerts (id BIGINT PRIMARY KEY, free BIGINT NOT NULL)")?;
    conn.batch_execute(
        "CREATE TABLE demo_holds (visitor BIGINT PRIMARY KEY, concert BIGINT NOT NULL, seats BIGINT NOT NULL, expires BIGINT NOT NULL)",
    )?;
    conn.batch_execute("CREATE INDEX demo_holds_expires ON demo_holds (expires)")?;
    conn.batch_execute(
        "CREATE TABLE demo_tickets (visitor BIGINT PRIMARY KEY, concert BIGINT NOT NULL, seats BIGINT NOT NULL)",
    )?;
    diesel::insert_into(concerts::table)
        .values((concerts::id.eq(CONCERT), concerts::free.eq(SEATS)))
        .execute(conn)?;
    Ok(ShardsTable::of(concerts::table).create(conn)?)
}
