use DatabaseErrorKind::Unknown;
use Dialect::{Mysql, Postgres, Sqlite};
use ErrorClass::{ConnectionLost, NodeNotReady, Other};

use super::*;
use crate::backend::{INTERRUPTED_UNHEARD, SHARD_REMOVED, TAKEN_FOR_ANOTHER};

fn error(kind: DatabaseErrorKind, text: &str) -> DieselError {
    DieselError::DatabaseError(kind, Box::new(text.to_owned()))
}

/// These texts mean these failures to a database.
macro_rules! means {
    ($dialect:expr; $($class:expr => $($text:expr),+;)+) => {$($(
        let (class, text) = ($class, $text);
        assert_eq!($dialect.classify_text(text), class, "{text}");
        let told = error(Unknown, text);
        assert_eq!($dialect.classify(&told), class, "{text}");
    )+)+};
}

/// A node that was cut off from the majority: the answer of MariaDB 10.11 there.
#[test]
fn a_node_without_a_majority_does_not_know_its_last_commits() {
    let refused = || {
        let text = "WSREP has not yet prepared node for application use";
        error(Unknown, text)
    };
    let classify = |error| Mysql.classify(&error);
    assert_eq!(classify(refused()), NodeNotReady);
    let on_commit = |commit_error| DieselError::RollbackErrorOnCommit {
        rollback_error: Box::new(refused()),
        commit_error: Box::new(commit_error),
    };
    assert_eq!(classify(on_commit(refused())), NodeNotReady);
    for text in [
        "Error while appending streaming replication fragment(provider status: Not connected to Primary Component)",
        "Error while appending streaming replication fragment",
        "Got error 6 \"No such device or address\" during COMMIT",
        "Got error 5 - 'Transaction size exceed set threshold' during COMMIT",
    ] {
        means! { Mysql; ConnectionLost => text; }
        let class = classify(on_commit(error(Unknown, text)));
        assert_eq!(class, ConnectionLost, "{text}");
    }
    means! { Mysql;
        Other =>
            "Got error 122 from storage engine",
            "Duplicate entry 'Got error 6 during COMMIT' for key 'slug'";
    }
}

/// The answers of PostgreSQL 15 on a standby, which knows no serializable transactions either.
#[test]
fn a_standby_refuses() {
    let refused = "cannot execute UPDATE in a read-only transaction";
    let refused = error(DatabaseErrorKind::ReadOnlyTransaction, refused);
    assert_eq!(Postgres.classify(&refused), NodeNotReady);
    // MySQL's 1792 comes only from the session.
    assert_eq!(Mysql.classify(&refused), Other);
}

/// `diesel_async`'s drivers give their errors no kind, or another kind than Diesel's own.
#[test]
fn an_asynchronous_connection_that_is_closed_is_lost() {
    let closed = error(DatabaseErrorKind::UnableToSendCommand, "connection closed");
    assert_eq!(Postgres.classify(&closed), ConnectionLost);
}

