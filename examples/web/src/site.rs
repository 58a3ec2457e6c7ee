//! The running site: what its pages share, how it starts and how it stops.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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

use crate::config::Source;
use crate::database::{AnyConnection, Database};
use crate::error::PageError;
use crate::live::Live;
use crate::load::Load;
use crate::models::pages_served;
use crate::pages::{self, Page};
use crate::private_server::PrivateServer;
use crate::schema::videos::dsl::videos;
use crate::{Config, Result, metrics, trending};

/// The state that all pages share.
pub struct Shared {
    pub database: Database,
    pub coalescer: Coalescer<AnyConnection>,
    cached: Cached<MokaCache>,
    pub live: Live,
    pub load: Arc<Load>,
    /// The last results of the forms of `/admin`, by the status of the form.
    notes: Mutex<HashMap<&'static str, String>>,
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

    /// The last result of a form.
    pub fn noted(&self, status: &'static str) -> Option<String> {
        self.notes().get(status).cloned()
    }

    pub fn note(&self, status: &'static str, text: String) {
        self.notes().insert(status, text);
    }

    fn notes(&self) -> MutexGuard<'_, HashMap<&'static str, String>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A site that answers requests until it is stopped.
pub struct Site {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: oneshot::Sender<()>,
    server: JoinHandle<std::io::Result<()>>,
    tidying: JoinHandle<()>,
    background: Background,
}

/// The work beside the pages, and the server if it is a private one. No folder runs if nothing folds by itself.
type Background = (Following, Option<Folder>, Option<PrivateServer>);

/// The time between two times that old buckets are deleted.
const TIDY_EVERY: Duration = Duration::from_secs(3_600);

/// How long requests that are under way may take once the site is stopped.
const PATIENCE: Duration = Duration::from_secs(10);

impl Site {
    pub async fn start(config: &Config) -> Result<Self> {
        metrics::record();
        // Before something is created.
        let listener = TcpListener::bind(config.address)
            .await
            .map_err(|error| format!("{}: {error}; set PORT or ADDR", config.address))?;
        let address = listener.local_addr()?;
        let opened = config.clone();
        let (shared, background) = spawn_blocking(move || open(&opened)).await??;
        let shared = Arc::new(shared);
        let tidying = tokio::spawn(tidy(shared.database.clone()));
        let (stop, stopped) = oneshot::channel();
        let server = axum::serve(listener, pages::router(Arc::clone(&shared)));
        let server = server.with_graceful_shutdown(async {
            let _ = stopped.await; // an error too: whoever could stop it is gone
        });
        Ok(Site {
            address,
            shared,
            stop,
            server: tokio::spawn(server.into_future()),
            tidying,
            background,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers the requests that are under way, and commits the counts that the coalescer still holds.
    pub async fn stop(self) -> Result<()> {
        let _ = self.stop.send(()); // an error says that the server has ended already
        self.shared.live.close();
        let abort = self.server.abort_handle();
        let served = tokio::time::timeout(PATIENCE, self.server).await;
        abort.abort(); // whoever is still reading then
        self.tidying.abort();
        self.shared.load.stop().await;
        let coalescer = self.shared.coalescer.clone();
        spawn_blocking(move || {
            let (following, folder, private) = self.background;
            drop((following, folder)); // may wait for the batch that is under way
            let closed = coalescer.close();
            drop(private); // after all that is committed there
            closed
        })
        .await??;
        if let Ok(served) = served {
            served??;
        }
        Ok(())
    }
}

/// Folds and deletes buckets, now and every hour.
async fn tidy(database: Database) {
    let mut hours = tokio::time::interval(TIDY_EVERY);
    loop {
        hours.tick().await;
        let tidy = |conn: &mut _| trending::tidy(trending::this_hour(), conn);
        if let Err(error) = database.run(tidy).await {
            eprintln!("old buckets are not deleted, and are tried again in an hour: {error:?}");
        }
    }
}

/// May wait for the database.
fn open(config: &Config) -> Result<(Shared, Background)> {
    let (url, private) = match &config.database {
        Source::Url(url) => (url.clone(), None),
        Source::Private(server) => {
            let private = PrivateServer::start(*server)?;
            (private.url.clone(), Some(private))
        }
    };
    let database = Database::open(&url)?;
    let background = database.background()?;
    let coalescer = Coalescer::new(background.clone())?;
    // Another process of this site may resize too.
    let connections = background.clone();
    let following = shard_counts::follow(Duration::from_secs(10), move || connections.get())?;
    let folder = |every| {
        let folding = fold(videos).every(every);
        let folding = folding.on_error(|error| eprintln!("a fold: {error}"));
        folding.start(move || background.get())
    };
    let folder = config.fold_every.map(folder).transpose()?;
    let shared = Shared {
        database,
        coalescer,
        cached: Cached::new(MokaCache::new(10)).with_ttl(Duration::from_secs(1)),
        live: Live::new(),
        load: Arc::default(),
        notes: Mutex::default(),
    };
    Ok((shared, (following, folder, private)))
}
