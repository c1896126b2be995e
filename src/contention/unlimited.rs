//! Work that waits for its turns as long as it takes, since it cannot be refused any more.

use std::time::Duration;

tokio::task_local! {
    static WITHOUT_LIMIT: ();
}

/// Work whose waits have no limit of time: for shares of principals, for connections to the database and for memory.
/// Whoever it waits for must come to an end by itself, and not wait for what it has meanwhile.
pub async fn without_limit<T>(work: impl Future<Output = T>) -> T {
    WITHOUT_LIMIT.scope((), work).await
}

/// Work on a task of its own, whose waits have no limit where those of the caller have none.
pub fn inherited<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
    let is_limited = has_limit();
    async move {
        if is_limited {
            work.await
        } else {
            without_limit(work).await
        }
    }
}

/// Whether the waits of this task have limits.
pub fn has_limit() -> bool {
    WITHOUT_LIMIT.try_with(|()| ()).is_err()
}

/// What is waited for, unless the limit is over before and the waits of this task have one.
pub async fn within<T>(limit: Duration, wait: impl Future<Output = T>) -> Option<T> {
    if has_limit() {
        tokio::time::timeout(limit, wait).await.ok()
    } else {
        Some(wait.await)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_with_its_limit_unless_it_has_none() {
        let minute = Duration::from_secs(60);
        let wait = || within(minute, sleep(10 * minute));
        assert_eq!(wait().await, None);
        assert_eq!(without_limit(wait()).await, Some(()));
        assert_eq!(wait().await, None, "what follows has a limit again");
    }

    #[tokio::test(start_paused = true)]
    async fn the_waits_of_a_new_task_have_a_limit_where_those_of_the_caller_have_one() {
        let minute = Duration::from_secs(60);
        let wait = || within(minute, sleep(10 * minute));
        let on_a_task = async || tokio::spawn(inherited(wait())).await.unwrap();
        assert_eq!(on_a_task().await, None);
        assert_eq!(without_limit(on_a_task()).await, Some(()));
    }
}
