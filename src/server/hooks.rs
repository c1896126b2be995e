//! What the program that serves does at the start and at the end.

use std::{panic::AssertUnwindSafe, time::Duration};

use anyhow::Context;
use futures::{FutureExt, future::BoxFuture};
use tokio::time::timeout;

/// How long one thing may take at the start.
const START: Duration = Duration::from_secs(60);
/// How long one thing may take at the end, when whoever asked for it waits.
const STOP: Duration = Duration::from_secs(10);

type Hook = Box<dyn FnOnce() -> BoxFuture<'static, anyhow::Result<()>> + Send>;

/// What is done at the start, in order, and at the end, in the reverse one.
#[derive(Default)]
pub(super) struct Hooks {
    start: Vec<Hook>,
    stop: Vec<Hook>,
}

impl Hooks {
    pub(super) fn at_start(&mut self, hook: Hook) {
        self.start.push(hook);
    }

    pub(super) fn at_stop(&mut self, hook: Hook) {
        self.stop.push(hook);
    }

    /// Does what is to be done at the start.
    ///
    /// # Errors
    /// The first thing that fails, panics or takes too long.
    pub(super) async fn start(&mut self) -> anyhow::Result<()> {
        for hook in self.start.drain(..) {
            let done = within(START, hook).await;
            done.context("what the program does at the start failed")?;
        }
        Ok(())
    }

    /// Does all that is to be done at the end, whatever fails of it.
    ///
    /// # Errors
    /// The first thing that failed, panicked or took too long; the others are logged.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        let mut first = Ok(());
        for hook in self.stop.into_iter().rev() {
            let done = within(STOP, hook).await;
            let done = done.context("what the program does at the end failed");
            match (&first, &done) {
                (Err(_), Err(error)) => tracing::error!(%error, "{error:#}"),
                (Ok(()), Err(_)) => first = done,
                _ => {}
            }
        }
        first
    }
}

async fn within(limit: Duration, hook: Hook) -> anyhow::Result<()> {
    let work = AssertUnwindSafe(async move { hook().await }).catch_unwind();
    match timeout(limit, work).await {
        Ok(Ok(done)) => done,
        Ok(Err(_)) => Err(anyhow::anyhow!("it panicked")),
        Err(_) => Err(anyhow::anyhow!("it took longer than {limit:?}")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn hooks_that_fail_hang_or_panic_are_errors_and_the_others_at_the_end_still_run() {
        let done = Arc::new(Mutex::new(vec![]));
        let mut hooks = Hooks::default();
        for name in ["first", "second"] {
            let done = done.clone();
            hooks.at_stop(Box::new(move || {
                done.lock().push(name);
                async { Ok(()) }.boxed()
            }));
        }
        hooks.at_stop(Box::new(|| async { std::future::pending().await }.boxed()));
        hooks.at_stop(Box::new(|| panic!("on purpose")));
        hooks.at_start(Box::new(|| async { anyhow::bail!("no disk") }.boxed()));
        let error = hooks.start().await.unwrap_err();
        assert!(format!("{error:#}").ends_with("no disk"), "{error:#}");
        let error = hooks.stop().await.unwrap_err();
        assert!(format!("{error:#}").ends_with("it panicked"), "{error:#}");
        assert_eq!(*done.lock(), ["second", "first"]);
    }
}
