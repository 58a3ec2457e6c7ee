use super::*;
use crate::backend::{INTERRUPTED_UNHEARD, SHARD_REMOVED, TAKEN_FOR_ANOTHER};

fn error(kind: DatabaseErrorKind, text: &str) -> DieselError {
    DieselError::DatabaseError(kind, Box::new(text.to_owned()))
}

/// A node that was cut off from the majority: the answer of MariaDB 10.11 there.
#[test]
fn a_node_without_a_majority_refuses_and_does_not_know_its_last_commits() {
    let refused = || {
        let text = "WSREP has not yet prepared node for application use";
        error(DatabaseErrorKind::Unknown, text)
    };
    let classify = |error| Dialect::Mysql.classify(&error);
    assert_eq!(classify(refused()), Failure::NodeNotReady);
    let on_commit = |commit_error| DieselError::RollbackErrorOnCommit {
        rollback_error: Box::new(refused()),
        commit_error: Box::new(commit_error),
    };
    assert_eq!(classify(on_commit(refused())), Failure::NodeNotReady);
    for text in [
        "Error while appending streaming replication fragment(provider status: Not connected to Primary Component)",
        "Error while appending streaming replication fragment",
        "Got error 6 \"No such device or address\" during COMMIT",
        "Got error 5 - 'Transaction size exceed set threshold' during COMMIT",
    ] {
        let unknown = || error(DatabaseErrorKind::Unknown, text);
        assert_eq!(classify(unknown()), Failure::ConnectionLost, "{text}");
        assert_eq!(classify(on_commit(unknown())), Failure::ConnectionLost);
    }
    for text in [
        "Got error 122 from storage engine",
        "Duplicate entry 'Got error 6 during COMMIT' for key 'slug'",
    ] {
        assert_eq!(Dialect::Mysql.classify_text(text), Failure::Other, "{text}");
    }
}

/// The answers of PostgreSQL 15 on a standby, which knows no serializable transactions either.
#[test]
fn a_standby_refuses() {
    let refused = "cannot execute UPDATE in a read-only transaction";
    let refused = || error(DatabaseErrorKind::ReadOnlyTransaction, refused);
    assert_eq!(
        Dialect::Postgres.classify(&refused()),
        Failure::NodeNotReady
    );
    // MySQL's 1792 comes from the session alone.
    assert_eq!(Dialect::Mysql.classify(&refused()), Failure::Other);
    for text in [
        "cannot use serializable mode in a hot standby",
        "cannot set transaction read-write mode during recovery",
        "kann serialisierbaren Modus nicht in einem Hot Standby verwenden",
    ] {
        let failure = Dialect::Postgres.classify_text(text);
        assert_eq!(failure, Failure::NodeNotReady, "{text}");
    }
}

/// `diesel_async`'s drivers give their errors no kind, or another kind than Diesel's own.
#[test]
fn errors_of_asynchronous_drivers() {
    use DatabaseErrorKind::{UnableToSendCommand, Unknown};
    let lost = Failure::ConnectionLost;
    for (dialect, kind, text, expected) in [
        (
            Dialect::Mysql,
            Unknown,
            "Input/output error: Input/output error: connection closed",
            lost,
        ),
        (
            Dialect::Mysql,
            Unknown,
            "Input/output error: Input/output error: Connection reset by peer (os error 104)",
            lost,
        ),
        (
            Dialect::Mysql,
            Unknown,
            "Driver error: `Connection to the server is closed.'",
            lost,
        ),
        (
            Dialect::Mysql,
            Unknown,
            "Driver error: `Statement takes 1 parameters but 2 was supplied.'",
            Failure::Other,
        ),
        (
            Dialect::Mysql,
            Unknown,
            "Deadlock found when trying to get lock; try restarting transaction",
            Failure::Conflict(Conflict::Deadlock),
        ),
        (
            Dialect::Postgres,
            Unknown,
            "terminating connection due to administrator command",
            lost,
        ),
        (
            Dialect::Postgres,
            UnableToSendCommand,
            "connection closed",
            lost,
        ),
    ] {
        assert_eq!(dialect.classify(&error(kind, text)), expected, "{text}");
    }
}

