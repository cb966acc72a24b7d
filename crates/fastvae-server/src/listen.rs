//! [`serve`]: connections, signals, and the end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;

use crate::app::{App, StartError};
use crate::router::router;
use crate::served::Stamp;

/// How often the model file is looked at, with `watch`.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long requests in flight may take after the service was asked to stop.
const LAST_REQUESTS: Duration = Duration::from_secs(20);

/// Where a service listens and what it watches.
#[derive(Debug, Clone, Copy)]
pub struct Listen {
    /// The address; port 0 takes a free one.
    pub address: SocketAddr,
    /// Whether the model is loaded anew when its file changes.
    pub watch: bool,
}

/// Serves `app` until the process is asked to stop (Ctrl-C or a request to terminate); `ready` is told the address.
///
/// SIGHUP loads the model anew. Requests in flight are finished before this returns.
///
/// # Errors
/// [`StartError::Listen`] if the address cannot be had; [`StartError::Io`] for what the system refuses.
pub fn serve(app: App, listen: Listen, ready: impl FnOnce(SocketAddr)) -> Result<(), StartError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        let listener = bind(listen.address).await?;
        ready(listener.local_addr()?);
        keep_tidy(&app);
        reload_on_hangup(&app)?;
        if listen.watch {
            reload_on_change(&app);
        }
        accept(app, listener, asked_to_stop()).await;
        Ok(())
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

async fn bind(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| {
        let remedy = match source.kind() {
            std::io::ErrorKind::AddrInUse => {
                "another program has this port: give another, or 0 for a free one"
            }
            std::io::ErrorKind::PermissionDenied => "ports below 1024 need rights: give a larger one",
            _ => "give an address of this machine",
        };
        StartError::Listen { address: address.to_string(), source, remedy }
    })
}

/// Takes connections from `listener` until `stop`, then waits for the requests in flight.
pub async fn accept(app: App, listener: TcpListener, stop: impl Future<Output = ()>) {
    let limits = *app.limits();
    let connections =
        Arc::new(Semaphore::new(limits.connections.min(open_files().saturating_sub(64)).max(1)));
    let graceful = GracefulShutdown::new();
    let service = router(app.clone());
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of files, most often: those of closed connections come back.
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&connections).try_acquire_owned() else {
            app.observer().note_refused_connection();
            continue;
        };
        // Answers are small and whole; waiting to fill a packet would only delay them.
        let _ = stream.set_nodelay(true);
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.time)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service.clone()));
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            // What goes wrong on a connection is its client's to see.
            let _ = connection.await;
            drop(permit);
        });
    }
    drop(listener);
    if tokio::time::timeout(LAST_REQUESTS, graceful.shutdown()).await.is_err() {
        tracing::warn!("stopped with requests in flight");
    }
}

/// Files that the process may have open, after asking for as many as it may ask for.
fn open_files() -> usize {
    // SAFETY: rlimit is a plain C struct for which all zeros is a value; the calls read and write only it.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) != 0 {
            return 1024;
        }
        let before = limit.rlim_cur;
        limit.rlim_cur = limit.rlim_max;
        let granted = libc::setrlimit(libc::RLIMIT_NOFILE, &limit) == 0;
        usize::try_from(if granted { limit.rlim_max } else { before }).unwrap_or(usize::MAX)
    }
}

fn keep_tidy(app: &App) {
    let app = app.clone();
    tokio::spawn(async move {
        let mut every = tokio::time::interval(Duration::from_secs(5));
        loop {
            every.tick().await;
            app.observer().tidy();
        }
    });
}

async fn reload(app: &App) {
    let app = app.clone();
    // Its result is in the log.
    let _ = tokio::task::spawn_blocking(move || app.reload().map(drop)).await;
}

fn reload_on_hangup(app: &App) -> Result<(), StartError> {
    let mut hangups = signal(SignalKind::hangup())?;
    let app = app.clone();
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            reload(&app).await;
        }
    });
    Ok(())
}

fn reload_on_change(app: &App) {
    let app = app.clone();
    tokio::spawn(async move {
        let mut every = tokio::time::interval(LOOK_EVERY);
        let mut seen = None;
        loop {
            every.tick().await;
            let now = Stamp::of(app.store().path()).ok();
            // Only a file that has stood still since the last look: another program may be writing it.
            if let Some(stamp) = now
                && seen == now
                && app.store().has_changed(stamp)
            {
                reload(&app).await;
            }
            seen = now;
        }
    });
}

async fn asked_to_stop() {
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        },
        Err(_) => {
            let _ = tokio::signal::ctrl_c().await;
        }
    }
    tracing::info!("stopping; requests in flight are finished");
}
