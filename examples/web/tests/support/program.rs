//! The program itself, in a process of its own.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// A program that told its address.
pub struct Program {
    process: Child,
    output: Lines<BufReader<ChildStdout>>,
    url: String,
}

impl Program {
    /// On a free port.
    pub async fn start(database_url: &str) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_diesel_sharded_web"))
            .envs([("PORT", "0"), ("DATABASE_URL", database_url)])
            .env_remove("ADDR")
            .env_remove("FOLD_EVERY")
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("it starts");
        let output = process.stdout.take().expect("it is piped");
        let mut output = BufReader::new(output).lines();
        let first = output.next_line().await.expect("text").expect("a line");
        let (url, how_to_stop) = first.split_once(' ').expect("an address and more");
        assert_eq!(how_to_stop, "(Ctrl-C stops it)");
        Program {
            process,
            output,
            url: url.to_owned(),
        }
    }

    pub async fn page(&self, path: &str) -> String {
        let url = format!("{}{path}", self.url);
        let page = reqwest::get(url).await.expect("an answer");
        assert!(page.status().is_success());
        page.text().await.expect("a page")
    }

    /// As Ctrl-C does.
    pub async fn stop(mut self) {
        let id = self.process.id();
        let id = id.and_then(|id| Pid::from_raw(id.cast_signed()));
        kill_process(id.expect("it runs"), Signal::INT).expect("a signal");
        let ended = self.process.wait().await.expect("it ends");
        assert!(ended.success(), "{ended}");
        let last = self.output.next_line().await.expect("text");
        assert_eq!(
            last.expect("a line"),
            "stopped: every count is in the database"
        );
    }
}
