//! A proxy on loopback between a test and its server, which knows the statements that it forwards, and interrupts a chosen one or cuts
//! the connection at it.

use std::collections::HashMap;
use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use diesel::connection::SimpleConnection;

use crate::connected;
use crate::fixture::Run;
use crate::in_front::{behind, connect, end, handle, listen, port_of};

/// What happens to a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The server interrupts it before it does anything.
    Interrupted,
    /// The same by the session's own time limit, which is a conflict.
    TimedOut,
    /// MySQL: it is killed as it answers, and has done its work.
    AfterItsWork,
    /// A text of several statements is interrupted in the middle; a statement that waits for a lock is interrupted there, by a real
    /// `KILL QUERY` or `pg_cancel_backend`.
    InTheMiddle,
    /// The connection is cut, and the server never sees it.
    CutBefore,
    /// The connection is cut before its answer.
    CutAfter,
}

/// A fault befalls one statement, and this many that follow are interrupted before they do anything.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub fault: Fault,
    pub statement: usize,
    pub then: usize,
    /// The server's number of the connection.
    pub victim: i64,
}

#[derive(Debug, Default)]
struct State {
    plan: Option<Plan>,
    seen: usize,
    hit: Vec<String>,
    slow: Vec<(&'static str, usize)>,
}

/// Forwards connections. Ends with the test.
#[derive(Debug)]
pub struct Interrupter(Arc<Mutex<State>>);

impl Interrupter {
    /// A proxy before the server of `url`, and the URL of the same database through it. `tables` are locked where a statement is to
    /// wait.
    pub fn before(url: &str, tables: &'static [&'static str]) -> (Self, String) {
        let state = Arc::default();
        let (of_wires, shared) = (url.to_owned(), Arc::clone(&state));
        let port = listen(move |client| {
            let wire = Wire {
                state: Arc::clone(&shared),
                url: of_wires.clone(),
                tables,
                answers: Arc::default(),
            };
            if let Ok(server) = connect(port_of(&wire.url)) {
                wire.forward(client, server);
            }
        });
        (Interrupter(state), behind(url, port, "?sslmode=disable"))
    }

    /// From now on statements are numbered from 1, and the plan is carried out.
    pub fn arm(&self, plan: Plan) {
        *lock(&self.0) = State {
            plan: Some(plan),
            ..Default::default()
        };
    }

    /// Forwards everything again. The statements that met the fault.
    pub fn disarm(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.0)).hit
    }

    /// The next compound statements of MySQL's that begin with these texts, each once and in this order, sleep after this many of their
    /// semicolons: a test that waits for it can interrupt them there.
    pub fn slow_down(&self, slow: Vec<(&'static str, usize)>) {
        *lock(&self.0) = State {
            slow,
            ..Default::default()
        };
    }
}

/// The text with a statement that sleeps after one of its semicolons, or after its `BEGIN`, and what it sleeps after.
fn slowed_down(text: &str, semicolon: usize) -> Option<(String, String)> {
    let at = match semicolon {
        0 => text.find(" SET")?,
        _ => text.match_indices(';').nth(semicolon - 1)?.0 + 1,
    };
    let (before, behind) = text.split_at(at);
    let last = before.trim_end_matches(';').rsplit("; ").next();
    let last: String = last.unwrap_or_default().chars().take(40).collect();
    Some((
        format!("{before} IF SLEEP(600) THEN DO 0; END IF;{behind}"),
        format!("{semicolon:2} {last}"),
    ))
}

/// Statements whose work is taken back where they are killed.
const WORK: [&str; 5] = ["UPDATE", "INSERT", "DELETE", "SELECT", "WITH"];

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic while it is held")
}

/// One connection.
struct Wire {
    state: Arc<Mutex<State>>,
    url: String,
    tables: &'static [&'static str],
    answers: Arc<Answers>,
}

/// What the client's side knows of the server's.
#[derive(Default)]
struct Answers {
    now: Mutex<Now>,
    changed: Condvar,
}

#[derive(Default)]
struct Now {
    answered: bool,
    /// What becomes of the next answer.
    fate: Fate,
    /// PostgreSQL: the state of the transaction, as the last answer had it.
    transaction: u8,
    /// MySQL: the text that the next answer gives a number.
    prepared: Option<String>,
    texts: HashMap<Vec<u8>, String>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Fate {
    #[default]
    Forwarded,
    /// `OK` becomes an error.
    Denied,
    Dropped,
}

impl Wire {
    fn forward(self, client: TcpStream, server: TcpStream) {
        let mysql = self.url.starts_with("mysql");
        let ends = (handle(&server), handle(&client), Arc::clone(&self.answers));
        thread::spawn(move || {
            let (mut server, mut client, answers) = ends;
            let _ = match mysql {
                true => answers.forward_mysql(&mut server, &mut client),
                false => answers.forward_postgres(&mut server, &mut client),
            }; // ends with the connection
            end([&client]);
        });
        thread::spawn(move || {
            let (mut client, mut server) = (client, server);
            let _ = match mysql {
                true => self.pass_mysql_requests(&mut client, &mut server),
                false => self.pass_postgres_requests(&mut client, &mut server),
            }; // ends with the connection
            end([&client, &server]);
        });
    }

