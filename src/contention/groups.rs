//! Group commit: what many callers want to be done at one time is done together, in groups that grow with the load.

use std::{collections::VecDeque, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use tokio::time::timeout;

/// Most jobs of one group.
const MOST: usize = 32;
/// Most groups under way at once.
const AT_ONCE: usize = 3;
/// A group begins beside others that are under way when so many jobs wait: with fewer it would cost more than
/// their waiting for the next one.
const FULL: usize = 8;
/// Or when those under way take longer than this: they may wait for something of their own, such as a lock.
const SLOW: Duration = Duration::from_millis(5);

type Work<T> = dyn Fn(Vec<T>) -> BoxFuture<'static, ()> + Send + Sync;

/// Does the jobs of many callers in groups. A job that comes alone begins at once; those that come while a group is
/// under way are the next one.
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
    work: Box<Work<T>>,
}

struct State<T> {
    waiting: VecDeque<T>,
    /// Groups that are under way.
    under_way: usize,
    /// Those of them that have not taken [`SLOW`] yet.
    fast: usize,
}

impl<T> State<T> {
    /// The next group, if one may begin beside those under way.
    fn begin(&mut self) -> Option<Vec<T>> {
        let waits = !self.waiting.is_empty();
        let may_begin = self.fast == 0 || self.waiting.len() >= FULL;
        if waits && may_begin && self.under_way < AT_ONCE {
            self.under_way += 1;
            self.fast += 1;
            Some(self.take())
        } else {
            None
        }
    }

    /// The group that follows one that has ended.
    fn follow(&mut self, was_fast: bool) -> Option<Vec<T>> {
        if self.waiting.is_empty() {
            self.under_way -= 1;
            self.fast -= usize::from(was_fast);
            None
        } else {
            self.fast += usize::from(!was_fast);
            Some(self.take())
        }
    }

    fn take(&mut self) -> Vec<T> {
        let count = self.waiting.len().min(MOST);
        self.waiting.drain(..count).collect()
    }
}

impl<T: Send + 'static> Groups<T> {
    /// Groups for which `work` is called; it tells the callers of its jobs how they ended.
    pub fn new(work: impl Fn(Vec<T>) -> BoxFuture<'static, ()> + Send + Sync + 'static) -> Self {
        let state = State {
            waiting: VecDeque::new(),
            under_way: 0,
            fast: 0,
        };
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                work: Box::new(work),
            }),
        }
    }

    /// Adds a job. Must be called on a runtime, where the groups are done.
    pub fn add(&self, job: T) {
        let group = {
            let mut state = self.shared.state.lock();
            state.waiting.push_back(job);
            state.begin()
        };
        if let Some(group) = group {
            tokio::spawn(self.shared.clone().run(group));
        }
    }
}

impl<T: Send + 'static> Shared<T> {
    /// Does a group and those that follow it, until nothing waits.
    async fn run(self: Arc<Self>, mut group: Vec<T>) {
        loop {
            // After a panic the callers of this group get no reply; the others must not wait for ever.
            let mut work = AssertUnwindSafe((self.work)(group)).catch_unwind();
            let in_time = timeout(SLOW, &mut work).await;
            let is_fast = in_time.is_ok();
            let ended = match in_time {
                Ok(ended) => ended,
                Err(_) => {
                    self.begin_beside();
                    work.await
                }
            };
            if ended.is_err() {
                tracing::error!("a group of writes ended in a panic");
            }
            match self.state.lock().follow(is_fast) {
                Some(next) => group = next,
                None => return,
            }
        }
    }

    /// Lets another group begin beside one that takes long.
    fn begin_beside(self: &Arc<Self>) {
        let group = {
            let mut state = self.state.lock();
            state.fast -= 1;
            state.begin()
        };
        if let Some(group) = group {
            tokio::spawn(self.clone().run(group));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{sync::mpsc, time::sleep};

    use super::*;

    /// Groups that take so many milliseconds, and the sizes of those that have begun.
    fn groups(millis: u64) -> (Groups<usize>, mpsc::UnboundedReceiver<Vec<usize>>) {
        let (begun, sizes) = mpsc::unbounded_channel();
        let groups = Groups::new(move |group: Vec<usize>| {
            begun.send(group).unwrap();
            Box::pin(sleep(Duration::from_millis(millis)))
        });
        (groups, sizes)
    }

    fn so_far(begun: &mut mpsc::UnboundedReceiver<Vec<usize>>) -> Vec<Vec<usize>> {
        std::iter::from_fn(|| begun.try_recv().ok()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_while_a_group_is_under_way_is_the_next_one() {
        let (groups, mut begun) = groups(4);
        for job in 0..6 {
            groups.add(job);
        }
        sleep(Duration::from_millis(1)).await;
        assert_eq!(so_far(&mut begun), [vec![0]]);
        sleep(Duration::from_millis(4)).await;
        assert_eq!(so_far(&mut begun), [vec![1, 2, 3, 4, 5]]);
        sleep(Duration::from_millis(20)).await;
        groups.add(6);
        sleep(Duration::from_millis(1)).await;
        assert_eq!(so_far(&mut begun), [vec![6]], "alone it begins at once");
    }

    #[tokio::test(start_paused = true)]
    async fn another_group_begins_beside_one_when_many_wait() {
        let (groups, mut begun) = groups(4);
        for job in 0..20 {
            groups.add(job);
        }
        sleep(Duration::from_millis(1)).await;
        let sizes: Vec<usize> = so_far(&mut begun).iter().map(Vec::len).collect();
        assert_eq!(sizes, [1, 8, 8], "three are under way, the rest waits");
        sleep(Duration::from_millis(4)).await;
        assert_eq!(so_far(&mut begun), [vec![17, 18, 19]]);
    }

    #[tokio::test(start_paused = true)]
    async fn another_group_begins_beside_one_that_takes_long() {
        let (groups, mut begun) = groups(100);
        for job in 0..3 {
            groups.add(job);
        }
        sleep(Duration::from_millis(4)).await;
        assert_eq!(so_far(&mut begun), [vec![0]]);
        sleep(Duration::from_millis(2)).await;
        assert_eq!(so_far(&mut begun), [vec![1, 2]]);
        sleep(Duration::from_millis(5)).await;
        groups.add(3);
        sleep(Duration::from_millis(1)).await;
        assert_eq!(so_far(&mut begun), [vec![3]], "nothing fast is under way");
        groups.add(4);
        sleep(Duration::from_millis(60)).await;
        assert!(so_far(&mut begun).is_empty(), "three are under way");
        sleep(Duration::from_millis(60)).await;
        assert_eq!(so_far(&mut begun), [vec![4]]);
    }

    #[tokio::test(start_paused = true)]
    async fn groups_go_on_after_a_panic() {
        let (begun, mut jobs) = mpsc::unbounded_channel();
        let groups = Groups::new(move |group: Vec<usize>| {
            begun.send(group.clone()).unwrap();
            Box::pin(async move { assert!(group[0] > 5) })
        });
        for job in 0..8 {
            groups.add(job);
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(so_far(&mut jobs).len(), 8);
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_has_so_many_jobs_and_no_more() {
        let (groups, mut begun) = groups(4);
        for job in 0..100 {
            groups.add(job);
        }
        sleep(Duration::from_millis(5)).await;
        let sizes: Vec<usize> = so_far(&mut begun).iter().map(Vec::len).collect();
        assert_eq!(sizes, [1, 8, 8, 32, 32, 19]);
    }
}