/// From their documentation, and their sources where that has no texts.
#[test]
fn errors_of_other_clusters() {
    for (text, expected) in [
        (
            "The MySQL server is running with the --read-only option so it cannot execute this statement",
            Failure::NodeNotReady,
        ),
        (
            "The MySQL server is running with the --secure-file-priv option so it cannot execute this statement",
            Failure::Other,
        ),
        (
            "Write conflict, txnStartTS=1, conflictStartTS=2, conflictCommitTS=3, key=4, reason=Optimistic [try again later]",
            Failure::Conflict(Conflict::Serialization),
        ),
        (
            "Write conflict, txnStartTS 1 is stale [try again later]",
            Failure::Conflict(Conflict::Serialization),
        ),
        (
            "Error: KV error safe to retry Txn(Mvcc(TxnLockNotFound)) [try again later]",
            Failure::Conflict(Conflict::Serialization),
        ),
        (
            "can not retry select for update statement",
            Failure::Conflict(Conflict::Serialization),
        ),
        (
            "Information schema is changed during the execution of the statement(for example, table definition may be updated)",
            Failure::Conflict(Conflict::Serialization),
        ),
        ("execution result undetermined", Failure::ConnectionLost),
        // Group Replication of MySQL 9.7: a failed certification, and a commit of a node that left the group meanwhile.
        (
            "Plugin instructed the server to rollback the current transaction.",
            Failure::Conflict(Conflict::Serialization),
        ),
        (
            "Got error 149 - 'Lock deadlock; Retry transaction' during COMMIT",
            Failure::Conflict(Conflict::Deadlock),
        ),
        (
            "Error on observer while running replication hook 'before_commit'.",
            Failure::ConnectionLost,
        ),
        // Vitess hands on the text of its server behind the place of the failure.
        (
            "target: app.-80.primary: vttablet: rpc error: code = Aborted desc = Deadlock found when trying to get lock; \
             try restarting transaction (errno 1213) (sqlstate 40001) (CallerID: app): Sql: \"commit\", BindVars: {}",
            Failure::Conflict(Conflict::Deadlock),
        ),
        (
            "target: app.-80.primary: vttablet: rpc error: code = DeadlineExceeded desc = Lock wait timeout exceeded; \
             try restarting transaction (errno 1205) (sqlstate HY000) (CallerID: app): Sql: \"update videos\"",
            Failure::Conflict(Conflict::LockTimeout),
        ),
        (
            "target: app.-80.primary: vttablet: rpc error: code = AlreadyExists desc = Duplicate entry \
             'Deadlock found when trying to get lock' for key 'slug' (errno 1062) (sqlstate 23000)",
            Failure::Other,
        ),
        (
            "target: Deadlock found when trying to get lock",
            Failure::Other,
        ),
    ] {
        assert_eq!(Dialect::Mysql.classify_text(text), expected, "{text}");
    }
    for (text, expected) in [
        (
            "restart transaction: TransactionRetryWithProtoRefreshError: WriteTooOldError",
            Failure::Conflict(Conflict::Serialization),
        ),
        (
            "result is ambiguous: error=rpc error: code = Unavailable",
            Failure::ConnectionLost,
        ),
        ("the result is ambiguous", Failure::Other),
        // Aurora DSQL, in the words of its documentation then and now.
        (
            "change conflicts with another transaction, please retry: (OC000)",
            Failure::Conflict(Conflict::Serialization),
        ),
        (
            "mutation conflicts with another transaction, retry as needed (OC000)",
            Failure::Conflict(Conflict::Serialization),
        ),
        (
            "schema has been updated by another transaction, please retry: (OC001)",
            Failure::Conflict(Conflict::Serialization),
        ),
        (
            "invalid input: change conflicts with another transaction, please retry: (OC000)",
            Failure::Other,
        ),
    ] {
        assert_eq!(Dialect::Postgres.classify_text(text), expected, "{text}");
    }
}