    /// Packets of a client: COM_QUERY, COM_STMT_PREPARE, COM_STMT_EXECUTE, and others.
    fn pass_mysql_requests(
        &self,
        client: &mut TcpStream,
        server: &mut TcpStream,
    ) -> io::Result<()> {
        loop {
            let mut packet = read(client, 4)?;
            let length =
                usize::from(packet[0]) | usize::from(packet[1]) << 8 | usize::from(packet[2]) << 16;
            let is_command = packet[3] == 0;
            packet.append(&mut read(client, length)?);
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let statement = match packet.get(4).filter(|_| is_command) {
                Some(0x03) => Some(text(&packet[5..])),
                Some(0x16) => {
                    lock(&self.answers.now).prepared = Some(text(&packet[5..]));
                    None
                }
                Some(0x17) => {
                    let texts = &lock(&self.answers.now).texts;
                    Some(texts.get(&packet[5..9]).cloned().unwrap_or_default())
                }
                _ => None,
            };
            let is_text = packet.get(4) == Some(&0x03);
            if let Some(0x03 | 0x16) = packet.get(4).filter(|_| is_command)
                && let Some(slow) = self.slow_down(&text(&packet[5..]))
            {
                packet = [&query(slow.as_bytes())[..4], &packet[4..5], slow.as_bytes()].concat();
            }
            let parts = || match is_text {
                true => half(&packet[5..]).map(query).into_iter().collect(),
                false => vec![],
            };
            self.pass(statement, client, parts, &packet, server)?;
        }
    }

    /// Messages of a client, up to one that is answered: a simple query, or a synchronization.
    fn pass_postgres_requests(
        &self,
        client: &mut TcpStream,
        server: &mut TcpStream,
    ) -> io::Result<()> {
        let mut startup = read(client, 4)?;
        startup.append(&mut read(client, number(&startup) - 4)?);
        server.write_all(&startup)?;
        let (mut group, mut statement) = (vec![], None);
        loop {
            let head = read(client, 5)?;
            let body = read(client, number(&head[1..]) - 4)?;
            let mut strings = body.split(|byte| *byte == 0);
            let mut string = || strings.next().unwrap_or_default().to_vec();
            let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
            match head[0] {
                b'Q' => statement = Some(text(string())),
                b'P' => {
                    let name = string();
                    lock(&self.answers.now).texts.insert(name, text(string()));
                }
                b'B' => {
                    string();
                    let texts = &lock(&self.answers.now).texts;
                    statement = texts.get(&string()).cloned();
                }
                _ => {}
            }
            group.extend(head.iter().chain(&body));
            if matches!(head[0], b'P' | b'B' | b'D' | b'E' | b'C' | b'H') {
                continue;
            }
            // tokio-postgres waits neither for the end of an answer nor for that to a `Close`. An answer of the proxy's own would
            // overtake it, and be taken for it.
            if matches!(head[0], b'Q' | b'S') {
                self.wait_for_the_answer();
                lock(&self.answers.now).answered = false;
            }
            let (group, statement) = (std::mem::take(&mut group), statement.take());
            self.pass(statement, client, Vec::new, &group, server)?;
        }
    }

