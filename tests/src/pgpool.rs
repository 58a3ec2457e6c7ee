//! A Pgpool-II of a test's own, in front of a PostgreSQL primary and its standby. It sends every query to the standby that it takes for one
//! that only reads.

use std::ffi::OsString;

use crate::in_front::{on_port, port_of};
use crate::programs::{Place, find, keep_running};
use crate::replication::Pair;

/// A running splitter. Stopped with this process.
#[derive(Debug)]
pub struct Pgpool {
    port: u16,
}

impl Pgpool {
    pub fn start(pair: &Pair) -> Self {
        let program = find("pgpool").expect("no Pgpool-II is installed: apt-get install pgpool2");
        let place = Place::of("postgres");
        let settings = settings(&place, pair);
        let options = [
            ("-f", "pgpool.conf", &*settings),
            ("-F", "pcp.conf", ""),
            ("-a", "pool_hba.conf", ""),
        ];
        let files = options.map(|(option, name, text)| {
            [OsString::from(option), place.file(name, text).into()] //
        });
        place.file("pool_passwd", "");
        let port = place.port;
        let in_the_foreground = [OsString::from("-n")];
        let arguments = in_the_foreground
            .into_iter()
            .chain(files.into_iter().flatten());
        keep_running(place.runs(program, arguments, "postgres://postgres@127.0.0.1"));
        Pgpool { port }
    }

    /// The address behind the splitter of a database whose address this is.
    pub fn url(&self, url: &str) -> String {
        on_port(url, self.port)
    }
}

fn settings(place: &Place, pair: &Pair) -> String {
    let (folder, port) = (place.folder.display(), place.port);
    let pcp_port = crate::programs::free_port();
    let primary = port_of(&pair.primary_url("postgres"));
    let standby = port_of(&pair.standby_url("postgres"));
    format!(
        "backend_clustering_mode = 'streaming_replication'\n\
         listen_addresses = '127.0.0.1'\n\
         port = {port}\n\
         pcp_listen_addresses = '127.0.0.1'\n\
         pcp_port = {pcp_port}\n\
         unix_socket_directories = '{folder}'\n\
         pcp_socket_dir = '{folder}'\n\
         wd_ipc_socket_dir = '{folder}'\n\
         pid_file_name = '{folder}/pgpool.pid'\n\
         logdir = '{folder}'\n\
         enable_pool_hba = off\n\
         num_init_children = 8\n\
         sr_check_period = 0\n\
         load_balance_mode = on\n\
         backend_hostname0 = '127.0.0.1'\n\
         backend_port0 = {primary}\n\
         backend_weight0 = 0\n\
         backend_flag0 = 'ALWAYS_PRIMARY|DISALLOW_TO_FAILOVER'\n\
         backend_hostname1 = '127.0.0.1'\n\
         backend_port1 = {standby}\n\
         backend_weight1 = 1\n\
         backend_flag1 = 'DISALLOW_TO_FAILOVER'\n"
    )
}
