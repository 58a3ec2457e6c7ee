//! The program itself, in a process of its own.

use std::ffi::OsStr;
use std::process::Stdio;
use std::time::Duration;

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
    pub async fn start(arguments: &[&str], variables: &[(&str, &OsStr)]) -> Self {
        let mut process = command(arguments)
            .envs(variables.iter().copied())
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

    /// Starts it, and interrupts it as Ctrl-C does as soon as `it_is_time`, perhaps before it has told its address.
    pub async fn interrupted(
        arguments: &[&str],
        variables: &[(&str, &OsStr)],
        it_is_time: impl Fn() -> bool,
    ) {
        let mut command = command(arguments);
        let process = command
            .envs(variables.iter().copied())
            .stdout(Stdio::null());
        let mut process = process.kill_on_drop(true).spawn().expect("it starts");
        while !it_is_time() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        send(&process, Signal::INT);
        let ended = process.wait().await.expect("it ends");
        assert!(ended.success(), "{ended}");
    }

    /// The only output of a program that ends by an error.
    pub async fn fails(arguments: &[&str], variables: &[(&str, &str)]) -> String {
        let mut command = command(arguments);
        let ended = command.envs(variables.iter().copied()).output().await;
        let ended = ended.expect("it starts");
        assert!(!ended.status.success() && ended.stdout.is_empty());
        String::from_utf8(ended.stderr).expect("text")
    }

    pub async fn page(&self, path: &str) -> String {
        let url = format!("{}{path}", self.url);
        let page = reqwest::get(url).await.expect("an answer");
        assert!(page.status().is_success());
        page.text().await.expect("a page")
    }

    /// As Ctrl-C does.
    pub async fn stop(mut self) {
        send(&self.process, Signal::INT);
        let ended = self.process.wait().await.expect("it ends");
        assert!(ended.success(), "{ended}");
        let last = self.output.next_line().await.expect("text");
        assert_eq!(
            last.expect("a line"),
            "stopped: every count is in the database"
        );
    }

    /// At once.
    pub async fn kill(mut self) {
        self.process.kill().await.expect("it ends");
    }
}

fn send(process: &Child, signal: Signal) {
    let id = process.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    kill_process(id.expect("it runs"), signal).expect("a signal");
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diesel_sharded_web"));
    command.args(arguments).env("PORT", "0");
    for variable in ["ADDR", "DATABASE_URL", "FOLD_EVERY"] {
        command.env_remove(variable);
    }
    command
}
