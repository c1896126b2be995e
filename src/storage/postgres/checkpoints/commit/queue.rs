//! Group commit: supersteps of many runs that wait at one time share a transaction, and so
//! its round trip and its wait for the disk.

use tokio::sync::oneshot;

use super::{End, Group, together, together_once};
use crate::{
    checkpoint::{Commit, Error},
    contention::groups::{Ended, Groups},
    id::{BranchId, TreeId},
    runs::Finish,
    storage::postgres::connection::{Pool, hot::Hot},
};

/// Most bytes of the supersteps of one group: those of runs with small states do not wait until large ones of others are
/// written.
const LARGEST: usize = 4 << 20;

/// A run's supersteps in order, its end, or both, and where their results go.
struct Waiting {
    commits: Vec<Commit>,
    count: usize,
    end: Option<End>,
    has_end: bool,
    reply: oneshot::Sender<Results>,
}

/// One of each superstep, and of the end: where the last frames of the run are in its log.
struct Results {
    commits: Vec<Result<i32, Error>>,
    end: Result<Vec<i64>, Error>,
}

impl Results {
    fn failed(error: Error, count: usize) -> Self {
        Self {
            commits: vec![Err(error.clone()); count],
            end: Err(error),
        }
    }

    fn of(depths: Vec<Option<i32>>, end: Option<Vec<i64>>) -> Self {
        let depths = depths.into_iter();
        Self {
            commits: depths.map(|depth| depth.ok_or(Error::Fenced)).collect(),
            end: end.ok_or(Error::Fenced),
        }
    }
}

impl Waiting {
    fn key(&self) -> Option<(TreeId, BranchId)> {
        let first = self.commits.first().map(|commit| commit.slot);
        let slot = first.or_else(|| Some(self.end.as_ref()?.0.slot));
        slot.map(|slot| (slot.tree, slot.branch))
    }

    fn bytes(&self) -> usize {
        self.commits.iter().map(Commit::bytes).sum()
    }

    fn reply(self, results: Results) {
        // A run may have stopped waiting; what was committed stays.
        let _ = self.reply.send(results);
    }
}

/// What waits to be written, and the connections for it.
#[derive(Clone)]
pub(crate) struct CommitQueue {
    waiting: Groups<Waiting>,
    /// For what is written alone.
    pool: Pool,
    hot: Hot,
}

impl CommitQueue {
    /// A queue whose groups take their connections from `pool`, and in which what opens a branch waits in the line of
    /// its tree.
    pub(crate) fn new(pool: &Pool, hot: Hot) -> Self {
        let of_groups = pool.clone();
        Self {
            waiting: Groups::sized(Waiting::bytes, LARGEST, move |group| {
                let pool = of_groups.clone();
                Box::pin(async move {
                    write(&pool, group).await;
                    Ended::Continue(())
                })
            }),
            pool: pool.clone(),
            hot,
        }
    }

    /// See [`Saver::commit`](crate::checkpoint::Saver::commit). What opens a branch is a
    /// transaction of its own; everything else goes with whatever waits at that moment.
    pub(crate) async fn commit(&self, commits: Vec<Commit>) -> Vec<Result<i32, Error>> {
        let mut results = Vec::with_capacity(commits.len());
        let mut rest = commits.into_iter().peekable();
        while let Some(first) = rest.next() {
            if first.open.is_some() {
                match self.hot.tree_for_run(first.slot.tree).await {
                    Ok(_turn) => results.extend(alone(&self.pool, vec![first]).await),
                    Err(error) => results.push(Err(error)),
                }
                continue;
            }
            let mut commits = vec![first];
            while let Some(next) = rest.next_if(|next| next.open.is_none()) {
                commits.push(next);
            }
            results.extend(self.wait_for(commits, None).await.commits);
        }
        results
    }