#[test]
fn a_full_disk() {
    let postgres = "could not extend file \"base/5/16384\": No space left on device";
    let mysql = "The table 'videos_shards' is full";
    let sqlite = "database or disk is full";
    for (dialect, text) in [
        (Dialect::Postgres, postgres),
        (Dialect::Mysql, mysql),
        (
            Dialect::Mysql,
            "Got error 28 \"No space left on device\" from storage engine InnoDB",
        ),
        (Dialect::Sqlite, sqlite),
    ] {
        let told = error(DatabaseErrorKind::Unknown, text);
        assert_eq!(dialect.classify(&told), Failure::DiskFull, "{text}");
        let quoted = error(DatabaseErrorKind::UniqueViolation, text);
        assert_eq!(dialect.classify(&quoted), Failure::Other, "{text}");
    }
}

/// The text of a violated constraint quotes the user's own text.
#[test]
fn a_users_text_is_no_conflict() {
    let text = "Duplicate entry 'Deadlock found when trying to get lock' for key 'slug'";
    let violation = error(DatabaseErrorKind::UniqueViolation, text);
    assert_eq!(Dialect::Mysql.classify(&violation), Failure::Other);
    assert_eq!(Dialect::Mysql.classify_text(text), Failure::Other);
    let text = "Deadlock found when trying to get lock; try restarting transaction";
    let violation = error(DatabaseErrorKind::UniqueViolation, text);
    assert_eq!(Dialect::Mysql.classify(&violation), Failure::Other);
    assert_eq!(
        Dialect::Mysql.classify(&error(DatabaseErrorKind::Unknown, text)),
        Failure::Conflict(Conflict::Deadlock)
    );
    assert_eq!(
        Dialect::Sqlite.classify_text("note: database is locked"),
        Failure::Other
    );
}

