//! A Prometheus of a test's own, which scrapes one page of metrics every second.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::in_front::{connect, listen};
use crate::programs::{Place, find, keep_running, option, wait_for};

const MISSING: &str = "no Prometheus is installed: apt-get install prometheus";

/// The program that checks rules.
///
/// # Panics
/// If it is not installed.
pub fn promtool() -> PathBuf {
    find("promtool").expect(MISSING)
}

/// A running Prometheus. Stopped with this process.
#[derive(Debug)]
pub struct Prometheus {
    port: u16,
}

impl Prometheus {
    /// Starts one that scrapes `page` and evaluates `rules`.
    ///
    /// # Panics
    /// If it is not installed, or does not start.
    pub fn start(page: impl Fn() -> String + Send + 'static, rules: &Path) -> Self {
        let program = find("prometheus").expect(MISSING);
        let place = Place::of("root");
        let port = place.port;
        let text = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
             rule_files: ['{}']\n\
             scrape_configs:\n\
             - job_name: test\n  static_configs: [{{targets: ['127.0.0.1:{}']}}]\n",
            rules.display(),
            serve(page),
        );
        let settings = place.file("prometheus.yml", &text);
        let folder = place.folder.clone();
        let arguments = [
            option("--config.file=", &settings).into(),
            option("--storage.tsdb.path=", &folder.join("data")).into(),
            format!("--web.listen-address=127.0.0.1:{port}").into(),
        ];
        keep_running(place.runs(program, arguments, "http://127.0.0.1"));
        let prometheus = Prometheus { port };
        wait_for(&folder, || match prometheus.get("/-/ready")? {
            ready if ready.contains("200 OK") => Ok(()),
            not_yet => Err(io::Error::other(not_yet)),
        });
        prometheus
    }

    /// The answer of its interface to a query, as JSON.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn query(&self, query: &str) -> String {
        let query: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let answer = self.get(&format!("/api/v1/query?query={query}"));
        let answer = answer.expect("Prometheus answers");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        body.to_owned()
    }

    fn get(&self, path: &str) -> io::Result<String> {
        let mut stream = connect(self.port)?;
        // This version of HTTP has no chunks.
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

/// Serves a page to everybody who connects, and returns its port.
fn serve(page: impl Fn() -> String + Send + 'static) -> u16 {
    listen(move |mut client| {
        let mut request = [0; 4096]; // a scrape's request is shorter
        let _ = client.read(&mut request); // whatever it asks for
        let head = "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\r\n";
        let _ = client.write_all(format!("{head}{}", page()).as_bytes()); // the next scrape asks again
    })
}
