//! The lease of this process, renewed on a thread of its own: nodes that compute for long, or a busy
//! runtime, must not make a healthy process look dead.

use std::{thread, time::Duration};

use tokio::{runtime, sync::oneshot, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    checkpoint,
    runs::{Error, Service},
};

/// The longest pause after a failure to renew.
const PAUSE: Duration = Duration::from_millis(500);
/// How long returning the lease may take.
const RETURN: Duration = Duration::from_secs(5);

impl Service {
    /// Registers this process, and renews its lease from now on.
    ///
    /// # Errors
    /// The storage failed, or the system allows no further thread.
    pub(super) async fn begin_lease(&self) -> Result<(), Error> {
        let failed = |error| checkpoint::Error::Unavailable(format!("no thread: {error}"));
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(failed)?;
        let ended = CancellationToken::new();
        let guard = ended.clone().drop_guard();
        let lease = self.inner.lease.clone();
        // The thread ends with the runtime of the service, if nothing else ends it.
        tokio::spawn(async move {
            let _guard = guard;
            lease.wait().await;
        });
        let (registered, is_registered) = oneshot::channel();
        let service = self.clone();
        let is_there = self.inner.lease.token();
        thread::Builder::new()
            .name("lease".into())
            .spawn(move || {
                runtime.block_on(async {
                    let first = service.renew().await;
                    let goes_on = first.is_ok();
                    let waits = registered.send(first).is_ok();
                    if goes_on && waits {
                        tokio::select! {
                            () = ended.cancelled() => {}
                            // On the one connection for the lease, so behind what is under way.
                            () = service.inner.stopped.cancelled() => service.retire().await,
                            () = service.renew_lease() => {}
                        }
                    }
                });
                drop(is_there);
            })
            .map_err(failed)?;
        let lost = |_| checkpoint::Error::Unavailable("the thread of the lease ended".into());
        Ok(is_registered.await.map_err(lost)??)
    }

    /// Lets the thread that renews the lease return it, and waits until it has.
    pub(super) async fn return_lease(&self) {
        let inner = &self.inner;
        inner.stopped.cancel();
        inner.lease.close();
        let _ = tokio::time::timeout(RETURN, inner.lease.wait()).await;
    }

    async fn retire(&self) {
        if let Err(error) = self.shared.parts.runs.retire(self.shared.worker).await {
            tracing::warn!(%error, "the lease could not be given back");
        }
    }

    async fn renew(&self) -> Result<(), checkpoint::Error> {
        let runs = &self.shared.parts.runs;
        runs.renew(self.shared.worker, self.inner.options.lease)
            .await
    }

    /// Renews the lease, and nothing else.
    async fn renew_lease(&self) {
        let pause = self.inner.options.lease / 3;
        let mut next = Instant::now() + pause;
        loop {
            tokio::time::sleep_until(next).await;
            next = Instant::now() + pause;
            if let Err(error) = self.renew().await {
                tracing::warn!(%error, "the lease could not be renewed");
                next = next.min(Instant::now() + PAUSE.min(pause / 2));
            }
        }
    }
}
