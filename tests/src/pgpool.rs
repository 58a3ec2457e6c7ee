//! A Pgpool-II of a test's own, in front of the PostgreSQL server that the test process shares.

use crate::in_front::{on_port, port_of};
use crate::programs::{Place, as_user, find, free_port, keep, wait_until_it_answers};
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
        let place = Place::of("postgres");
        let port = place.port;
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
            folder = place.folder.display(),
            pcp = free_port(),
            server_port = port_of(Server::Postgres.address()),
        );
        let settings = place.file("pgpool.conf", &text).into_os_string();
        let arguments = ["-n".into(), "-f".into(), settings];
        let installed = place.runs(program, arguments, "postgres://postgres@127.0.0.1");
        let mut keeper = as_user("/bin/sh".into(), installed.owner);
        keeper.args(["-c", KEEPER, "keeper"]).arg(&installed.folder);
        keep(keeper.args(&installed.command));
        wait_until_it_answers(&installed);
        Pgpool { port }
    }

    /// The address of `database` behind the pooler.
    pub fn url(&self, database: &Database) -> String {
        on_port(database.url(), self.port)
    }
}
