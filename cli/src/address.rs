//! The address of a database: its forms, where it came from, and how it is shown.

use std::fmt;
use std::path::PathBuf;

use clap::ArgMatches;
use clap::parser::ValueSource;
use diesel::ConnectionError;

use crate::error::Error;

/// The variable that holds it.
pub const VARIABLE: &str = "DATABASE_URL";

/// The forms that this build takes.
const FORMS: &[&str] = &[
    #[cfg(feature = "postgres")]
    "postgres://USER:PASSWORD@HOST/DATABASE",
    #[cfg(feature = "mysql")]
    "mysql://USER:PASSWORD@HOST/DATABASE (or mariadb://)",
    #[cfg(feature = "sqlite")]
    "sqlite:FILE",
    #[cfg(feature = "sqlite")]
    "the path of a SQLite file",
];

/// Where the address came from. `file` is the `.env` that was read, if the environment had no address before.
pub fn origin(matches: &ArgMatches, file: Option<PathBuf>) -> String {
    match (matches.value_source("database_url"), file) {
        (Some(ValueSource::CommandLine), _) => "--database-url".to_owned(),
        (_, Some(file)) => format!("{VARIABLE} in {}", file.display()),
        _ => format!("{VARIABLE} in the environment"),
    }
}

/// An address, and where it came from.
#[derive(Debug, Clone, Copy)]
pub struct Address<'a> {
    pub text: &'a str,
    pub origin: &'a str,
}

impl<'a> Address<'a> {
    /// The scheme without its `:`, and what follows it. A path has none, also `C:\videos.db` and `a:b.db`.
    pub fn scheme(self) -> (&'a str, &'a str) {
        match self.text.split_once(':') {
            Some((scheme, rest)) if rest.starts_with("//") || scheme == "sqlite" => (scheme, rest),
            _ => ("", self.text),
        }
    }

    /// The error of a connection that could not be opened. A client library may show a part of the address that it does not understand.
    pub fn failed(self, error: &ConnectionError) -> Error {
        let says = error.to_string();
        let says = says.trim_end();
        let says = match password(self.text) {
            Some(password) if !password.is_empty() => says.replace(password, "***"),
            _ => says.to_owned(),
        };
        Error::Refused(format!(
            "no connection to the database, whose address is from {}: {says}",
            self.origin
        ))
    }

    /// The error that this address leads to no database.
    pub fn refused(self, why: impl fmt::Display) -> Error {
        let shown = without_password(self.text);
        let shown = match (shown.split_once(':'), shown.split_once('@')) {
            // Without `//` it may hold a password all the same.
            (Some((scheme, rest)), Some((_, host))) if !rest.starts_with("//") => {
                format!("{scheme}:***@{host}")
            }
            _ => shown,
        };
        Error::Refused(format!(
            "`{shown}`, from {}, leads to no database: {why}. These forms work: {}",
            self.origin,
            FORMS.join(", ")
        ))
    }
}

/// The address of a database, with `***` in place of its password: the command line is shown, and may be kept in a log.
pub fn without_password(text: &str) -> String {
    let (address, parameters) = match text.split_once("://").and(text.split_once('?')) {
        Some((address, parameters)) => (address, Some(parameters)),
        None => (text, None),
    };
    let hidden = || {
        let password = password(address)?;
        let (before, rest) = address.split_once(&format!(":{password}@"))?;
        Some(format!("{before}:***@{rest}"))
    };
    let shown = hidden().unwrap_or_else(|| address.to_owned());
    let Some(parameters) = parameters else {
        return shown;
    };
    let parameters = parameters
        .split('&')
        .map(|parameter| match parameter.split_once('=') {
            Some((name, _)) if name.contains("password") => format!("{name}=***"),
            _ => parameter.to_owned(),
        });
    format!("{shown}?{}", parameters.collect::<Vec<_>>().join("&"))
}

/// The password in `scheme://user:password@host/database`, also where it has a `/` that should have been encoded.
fn password(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("://")?;
    let (place, _) = rest.split_once('?').unwrap_or((rest, ""));
    let (login, _) = place.rsplit_once('@')?;
    let (_, password) = login.split_once(':')?;
    Some(password)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_are_told_from_paths() {
        for (text, parts) in [
            ("mariadb://h/d", ("mariadb", "//h/d")),
            ("sqlite:a.db", ("sqlite", "a.db")),
            ("sqlite:///var/a.db", ("sqlite", "///var/a.db")),
            ("sqlite::memory:", ("sqlite", ":memory:")),
            (":memory:", ("", ":memory:")),
            ("a:b.db", ("", "a:b.db")),
            ("file:a.db?mode=ro", ("", "file:a.db?mode=ro")),
            ("C:\\a.db", ("", "C:\\a.db")),
        ] {
            let address = Address { text, origin: "" };
            assert_eq!(address.scheme(), parts, "{text}");
        }
    }

    #[test]
    fn passwords_are_not_printed() {
        for (text, shown) in [
            (
                "postgres://app:a:b@c@h:5432/d?x=y",
                "postgres://app:***@h:5432/d?x=y",
            ),
            ("mysql://app@h/d", "mysql://app@h/d"),
            ("mysql://app:a/b@h/d", "mysql://app:***@h/d"),
            (
                "postgres://h/d?user=app&password=a&sslmode=require",
                "postgres://h/d?user=app&password=***&sslmode=require",
            ),
            ("a:b@c.db", "a:b@c.db"),
        ] {
            assert_eq!(without_password(text), shown);
        }
    }
}
