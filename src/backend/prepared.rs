//! Which statements may be kept prepared, and how clients read their replies.

use crate::backend::Dialect;

impl Dialect {
    /// Whether a statement without rows may be kept prepared, whatever it is. PostgreSQL knows it by a name that may stand for
    /// another one behind a pooler; see [`prepared`](crate::prepared).
    pub(crate) fn keeps_statements(self) -> bool {
        self != Dialect::Postgres
    }

    /// The same for a statement with rows.
    pub(crate) fn keeps_queries(self) -> bool {
        self.keeps_statements() && !self.waits_after_interrupted_rows()
    }

    /// Whether the client waits for ever if a kept statement is executed again after it failed in the middle of its rows: it reads
    /// on for the rest of them. MariaDB's client does so after `max_statement_time` and `KILL QUERY`. They hit a total above all,
    /// since it takes long at a parent with many shards.
    pub(crate) fn waits_after_interrupted_rows(self) -> bool {
        self == Dialect::Mysql
    }

    /// Whether a reply that nobody has read breaks the connection: the client takes it for the answer to the next statement.
    pub(crate) fn unread_reply_breaks_connection(self) -> bool {
        self == Dialect::Mysql
    }
}
