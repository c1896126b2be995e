//! What a node's future is polled under: its time limits, cancelling, and what catches its panics.

use std::{panic::AssertUnwindSafe, sync::atomic::Ordering, time::Duration};

use futures::FutureExt;
use tokio::time::Instant;

use super::{
    host::TaskHost,
    job::{Job, TaskEnd},
};
use crate::engine::error::Error;

/// Polls a node's future until it ends, interrupts, panics, takes too long or is cancelled.
pub async fn guarded<T>(
    host: &TaskHost,
    job: &Job,
    run: impl Future<Output = T>,
) -> Result<T, TaskEnd> {
    let run = AssertUnwindSafe(run).catch_unwind();
    let mut run = std::pin::pin!(run);
    let deadline = job.node.timeout.map(|limit| Instant::now() + limit);
    let mut idle = job.node.idle_timeout.map(|limit| Instant::now() + limit);
    let mut last_alive = 0;
    loop {
        tokio::select! {
            biased;
            () = host.context.cancel.cancelled() => return Err(TaskEnd::Failed(Error::Cancelled)),
            result = &mut run => {
                return match result {
                    // A resume value that was refused beats whatever the node made of it.
                    Ok(_) if host.state.lock().refused.is_some() => Err(parked(host)),
                    Ok(value) => Ok(value),
                    Err(panic) => Err(TaskEnd::Failed(panicked(&job.info.name, panic.as_ref()))),
                };
            }
            () = host.parked.notified() => return Err(parked(host)),
            () = sleep_until(deadline) => {
                return Err(timed_out(job, "timeout", job.node.timeout));
            }
            () = sleep_until(idle) => {
                let alive = host.alive.load(Ordering::Relaxed);
                if alive == last_alive {
                    return Err(timed_out(job, "idle timeout", job.node.idle_timeout));
                }
                last_alive = alive;
                idle = job.node.idle_timeout.map(|limit| Instant::now() + limit);
            }
        }
    }
}

/// How a node ended that goes no further: it waits at an interrupt, or refused its resume value.
fn parked(host: &TaskHost) -> TaskEnd {
    let mut state = host.state.lock();
    if let Some(error) = state.refused.take() {
        return TaskEnd::Failed(error);
    }
    let inner = host.parent.take_interrupts();
    if !inner.is_empty() {
        return TaskEnd::Interrupted(inner);
    }
    TaskEnd::Interrupted(state.open.take().into_iter().collect())
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => futures::future::pending().await,
    }
}

fn timed_out(job: &Job, what: &str, limit: Option<Duration>) -> TaskEnd {
    let seconds = limit.unwrap_or_default().as_secs_f64();
    let node = &job.info.name;
    TaskEnd::Failed(Error::failed(
        "NodeTimeoutError",
        format!("node `{node}` hit its {what} of {seconds} s"),
    ))
}

fn panicked(node: &str, panic: &(dyn std::any::Any + Send)) -> Error {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    tracing::error!(node, panic = text, "a node panicked");
    Error::failed("NodePanicked", format!("node `{node}` panicked: {text}"))
}
