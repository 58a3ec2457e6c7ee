//! The options of this run, for the command line that goes on where it ended.

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

use crate::address::without_password;
use crate::shell;

/// The options that were given on the command line, each by its name and as it is written.
#[derive(Debug, Default)]
pub struct Given(Vec<(String, String)>);

impl Given {
    /// Those of the subcommand that runs. Values from the environment are there in the next run too.
    pub fn of(command: &Command, matches: &ArgMatches) -> Self {
        let mut given = vec![];
        if let Some((name, matches)) = matches.subcommand() {
            for (argument, long) in options(command, name) {
                let id = argument.get_id().as_str();
                if matches.value_source(id) != Some(ValueSource::CommandLine) {
                    continue;
                }
                if !argument.get_action().takes_values() {
                    given.push((long.to_owned(), format!("--{long}")));
                    continue;
                }
                for text in matches.get_raw(id).into_iter().flatten() {
                    let text = text.to_string_lossy();
                    let text = match long {
                        "database-url" => without_password(&text),
                        _ => text.into_owned(),
                    };
                    let text = shell::option(long, &text);
                    given.push((long.to_owned(), text));
                }
            }
        }
        Given(given)
    }

    /// ` --batch=10 --quiet`: those that the subcommand of this name takes, and not the keys after which this run began.
    pub fn again(&self, command: &Command, name: &str) -> String {
        let takes = |long: &str| options(command, name).any(|(_, takes)| takes == long);
        let again = self.0.iter();
        let again = again.filter(|(long, _)| long != "after" && takes(long));
        again.map(|(_, text)| format!(" {text}")).collect()
    }
}

/// The options of a subcommand and those of all, with their long names.
fn options<'c>(command: &'c Command, name: &str) -> impl Iterator<Item = (&'c Arg, &'c str)> {
    let own = command.find_subcommand(name).into_iter();
    let arguments = own
        .flat_map(Command::get_arguments)
        .chain(command.get_arguments());
    arguments.filter_map(|argument| Some((argument, argument.get_long()?)))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Args;

    fn again(words: &[&str], name: &str) -> String {
        let command = Args::command();
        let words = ["diesel-sharded"].iter().chain(words);
        let matches = command.clone().try_get_matches_from(words).unwrap();
        Given::of(&command, &matches).again(&command, name)
    }

    #[test]
    fn every_option_is_repeated_but_the_key() {
        let words = [
            "fold",
            "videos",
            "--after=7",
            "--batch",
            "10",
            "--at-most-per-second=5",
            "--keep-shards=3",
            "--json",
            "--database-url=postgres://app:secret@localhost/shop",
        ];
        assert_eq!(
            again(&words, "fold"),
            " --batch=10 --at-most-per-second=5 --keep-shards=3 --json \
             --database-url='postgres://app:***@localhost/shop'"
        );
        let recount = ["backfill", "videos", "likes", "--recount", "SELECT 1, 2"];
        assert_eq!(again(&recount, "backfill"), " --recount='SELECT 1, 2'");
        // It has no password, and would be another query.
        let query = "SELECT id, COUNT(*) FROM t WHERE url <> 'http://a:b@c?password=d' GROUP BY id";
        let recount = ["backfill", "videos", "likes", "--recount", query];
        let printed = again(&recount, "backfill").replace(r"'\''", "'");
        assert!(printed.contains(query), "{printed}");
    }

    #[test]
    fn another_command_gets_those_that_it_takes() {
        let resize = ["--database-url=a.db", "resize", "videos", "views", "--to=4"];
        assert_eq!(again(&resize, "fold"), " --database-url=a.db");
        assert_eq!(again(&["resize", "--counter=a", "--to=4"], "fold"), "");
    }
}
