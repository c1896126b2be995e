//! Whole threads and runs that operations change and delete.

use crate::{
    id::{RunId, ThreadId, TreeId},
    runs::{Status, Undo},
    storage::postgres::{
        columns::{Json, Params, execute},
        connection::{Object, Result, prepare},
        runs::{self, CANCEL, LOCK_SLOTS, remove_within},
        threads::{delete, expiry, prune},
    },
    tree::ttl::{Ttl, TtlStrategy},
    value::{Map, Value},
};

const PATCH: &str = "
UPDATE threads SET metadata = metadata || $2, updated_at = clock_timestamp() WHERE thread_id = $1";

pub(super) async fn patch_thread(db: &Object, thread: ThreadId, metadata: &Map) -> Result<()> {
    execute(db, PATCH, &[&thread.0, &Json::of_map(metadata)]).await?;
    Ok(())
}

pub(super) async fn set_ttl(db: &Object, thread: ThreadId, ttl: Ttl) -> Result<()> {
    expiry::set_ttl(db, thread, ttl).await
}

pub(super) async fn expired(
    db: &Object,
    tree: TreeId,
    thread: ThreadId,
) -> Result<Option<TtlStrategy>> {
    expiry::expired(db, tree, thread).await
}

pub(super) async fn delete_thread(db: &Object, tree: TreeId, thread: ThreadId) -> Result<()> {
    delete::delete(db, tree.0, thread.0).await?;
    Ok(())
}

pub(super) async fn delete_tree(db: &Object, tree: TreeId) -> Result<Vec<ThreadId>> {
    delete::delete_all(db, tree.0).await
}

pub(super) async fn prune_thread(db: &Object, tree: TreeId, thread: ThreadId) -> Result<usize> {
    prune::prune_rows(db, tree, thread).await
}

pub(super) async fn end_run(
    db: &Object,
    thread: ThreadId,
    run: RunId,
    error: &Value,
) -> Result<bool> {
    let lock = prepare(db, LOCK_SLOTS).await?;
    let cancel = prepare(db, CANCEL).await?;
    let (run, error) = (Some(run.0), Some(Json::of_value(error)));
    let slots: Params<'_, 2> = [&thread.0, &run];
    let params: Params<'_, 3> = [&thread.0, &run, &error];
    let (locked, ended) = tokio::join!(
        biased;
        db.query(&lock, &slots),
        db.query(&cancel, &params),
    );
    locked?;
    Ok(!ended?.is_empty())
}

pub(super) async fn request_cancel(db: &Object, run: RunId, reason: &Value) -> Result<bool> {
    runs::request_cancel(db, run, reason).await
}

pub(super) async fn remove_run(db: &Object, what: &Undo) -> Result<Option<Status>> {
    remove_within(db, what).await
}

statements!(PATCH);