/// Errors with a kind of Diesel's, and errors that wrap another one.
#[test]
fn kinds_mean_what_the_driver_means_by_them() {
    use DatabaseErrorKind::*;
    let of = |dialect: Dialect, kind| dialect.classify(&error(kind, "text"));
    for dialect in Dialect::ALL {
        assert_eq!(of(dialect, ClosedConnection), Failure::ConnectionLost);
        assert_eq!(of(dialect, CheckViolation), Failure::Overflow);
        assert_eq!(of(dialect, UniqueViolation), Failure::Other);
        let broken = DieselError::BrokenTransactionManager;
        assert_eq!(dialect.classify(&broken), Failure::ConnectionLost);
        assert_eq!(dialect.classify(&DieselError::NotFound), Failure::Other);
        let serialization = match dialect {
            Dialect::Mysql => Conflict::Deadlock,
            _ => Conflict::Serialization,
        };
        let serialization = Failure::Conflict(serialization);
        assert_eq!(of(dialect, SerializationFailure), serialization);
        let sent = match dialect {
            Dialect::Postgres => Failure::ConnectionLost,
            _ => Failure::Other,
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
        assert_eq!(dialect.classify(&other), Failure::ConnectionLost);
    }
}

#[test]
fn a_nan_is_told_from_any_other_null() {
    let text = "NOT NULL constraint failed: measures_shards.real";
    let is_nan = |dialect: Dialect, kind, column| {
        dialect.is_nan(&error(kind, text), "measures_shards", column)
    };
    use DatabaseErrorKind::{NotNullViolation, Unknown};
    assert!(is_nan(Dialect::Sqlite, NotNullViolation, "real"));
    assert!(!is_nan(Dialect::Sqlite, NotNullViolation, "id"));
    assert!(!is_nan(Dialect::Sqlite, Unknown, "real"));
    assert!(!is_nan(Dialect::Postgres, NotNullViolation, "real"));
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
    DieselError::DatabaseError(DatabaseErrorKind::Unknown, Box::new(told))
}

#[test]
fn only_a_missing_column_is_a_missing_column() {
    use Dialect::{Mysql, Postgres, Sqlite};
    for (dialect, text, is_missing) in [
        (Postgres, "column videos.views does not exist", true),
        (Postgres, "Spalte videos.views existiert nicht", true),
        (Postgres, "column videos.views_2 does not exist", false),
        (Postgres, r#"relation "views" does not exist"#, false),
        (Mysql, "Unknown column 'videos.views' in 'field list'", true),
        (Mysql, "Unknown column 'views' in 'SET'", true),
        (Mysql, "Unknown column 'reviews' in 'field list'", false),
        (Mysql, "Table 'app.views' doesn't exist", false),
        (Sqlite, "no such column: videos.views", true),
        (Sqlite, "no such column: views", true),
        (Sqlite, "no such column: reviews", false),
        (Sqlite, "no such table: views", false),
    ] {
        let found = dialect.is_missing_column(&told(text, Some(8)), "views");
        assert_eq!(found, is_missing, "{text}");
    }
}

#[test]
fn only_a_missing_table_is_a_missing_table() {
    let missing = |dialect: Dialect, text: &str| {
        dialect.is_missing_table(&told(text, Some(8)), "videos_shards")
    };
    for (dialect, text) in [
        (
            Dialect::Postgres,
            r#"relation "videos_shards" does not exist"#,
        ),
        (
            Dialect::Postgres,
            r#"relation "app.videos_shards" does not exist"#,
        ),
        (
            Dialect::Postgres,
            "la relation « videos_shards » n'existe pas",
        ),
        (Dialect::Mysql, "Table 'app.videos_shards' doesn't exist"),
        (Dialect::Sqlite, "no such table: videos_shards"),
        (Dialect::Sqlite, "no such table: main.videos_shards"),
    ] {
        assert!(missing(dialect, text), "{text}");
        let permission = told(text, None);
        let is_missing = dialect.is_missing_table(&permission, "videos_shards");
        assert_eq!(is_missing, dialect != Dialect::Postgres, "{text}");
    }
    for (dialect, text) in [
        (
            Dialect::Postgres,
            "column videos_shards.hits does not exist",
        ),
        (
            Dialect::Postgres,
            r#"relation "old_videos_shards" does not exist"#,
        ),
        (
            Dialect::Postgres,
            r#"relation "videos_shards_2" does not exist"#,
        ),
        (
            Dialect::Mysql,
            "Table 'app.old_videos_shards' doesn't exist",
        ),
        (
            Dialect::Mysql,
            "Table 'app.videos_shards' doesn't exist in engine",
        ),
        (
            Dialect::Mysql,
            "Incorrect integer value: 'it doesn't exist' for column `app`.`videos_shards`.`id`",
        ),
        (Dialect::Sqlite, "no such column: videos_shards.hits"),
        (Dialect::Sqlite, "no such table: my_videos_shards"),
        (Dialect::Sqlite, "RAISE: no such table: videos_shards"),
    ] {
        assert!(!missing(dialect, text), "{text}");
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
                let failure = dialect.classify(&error(kind, &text));
                assert_eq!(failure, Failure::Other, "{text:?}, seed {seed}");
            }
            for quotes in [
                "Duplicate entry '",
                "invalid value: \"",
                "x",
                "\u{202E}",
                "\0",
            ] {
                let failure = dialect.classify(&told(format!("{quotes}{text}"), Some(1)));
                assert_eq!(failure, Failure::Other, "{quotes}{text:?}, seed {seed}");
            }
            let unknown = told(text.clone(), Some(1));
            let _ = dialect.is_missing_table(&unknown, "videos_shards");
            let _ = dialect.is_nan(&unknown, "videos_shards", &text);
            let begins_as_ours = PIECES[..9].iter().any(|piece| text.starts_with(piece));
            let is_translated = text.starts_with("デッドロック");
            if !begins_as_ours && !is_translated {
                assert_eq!(
                    dialect.classify(&unknown),
                    Failure::Other,
                    "{text:?}, seed {seed}"
                );
            }
        }
    }
}

