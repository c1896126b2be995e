//! The statements of a run that ends no others, which leave in one round trip.

use tokio_postgres::{Client, Row, Statement};

use super::{
    CREATE, CREATE_THREAD, LOCK, SHARE_TREE, insert,
    queue::{Creation, shares_tree},
    send_create,
};
use crate::{
    id::BranchId,
    runs::{NewRun, request::codec::Encoded},
    storage::postgres::{
        columns::Params,
        connection::{Failure, Object, prepare},
    },
};

/// Lock, insert and commit in one round trip.
pub(super) async fn pipeline(client: &Object, creation: &Creation) -> Result<Option<Row>, Failure> {
    let Creation {
        new,
        kwargs,
        branch,
    } = creation;
    let statements = Statements::on(client, new).await?;
    let (begin, row, end) = tokio::join!(
        biased;
        client.batch_execute("BEGIN"),
        statements.send(client, new, kwargs, *branch),
        client.batch_execute("COMMIT"),
    );
    begin?;
    let row = row?;
    end?;
    Ok(row)
}

/// The statements of a run that ends no others.
pub(super) struct Statements {
    lock: Statement,
    create: Statement,
    share_tree: Option<Statement>,
    create_thread: Option<Statement>,
}

impl Statements {
    pub(super) async fn on(client: &Object, new: &NewRun) -> Result<Self, Failure> {
        let share_tree = if shares_tree(new) {
            Some(prepare(client, SHARE_TREE).await?)
        } else {
            None
        };
        let create_thread = match &new.create_thread {
            Some(_) => Some(prepare(client, CREATE_THREAD).await?),
            None => None,
        };
        Ok(Self {
            lock: prepare(client, LOCK).await?,
            create: prepare(client, CREATE).await?,
            share_tree,
            create_thread,
        })
    }

    /// Sends all of them at once, in their order, inside a transaction.
    pub(super) async fn send(
        &self,
        client: &Client,
        new: &NewRun,
        kwargs: &Encoded,
        branch: BranchId,
    ) -> Result<Option<Row>, tokio_postgres::Error> {
        let create_thread = async {
            let run = Some((new.id.0, new.temporary));
            match (&new.create_thread, &self.create_thread) {
                (Some(thread), Some(create)) => {
                    send_create(client, create, thread, branch, run).await
                }
                _ => Ok(None),
            }
        };
        let by_thread: Params<'_, 1> = [&new.thread.0];
        let share_tree = async {
            match &self.share_tree {
                Some(statement) => client.query_opt(statement, &by_thread).await,
                None => Ok(None),
            }
        };
        let pinned = new.branch.map(|branch| branch.0);
        let id: Params<'_, 2> = [&new.thread.0, &pinned];
        let (thread, share_tree, lock, row) = tokio::join!(
            biased;
            create_thread,
            share_tree,
            client.query_opt(&self.lock, &id),
            insert(client, &self.create, new, kwargs, new.unchanged_since),
        );
        thread?;
        share_tree?;
        lock?;
        row
    }
}