    /// See [`Store::finish_with`](crate::runs::Store::finish_with), for runs whose thread stays.
    pub(crate) async fn finish(
        &self,
        mut commits: Vec<Commit>,
        finish: Finish,
    ) -> Result<Vec<i64>, Error> {
        let head = commits.iter().rfind(|one| one.checkpoint.ns.is_empty());
        let end = (finish, head.map(|commit| commit.checkpoint.id));
        if commits.iter().any(|commit| commit.open.is_some()) {
            let all = std::mem::take(&mut commits);
            for result in self.commit(all).await {
                result?;
            }
        }
        self.wait_for(commits, Some(end)).await.end
    }

    async fn wait_for(&self, commits: Vec<Commit>, end: Option<End>) -> Results {
        let (count, has_end) = (commits.len(), end.is_some());
        let (reply, result) = oneshot::channel();
        self.waiting.add(Waiting {
            commits,
            count,
            end,
            has_end,
            reply,
        });
        result.await.unwrap_or_else(|_| {
            let ended = "the task that writes to the database has ended";
            Results::failed(Error::Unavailable(ended.to_owned()), count)
        })
    }
}

/// Writes what waits, in the order of branches: two groups that lock some rows in different
/// orders would wait for each other.
async fn write(pool: &Pool, mut all: Vec<Waiting>) {
    all.sort_by_key(Waiting::key);
    let mut group = Group::default();
    for one in &mut all {
        group.commits.append(&mut one.commits);
        group.ends.extend(one.end.take());
    }
    match together_once(pool, &group).await {
        Ok(written) => {
            let (mut depths, mut ends) = (written.depths.into_iter(), written.ends.into_iter());
            for one in all {
                let depths = depths.by_ref().take(one.count).collect();
                let end = one.has_end.then(|| ends.next()).flatten().flatten();
                one.reply(Results::of(depths, end));
            }
        }
        // One failing member fails them all, or keeps them waiting for the branch it waits for; alone each gets its
        // own result, after retries of its own, for which the next group does not wait.
        Err(error) => {
            tracing::debug!(%error, runs = all.len(), "a group of commits is divided");
            let (mut commits, mut ends) = (group.commits.into_iter(), group.ends.into_iter());
            for mut one in all {
                one.commits = commits.by_ref().take(one.count).collect();
                one.end = one.has_end.then(|| ends.next()).flatten();
                tokio::spawn(write_alone(pool.clone(), one));
            }
        }
    }
}

async fn write_alone(pool: Pool, mut one: Waiting) {
    let commits = std::mem::take(&mut one.commits);
    let results = match one.end.take() {
        Some(end) => Results {
            commits: vec![],
            end: end_alone(&pool, commits, end).await,
        },
        None => Results {
            commits: alone(&pool, commits).await,
            end: Ok(vec![]),
        },
    };
    one.reply(results);
}

/// The end of a run, with its last supersteps.
async fn end_alone(pool: &Pool, commits: Vec<Commit>, end: End) -> Result<Vec<i64>, Error> {
    let ends = vec![end];
    let mut written = together(pool, &Group { commits, ends }).await?;
    Results::of(written.depths, written.ends.pop().flatten()).end
}

/// Supersteps of one run. If they cannot be written together, each is, as far as that goes.
async fn alone(pool: &Pool, commits: Vec<Commit>) -> Vec<Result<i32, Error>> {
    let ends = vec![];
    let group = Group { commits, ends };
    match together(pool, &group).await {
        Ok(written) => return Results::of(written.depths, None).commits,
        Err(error) if group.commits.len() == 1 || error.may_pass() => {
            return vec![Err(error); group.commits.len()];
        }
        Err(_) => {}
    }
    let commits = group.commits;
    let mut results: Vec<Result<i32, Error>> = Vec::with_capacity(commits.len());
    for commit in &commits {
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
                let (commits, ends) = (vec![commit.clone()], vec![]);
                let written = together(pool, &Group { commits, ends }).await;
                written.and_then(|one| one.depths.first().copied().flatten().ok_or(Error::Fenced))
            }
        });
    }
    results
}
