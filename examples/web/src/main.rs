//! A video site whose views and likes are sharded counters; `README.md` says how to run it.

use std::process::ExitCode;

use clap::Parser;
use diesel_sharded_web::{Config, Result, Site};

#[tokio::main]
async fn main() -> ExitCode {
    match serve(&Config::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(config: &Config) -> Result<()> {
    let stopping = asked_to_stop()?; // before there is anything to be stopped
    let site = Site::start(config).await?;
    println!("http://{} (Ctrl-C stops it)", site.address());
    stopping.await?;
    site.stop().await?;
    println!("stopped: every count is in the database");
    Ok(())
}

/// Ctrl-C, or the signal that `kill` and containers send, from now on.
#[cfg(unix)]
fn asked_to_stop() -> Result<impl Future<Output = Result<()>>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        Ok(())
    })
}

/// Ctrl-C.
#[cfg(not(unix))]
fn asked_to_stop() -> Result<impl Future<Output = Result<()>>> {
    Ok(async { Ok(tokio::signal::ctrl_c().await?) })
}
