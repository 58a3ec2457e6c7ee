//! Further processes of the program that measures.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The line with which a process says that it has connected.
pub const READY: &str = "ready";

/// A process of this program. It begins what a line of its input asks for, and answers each by a line of numbers.
pub struct Process {
    child: Child,
    input: ChildStdin,
    says: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts this program once for each list of arguments, and waits until all processes are [ready](READY).
    pub fn start(of: impl IntoIterator<Item = Vec<String>>) -> Vec<Self> {
        let program = std::env::current_exe().expect("this program");
        let started = of.into_iter().map(|arguments| {
            let mut child = Command::new(&program)
                .args(arguments)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("this program again");
            let output = child.stdout.take().expect("a piped output");
            Process {
                input: child.stdin.take().expect("a piped input"),
                says: BufReader::new(output).lines(),
                child,
            }
        });
        let mut started: Vec<_> = started.collect();
        for process in &mut started {
            assert_eq!(process.line(), READY);
        }
        started
    }

    /// Writes a line to its input.
    pub fn tell(&mut self, line: impl Display) {
        writeln!(self.input, "{line}").expect("the process reads its input");
    }

    /// Waits for its line of numbers.
    pub fn numbers(&mut self) -> Vec<u64> {
        let line = self.line();
        let numbers = line
            .split(' ')
            .map(|number| number.parse().expect("a number"));
        numbers.collect()
    }

    /// Ends its input, and waits for its end.
    ///
    /// # Panics
    /// If it fails.
    pub fn end(mut self) {
        drop(self.input);
        assert!(self.child.wait().expect("its end").success());
    }

    fn line(&mut self) -> String {
        let line = self.says.next().expect("the process is alive");
        line.expect("a line")
    }
}