#[test]
fn texts_of_mysql_and_of_its_clusters() {
    means! { Mysql;
        NodeNotReady =>
            "The MySQL server is running with the --read-only option so it cannot execute this statement";
        ConnectionLost =>
            // `diesel_async`'s driver.
            "Input/output error: Input/output error: connection closed",
            "Input/output error: Input/output error: Connection reset by peer (os error 104)",
            "Driver error: `Connection to the server is closed.'",
            "execution result undetermined",
            // A node that left the group.
            "Error on observer while running replication hook 'before_commit'.";
        // TiDB, and a failed certification in Group Replication of MySQL 9.7.
        ErrorClass::Conflict(Conflict::Serialization) =>
            "Write conflict, txnStartTS=1, conflictStartTS=2, conflictCommitTS=3, key=4, reason=Optimistic [try again later]",
            "Write conflict, txnStartTS 1 is stale [try again later]",
            "Error: KV error safe to retry Txn(Mvcc(TxnLockNotFound)) [try again later]",
            "can not retry select for update statement",
            "Information schema is changed during the execution of the statement(for example, table definition may be updated)",
            "Plugin instructed the server to rollback the current transaction.";
        // Vitess passes on the text of its server, after the place of the failure.
        ErrorClass::Conflict(Conflict::Deadlock) =>
            "Deadlock found when trying to get lock; try restarting transaction",
            "Got error 149 - 'Lock deadlock; Retry transaction' during COMMIT",
            "target: app.-80.primary: vttablet: rpc error: code = Aborted desc = Deadlock found when trying to get lock; \
             try restarting transaction (errno 1213) (sqlstate 40001) (CallerID: app): Sql: \"commit\", BindVars: {}";
        ErrorClass::Conflict(Conflict::LockTimeout) =>
            "target: app.-80.primary: vttablet: rpc error: code = DeadlineExceeded desc = Lock wait timeout exceeded; \
             try restarting transaction (errno 1205) (sqlstate HY000) (CallerID: app): Sql: \"update videos\"";
        ErrorClass::Conflict(Conflict::StatementTimeout) =>
            INTERRUPTED_UNHEARD;
        // The text of a violated constraint quotes the user's own text.
        Other =>
            "The MySQL server is running with the --secure-file-priv option so it cannot execute this statement",
            "Driver error: `Statement takes 1 parameters but 2 was supplied.'",
            "target: app.-80.primary: vttablet: rpc error: code = AlreadyExists desc = Duplicate entry \
             'Deadlock found when trying to get lock' for key 'slug' (errno 1062) (sqlstate 23000)",
            "target: Deadlock found when trying to get lock",
            "Duplicate entry 'Deadlock found when trying to get lock' for key 'slug'";
    }
}

/// In several languages, and in the words of CockroachDB and of Aurora DSQL.
#[test]
fn texts_of_postgresql_and_of_its_clusters() {
    means! { Postgres;
        NodeNotReady =>
            "cannot use serializable mode in a hot standby",
            "cannot set transaction read-write mode during recovery",
            "kann serialisierbaren Modus nicht in einem Hot Standby verwenden";
        ConnectionLost =>
            "terminating connection due to administrator command",
            "terminating connection due to idle-in-transaction timeout",
            "Verbindung wird abgebrochen aufgrund von Anweisung des Administrators",
            "закрытие подключения по команде администратора",
            "result is ambiguous: error=rpc error: code = Unavailable";
        ErrorClass::Conflict(Conflict::Serialization) =>
            "restart transaction: TransactionRetryWithProtoRefreshError: WriteTooOldError",
            "change conflicts with another transaction, please retry: (OC000)",
            "mutation conflicts with another transaction, retry as needed (OC000)",
            "schema has been updated by another transaction, please retry: (OC001)",
            // A shard that is removed meanwhile.
            &format!("ungültige Eingabesyntax für Typ boolean: »{SHARD_REMOVED}«");
        ErrorClass::Conflict(Conflict::Deadlock) =>
            "deadlock detected",
            "Verklemmung (Deadlock) entdeckt",
            "デッドロックを検出しました";
        ErrorClass::Conflict(Conflict::LockTimeout) =>
            "could not obtain lock on row in relation \"a\"",
            "konnte Sperre für Zeile in Relation »a« nicht setzen",
            "выполнение оператора отменено из-за тайм-аута блокировки";
        ErrorClass::Conflict(Conflict::StatementTimeout) =>
            "выполнение оператора отменено из-за тайм-аута";
        // The server does not hold the statement.
        ErrorClass::Conflict(Conflict::StatementLost) =>
            "prepared statement \"__diesel_stmt_3\" does not exist",
            "vorbereitete Anweisung »s7« existiert bereits",
            "bind message supplies 4 parameters, but prepared statement \"s7\" requires 2",
            "incorrect binary data format in bind parameter 2",
            &format!("ungültige Eingabesyntax für Typ boolean: »{TAKEN_FOR_ANOTHER}«");
        ErrorClass::Overflow =>
            "bigint fuera de rango";
        Other =>
            "ganzzahl",
            "canceling statement due to user request",
            "the result is ambiguous",
            "invalid input: change conflicts with another transaction, please retry: (OC000)",
            "invalid input: \"prepared statement \"a\" does not exist",
            "invalid input syntax: \"terminating connection due to administrator command\"";
    }
}

