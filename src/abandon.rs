//! Work that nobody waits for any more: it stops, but not within a statement of the database.
//!
//! A dropped future does not stop the statement that it waits for: the database executes it, and
//! whoever gets its connection next waits behind it. A client that opens and resets requests would
//! leave thousands. So abandoned work ends behind its statement, and its slot stays taken until then.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::Poll,
};

use tokio_util::sync::CancellationToken;

tokio::task_local! {
    static WORK: Work;
}

#[derive(Clone)]
struct Work {
    abandoned: CancellationToken,
    /// Statements that it waits for.
    statements: Arc<AtomicUsize>,
}

/// Does `work` until it is abandoned; `None` if it was.
pub async fn unless_abandoned<T>(
    abandoned: CancellationToken,
    work: impl Future<Output = T>,
) -> Option<T> {
    if abandoned.is_cancelled() {
        return None;
    }
    let statements = Arc::new(AtomicUsize::new(0));
    let scope = Work {
        abandoned: abandoned.clone(),
        statements: statements.clone(),
    };
    let mut work = pin!(WORK.scope(scope, work));
    let mut left = pin!(abandoned.cancelled());
    poll_fn(|cx| {
        if let Poll::Ready(result) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(result));
        }
        if left.as_mut().poll(cx).is_ready() && statements.load(Ordering::Acquire) == 0 {
            return Poll::Ready(None);
        }
        Poll::Pending
    })
    .await
}

tokio::task_local! {
    /// Whether the statement that this task waits for counts among those of its work.
    static COUNTS: Arc<AtomicBool>;
}

/// A statement of the database, to whose end even abandoned work goes on.
pub async fn statement<T>(statement: impl Future<Output = T>) -> T {
    let Ok(work) = WORK.try_with(Work::clone) else {
        return statement.await;
    };
    work.statements.fetch_add(1, Ordering::AcqRel);
    let counts = Arc::new(AtomicBool::new(true));
    let result = COUNTS.scope(counts.clone(), statement).await;
    work.end(&counts).await;
    result
}

/// Ends abandoned work between the preparation of its statement and the execution: the preparation may have waited for
/// locks, and the database has nothing to do for it at this moment.
pub async fn end_unless_wanted() {
    if let Ok(work) = WORK.try_with(Work::clone)
        && let Ok(counts) = COUNTS.try_with(Arc::clone)
        && work.abandoned.is_cancelled()
    {
        work.end(&counts).await;
    }
}

impl Work {
    /// A statement has ended; abandoned work goes no further.
    async fn end(&self, counts: &AtomicBool) {
        if counts.swap(false, Ordering::AcqRel) {
            self.statements.fetch_sub(1, Ordering::AcqRel);
        }
        if self.abandoned.is_cancelled() {
            std::future::pending::<()>().await;
        }
    }
}

tokio::task_local! {
    static CLIENT: CancellationToken;
}

/// Does work that goes on when its client leaves, but can [ask](is_client_gone) whether it has.
pub async fn with_client<T>(left: CancellationToken, work: impl Future<Output = T>) -> T {
    CLIENT.scope(left, work).await
}

/// Ends once nobody waits for the response any more; never, outside of a request.
pub async fn client_gone() {
    match CLIENT.try_with(CancellationToken::clone) {
        Ok(left) => left.cancelled().await,
        Err(_) => std::future::pending().await,
    }
}

/// Does what only reads within work that goes on when its client leaves; `None` if the client left before its end.
pub async fn unless_client_gone<T>(read: impl Future<Output = T>) -> Option<T> {
    match CLIENT.try_with(CancellationToken::clone) {
        Ok(left) => unless_abandoned(left, read).await,
        Err(_) => Some(read.await),
    }
}

/// Whether nobody waits for the response any more: work of many steps begins no other one.
pub fn is_client_gone() -> bool {
    CLIENT
        .try_with(CancellationToken::is_cancelled)
        .unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn abandoned_work_ends_between_statements_and_not_within_one() {
        let abandoned = CancellationToken::new();
        let (end, ended) = oneshot::channel::<()>();
        let mut went_on = false;
        {
            let work = async {
                statement(ended).await.unwrap();
                went_on = true;
            };
            let mut work = pin!(unless_abandoned(abandoned.clone(), work));
            assert!(work.as_mut().now_or_never().is_none());
            abandoned.cancel();
            assert!(work.as_mut().now_or_never().is_none(), "the statement");
            end.send(()).unwrap();
            assert_eq!(work.await, None);
        }
        assert!(!went_on);
        let waits = unless_abandoned(abandoned, std::future::pending::<()>());
        assert_eq!(waits.await, None);
    }

    #[tokio::test]
    async fn an_abandoned_statement_that_was_prepared_is_not_executed() {
        let abandoned = CancellationToken::new();
        let (end, prepared) = oneshot::channel::<()>();
        let mut executed = false;
        {
            let prepare_and_execute = async {
                prepared.await.unwrap();
                end_unless_wanted().await;
                executed = true;
            };
            let work = statement(prepare_and_execute);
            let mut work = pin!(unless_abandoned(abandoned.clone(), work));
            assert!(work.as_mut().now_or_never().is_none());
            abandoned.cancel();
            assert!(work.as_mut().now_or_never().is_none(), "the preparation");
            end.send(()).unwrap();
            assert_eq!(work.await, None);
        }
        assert!(!executed);
        end_unless_wanted().await;
        let work = statement(async { end_unless_wanted().await });
        let done = unless_abandoned(CancellationToken::new(), work).await;
        assert_eq!(done, Some(()), "it is waited for");
    }

    #[tokio::test]
    async fn a_read_ends_when_the_client_leaves_and_the_work_around_it_goes_on() {
        let left = CancellationToken::new();
        let read = || unless_client_gone(std::future::pending::<()>());
        let work = async {
            assert_eq!(unless_client_gone(async { 7 }).await, Some(7));
            assert_eq!(read().await, None);
            is_client_gone()
        };
        let mut work = pin!(with_client(left.clone(), work));
        assert!(work.as_mut().now_or_never().is_none());
        left.cancel();
        assert!(work.await);
        assert!(read().now_or_never().is_none(), "outside of a request");
    }

    #[tokio::test]
    async fn work_that_is_waited_for_has_its_result() {
        let work = async { statement(async { 7 }).await };
        let done = unless_abandoned(CancellationToken::new(), work).await;
        assert_eq!(done, Some(7));
        assert_eq!(statement(async { 7 }).await, 7, "outside of a request");
    }
}
