//! The running site: what its pages share, how it starts and how it stops.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use diesel::prelude::*;
use diesel_sharded::cached::{Cached, MokaCache};
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::fold;
use diesel_sharded::operation::Folder;
use diesel_sharded::shard_counts::{self, Following};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::connection::AnyConnection;
use crate::database::Database;
use crate::error::PageError;
use crate::load::Load;
use crate::models::pages_served;
use crate::pages::{self, Page};
use crate::schema::videos::dsl::videos;
use crate::{Config, Result, metrics};

/// The state that all pages share.
pub struct Shared {
    pub database: Database,
    pub coalescer: Coalescer<AnyConnection>,
    cached: Cached<MokaCache>,
    pub load: Load,
}

impl Shared {
    /// Adds to the site's counter, without waiting for the commit.
    pub fn page_was_served(&self) {
        if let Err(error) = self.coalescer.add_later(&pages_served(), 1) {
            eprintln!("a page that was served is not counted: {error}");
        }
    }

    /// Reads what a page shows, and shows it, together with the site's counter.
    pub async fn page<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&mut AnyConnection) -> QueryResult<T> + Send + 'static,
        show: impl FnOnce(T) -> Page,
    ) -> std::result::Result<Page, PageError> {
        let shared = Arc::clone(self);
        // Up to a second old, so that not every page reads it.
        let read = move |conn: &mut _| Ok((read(conn)?, shared.cached.get(&pages_served(), conn)?));
        let (shown, served) = self.database.run(read).await?;
        Ok(show(shown).served(served))
    }
}

/// A site that answers requests until it is stopped.
pub struct Site {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: oneshot::Sender<()>,
    server: JoinHandle<std::io::Result<()>>,
    background: Background,
}

/// The work beside the pages. No background fold runs if nothing folds by itself.
type Background = (Following, Option<Folder>);

/// How long requests that are under way may take once the site is stopped.
const PATIENCE: Duration = Duration::from_secs(20);

impl Site {
    pub async fn start(config: &Config) -> Result<Self> {
        metrics::record();
        // Before something is created.
        let address = SocketAddr::new(config.addr, config.port);
        let bound = TcpListener::bind(address).await;
        let listener = bound.map_err(|error| format!("{address}: {error}; set PORT or ADDR"))?;
        let address = listener.local_addr()?;
        let opened = config.clone();
        let (shared, background) = spawn_blocking(move || open(&opened)).await??;
        let shared = Arc::new(shared);
        let (stop, stopped) = oneshot::channel();
        let server = axum::serve(listener, pages::router(Arc::clone(&shared)));
        let server = server.with_graceful_shutdown(async {
            let _ = stopped.await; // an error too: nobody who could stop it is left
        });
        Ok(Site {
            address,
            shared,
            stop,
            server: tokio::spawn(server.into_future()),
            background,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers the requests that are under way, and commits the increments that the coalescer still holds.
    pub async fn stop(self) -> Result<()> {
        let _ = self.stop.send(()); // an error says that the server has ended already
        let abort = self.server.abort_handle();
        let served = tokio::time::timeout(PATIENCE, self.server).await;
        abort.abort(); // those still reading then
        let coalescer = self.shared.coalescer.clone();
        spawn_blocking(move || {
            drop(self.background); // may wait for the batch that is under way
            coalescer.close()
        })
        .await??;
        if let Ok(served) = served {
            served??;
        }
        Ok(())
    }
}

/// May wait for the database.
fn open(config: &Config) -> Result<(Shared, Background)> {
    let file = || {
        let file = std::env::temp_dir().join("diesel_sharded_web.db");
        file.display().to_string()
    };
    let database = Database::open(&config.database_url.clone().unwrap_or_else(file))?;
    let background = database.background()?;
    let coalescer = Coalescer::new(background.clone())?;
    // Another process of this site may resize too.
    let connections = background.clone();
    let following = shard_counts::follow(Duration::from_secs(10), move || connections.get())?;
    let folder = match config.fold_every {
        0 => None,
        seconds => {
            let folding = fold(videos).every(Duration::from_secs(seconds));
            let folding = folding.remove_expired(); // the visitors of days that are over
            let folding = folding.on_error(|error| eprintln!("a fold: {error}"));
            Some(folding.start(move || background.get())?)
        }
    };
    let shared = Shared {
        database,
        coalescer,
        cached: Cached::new(MokaCache::new(10)).with_ttl(Duration::from_secs(1)),
        load: Load::default(),
    };
    Ok((shared, (following, folder)))
}
