//! A link on loopback to a server, which can fall silent.

use std::io::Write;
use std::sync::{Arc, Condvar, Mutex};

use crate::in_front::{connect, forward, listen, on_port, port_of};

/// Forwards connections to a port. Ends with the process.
#[derive(Debug)]
pub struct Link {
    port: u16,
    of_requests: Arc<Silence>,
    of_answers: Arc<Silence>,
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

    fn set(&self, is_cut: bool) {
        *self.is_cut.lock().expect("no panic while it is held") = is_cut;
        self.changed.notify_all();
    }
}

impl Link {
    /// Opens a link to the server of this URL.
    pub fn to(url: &str) -> Self {
        let port = port_of(url);
        let [of_requests, of_answers] = [(); 2].map(|()| Arc::new(Silence::default()));
        let (requests, answers) = (Arc::clone(&of_requests), Arc::clone(&of_answers));
        let near_end = listen(move |client| {
            requests.wait_for_the_end();
            if let Ok(server) = connect(port) {
                for (from, to, silence) in
                    [(&client, &server, &requests), (&server, &client, &answers)]
                {
                    let silence = Arc::clone(silence);
                    forward(from, to, move |bytes, to| {
                        silence.wait_for_the_end(); // the end of a connection is news too
                        to.write_all(bytes)
                    });
                }
            }
        });
        Link {
            port: near_end,
            of_requests,
            of_answers,
        }
    }

    /// The port at its near end.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The same URL by way of this link.
    pub fn by_way(&self, url: &str) -> String {
        on_port(url, self.port)
    }

    /// Cuts the link: nothing arrives any more, and neither end is told.
    pub fn cut(&self) {
        self.of_requests.set(true);
        self.cut_answers();
    }

    /// Cuts it in one direction: requests arrive, and no answers.
    pub fn cut_answers(&self) {
        self.of_answers.set(true);
    }

    /// Joins it again. Everything that was sent meanwhile arrives now.
    pub fn join(&self) {
        self.of_requests.set(false);
        self.of_answers.set(false);
    }
}
