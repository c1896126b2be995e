//! The server as a service inside another program's HTTP server.

use std::fmt;

use tokio_util::sync::CancellationToken;

use super::{Server, hooks::Hooks, serve};
use crate::{
    config::{Flags, Settings},
    http::{self, Embedded},
};

impl Server {
    /// Starts everything but a listener: the service responds to the requests that the program's own HTTP
    /// server has, for example `axum::Router::new().fallback_service(service)`, and the handle
    /// drains it. Settings come from [`setting`](Self::setting), the environment and `backstitch.toml`; the
    /// program has its own command line and its own log.
    ///
    /// Checks of the host and the origin of requests, limits and the memory budget are those of a server that listens, except that
    /// the number and the speed of connections are the program's business. The service must see whole paths. Without keys and without an authentication it starts only with
    /// `BACKSTITCH_ALLOW_OPEN`, since it does not know at which address the program listens.
    ///
    /// # Errors
    /// Problems of the graphs and the settings, as [`run`](Self::run) reports them; the storage failed.
    pub async fn embed(mut self) -> anyhow::Result<(Embedded, Handle)> {
        let own_settings = std::mem::take(&mut self.program.settings);
        let settings = Settings::load(Flags::default(), &own_settings)?;
        let program = self.checked()?;
        let is_open = settings.api_keys.is_empty() && program.own.authentication.is_none();
        anyhow::ensure!(
            !is_open || settings.allow_open,
            "without keys everybody who reaches the program may do everything: set \
             BACKSTITCH_API_KEYS, authenticate requests in the program, or set BACKSTITCH_ALLOW_OPEN=true \
             if it is meant (then BACKSTITCH_HOSTS lists the names that clients call it by)"
        );
        let mut started = Box::pin(serve::start(program, settings)).await?;
        if let Err(error) = started.services.start().await {
            started.hooks.stop().await.ok();
            return Err(anyhow::Error::new(error).context("the storage failed"));
        }
        let cut = CancellationToken::new();
        let service = Embedded::new(
            started.services.clone(),
            std::mem::take(&mut started.options),
            started.drain.clone(),
            cut.clone(),
        );
        let handle = Handle {
            service: service.clone(),
            services: started.services,
            drain: started.drain,
            cut,
            hooks: started.hooks,
        };
        Ok((service, handle))
    }
}

/// Drains an embedded server. Dropped without that, runs go on until the process ends, and others take
/// over what is left when its lease has expired.
pub struct Handle {
    service: Embedded,
    services: http::Services,
    drain: CancellationToken,
    cut: CancellationToken,
    hooks: Hooks,
}

impl Handle {
    /// Lets new runs be refused, gives those that run their time, hands the others over, ends the streams, waits
    /// a few seconds for the requests that are here, those of [`routes`](Server::routes) among them, and does what the program wants done at the end. Reads are answered as long as the program
    /// listens: await it before the program's HTTP server shuts down, as
    /// `axum::serve(...).with_graceful_shutdown` does with a future that does this when a signal came.
    ///
    /// # Errors
    /// What [`on_stop`](Server::on_stop) failed with.
    pub async fn drain(self) -> anyhow::Result<()> {
        self.drain.cancel();
        tracing::info!("draining");
        self.services.runs().drain().await;
        self.cut.cancel();
        self.service.ended().await;
        self.hooks.stop().await
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}
