//! A Pgpool-II of a test's own, in front of the PostgreSQL server that the test process shares.

use std::fs;

use diesel::prelude::*;

use crate::in_front::{on_port, port_of};
use crate::private::{as_user, find, folder, free_port, hand_over, keep, unprivileged, wait_for};
use crate::{Database, Server};

/// Runs the pooler until this process is gone. A pooler that is killed would leave its processes and its shared memory behind, so
/// it is told to end.
const KEEPER: &str = r#"folder=$1; shift
    trap '' HUP INT TERM
    (trap - HUP INT TERM; exec "$@") >>"$folder/log" 2>&1 </dev/null & pooler=$!
    cat >/dev/null
    kill -INT $pooler; wait $pooler
    rm -rf "$folder""#;

/// A running pooler. Stopped with this process.
#[derive(Debug)]
pub struct Pgpool {
    port: u16,
}

impl Pgpool {
    /// Starts one in streaming replication mode, without a standby, that serves so many clients at once. Each of its processes
    /// keeps one connection to the server for the next client.
    pub fn start(clients: usize) -> Self {
        let program = find("pgpool").expect("no Pgpool-II is installed: apt-get install pgpool2");
        let (folder, port, owner) = (folder(), free_port(), unprivileged("postgres"));
        hand_over(&folder, owner);
        let settings = folder.join("pgpool.conf");
        let text = format!(
            "backend_clustering_mode = 'streaming_replication'\n\
             listen_addresses = '127.0.0.1'\n\
             port = {port}\n\
             socket_dir = '{folder}'\n\
             pcp_listen_addresses = ''\n\
             pcp_port = {pcp}\n\
             pcp_socket_dir = '{folder}'\n\
             wd_ipc_socket_dir = '{folder}'\n\
             pid_file_name = '{folder}/pid'\n\
             logdir = '{folder}'\n\
             backend_hostname0 = '127.0.0.1'\n\
             backend_port0 = {server_port}\n\
             backend_flag0 = 'ALWAYS_PRIMARY|DISALLOW_TO_FAILOVER'\n\
             num_init_children = {clients}\n\
             max_pool = 1\n\
             connection_cache = on\n\
             sr_check_period = 0\n\
             health_check_period = 0\n\
             memqcache_total_size = '1MB'\n",
            folder = folder.display(),
            pcp = free_port(),
            server_port = port_of(Server::Postgres.address()),
        );
        fs::write(&settings, text).expect("the settings can be written");
        hand_over(&settings, owner); // to whom the keeper belongs, which deletes it
        let mut keeper = as_user("/bin/sh".into(), owner);
        keeper.args(["-c", KEEPER, "keeper"]).arg(&folder);
        keep(keeper.arg(program).arg("-n").arg("-f").arg(settings));
        let pgpool = Pgpool { port };
        wait_for(&folder, || {
            PgConnection::establish(&format!("postgres://postgres@127.0.0.1:{port}/postgres"))
        });
        pgpool
    }

    /// The address of `database` behind the pooler.
    pub fn url(&self, database: &Database) -> String {
        on_port(database.url(), self.port)
    }
}
