//! Roles that have only the privileges that the reference page on grants gives them.

use std::error::Error as StdError;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::fixture::Run;
use crate::{Database, On, Server, TestConnection, connected};

const PAGE: &str = include_str!("../../src/reference/grants.md");
/// The role and the database of the page's statements.
const ROLE: &str = " TO app";
const DATABASE: &str = "shop.*";

/// One privilege, on one object, on one column or on all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Privilege {
    action: String,
    column: Option<String>,
    object: String,
}

impl Privilege {
    /// Those of a section of the page's lists, on a server of this version. A section begins with a comment: its name, perhaps
    /// the servers in parentheses, perhaps a remark behind a semicolon.
    pub fn of_section(section: &str, version: &str) -> Vec<Self> {
        let server = ["PostgreSQL", "MariaDB"]
            .into_iter()
            .find(|server| version.contains(server))
            .unwrap_or("MySQL");
        let blocks = PAGE.split("```sql\n").skip(1);
        let lists = blocks.filter_map(|block| Some(block.split_once("```")?.0));
        let sections = lists.flat_map(|list| list.split("-- ").skip(1));
        let privileges: Vec<_> = sections
            .filter_map(|text| text.split_once('\n'))
            .filter(|&(heading, _)| {
                let (heading, _) = heading.split_once("; ").unwrap_or((heading, ""));
                let (name, servers) = heading.split_once(" (").unwrap_or((heading, server));
                name == section && servers.contains(server)
            })
            .flat_map(|(_, statements)| statements.split_terminator(";\n"))
            .flat_map(Privilege::of_statement)
            .collect();
        assert!(!privileges.is_empty(), "{section}");
        privileges
    }

    /// Those of several sections.
    pub fn of_sections(sections: &[&str], version: &str) -> Vec<Self> {
        let sections = sections.iter();
        sections
            .flat_map(|section| Privilege::of_section(section, version))
            .collect()
    }

    /// `GRANT SELECT, UPDATE (views, likes) ON videos TO app`
    fn of_statement(statement: &str) -> Vec<Self> {
        let parts = || {
            let granted = statement.strip_prefix("GRANT ")?.strip_suffix(ROLE)?;
            granted.split_once(" ON ")
        };
        let (actions, object) = parts().unwrap_or_else(|| panic!("no GRANT to app: {statement}"));
        let mut privileges = vec![];
        let mut add = |action: &str, column: Option<&str>| {
            privileges.push(Privilege {
                action: action.to_owned(),
                column: column.map(str::to_owned),
                object: object.to_owned(),
            });
        };
        let mut rest = actions;
        while !rest.is_empty() {
            let end = rest.find([',', '(']).unwrap_or(rest.len());
            let action = rest[..end].trim();
            rest = &rest[end..];
            match rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
                Some((columns, after)) => {
                    columns.split(", ").for_each(|c| add(action, Some(c)));
                    rest = after;
                }
                None => add(action, None),
            }
            rest = rest.trim_start_matches([',', ' ']);
        }
        privileges
    }
}

impl fmt::Display for Privilege {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.action)?;
        if let Some(column) = &self.column {
            write!(f, " ({column})")?;
        }
        write!(f, " ON {}", self.object)
    }
}

type Result<T = ()> = std::result::Result<T, Box<dyn StdError + Send + Sync>>;

/// A role that has the privileges of these sections can do `operation` in a database like `database`'s, once `prepare` has run
/// there. Without any one privilege of the first section the operation fails, and the error has one of the words of `refusals`.
/// `operation` receives the database's address for the role.
pub fn needs<Conn: TestConnection>(
    sections: &[&str],
    refusals: &[&str],
    database: fn() -> (Database, Conn),
    prepare: fn(&mut Conn) -> Result,
    operation: impl Fn(&str) -> Result,
) {
    let version = database().1.version();
    let all = Privilege::of_sections(sections, &version);
    let run = |privileges: &[Privilege]| {
        let (database, mut conn) = database();
        let role = Role::with(&database, privileges);
        prepare(&mut conn).unwrap();
        operation(&role.url())
    };
    let section = sections[0];
    for left_out in &Privilege::of_section(section, &version) {
        let others: Vec<_> = all.iter().filter(|p| *p != left_out).cloned().collect();
        let refused = run(&others).map_err(|error| error.to_string());
        let refused = refused.expect_err(&format!("{section}: {left_out} is not needed"));
        assert!(
            refusals.iter().any(|words| refused.contains(words)),
            "{section}: without {left_out}: {refused}"
        );
    }
    run(&all).unwrap_or_else(|error| panic!("{section}: {error}"));
}

/// A role of a database, removed when it is dropped.
#[derive(Debug)]
pub struct Role<'a> {
    database: &'a Database,
    name: String,
}

impl<'a> Role<'a> {
    /// A new role that has these privileges alone.
    pub fn with(database: &'a Database, privileges: &[Privilege]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "role_{}_{}",
            std::process::id(),
            NUMBER.fetch_add(1, Ordering::Relaxed)
        );
        let role = Role { database, name };
        let (server, name) = (role.server().0, &role.name);
        role.execute(&match server {
            Server::Mysql => format!("CREATE USER {name}"),
            _ => format!("CREATE ROLE {name} LOGIN PASSWORD '{name}'"),
        });
        for privilege in privileges {
            role.execute(&role.grant(privilege));
        }
        role
    }

    /// One that has the privileges of these sections but for those that are `left_out`, and its connection.
    pub fn acting<Conn: TestConnection>(
        sections: &[&str],
        left_out: impl Fn(&str) -> bool,
        database: &'a Database,
        admin: &mut Conn,
    ) -> (Self, Conn) {
        let mut privileges = Privilege::of_sections(sections, &admin.version());
        privileges.retain(|privilege| !left_out(&privilege.to_string()));
        let role = Role::with(database, &privileges);
        let url = role.url();
        let own = Conn::establish(&url).unwrap_or_else(|e| panic!("{url}: {e}"));
        (role, own)
    }

    /// Gives it every privilege on a table.
    pub fn grant_all_on(&self, table: &str) {
        self.execute(&format!("GRANT ALL ON {table} TO {}", self.name));
    }

    /// Its name, which needs no quotes.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The database's address for this role.
    pub fn url(&self) -> String {
        let url = self.database.url();
        let (scheme, rest) = url.split_once("://").expect("a server's address");
        let (_, place) = rest.split_once('@').expect("a user");
        let name = &self.name;
        match self.server().0 {
            Server::Mysql => format!("{scheme}://{name}@{place}"),
            _ => format!("{scheme}://{name}:{name}@{place}"),
        }
    }

    fn grant(&self, privilege: &Privilege) -> String {
        let (_, database) = self.server();
        let granted = privilege.to_string();
        let granted = granted.replace(DATABASE, &format!("{database}.*"));
        format!("GRANT {granted} TO {}", self.name)
    }

    fn server(&self) -> (Server, &'a str) {
        match &self.database.on {
            On::Server(server, name) => (*server, name),
            On::Folder(_) => panic!("SQLite has no roles"),
        }
    }

    fn execute(&self, sql: &str) {
        connected(self.database.url()).run(sql);
    }
}

impl Drop for Role<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let name = &self.name;
            self.execute(&match self.server().0 {
                Server::Mysql => format!("DROP USER {name}"),
                _ => format!("DROP OWNED BY {name}; DROP ROLE {name}"),
            });
        }
    }
}