#[test]
fn a_full_disk() {
    let full = "could not extend file \"base/5/16384\": No space left on device";
    let error_28 = "Got error 28 \"No space left on device\" from storage engine InnoDB";
    for (dialect, text) in [
        (Postgres, full),
        (Mysql, "The table 'videos_shards' is full"),
        (Mysql, error_28),
        (Sqlite, "database or disk is full"),
    ] {
        means! { dialect; ErrorClass::DiskFull => text; }
        let quoted = error(DatabaseErrorKind::UniqueViolation, text);
        assert_eq!(dialect.classify(&quoted), Other, "{text}");
    }
}

/// The text of a violated constraint quotes the user's own text.
#[test]
fn a_users_text_is_no_conflict() {
    let text = "Deadlock found when trying to get lock; try restarting transaction";
    let violation = error(DatabaseErrorKind::UniqueViolation, text);
    assert_eq!(Mysql.classify(&violation), Other);
    means! { Sqlite; Other => "note: database is locked"; }
}

/// Errors with a kind of Diesel's, and errors that wrap another one.
#[test]
fn kinds_mean_what_the_driver_means_by_them() {
    use DatabaseErrorKind::{
        CheckViolation, ClosedConnection, SerializationFailure, UnableToSendCommand,
        UniqueViolation,
    };
    let of = |dialect: Dialect, kind| dialect.classify(&error(kind, "text"));
    for dialect in Dialect::ALL {
        assert_eq!(of(dialect, ClosedConnection), ConnectionLost);
        assert_eq!(of(dialect, CheckViolation), ErrorClass::Overflow);
        assert_eq!(of(dialect, UniqueViolation), Other);
        let broken = DieselError::BrokenTransactionManager;
        assert_eq!(dialect.classify(&broken), ConnectionLost);
        assert_eq!(dialect.classify(&DieselError::NotFound), Other);
        let serialization = match dialect {
            Mysql => Conflict::Deadlock,
            _ => Conflict::Serialization,
        };
        let serialization = ErrorClass::Conflict(serialization);
        assert_eq!(of(dialect, SerializationFailure), serialization);
        let sent = match dialect {
            Postgres => ConnectionLost,
            _ => Other,
        };
        assert_eq!(of(dialect, UnableToSendCommand), sent);
        // A conflict at COMMIT is reported as one, whatever the rollback reported. Any other error leaves the outcome unknown.
        let at_commit = |commit_error| DieselError::RollbackErrorOnCommit {
            rollback_error: Box::new(DieselError::NotFound),
            commit_error: Box::new(commit_error),
        };
        let conflict = at_commit(error(SerializationFailure, ""));
        assert_eq!(dialect.classify(&conflict), serialization);
        let other = at_commit(error(UniqueViolation, ""));
        assert_eq!(dialect.classify(&other), ConnectionLost);
    }
}

#[test]
fn a_nan_is_told_from_any_other_null() {
    let text = "NOT NULL constraint failed: measures_shards.real";
    let is_nan = |dialect: Dialect, kind, column| {
        dialect.is_nan(&error(kind, text), "measures_shards", column)
    };
    use DatabaseErrorKind::NotNullViolation;
    assert!(is_nan(Sqlite, NotNullViolation, "real"));
    assert!(!is_nan(Sqlite, NotNullViolation, "id"));
    assert!(!is_nan(Sqlite, Unknown, "real"));
    assert!(!is_nan(Postgres, NotNullViolation, "real"));
}

