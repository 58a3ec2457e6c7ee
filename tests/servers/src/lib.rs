//! Servers started from installed programs, each in a temporary folder, on a free port of 127.0.0.1. They are stopped, and their folders
//! deleted, at the latest when the process that started them is gone.

mod installed;
mod machine;
mod mysql;
mod postgres;

pub use installed::{Installed, Running, start_keeper};
pub use machine::{
    Owner, as_user, ask_until_it_answers, find, folder, free_port, hand_over, option, run,
    unprivileged,
};
pub use mysql::mysql;
pub use postgres::{Messages, postgres, postgres_programs, postgres_with};
