//! A transaction on a connection of its own, from call to call.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Failure, Object, Pool, acquire, hot::Hot, prepare};
use crate::{
    checkpoint::Error,
    contention::{Turn, shares::Share},
    id::TreeId,
    storage::postgres::columns::Params,
};

/// How long to wait for a turn before the caller gets an error.
const TURN: Duration = Duration::from_secs(10);
/// How long a connection may take to roll back a transaction before it is closed.
const ROLLBACK_LIMIT: Duration = Duration::from_secs(2);

/// The isolation under which a statement sees what those before it waited for.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";
/// The isolation under which all statements read one snapshot.
const BEGIN_SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ";
const LOCK_TREE: &str = "SELECT 1 FROM trees WHERE tree_id = $1 FOR UPDATE";

/// The result of one statement or of several.
pub(crate) type Work<'a, T> = BoxFuture<'a, Result<T, Failure>>;

/// Lets as many transactions go on at once as there are connections for them, and one at a time on
/// each tree; the others wait.
#[derive(Clone)]
pub(crate) struct Turns {
    pool: Pool,
    free: Arc<Semaphore>,
    hot: Hot,
}

impl Turns {
    pub(crate) fn new(pool: Pool, hot: Hot) -> Self {
        let free = Arc::new(Semaphore::new(pool.max_size()));
        Self { pool, free, hot }
    }

    /// A transaction that has locked the row of the tree.
    pub(crate) async fn begin(&self, tree: TreeId) -> Result<OpenTransaction, Error> {
        let alone = self.hot.tree(tree).await?;
        let mut open = self.open(|client| lock(client, tree).boxed()).await?;
        open.tree = Some(alone);
        Ok(open)
    }

    /// A transaction that has locked nothing yet.
    pub(crate) async fn unlocked(&self) -> Result<OpenTransaction, Error> {
        self.open(|client| async move { Ok(client.batch_execute(BEGIN).await?) }.boxed())
            .await
    }

    /// A transaction whose statements all read one snapshot. It has the turn at the tree and has locked nothing yet.
    /// The snapshot is from before it waits for a lock: what others change until it gets the lock it does not see.
    pub(crate) async fn snapshot(&self, tree: TreeId) -> Result<OpenTransaction, Error> {
        let alone = self.hot.tree(tree).await?;
        let mut open = self
            .open(|client| async move { Ok(client.batch_execute(BEGIN_SNAPSHOT).await?) }.boxed())
            .await?;
        open.tree = Some(alone);
        Ok(open)
    }

    async fn open<F>(&self, begin: F) -> Result<OpenTransaction, Error>
    where
        F: for<'a> Fn(&'a Object) -> Work<'a, ()> + Send + Sync,
    {
        let share = self.pool.share().await.map_err(Failure::into_error)?;
        let turn = tokio::time::timeout(TURN, self.free.clone().acquire_owned()).await;
        let Ok(Ok(turn)) = turn else {
            return Err(Error::Unavailable(
                "too many operations on threads wait for each other".to_owned(),
            ));
        };
        let mut open = OpenTransaction {
            client: None,
            turn: Some((turn, share)),
            tree: None,
            broken: true,
        };
        // A connection that was lost while nobody used it is replaced once.
        for may_retry in [true, false] {
            let client = open
                .client
                .insert(acquire(&self.pool).await.map_err(Failure::into_error)?);
            match begin(client).await {
                Ok(()) => break,
                Err(failure) if may_retry && failure.is_lost() => {
                    open.client.take().map(Object::take);
                }
                Err(failure) => return Err(failure.into_error()),
            }
        }
        open.broken = false;
        Ok(open)
    }
}

async fn lock(client: &Object, tree: TreeId) -> Result<(), Failure> {
    let lock = prepare(client, LOCK_TREE).await?;
    let key: Params<'_, 1> = [&tree.0];
    let (begun, locked) = tokio::join!(
        biased;
        client.batch_execute(BEGIN),
        client.query_opt(&lock, &key),
    );
    begun?;
    locked?;
    Ok(())
}

/// An open transaction. Dropping it rolls it back.
pub(crate) struct OpenTransaction {
    client: Option<Object>,
    turn: Option<(OwnedSemaphorePermit, Share)>,
    /// Its turn at a tree.
    tree: Option<Turn<TreeId>>,
    /// A statement failed or was not waited for, so nothing more can be done.
    broken: bool,
}

impl OpenTransaction {
    /// The connection for one statement, or for several whose failure is one.
    pub(crate) fn statement(&mut self) -> Result<Statement<'_>, Error> {
        let client = self.client.as_ref().filter(|_| !self.broken);
        let client = client.ok_or_else(broken)?;
        // Until the result is there: the caller may stop waiting.
        self.broken = true;
        Ok(Statement {
            client,
            broken: &mut self.broken,
        })
    }

    /// Lets others share its turn at the tree, whose row it has locked for as many.
    pub(crate) fn share_tree(&mut self) {
        self.tree = self.tree.take().map(Turn::share);
    }

    pub(crate) async fn run<T, F>(&mut self, work: F) -> Result<T, Error>
    where
        T: Send,
        F: for<'a> Fn(&'a Object) -> Work<'a, T> + Send + Sync,
    {
        let statement = self.statement()?;
        let result = work(statement.client).await;
        statement.end(result)
    }

    pub(crate) async fn commit(mut self) -> Result<(), Error> {
        // COMMIT after a failure would succeed and store nothing.
        self.run(|client| {
            Box::pin(async move {
                client.batch_execute("COMMIT").await?;
                Ok(())
            })
        })
        .await?;
        // Out of the transaction: the connection goes back as it came.
        self.client = None;
        Ok(())
    }
}

/// The connection of a transaction while a statement runs on it.
pub(crate) struct Statement<'a> {
    pub(crate) client: &'a Object,
    broken: &'a mut bool,
}

impl Statement<'_> {
    /// Takes the result. After a failure of the database the transaction can only be rolled back.
    pub(crate) fn end<T>(self, result: Result<T, Failure>) -> Result<T, Error> {
        *self.broken = matches!(&result, Err(Failure::Database(_)));
        result.map_err(Failure::into_error)
    }
}

fn broken() -> Error {
    Error::Unavailable("the transaction was given up after a failure".to_owned())
}

impl Drop for OpenTransaction {
    fn drop(&mut self) {
        let turns = (self.turn.take(), self.tree.take());
        let Some(client) = self.client.take() else {
            return;
        };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            drop(Object::take(client));
            return;
        };
        // The connection must not go back to the pool inside a transaction.
        runtime.spawn(async move {
            let rolled_back =
                tokio::time::timeout(ROLLBACK_LIMIT, client.batch_execute("ROLLBACK")).await;
            if !matches!(rolled_back, Ok(Ok(()))) {
                drop(Object::take(client));
            }
            drop(turns);
        });
    }
}

statements!(LOCK_TREE);
