//! The socket that a server listens on, its first line on stdout, and the signals that stop it.

use std::{
    io::{self, ErrorKind, Write},
    net::SocketAddr,
};

use anyhow::Context;
use tokio::{
    net::{TcpListener, lookup_host},
    signal::unix::{Signal, SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

use crate::config::Settings;

/// Listens on these addresses of the settings.
pub(super) async fn bind(settings: &Settings, found: &[SocketAddr]) -> anyhow::Result<TcpListener> {
    let bound = TcpListener::bind(found).await;
    bound.map_err(|error| {
        let Settings { host, port, .. } = settings;
        let hint = match error.kind() {
            ErrorKind::AddrInUse => {
                "another program listens there; choose another port with PORT=... or --port"
            }
            ErrorKind::AddrNotAvailable => {
                "this machine has no such address; choose another one with HOST=... or --host"
            }
            ErrorKind::PermissionDenied => {
                "this user may not; choose a port above 1023 with PORT=... or --port"
            }
            _ => "choose another address with HOST=... and PORT=...",
        };
        anyhow::Error::new(error).context(format!("cannot listen on {host}:{port}; {hint}"))
    })
}

/// The addresses to listen on. Without keys everybody who reaches them may do everything, so that
/// they must be those of this machine alone unless the settings say that it is meant.
pub(super) async fn addresses(
    settings: &Settings,
    authenticates: bool,
) -> anyhow::Result<Vec<SocketAddr>> {
    let named = (settings.host.as_str(), settings.port);
    let found = lookup_host(named).await;
    let found = found.with_context(|| {
        format!(
            "cannot find the address of {}; write a name or an address of this machine in HOST or --host",
            settings.host
        )
    })?;
    let found: Vec<_> = found.collect();
    let is_open = settings.api_keys.is_empty() && !authenticates && !settings.allow_open;
    if is_open && !found.iter().all(|one| one.ip().is_loopback()) {
        anyhow::bail!(
            "{} can be reached from other machines, and without keys everybody who reaches it may \
             do everything: set BACKSTITCH_API_KEYS, or BACKSTITCH_ALLOW_OPEN=true if it is meant \
             (then BACKSTITCH_HOSTS lists the names that clients call it by)",
            settings.host
        );
    }
    Ok(found)
}

/// Unlike `println!`, does not panic when stdout is closed.
pub(super) fn announce(line: &str) -> io::Result<()> {
    let mut out = io::stdout();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// What stops the server.
pub(super) enum Stop {
    /// Signals to this process.
    Signals {
        terminate: Signal,
        interrupt: Signal,
    },
    /// The command of this process that started it, once.
    Caller(CancellationToken),
}

impl Stop {
    pub(super) fn signals() -> io::Result<Self> {
        Ok(Self::Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits until one of them stops it.
    pub(super) async fn requested(&mut self) -> SignalKind {
        match self {
            Self::Signals {
                terminate,
                interrupt,
            } => tokio::select! {
                _ = terminate.recv() => SignalKind::terminate(),
                _ = interrupt.recv() => SignalKind::interrupt(),
            },
            Self::Caller(token) => {
                token.cancelled().await;
                SignalKind::terminate()
            }
        }
    }

    /// Waits for a signal. The command that started the server sends none.
    pub(super) async fn signal(&mut self) -> SignalKind {
        match self {
            Self::Signals { .. } => self.requested().await,
            Self::Caller(_) => std::future::pending().await,
        }
    }
}