    /// Passes a request on, unless a fault befalls its statement.
    fn pass(
        &self,
        statement: Option<String>,
        client: &mut TcpStream,
        parts: impl Fn() -> Vec<Vec<u8>>,
        whole: &[u8],
        server: &mut TcpStream,
    ) -> io::Result<()> {
        let plan = statement.and_then(|text| self.befalls(text));
        let mysql = self.url.starts_with("mysql");
        let set = |fate| {
            let mut now = lock(&self.answers.now);
            (now.fate, now.answered) = (fate, false);
        };
        let Some(plan) = plan else {
            return server.write_all(whole);
        };
        match plan.fault {
            Fault::Interrupted | Fault::TimedOut if mysql => {
                client.write_all(&mysql_error(plan.fault))
            }
            Fault::Interrupted | Fault::TimedOut => {
                let mut now = lock(&self.answers.now);
                if now.transaction != b'E' {
                    return server.write_all(&postgres_raise(plan.fault));
                }
                now.answered = true;
                client.write_all(&postgres_error(plan.fault))
            }
            Fault::AfterItsWork => {
                set(Fate::Denied);
                server.write_all(whole)
            }
            Fault::InTheMiddle => match parts() {
                parts if !parts.is_empty() => {
                    for part in parts {
                        set(Fate::Dropped);
                        server.write_all(&part)?;
                        self.wait_for_the_answer();
                    }
                    set(Fate::Forwarded);
                    client.write_all(&mysql_error(plan.fault))
                }
                _ => {
                    // Around the proxy.
                    let mut locker = connected(&self.url);
                    lock_all(&mut *locker, mysql, self.tables);
                    set(Fate::Forwarded);
                    server.write_all(whole)?;
                    let mut killer = None;
                    while !self.answered(Duration::from_millis(20)) {
                        let killer = killer.get_or_insert_with(|| connected(&self.url));
                        let kill = match mysql {
                            true => format!("KILL QUERY {}", plan.victim),
                            false => format!("SELECT pg_cancel_backend({})", plan.victim),
                        };
                        let _ = killer.batch_execute(&kill); // MySQL refuses it when the connection is gone
                    }
                    Ok(())
                }
            },
            Fault::CutBefore => Err(io::ErrorKind::ConnectionAborted.into()),
            Fault::CutAfter => {
                set(Fate::Dropped);
                server.write_all(whole)?;
                self.answered(Duration::from_secs(2));
                Err(io::ErrorKind::ConnectionAborted.into())
            }
        }
    }

    /// The text to be sent in place of one that is to be slow.
    fn slow_down(&self, text: &str) -> Option<String> {
        let mut state = lock(&self.state);
        let (_, semicolon) = *state
            .slow
            .first()
            .filter(|(begin, _)| text.starts_with(begin))?;
        state.slow.remove(0);
        let (slow, behind) = slowed_down(text, semicolon).unzip();
        state.hit.push(behind.unwrap_or_default());
        slow
    }

    fn befalls(&self, text: String) -> Option<Plan> {
        let mut state = lock(&self.state);
        state.seen += 1;
        let plan = state.plan?;
        let fault = match state.seen.checked_sub(plan.statement)? {
            0 => plan.fault,
            behind if behind <= plan.then => Fault::Interrupted,
            _ => return None,
        };
        // What is no transaction's end is taken back by the server where it is killed.
        let fault = match fault {
            Fault::AfterItsWork if WORK.iter().any(|work| text.starts_with(work)) => {
                Fault::Interrupted
            }
            fault => fault,
        };
        state.hit.push(text);
        Some(Plan { fault, ..plan })
    }

    fn wait_for_the_answer(&self) {
        assert!(self.answered(Duration::from_secs(60)), "no answer");
    }

    /// Whether the server answers within this time.
    fn answered(&self, time: Duration) -> bool {
        let now = lock(&self.answers.now);
        let waited = self
            .answers
            .changed
            .wait_timeout_while(now, time, |now| !now.answered);
        waited.expect("no panic while it is held").0.answered
    }
}

impl Answers {
    fn forward_postgres(&self, server: &mut TcpStream, client: &mut TcpStream) -> io::Result<()> {
        let mut server = BufReader::new(server);
        loop {
            let mut message = read(&mut server, 5)?;
            message.append(&mut read(&mut server, number(&message[1..]) - 4)?);
            if lock(&self.now).fate == Fate::Forwarded {
                let _ = client.write_all(&message); // it may be gone, and its last requests are on their way
            }
            if message[0] == b'Z' {
                let mut now = lock(&self.now);
                (now.answered, now.transaction) = (true, message[5]);
                self.changed.notify_all();
            }
        }
    }

