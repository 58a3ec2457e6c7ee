//! A server for the site alone, from the programs that are installed.

use crate::Result;
use crate::config::Server;

/// Runs in a temporary folder until it is dropped, and no longer than this process.
pub struct PrivateServer {
    /// Of an empty database.
    pub url: String,
    #[cfg(all(unix, any(feature = "postgres", feature = "mysql")))]
    _running: diesel_sharded_servers::Running,
}

impl PrivateServer {
    /// May wait for a minute. Commits wait for the disk.
    pub fn start(server: Server) -> Result<Self> {
        match server {
            #[cfg(all(unix, feature = "postgres"))]
            Server::Postgres => postgres(),
            #[cfg(all(unix, feature = "mysql"))]
            Server::Mariadb => mariadb(),
            #[cfg(not(all(unix, feature = "postgres", feature = "mysql")))]
            server => Err(format!("{server:?} is not built in: {}", server.command()).into()),
        }
    }
}

#[cfg(all(unix, feature = "postgres"))]
fn postgres() -> Result<PrivateServer> {
    use diesel::{Connection, PgConnection};
    use diesel_sharded_servers::{Messages, Running, ask_until_it_answers, postgres};

    let running = Running::start(postgres(&["fsync=on"], Messages::English)?)?;
    let url = format!("{}/postgres", running.installed.address);
    ask_until_it_answers(&running.installed.folder, || PgConnection::establish(&url))?;
    Ok(PrivateServer {
        url,
        _running: running,
    })
}

#[cfg(all(unix, feature = "mysql"))]
fn mariadb() -> Result<PrivateServer> {
    use diesel::connection::SimpleConnection;
    use diesel::{Connection, MysqlConnection};
    use diesel_sharded_servers::{Running, ask_until_it_answers, mysql};

    let running = Running::start(mysql(&["--innodb-flush-log-at-trx-commit=1"])?)?;
    let address = &running.installed.address;
    let its_own = format!("{address}/mysql");
    ask_until_it_answers(&running.installed.folder, || {
        MysqlConnection::establish(&its_own)
    })?;
    MysqlConnection::establish(&its_own)?.batch_execute("CREATE DATABASE shardtube")?;
    Ok(PrivateServer {
        url: format!("{address}/shardtube"),
        _running: running,
    })
}
