//! Group commit: supersteps of many runs that wait at one time share a transaction, and so
//! its round trip and its wait for the disk.

use tokio::sync::{Mutex, mpsc, oneshot};

use super::{together, together_once};
use crate::{
    checkpoint::{Commit, Error},
    storage::postgres::connection::Pool,
};

/// Most commits of one transaction.
const MOST: usize = 32;

/// Transactions of groups under way at once. While they are, others gather: more of them would
/// make smaller groups, and one alone would leave the database idle between two round trips.
const AT_ONCE: usize = 3;

/// A run's commits, in order, and where their results go.
struct Waiting {
    commits: Vec<Commit>,
    count: usize,
    reply: oneshot::Sender<Vec<Result<i32, Error>>>,
}

impl Waiting {
    fn reply(self, results: Vec<Result<i32, Error>>) {
        // A run may have stopped waiting; what was committed stays.
        let _ = self.reply.send(results);
    }
}

/// The way to the tasks that write groups. They end when every handle is gone.
#[derive(Clone)]
pub(crate) struct CommitQueue {
    waiting: mpsc::UnboundedSender<Waiting>,
    /// For what is written alone.
    pool: Pool,
}

impl CommitQueue {
    /// Starts the tasks, which take their connections from `pool`.
    pub(crate) fn start(pool: &Pool) -> Self {
        let (waiting, receiver) = mpsc::unbounded_channel();
        let receiver = std::sync::Arc::new(Mutex::new(receiver));
        for _ in 0..AT_ONCE {
            tokio::spawn(serve(pool.clone(), receiver.clone()));
        }
        Self {
            waiting,
            pool: pool.clone(),
        }
    }

    /// See [`Saver::commit`](crate::checkpoint::Saver::commit). What opens a branch is a
    /// transaction of its own; everything else goes with whatever waits at that moment.
    pub(crate) async fn commit(&self, commits: Vec<Commit>) -> Vec<Result<i32, Error>> {
        let mut results = Vec::with_capacity(commits.len());
        let mut rest = commits.into_iter().peekable();
        while let Some(first) = rest.next() {
            if first.open.is_some() {
                results.extend(alone(&self.pool, &[first]).await);
                continue;
            }
            let mut commits = vec![first];
            while let Some(next) = rest.next_if(|next| next.open.is_none()) {
                commits.push(next);
            }
            let count = commits.len();
            let (reply, result) = oneshot::channel();
            // Without tasks the reply is dropped, and so is known not to come.
            let _ = self.waiting.send(Waiting {
                count,
                commits,
                reply,
            });
            results.extend(result.await.unwrap_or_else(|_| {
                let ended = "the task that writes to the database has ended";
                vec![Err(Error::Unavailable(ended.to_owned())); count]
            }));
        }
        results
    }
}

async fn serve(pool: Pool, queue: std::sync::Arc<Mutex<mpsc::UnboundedReceiver<Waiting>>>) {
    let mut group = Vec::with_capacity(MOST);
    loop {
        {
            let mut queue = queue.lock().await;
            if queue.recv_many(&mut group, MOST).await == 0 {
                return;
            }
        }
        write(&pool, std::mem::take(&mut group)).await;
    }
}

/// Writes what waits, in the order of branches: two groups that lock some rows in different
/// orders would wait for each other.
async fn write(pool: &Pool, mut group: Vec<Waiting>) {
    group.sort_by_key(|waiting| {
        let first = waiting.commits.first();
        first.map(|commit| (commit.slot.tree, commit.slot.branch))
    });
    if group.len() > 1 {
        let all: Vec<Commit> = group
            .iter_mut()
            .flat_map(|waiting| std::mem::take(&mut waiting.commits))
            .collect();
        match together_once(pool, &all).await {
            Ok(results) => {
                let mut results = results.into_iter();
                for waiting in group {
                    let own = results.by_ref().take(waiting.count).collect();
                    waiting.reply(own);
                }
                return;
            }
            // One failing member fails them all, or keeps them waiting for the branch it waits for;
            // alone each gets its own result, after retries of its own.
            Err(error) => {
                tracing::debug!(%error, runs = group.len(), "a group of commits is divided");
                let mut all = all.into_iter();
                for waiting in &mut group {
                    waiting.commits = all.by_ref().take(waiting.count).collect();
                }
            }
        }
    }
    let each = group.into_iter().map(|waiting| async move {
        let results = alone(pool, &waiting.commits).await;
        waiting.reply(results);
    });
    futures::future::join_all(each).await;
}

async fn alone(pool: &Pool, commits: &[Commit]) -> Vec<Result<i32, Error>> {
    match together(pool, commits).await {
        Ok(results) => results,
        Err(error) if commits.len() == 1 || matches!(error, Error::Unavailable(_)) => {
            vec![Err(error); commits.len()]
        }
        Err(_) => {
            let mut results: Vec<Result<i32, Error>> = Vec::with_capacity(commits.len());
            for commit in commits {
                // What follows a superstep that cannot be stored fails with it; what the fence refuses
                // was another writer's.
                let mut before = commits.iter().zip(&results);
                let failed = before.find_map(|(other, result)| {
                    let shares_branch = other.slot.branch == commit.slot.branch;
                    let error = result.as_ref().err();
                    error
                        .filter(|error| shares_branch && !matches!(error, Error::Fenced))
                        .cloned()
                });
                results.push(match failed {
                    Some(error) => Err(error),
                    None => {
                        let one = together(pool, std::slice::from_ref(commit)).await;
                        one.and_then(|mut one| one.pop().unwrap_or(Err(Error::Fenced)))
                    }
                });
            }
            results
        }
    }
}
