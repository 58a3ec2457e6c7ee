//! A proxy on loopback between a test and its server, which can cut a connection at a chosen moment.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use crate::in_front::{behind, connect, end, forward, handle, listen, port_of};

/// Begins a proxy that holds each packet back for `delay`, as a network does; and returns the URL of the same database behind it. Ends with
/// the process.
pub fn delayed(url: &str, delay: Duration) -> String {
    let server = port_of(url);
    let port = listen(move |client| {
        if let Ok(server) = connect(server) {
            for (from, to) in [(&client, &server), (&server, &client)] {
                let (packets, due) = mpsc::channel::<(Instant, Vec<u8>)>();
                let mut receiver = handle(to);
                thread::spawn(move || {
                    for (at, packet) in due {
                        sleep(at.saturating_duration_since(Instant::now()));
                        if receiver.write_all(&packet).is_err() {
                            break;
                        }
                    }
                    end([&receiver]);
                });
                forward(from, to, move |packet, _| {
                    let packet = (Instant::now() + delay, packet.to_vec());
                    packets
                        .send(packet)
                        .map_err(|_| io::ErrorKind::BrokenPipe.into())
                });
            }
        }
    });
    behind(url, port, "")
}

/// Where a connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The server never sees the request.
    BeforeTheRequest,
    /// The server carries the request out, and its answer is lost.
    BeforeTheAnswer,
    /// The same, but the request is late: it reaches the server half a second after the client has lost its connection.
    BeforeTheLateRequest,
}

/// Forwards connections until it is told to cut one. Ends with the test.
#[derive(Debug)]
pub struct Proxy {
    plan: Arc<Mutex<Plan>>,
}

#[derive(Debug, Default)]
struct Plan {
    /// The cut, and how many requests it still forwards before.
    cut: Option<(u32, Cut)>,
    cuts: usize,
    /// What the client gets instead of an answer, how many come before, and whether it is the last.
    answer: Option<(u32, Vec<u8>, bool)>,
}

impl Proxy {
    /// A proxy before the server of `url`; and the URL of the same database through it.
    pub fn before(url: &str) -> (Self, String) {
        let plan: Arc<Mutex<Plan>> = Arc::default();
        let (server, of_connections) = (port_of(url), Arc::clone(&plan));
        let port = listen(move |client| {
            if let Ok(server) = connect(server) {
                pass(&client, &server, Arc::clone(&of_connections));
            }
        });
        (Proxy { plan }, behind(url, port, ""))
    }

    /// Cuts the connection at the request that comes after `requests` more.
    pub fn cut_after(&self, requests: u32, cut: Cut) {
        lock(&self.plan).cut = Some((requests, cut));
    }

    /// Gives the client this instead of the server's answer that comes after `answers` more, and ends the connection then if it `is_last`.
    pub fn answer_after(&self, answers: u32, answer: impl Into<Vec<u8>>, is_last: bool) {
        lock(&self.plan).answer = Some((answers, answer.into(), is_last));
    }

    /// How many connections it has cut.
    pub fn cuts(&self) -> usize {
        lock(&self.plan).cuts
    }

    /// Forwards everything from now on.
    pub fn cut_no_more(&self) {
        lock(&self.plan).cut = None;
    }
}

impl Plan {
    /// The cut at this request, if it is its turn.
    fn next(&mut self) -> Option<Cut> {
        let (left, cut) = self.cut?;
        self.cut = left.checked_sub(1).map(|left| (left, cut));
        if self.cut.is_some() {
            return None;
        }
        self.cuts += 1;
        Some(cut)
    }
}

impl Plan {
    /// The answer to give instead of the server's, if it is its turn.
    fn own_answer(&mut self) -> Option<(Vec<u8>, bool)> {
        let (left, _, _) = self.answer.as_mut()?;
        match left.checked_sub(1) {
            Some(less) => {
                *left = less;
                None
            }
            None => self
                .answer
                .take()
                .map(|(_, answer, is_last)| (answer, is_last)),
        }
    }
}

fn lock(plan: &Mutex<Plan>) -> MutexGuard<'_, Plan> {
    plan.lock().expect("no panic while it is held")
}

/// Passes requests and answers on, up to a cut.
fn pass(client: &TcpStream, server: &TcpStream, plan: Arc<Mutex<Plan>>) {
    let is_cut = Arc::new(AtomicBool::new(false));
    let cut_now = || io::Error::from(io::ErrorKind::ConnectionAborted);
    let (knows, waiting) = (Arc::clone(&is_cut), handle(client));
    let answers = Arc::clone(&plan);
    forward(server, client, move |answer, client| {
        if knows.load(Ordering::SeqCst) {
            return Err(cut_now());
        }
        let own = lock(&answers).own_answer();
        let Some((own, is_last)) = own else {
            return client.write_all(answer);
        };
        client.write_all(&own)?;
        match is_last {
            true => Err(cut_now()),
            false => Ok(()),
        }
    });
    forward(client, server, move |request, server| {
        let cut = match request {
            [] => None, // the client has gone
            _ => lock(&plan).next(),
        };
        let Some(cut) = cut else {
            return server.write_all(request);
        };
        is_cut.store(true, Ordering::SeqCst);
        if cut == Cut::BeforeTheLateRequest {
            end([&waiting]);
            sleep(Duration::from_millis(500));
        }
        if cut != Cut::BeforeTheRequest {
            server.write_all(request)?;
            sleep(Duration::from_millis(5)); // for a server that gives up at once when its client is gone
        }
        Err(cut_now())
    });
}
