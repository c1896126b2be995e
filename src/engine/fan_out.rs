//! Bounds on fan-outs: how many tasks a superstep may have, and how the loop over them gives way.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{
    error::{Error, Mistake},
    execution::Execution,
    reserved::TASKS,
};
use crate::value::Value;

/// The most tasks of one superstep when nobody chose another number.
pub const MAX_TASKS: usize = 10_000;

/// Tasks after which the loop over them lets others run.
const STRIDE: usize = 64;

/// How many tasks writes start by fanning out.
pub fn count<'a>(writes: impl IntoIterator<Item = &'a (Arc<str>, Value)>) -> usize {
    let channels = writes.into_iter().map(|(channel, _)| &**channel);
    channels.filter(|channel| *channel == TASKS).count()
}

/// Whether a superstep may have as many tasks.
///
/// # Errors
/// It may not; the error names `who` starts them.
pub fn check(execution: &Execution, who: &str, tasks: usize) -> Result<(), Error> {
    let most = execution.context.max_tasks;
    if tasks <= most {
        return Ok(());
    }
    Err(Error::mistake(
        Mistake::FanOut,
        format!(
            "{who} {tasks} tasks in one superstep, and at most {most} are allowed: start fewer at \
             a time, or let the operator raise BACKSTITCH_MAX_TASKS"
        ),
    ))
}

/// Lets other work of the runtime go on after every few tasks of a loop.
///
/// # Errors
/// The run was cancelled.
pub async fn let_others_run(execution: &Execution, done: usize) -> Result<(), Error> {
    yield_each_stride(&execution.context.cancel, done).await
}

async fn yield_each_stride(cancel: &CancellationToken, done: usize) -> Result<(), Error> {
    if done % STRIDE != STRIDE - 1 {
        return Ok(());
    }
    tokio::task::yield_now().await;
    if cancel.is_cancelled() {
        return Err(Error::Cancelled);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_loop_over_many_tasks_lets_others_run_after_every_few_of_them() {
        let turns = Arc::new(AtomicUsize::new(0));
        let other = turns.clone();
        tokio::spawn(async move {
            loop {
                other.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        let cancel = CancellationToken::new();
        for done in 0..10 * STRIDE {
            yield_each_stride(&cancel, done).await.unwrap();
        }
        // There is one thread: the other one had its turns between those of this loop.
        assert!(turns.load(Ordering::Relaxed) >= 10);
    }

    #[tokio::test]
    async fn a_loop_over_many_tasks_ends_where_its_run_is_cancelled() {
        let cancel = CancellationToken::new();
        let mut done = 0;
        let ended = loop {
            if done == 3 * STRIDE + 1 {
                cancel.cancel();
            }
            if let Err(error) = yield_each_stride(&cancel, done).await {
                break error;
            }
            done += 1;
        };
        assert!(matches!(ended, Error::Cancelled));
        assert!(done < 5 * STRIDE, "{done}");
    }
}