/// An error as a driver returns it, with a position where PostgreSQL gives one.
struct DriverError(String, Option<i32>);

impl diesel::result::DatabaseErrorInformation for DriverError {
    fn message(&self) -> &str {
        &self.0
    }
    fn details(&self) -> Option<&str> {
        None
    }
    fn hint(&self) -> Option<&str> {
        None
    }
    fn table_name(&self) -> Option<&str> {
        None
    }
    fn column_name(&self) -> Option<&str> {
        None
    }
    fn constraint_name(&self) -> Option<&str> {
        None
    }
    fn statement_position(&self) -> Option<i32> {
        self.1
    }
}

fn told(text: impl Into<String>, position: Option<i32>) -> DieselError {
    let told = DriverError(text.into(), position);
    DieselError::DatabaseError(Unknown, Box::new(told))
}

#[test]
fn only_a_missing_column_is_a_missing_column() {
    let is_missing =
        |dialect: Dialect, text| dialect.is_missing_column(&told(text, Some(8)), "views");
    for (dialect, text) in [
        (Postgres, "column videos.views does not exist"),
        (Postgres, "Spalte videos.views existiert nicht"),
        (Mysql, "Unknown column 'videos.views' in 'field list'"),
        (Mysql, "Unknown column 'views' in 'SET'"),
        (Sqlite, "no such column: videos.views"),
        (Sqlite, "no such column: views"),
    ] {
        assert!(is_missing(dialect, text), "{text}");
    }
    for (dialect, text) in [
        (Postgres, "column videos.views_2 does not exist"),
        (Postgres, r#"relation "views" does not exist"#),
        (Mysql, "Unknown column 'reviews' in 'field list'"),
        (Mysql, "Table 'app.views' doesn't exist"),
        (Sqlite, "no such column: reviews"),
        (Sqlite, "no such table: views"),
    ] {
        assert!(!is_missing(dialect, text), "{text}");
    }
}

#[test]
fn only_a_missing_table_is_a_missing_table() {
    let is_missing = |dialect: Dialect, text, position| {
        dialect.is_missing_table(&told(text, position), "videos_shards")
    };
    for (dialect, text) in [
        (Postgres, "relation \"videos_shards\" does not exist"),
        (Postgres, "relation \"app.videos_shards\" does not exist"),
        (Postgres, "la relation « videos_shards » n'existe pas"),
        (Mysql, "Table 'app.videos_shards' doesn't exist"),
        (Sqlite, "no such table: videos_shards"),
        (Sqlite, "no such table: main.videos_shards"),
    ] {
        assert!(is_missing(dialect, text, Some(8)), "{text}");
        // PostgreSQL's refusal for lack of a permission has no position.
        let without_position = is_missing(dialect, text, None);
        assert_eq!(without_position, dialect != Postgres, "{text}");
    }
    let quoted =
        "Incorrect integer value: 'it doesn't exist' for column `app`.`videos_shards`.`id`";
    for (dialect, text) in [
        (Postgres, "column videos_shards.hits does not exist"),
        (Postgres, "relation \"old_videos_shards\" does not exist"),
        (Postgres, "relation \"videos_shards_2\" does not exist"),
        (Mysql, "Table 'app.old_videos_shards' doesn't exist"),
        (Mysql, "Table 'app.videos_shards' doesn't exist in engine"),
        (Mysql, quoted),
        (Sqlite, "no such column: videos_shards.hits"),
        (Sqlite, "no such table: my_videos_shards"),
        (Sqlite, "RAISE: no such table: videos_shards"),
    ] {
        for position in [Some(8), None] {
            assert!(!is_missing(dialect, text, position), "{text}");
        }
    }
}

/// Pieces of the databases' texts and of the users'.
const PIECES: &[&str] = &[
    "deadlock detected",
    "Deadlock found when trying to get lock",
    "database is locked",
    "integer overflow",
    "Lost connection to",
    "CONSTRAINT `",
    "could not obtain lock on row in relation \"",
    "bigint out of range",
    "Out of range value for column",
    "Duplicate entry '",
    "duplicate key value violates unique constraint \"",
    "invalid input syntax for type integer: \"",
    "CHECK constraint failed: ",
    "relation \"",
    "videos_shards",
    "no such table: ",
    "' doesn't exist",
    "Table '",
    "%s",
    "\"",
    "'",
    " ",
    "\0",
    "\n",
    "é",
    "😀",
    "\u{202E}",
    "デッドロックを検出しました",
    "' for key 'slug'",
    "",
];

/// The text of an error with a known kind is not read. A text that begins with a user's own words, or quotes them, is not taken for
/// one of the database's. Nothing panics.
#[test]
fn hostile_error_texts_are_no_conflicts() {
    use rand::prelude::*;
    let times = std::env::var("HOSTILE").map_or(1, |times| times.parse::<u32>().unwrap());
    let seed = rand::random();
    let mut random = StdRng::seed_from_u64(seed);
    for _ in 0..10_000 * times {
        let pieces = random.random_range(0..6);
        let mut text: String = (0..pieces)
            .map(|_| match random.random_ratio(1, 4) {
                true => random.random::<char>().to_string(),
                false => PIECES[random.random_range(0..PIECES.len())].to_owned(),
            })
            .collect();
        // Some texts lack one character, or have one too many.
        let characters: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        if let (true, Some(at)) = (random.random_ratio(1, 4), characters.choose(&mut random)) {
            match random.random() {
                true => text.insert(*at, random.random()),
                false => drop(text.remove(*at)),
            }
        }
        for dialect in Dialect::ALL {
            for kind in [
                DatabaseErrorKind::UniqueViolation,
                DatabaseErrorKind::ForeignKeyViolation,
                DatabaseErrorKind::NotNullViolation,
            ] {
                let class = dialect.classify(&error(kind, &text));
                assert_eq!(class, Other, "{text:?}, seed {seed}");
            }
            for quotes in [
                "Duplicate entry '",
                "invalid value: \"",
                "x",
                "\u{202E}",
                "\0",
            ] {
                let class = dialect.classify(&told(format!("{quotes}{text}"), Some(1)));
                assert_eq!(class, Other, "{quotes}{text:?}, seed {seed}");
            }
            let unknown = told(text.clone(), Some(1));
            let _ = dialect.is_missing_table(&unknown, "videos_shards");
            let _ = dialect.is_nan(&unknown, "videos_shards", &text);
            let begins_as_ours = PIECES[..9].iter().any(|piece| text.starts_with(piece));
            let is_translated = text.starts_with("デッドロック");
            if !begins_as_ours && !is_translated {
                assert_eq!(dialect.classify(&unknown), Other, "{text:?}, seed {seed}");
            }
        }
    }
}

#[test]
fn each_heading_is_a_detail() {
    for dialect in Dialect::ALL {
        let lines = dialect.error_texts().lines();
        for heading in lines.filter_map(|line| line.strip_prefix("= ")) {
            for detail in heading.split(", ") {
                assert!(ErrorDetail::of(detail).is_some(), "{detail}");
            }
        }
        assert_eq!(dialect.details("").count(), 0);
        assert_eq!(dialect.details("# 40P01").count(), 0);
    }
}

#[test]
fn a_text_may_stand_for_any_other() {
    for (pattern, message, fits) in [
        ("a", "a", true),
        ("a", "ab", false),
        ("a%s", "a", true),
        ("a%sc", "abc", true),
        ("a%sc", "abcd", false),
        ("%sb%s", "abc", true),
        ("%sb%s", "ac", false),
        ("a%sa", "a", false),
    ] {
        assert_eq!(matches(pattern, message), fits, "{pattern} {message}");
    }
}