    fn forward_mysql(&self, server: &mut TcpStream, client: &mut TcpStream) -> io::Result<()> {
        let mut buffer = vec![0; 1 << 16];
        let mut withheld = vec![];
        loop {
            let length = server.read(&mut buffer)?;
            if length == 0 {
                return Ok(());
            }
            let answer = &buffer[..length];
            let mut now = lock(&self.now);
            if let (Some(text), Some(0)) = (now.prepared.take(), answer.get(4)) {
                now.texts.insert(answer[5..9].to_vec(), text);
            }
            let fate = now.fate;
            let mut ended = Some(false);
            if fate != Fate::Forwarded {
                withheld.extend_from_slice(answer);
                ended = ends_well(&withheld); // or more answers follow
            }
            if ended.is_some() {
                now.answered = true;
                if fate == Fate::Denied {
                    now.fate = Fate::Forwarded;
                }
                self.changed.notify_all();
            }
            drop(now);
            match (fate, ended) {
                (Fate::Forwarded, _) => client.write_all(answer)?,
                (Fate::Denied, Some(true)) => client.write_all(&mysql_error(Fault::Interrupted))?,
                (Fate::Denied, Some(false)) => client.write_all(&withheld)?,
                _ => {}
            }
            if ended.is_some() {
                withheld.clear();
            }
        }
    }
}

/// Whether packets of MySQL's are `OK`s alone, once the last one is there.
fn ends_well(mut packets: &[u8]) -> Option<bool> {
    loop {
        let head = packets.get(..5)?;
        let length = usize::from(head[0]) | usize::from(head[1]) << 8;
        if head[4] != 0 {
            return Some(false);
        }
        let packet = packets.get(4..4 + length)?;
        let integer = |at: usize| match packet[at] {
            0xfc => at + 3,
            0xfd => at + 4,
            0xfe => at + 9,
            _ => at + 1,
        };
        let flags = integer(integer(1));
        if packet[flags] & 8 == 0 {
            return Some(true);
        }
        packets = &packets[4 + length..];
    }
}

/// A packet that sends a text.
fn query(text: &[u8]) -> Vec<u8> {
    let length = u32::try_from(text.len() + 1).expect("a short text");
    let mut packet = length.to_le_bytes().to_vec();
    packet[3] = 0;
    packet.push(0x03);
    packet.extend_from_slice(text);
    packet
}

/// The first half of a text of several statements.
fn half(text: &[u8]) -> Option<&[u8]> {
    let ends: Vec<_> = (0..text.len()).filter(|at| text[*at] == b';').collect();
    let middle = ends.get(ends.len().checked_sub(1)? / 2)?;
    (!text[middle + 1..].is_empty()).then(|| &text[..*middle])
}

fn read(stream: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn number(bytes: &[u8]) -> usize {
    u32::from_be_bytes(bytes[..4].try_into().expect("four bytes")) as usize
}

fn mysql_error(fault: Fault) -> Vec<u8> {
    let (number, text) = match fault {
        Fault::TimedOut => (
            1969_u16,
            "Query execution was interrupted (max_statement_time exceeded)",
        ),
        _ => (1317, "Query execution was interrupted"),
    };
    let length = u8::try_from(9 + text.len()).expect("a short text");
    let mut packet = vec![length, 0, 0, 1, 0xff];
    packet.extend(number.to_le_bytes());
    packet.extend(b"#70100");
    packet.extend(text.bytes());
    packet
}

fn postgres_text(fault: Fault) -> &'static str {
    match fault {
        Fault::TimedOut => "canceling statement due to statement timeout",
        _ => "canceling statement due to user request",
    }
}

/// A query that fails as an interrupted one does.
fn postgres_raise(fault: Fault) -> Vec<u8> {
    let text = postgres_text(fault);
    let sql = format!("DO $$BEGIN RAISE EXCEPTION '{text}' USING ERRCODE = '57014'; END$$\0");
    message(b'Q', sql.as_bytes())
}

/// The answer in a transaction that is aborted.
fn postgres_error(fault: Fault) -> Vec<u8> {
    let text = postgres_text(fault);
    let fields = format!("SERROR\0VERROR\0C57014\0M{text}\0\0");
    [message(b'E', fields.as_bytes()), message(b'Z', b"E")].concat()
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("a short message");
    [&[kind], &length.to_be_bytes()[..], body].concat()
}

/// Locks whatever is free, so that the next statement waits, until the connection is closed.
fn lock_all(side: &mut dyn SimpleConnection, mysql: bool, tables: &[&str]) {
    let begin = match mysql {
        true => "SET lock_wait_timeout = 0, innodb_lock_wait_timeout = 0; START TRANSACTION",
        false => "SET lock_timeout = '5ms'; BEGIN",
    };
    side.run(begin);
    let mut send = |sql: &str| side.batch_execute(sql);
    for table in tables {
        let rows = format!("SELECT 1 FROM {table} FOR UPDATE SKIP LOCKED");
        // What the statement's own transaction holds, or what is not there, stays free.
        let _ = match mysql {
            true => send(&rows),
            false => send("SAVEPOINT a").and_then(|()| {
                send(&format!("LOCK TABLE {table} IN SHARE MODE NOWAIT"))
                    .or_else(|_| send("ROLLBACK TO a").and_then(|()| send(&rows)))
                    .or_else(|_| send("ROLLBACK TO a"))
            }),
        };
    }
}
