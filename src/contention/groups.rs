//! Group commit: what many callers want to be done at one time is done together, in groups that grow with the load.

use std::{
    collections::VecDeque, mem::take, ops::ControlFlow, panic::AssertUnwindSafe, pin::pin,
    sync::Arc, time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use tokio::{task::yield_now, time::timeout};

/// Most jobs of one group.
const MOST: usize = 32;
/// Most groups under way at once.
const AT_ONCE: usize = 3;
/// A group begins beside others that are under way when so many jobs wait: with fewer it would cost more than
/// their waiting for the next one.
const FULL: usize = 4;
/// Or when those under way take longer than this: they may wait for something of their own, such as a lock.
const SLOW: Duration = Duration::from_millis(5);
/// How often a group that may begin yields to other tasks before it takes its jobs: what they add meanwhile comes along,
/// so that fewer transactions do the same. With nothing else to do that takes some microseconds.
const YIELDS: usize = 4;
/// The longest that these yields may take together.
const GATHER: Duration = Duration::from_millis(1);

/// How a group ended: after `Break` the same would happen to those that wait, and nobody waits for one group after
/// the other to fail.
pub type Ended = ControlFlow<()>;

type Work<T> = dyn Fn(Vec<T>) -> BoxFuture<'static, Ended> + Send + Sync;

/// Does the jobs of many callers in groups. A job that comes alone begins when the tasks that are ready have had their
/// turn; those that come while a group is under way are the next one.
///
/// A job that is dropped was not done, or not to its end: its group ended in a panic or with its runtime, or it waited
/// when a group told that nothing more can be done.
pub struct Groups<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Clone for Groups<T> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
        }
    }
}

struct Shared<T> {
    state: Mutex<State<T>>,
    /// Most groups under way at once.
    at_once: usize,
    bound: Bound<T>,
    work: Box<Work<T>>,
}

/// How large a group may be, besides the number of its jobs.
struct Bound<T> {
    size: fn(&T) -> usize,
    /// Most of all jobs of a group together; a job that has more is a group by itself.
    most: usize,
}

struct State<T> {
    waiting: VecDeque<T>,
    /// Groups that are under way.
    under_way: usize,
    /// Those of them that have not taken [`SLOW`] yet.
    fast: usize,
    /// Whether the last one that began has not taken its jobs yet: it takes what waits, so none begins beside it.
    gathers: bool,
}

impl<T> Bound<T> {
    /// The number of jobs alone.
    fn none() -> Self {
        Self {
            size: |_| 1,
            most: usize::MAX,
        }
    }
}

impl<T> State<T> {
    /// Whether a group begins now beside those under way; it is counted as one of them.
    fn begin(&mut self, at_once: usize) -> bool {
        let waits = !self.waiting.is_empty() && !self.gathers;
        let may_begin = self.fast == 0 || self.waiting.len() >= FULL;
        let begins = waits && may_begin && self.under_way < at_once;
        if begins {
            self.under_way += 1;
            self.fast += 1;
            self.gathers = true;
        }
        begins
    }

    fn take(&mut self, bound: &Bound<T>) -> Vec<T> {
        let mut size = 0_usize;
        let fits = |job: &&T| {
            let is_first = size == 0;
            size = size.saturating_add((bound.size)(job).max(1));
            is_first || size <= bound.most
        };
        let count = self.waiting.iter().take(MOST).take_while(fits).count();
        self.waiting.drain(..count).collect()
    }
}

impl<T: Send + 'static> Groups<T> {
    /// Groups for which `work` is called; it tells the callers of its jobs how they ended.
    pub fn new(work: impl Fn(Vec<T>) -> BoxFuture<'static, Ended> + Send + Sync + 'static) -> Self {
        Self::of(AT_ONCE, Bound::none(), Box::new(work))
    }

    /// The same, of jobs that have different sizes: those of a group have `most` together, unless it is a single job.
    pub fn sized(
        size: fn(&T) -> usize,
        most: usize,
        work: impl Fn(Vec<T>) -> BoxFuture<'static, Ended> + Send + Sync + 'static,
    ) -> Self {
        Self::of(AT_ONCE, Bound { size, most }, Box::new(work))
    }

    /// The same, one group after the other.
    pub fn one_by_one(
        work: impl Fn(Vec<T>) -> BoxFuture<'static, Ended> + Send + Sync + 'static,
    ) -> Self {
        Self::of(1, Bound::none(), Box::new(work))
    }

    fn of(at_once: usize, bound: Bound<T>, work: Box<Work<T>>) -> Self {
        let state = State {
            waiting: VecDeque::new(),
            under_way: 0,
            fast: 0,
            gathers: false,
        };
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                at_once,
                bound,
                work,
            }),
        }
    }

    /// Adds a job. Must be called on a runtime, where the groups are done.
    pub fn add(&self, job: T) {
        let begins = {
            let mut state = self.shared.state.lock();
            state.waiting.push_back(job);
            state.begin(self.shared.at_once)
        };
        if begins {
            Lane::begin(&self.shared);
        }
    }
}

