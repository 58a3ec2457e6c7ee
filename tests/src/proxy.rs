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

fn lock(plan: &Mutex<Plan>) -> MutexGuard<'_, Plan> {
    plan.lock().expect("no panic while it is held")
}

/// Passes requests and answers on, up to a cut.
fn pass(client: &TcpStream, server: &TcpStream, plan: Arc<Mutex<Plan>>) {
    let is_cut = Arc::new(AtomicBool::new(false));
    let cut_now = || io::Error::from(io::ErrorKind::ConnectionAborted);
    let (knows, waiting) = (Arc::clone(&is_cut), handle(client));
    forward(server, client, move |answer, client| {
        match knows.load(Ordering::SeqCst) {
            true => Err(cut_now()),
            false => client.write_all(answer),
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
