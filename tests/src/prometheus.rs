//! A Prometheus of a test's own, which scrapes one page of metrics every second.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;

use crate::private::{find, folder, free_port, spawn, wait_for};

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
        let (folder, port) = (folder(), free_port());
        let settings = folder.join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
             rule_files: ['{}']\n\
             scrape_configs:\n\
             - job_name: test\n  static_configs: [{{targets: ['127.0.0.1:{}']}}]\n",
            rules.display(),
            serve(page),
        );
        fs::write(&settings, text).expect("the settings can be written");
        let mut command = vec![program.into_os_string()];
        for (option, value) in [
            ("--config.file", settings),
            ("--storage.tsdb.path", folder.join("data")),
            (
                "--web.listen-address",
                PathBuf::from(format!("127.0.0.1:{port}")),
            ),
        ] {
            let mut argument = std::ffi::OsString::from(format!("{option}="));
            argument.push(value);
            command.push(argument);
        }
        spawn(command, None, &folder, &[]);
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
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        // This version of HTTP has no chunks.
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

/// Serves a page to everybody who connects, in a thread that ends with the process, and returns its port.
fn serve(page: impl Fn() -> String + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut request = [0; 4096]; // a scrape's request is shorter
            let _ = stream.read(&mut request); // whatever it asks for
            let page = page();
            let head = "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\r\n";
            let _ = stream.write_all(format!("{head}{page}").as_bytes()); // the next scrape asks again
        }
    });
    port
}