/// Groups that follow each other: counted as one that is under way until this is dropped, also by a runtime that
/// ends.
struct Lane<T: Send + 'static> {
    shared: Arc<Shared<T>>,
    is_fast: bool,
    /// Whether it has begun a group and not taken its jobs yet.
    gathers: bool,
    /// Whether the last group has ended, and nothing waited.
    is_over: bool,
}

impl<T: Send + 'static> Lane<T> {
    /// Does a group that was just counted as one under way, and those that follow it.
    fn begin(shared: &Arc<Shared<T>>) {
        let lane = Self {
            shared: shared.clone(),
            is_fast: true,
            gathers: true,
            is_over: false,
        };
        tokio::spawn(lane.run());
    }

    /// Does one group after the other, until nothing waits.
    async fn run(mut self) {
        while let Some(group) = self.gather().await {
            let shared = self.shared.clone();
            let work = async move { (shared.work)(group).await };
            // After a panic the callers of this group get no reply; the others must not wait for ever.
            let mut work = pin!(AssertUnwindSafe(work).catch_unwind());
            let in_time = timeout(SLOW, &mut work).await;
            let ended = match in_time {
                Ok(ended) => ended,
                Err(_) => {
                    self.begin_beside();
                    work.await
                }
            };
            match ended {
                Ok(Ended::Continue(())) => {}
                Ok(Ended::Break(())) => {
                    let waiting = take(&mut self.shared.state.lock().waiting);
                    drop(waiting);
                }
                Err(_) => tracing::error!("a group of writes ended in a panic"),
            }
            self.follow();
        }
    }

    /// The jobs of the group that begins: those that wait once other tasks have had their turn. None where the lane
    /// is over.
    async fn gather(&mut self) -> Option<Vec<T>> {
        if self.is_over {
            return None;
        }
        let others = async {
            for _ in 0..YIELDS {
                yield_now().await;
            }
        };
        // The thread that this yielded on may go on with a node that computes for long: then the timer wakes this on
        // another thread.
        let _ = timeout(GATHER, others).await;
        let shared = self.shared.clone();
        let (group, begins) = {
            let mut state = shared.state.lock();
            (state.gathers, self.gathers) = (false, false);
            let group = state.take(&self.shared.bound);
            if group.is_empty() {
                self.end(&mut state);
            }
            (group, state.begin(self.shared.at_once))
        };
        if begins {
            Self::begin(&self.shared);
        }
        (!group.is_empty()).then_some(group)
    }

    /// Begins the group that follows one that has ended; ends the lane where nothing waits, or another lane is about
    /// to take what does.
    fn follow(&mut self) {
        let shared = self.shared.clone();
        let mut state = shared.state.lock();
        if state.waiting.is_empty() || state.gathers {
            self.end(&mut state);
        } else {
            state.fast += usize::from(!self.is_fast);
            self.is_fast = true;
            (state.gathers, self.gathers) = (true, true);
        }
    }

    /// Counts the lane as one that is not under way any more.
    fn end(&mut self, state: &mut State<T>) {
        state.under_way -= 1;
        state.fast -= usize::from(self.is_fast);
        self.is_over = true;
    }

    /// Lets another group begin beside one that takes long.
    fn begin_beside(&mut self) {
        let begins = {
            let mut state = self.shared.state.lock();
            state.fast -= 1;
            self.is_fast = false;
            state.begin(self.shared.at_once)
        };
        if begins {
            Self::begin(&self.shared);
        }
    }
}

impl<T: Send + 'static> Drop for Lane<T> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let waiting = {
            let shared = self.shared.clone();
            let mut state = shared.state.lock();
            if self.gathers {
                state.gathers = false;
            }
            self.end(&mut state);
            if state.under_way == 0 {
                take(&mut state.waiting)
            } else {
                VecDeque::new()
            }
        };
        // Nobody would do them before another job comes.
        drop(waiting);
    }
}

#[cfg(test)]
mod tests;
