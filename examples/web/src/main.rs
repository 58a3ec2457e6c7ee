//! A video site whose views and likes are sharded counters; `README.md` says how to run it.

use std::process::ExitCode;

use diesel_sharded_web::{Config, Result, Site};

#[tokio::main]
async fn main() -> ExitCode {
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Result<()> {
    let config = Config::from_environment(|name| std::env::var(name).ok())?;
    let site = Site::start(&config).await?;
    println!("http://{} (Ctrl-C stops it)", site.address());
    asked_to_stop().await?;
    site.stop().await?;
    println!("stopped: every count is in the database");
    Ok(())
}

/// Ctrl-C, or the signal that `kill` and containers send.
async fn asked_to_stop() -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            pressed = tokio::signal::ctrl_c() => pressed,
            _ = terminate.recv() => Ok(()),
        }
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await
}
