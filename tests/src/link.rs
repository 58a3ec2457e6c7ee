//! A link on loopback between two servers, which can fall silent.

use std::io::Write;
use std::sync::{Arc, Condvar, Mutex};

use crate::in_front::{connect, forward, listen};

/// Forwards connections to a port. Ends with the process.
#[derive(Debug)]
pub struct Link {
    port: u16,
    silence: Arc<Silence>,
}

#[derive(Debug, Default)]
struct Silence {
    is_cut: Mutex<bool>,
    changed: Condvar,
}

impl Silence {
    fn wait_for_the_end(&self) {
        let is_cut = self.is_cut.lock().expect("no panic while it is held");
        let joined = self.changed.wait_while(is_cut, |is_cut| *is_cut);
        drop(joined.expect("no panic while it is held"));
    }
}

impl Link {
    /// Opens a link to a port of this machine.
    pub fn to(port: u16) -> Self {
        let silence = Arc::new(Silence::default());
        let of_connections = Arc::clone(&silence);
        let near_end = listen(move |client| {
            of_connections.wait_for_the_end();
            if let Ok(server) = connect(port) {
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let silence = Arc::clone(&of_connections);
                    forward(from, to, move |bytes, to| {
                        silence.wait_for_the_end(); // the end of a connection is news too
                        to.write_all(bytes)
                    });
                }
            }
        });
        Link {
            port: near_end,
            silence,
        }
    }

    /// The port at its near end.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Cuts the link: nothing arrives any more, and neither end is told.
    pub fn cut(&self) {
        self.set(true);
    }

    /// Joins it again. Everything that was sent meanwhile arrives now.
    pub fn join(&self) {
        self.set(false);
    }

    fn set(&self, is_cut: bool) {
        let mut state = self.silence.is_cut.lock();
        *state.as_deref_mut().expect("no panic while it is held") = is_cut;
        self.silence.changed.notify_all();
    }
}
