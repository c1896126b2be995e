//! Reads of runs that are executed, which do not wait behind those of clients.

tokio::task_local! {
    static RUN: ();
}

/// Does the work of a run that is executed.
pub async fn for_a_run<T>(work: impl Future<Output = T>) -> T {
    RUN.scope((), work).await
}

/// Whether this task does the work of a run.
pub fn is_for_a_run() -> bool {
    RUN.try_with(|()| ()).is_ok()
}
