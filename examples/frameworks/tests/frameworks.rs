//! Each server counts what it is asked.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn post(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn counts(program: &str, database: &str) {
    let server = Command::new(program)
        .arg("127.0.0.1:0")
        .stdout(Stdio::piped())
        .spawn();
    let mut server = Server(server.unwrap());
    let mut line = String::new();
    let out = server.0.stdout.take().unwrap();
    BufReader::new(out).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("http://").unwrap();
    for views in 101..=103 {
        let answer = post(address, "/videos/7");
        assert!(answer.ends_with(&format!("{views} views\n")), "{answer}");
    }
    assert!(post(address, "/videos/8").starts_with("HTTP/1.1 404"));

    // Only a missing row is not found: here the shards table is missing.
    let file = std::env::temp_dir().join(database);
    let conn = &mut SqliteConnection::establish(&file.display().to_string()).unwrap();
    conn.batch_execute("PRAGMA busy_timeout = 5000; DROP TABLE videos_shards")
        .unwrap();
    assert!(post(address, "/videos/7").starts_with("HTTP/1.1 500"));
}

#[test]
fn axum() {
    counts(env!("CARGO_BIN_EXE_axum"), "diesel_sharded_axum.db");
}

#[test]
fn actix() {
    counts(env!("CARGO_BIN_EXE_actix"), "diesel_sharded_actix.db");
}