#[test]
fn each_heading_has_a_meaning() {
    for dialect in Dialect::ALL {
        let lines = dialect.error_texts().lines();
        for heading in lines.filter_map(|line| line.strip_prefix("= ")) {
            for meaning in heading.split(", ") {
                assert!(Meaning::of(meaning).is_some(), "{meaning}");
            }
        }
        assert_eq!(dialect.meanings("").count(), 0);
        assert_eq!(dialect.meanings("# 40P01").count(), 0);
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

#[test]
fn an_interrupted_count_is_a_conflict() {
    let failure = Dialect::Mysql.classify_text(INTERRUPTED_UNHEARD);
    let conflict = Failure::Conflict(Conflict::StatementTimeout);
    assert_eq!(failure, conflict);
}

#[test]
fn every_language_tells_the_same() {
    for (message, conflict) in [
        ("deadlock detected", Conflict::Deadlock),
        ("Verklemmung (Deadlock) entdeckt", Conflict::Deadlock),
        ("デッドロックを検出しました", Conflict::Deadlock),
        (
            "could not obtain lock on row in relation \"a\"",
            Conflict::LockTimeout,
        ),
        (
            "konnte Sperre für Zeile in Relation »a« nicht setzen",
            Conflict::LockTimeout,
        ),
        (
            "выполнение оператора отменено из-за тайм-аута блокировки",
            Conflict::LockTimeout,
        ),
        (
            "выполнение оператора отменено из-за тайм-аута",
            Conflict::StatementTimeout,
        ),
    ] {
        assert_eq!(
            Dialect::Postgres.classify_text(message),
            Failure::Conflict(conflict),
            "{message}"
        );
    }
    assert_eq!(Dialect::Postgres.classify_text("ganzzahl"), Failure::Other);
    assert_eq!(
        Dialect::Postgres.classify_text("bigint fuera de rango"),
        Failure::Overflow
    );
}

#[test]
fn a_statement_that_the_server_does_not_hold_is_lost() {
    let guarded = format!("ungültige Eingabesyntax für Typ boolean: »{TAKEN_FOR_ANOTHER}«");
    for message in [
        "prepared statement \"__diesel_stmt_3\" does not exist",
        "vorbereitete Anweisung »s7« existiert bereits",
        "bind message supplies 4 parameters, but prepared statement \"s7\" requires 2",
        "incorrect binary data format in bind parameter 2",
        &guarded,
    ] {
        let lost = Failure::Conflict(Conflict::StatementLost);
        assert_eq!(Dialect::Postgres.classify_text(message), lost, "{message}");
    }
    let quoted = "invalid input: \"prepared statement \"a\" does not exist";
    assert_eq!(Dialect::Postgres.classify_text(quoted), Failure::Other);
}

#[test]
fn a_shard_that_is_removed_meanwhile_is_a_conflict() {
    let message = format!("ungültige Eingabesyntax für Typ boolean: »{SHARD_REMOVED}«");
    let conflict = Failure::Conflict(Conflict::Serialization);
    assert_eq!(Dialect::Postgres.classify_text(&message), conflict);
}

#[test]
fn a_connection_that_is_terminated_is_lost() {
    for message in [
        "terminating connection due to administrator command",
        "terminating connection due to idle-in-transaction timeout",
        "Verbindung wird abgebrochen aufgrund von Anweisung des Administrators",
        "закрытие подключения по команде администратора",
    ] {
        assert_eq!(
            Dialect::Postgres.classify_text(message),
            Failure::ConnectionLost,
            "{message}"
        );
    }
    let quoted = "invalid input syntax: \"terminating connection due to administrator command\"";
    assert_eq!(Dialect::Postgres.classify_text(quoted), Failure::Other);
}

#[test]
fn a_cancel_request_is_no_conflict() {
    assert_eq!(
        Dialect::Postgres.classify_text("canceling statement due to user request"),
        Failure::Other
    );
}
