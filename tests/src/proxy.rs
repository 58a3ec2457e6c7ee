//! A proxy on loopback between a test and its server, which can cut a connection at a chosen moment.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::in_front::{behind, connect, handle, listen, port_of};

/// Where a connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The server never sees the request.
    BeforeTheRequest,
    /// The server carries the request out, and its answer is lost.
    BeforeTheAnswer,
}

/// Forwards connections until it is told to cut one. Ends with the test.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    plan: Arc<Plan>,
}

#[derive(Debug)]
struct Plan {
    /// How many requests it still forwards before the cut; negative if no cut is planned.
    requests: AtomicI64,
    cut: Mutex<Cut>,
    cuts: AtomicUsize,
    /// The request at which it cut last.
    request: Mutex<Vec<u8>>,
}

impl Proxy {
    /// A proxy before the server of `url`; and the URL of the same database through it.
    pub fn before(url: &str) -> (Self, String) {
        let plan = Arc::new(Plan {
            requests: AtomicI64::new(-1),
            cut: Mutex::new(Cut::BeforeTheRequest),
            cuts: AtomicUsize::new(0),
            request: Mutex::new(vec![]),
        });
        let plans = Arc::clone(&plan);
        let server = port_of(url);
        let port = listen(move |client| {
            if let Ok(server) = connect(server) {
                forward(client, server, Arc::clone(&plans));
            }
        });
        (Proxy { port, plan }, behind(url, port, ""))
    }

    /// Cuts the connection at the request that comes after `requests` more.
    pub fn cut_after(&self, requests: u32, cut: Cut) {
        *self.plan.cut.lock().expect("no panic while it is held") = cut;
        self.plan.requests.store(requests.into(), Ordering::SeqCst);
    }

    /// How many connections it has cut.
    pub fn cuts(&self) -> usize {
        self.plan.cuts.load(Ordering::SeqCst)
    }

    /// Forwards everything from now on.
    pub fn cut_no_more(&self) {
        self.plan.requests.store(-1, Ordering::SeqCst);
    }

    /// The request at which it cut last, as the client sent it.
    pub fn last_request(&self) -> Vec<u8> {
        let request = self.plan.request.lock();
        request.expect("no panic while it is held").clone()
    }

    /// The port on which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }
}

fn forward(client: TcpStream, server: TcpStream, plan: Arc<Plan>) {
    let is_cut = Arc::new(AtomicBool::new(false));
    let answers = (handle(&server), handle(&client), Arc::clone(&is_cut));
    thread::spawn(move || {
        let (mut server, mut client, is_cut) = answers;
        let mut buffer = vec![0; 1 << 16];
        while let Ok(length @ 1..) = server.read(&mut buffer) {
            if is_cut.load(Ordering::SeqCst) || client.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Both); // it may be gone
    });
    thread::spawn(move || {
        let (mut client, mut server) = (client, server);
        let mut buffer = vec![0; 1 << 16];
        while let Ok(length @ 1..) = client.read(&mut buffer) {
            if plan.requests.fetch_sub(1, Ordering::SeqCst) == 0 {
                is_cut.store(true, Ordering::SeqCst);
                let mut request = plan.request.lock().expect("no panic while it is held");
                *request = buffer[..length].to_vec();
                drop(request);
                plan.cuts.fetch_add(1, Ordering::SeqCst);
                if *plan.cut.lock().expect("no panic while it is held") == Cut::BeforeTheAnswer {
                    let _ = server.write_all(&buffer[..length]); // the connection is cut either way
                    thread::sleep(Duration::from_millis(5)); // for a server that gives up at once when its client is gone
                }
                break;
            }
            if server.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        for stream in [client, server] {
            let _ = stream.shutdown(Shutdown::Both); // it may be gone
        }
    });
}
