//! Hints between the processes that share a storage: something has changed on a thread, or a run waits
//! for a worker.
//!
//! A hint is only a reason to read, and none is certain to arrive: whatever it stands for is found by
//! polling too. So hints are gathered after their commits, passed on together, and lost with the
//! connection that carries them.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until, timeout_at},
};
use uuid::Uuid;

use super::watches::{ThreadWatch, ThreadWatches};
use crate::{checkpoint, id::ThreadId};

/// Most threads that are named between two messages; beyond that everything may have changed.
const MOST: usize = 4096;
/// Threads of one message, so that it has less than 8,000 bytes.
const PER_MESSAGE: usize = 230;
/// The message that names no thread: everything may have changed.
pub(in crate::runs) const ANYTHING: &str = "*";
/// The longest pause between two readings of one who reads less often the longer nothing happens.
const LONGEST: Duration = Duration::from_secs(30);
/// A reader that was woken by a hint waits so long before it is woken by the next.
const SHORTEST: Duration = Duration::from_millis(20);

/// Connects a process with the others that share its storage.
#[async_trait]
pub trait Linker: Send + Sync + 'static {
    /// A new connection.
    ///
    /// # Errors
    /// The storage cannot be reached.
    async fn connect(&self) -> Result<Box<dyn Link>, checkpoint::Error>;
}

/// A connection on which processes exchange short messages.
#[async_trait]
pub trait Link: Send {
    /// Passes messages on to the others; without any it finds out whether the connection works.
    ///
    /// # Errors
    /// The connection is of no use any more.
    async fn publish(&mut self, messages: &[String]) -> Result<(), checkpoint::Error>;

    /// The next message of another process; `None` when the connection is lost. Nothing is lost when
    /// the call is dropped before it returns.
    async fn receive(&mut self) -> Option<String>;
}

/// What another process wants to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Something has changed on a thread.
    Changed(ThreadId),
    /// A run of a thread waits for a worker, and its process has no room for it.
    Queued(ThreadId),
    /// Anything may have happened.
    Anything,
}

impl Hint {
    /// The hints of a message. What is not understood is left out: other programs may use the
    /// database too.
    pub fn of_message(message: &str) -> impl Iterator<Item = Self> {
        message.split(' ').filter_map(|word| {
            if word == ANYTHING {
                return Some(Self::Anything);
            }
            let (kind, id) = word.split_at_checked(1)?;
            let thread = ThreadId(Uuid::try_parse(id).ok()?);
            match kind {
                "c" => Some(Self::Changed(thread)),
                "q" => Some(Self::Queued(thread)),
                _ => None,
            }
        })
    }
}

/// What is to be passed on.
#[derive(Default)]
struct Outgoing {
    changed: HashSet<ThreadId>,
    queued: HashSet<ThreadId>,
    anything: bool,
}

/// The hints of this process to others, and who waits here for theirs.
#[derive(Default)]
pub struct Hints {
    linker: Option<Arc<dyn Linker>>,
    /// How often those who wait read, while hints arrive.
    poll: Duration,
    is_connected: AtomicBool,
    outgoing: Mutex<Outgoing>,
    has_outgoing: Notify,
    watched: Arc<ThreadWatches>,
}

impl Hints {
    /// Hints by this linker, if the storage has one, and a poll each `poll` beside them.
    pub fn new(linker: Option<Arc<dyn Linker>>, poll: Duration) -> Self {
        Self {
            linker,
            poll,
            ..Self::default()
        }
    }

    /// How to reach the others, if there can be any.
    pub(in crate::runs) fn linker(&self) -> Option<&Arc<dyn Linker>> {
        self.linker.as_ref()
    }

    /// Lets other processes know that something has changed on a thread.
    pub fn publish(&self, thread: ThreadId) {
        self.add(|outgoing| outgoing.changed.extend([thread]));
    }

    /// Lets other processes know that runs of these threads wait for a worker.
    pub(in crate::runs) fn publish_queued(&self, threads: impl IntoIterator<Item = ThreadId>) {
        self.add(|outgoing| outgoing.queued.extend(threads));
    }

    fn add(&self, change: impl FnOnce(&mut Outgoing)) {
        if !self.is_connected() {
            return;
        }
        let mut outgoing = self.outgoing.lock();
        change(&mut outgoing);
        if outgoing.changed.len() + outgoing.queued.len() > MOST {
            *outgoing = Outgoing {
                anything: true,
                ..Outgoing::default()
            };
        }
        drop(outgoing);
        self.has_outgoing.notify_one();
    }

    /// Waits until there is something to pass on.
    pub(in crate::runs) async fn gathered(&self) {
        self.has_outgoing.notified().await;
    }

    /// The messages to pass on.
    pub(in crate::runs) fn take_messages(&self) -> Vec<String> {
        let outgoing = std::mem::take(&mut *self.outgoing.lock());
        if outgoing.anything {
            return vec![ANYTHING.to_owned()];
        }
        let named = |kind: char, thread: &ThreadId| format!("{kind}{}", thread.0.simple());
        let changed = outgoing.changed.iter().map(|thread| named('c', thread));
        let queued = outgoing.queued.iter().map(|thread| named('q', thread));
        let words: Vec<String> = changed.chain(queued).collect();
        words
            .chunks(PER_MESSAGE)
            .map(|words| words.join(" "))
            .collect()
    }

    /// Whether hints arrive at this moment.
    pub fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::Acquire)
    }

    /// Learns whether hints arrive. Either way those who wait read once more: what happened meanwhile
    /// was not hinted at, and how long they wait depends on it.
    pub(in crate::runs) fn set_connected(&self, is_connected: bool) {
        self.is_connected.store(is_connected, Ordering::Release);
        self.wake(None);
    }

    /// Wakes those who wait for a change of a thread, or of any, by another process.
    pub(in crate::runs) fn wake(&self, thread: Option<ThreadId>) {
        match thread {
            Some(thread) => self.watched.wake(thread),
            None => self.watched.wake_all(),
        }
    }

    /// Watches a thread from now on for changes by other processes.
    pub fn watch(self: &Arc<Self>, thread: ThreadId) -> ChangeWatch {
        ChangeWatch {
            watch: self.linker.is_some().then(|| self.watched.watch(thread)),
            hints: self.clone(),
            is_changed: false,
            until: None,
            last: None,
            quiet: 0,
        }
    }
}

/// Waits for changes of a thread by other processes.
pub struct ChangeWatch {
    /// Without one there are no other processes.
    watch: Option<ThreadWatch>,
    hints: Arc<Hints>,
    /// It was woken, and has not returned yet.
    is_changed: bool,
    /// When the wait ends that goes on, also if its call was dropped.
    until: Option<Instant>,
    /// When the last wait ended.
    last: Option<Instant>,
    /// How many waits of one who has patience have ended without a hint.
    quiet: u32,
}

impl ChangeWatch {
    /// Returns when another process may have changed the thread since the last call, or since the
    /// watch began; at the latest after the time between two polls, which is `unhinted` while no hints arrive.
    pub async fn wait(&mut self, unhinted: Duration) {
        self.wait_for(unhinted, 1).await;
    }

    /// The same for one who waits for long, and of whom there are many: while hints arrive the time
    /// between two polls doubles as long as nothing happens, up to half a minute.
    pub async fn wait_patiently(&mut self, unhinted: Duration) {
        let is_hinted = self.wait_for(unhinted, 1 << self.quiet.min(10)).await;
        let is_quiet = !is_hinted && self.hints.is_connected();
        self.quiet = if is_quiet {
            self.quiet.saturating_add(1)
        } else {
            0
        };
    }

    /// Whether a hint ended the wait.
    async fn wait_for(&mut self, unhinted: Duration, polls: u32) -> bool {
        let Some(watch) = &mut self.watch else {
            let until = *self.until.get_or_insert_with(|| Instant::now() + unhinted);
            sleep_until(until).await;
            self.until = None;
            return false;
        };
        if !self.is_changed {
            let until = *self.until.get_or_insert_with(|| {
                Instant::now()
                    + if self.hints.is_connected() {
                        let poll = self.hints.poll.max(unhinted);
                        poll.max(LONGEST.min(poll.saturating_mul(polls)))
                    } else {
                        unhinted
                    }
            });
            // Remembered, so that it is not lost when the call is dropped below.
            self.is_changed = timeout_at(until, watch.changed()).await.is_ok();
            self.until = None;
        }
        if let Some(last) = self.last.filter(|_| self.is_changed) {
            sleep_until(last + SHORTEST).await;
        }
        self.last = Some(Instant::now());
        std::mem::take(&mut self.is_changed)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{sleep, timeout};

    use super::*;

    struct Nobody;

    #[async_trait]
    impl Linker for Nobody {
        async fn connect(&self) -> Result<Box<dyn Link>, checkpoint::Error> {
            Err(checkpoint::Error::Unavailable("nobody".to_owned()))
        }
    }

    fn hints() -> Arc<Hints> {
        let hints = Hints::new(Some(Arc::new(Nobody)), Duration::from_secs(3600));
        hints.set_connected(true);
        Arc::new(hints)
    }

    #[test]
    fn messages_name_each_thread_once_and_have_less_than_8000_bytes() {
        let hints = hints();
        let threads: Vec<ThreadId> = (0..1000).map(|_| ThreadId::mint()).collect();
        for thread in threads.iter().chain(&threads) {
            hints.publish(*thread);
        }
        hints.publish_queued(threads[..10].iter().copied());
        let messages = hints.take_messages();
        assert!(messages.iter().all(|message| message.len() < 8000));
        let found = || {
            let messages = messages.iter();
            messages.flat_map(|message| Hint::of_message(message))
        };
        assert_eq!(found().count(), 1010);
        assert!(
            threads
                .iter()
                .all(|thread| found().any(|hint| hint == Hint::Changed(*thread)))
        );
        assert!(found().any(|hint| hint == Hint::Queued(threads[9])));
        assert_eq!(hints.take_messages(), Vec::<String>::new());
    }

    #[test]
    fn beyond_a_number_of_threads_one_message_stands_for_all() {
        let hints = hints();
        for _ in 0..=MOST {
            hints.publish(ThreadId::mint());
        }
        let messages = hints.take_messages();
        assert_eq!(messages, [ANYTHING]);
        let found: Vec<Hint> = Hint::of_message(&messages[0]).collect();
        assert_eq!(found, [Hint::Anything]);
    }

    #[test]
    fn nothing_is_gathered_while_nobody_can_be_reached() {
        let hints = hints();
        hints.publish(ThreadId::mint());
        hints.set_connected(false);
        hints.take_messages();
        hints.publish(ThreadId::mint());
        assert_eq!(hints.take_messages(), Vec::<String>::new());
    }

    #[test]
    fn what_is_no_hint_is_left_out() {
        let thread = ThreadId::mint();
        let id = thread.0.simple();
        let message = format!(" x{id} c c1 é {id} c{id}");
        let found: Vec<Hint> = Hint::of_message(&message).collect();
        assert_eq!(found, [Hint::Changed(thread)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_is_woken_by_a_hint_and_polls_often_while_none_arrive() {
        let (hints, thread) = (hints(), ThreadId::mint());
        let unhinted = Duration::from_millis(50);
        let mut watch = hints.watch(thread);
        let waited = async |watch: &mut ChangeWatch| {
            let begun = Instant::now();
            watch.wait(unhinted).await;
            begun.elapsed()
        };
        hints.wake(Some(thread));
        assert!(waited(&mut watch).await < unhinted);
        hints.wake(Some(ThreadId::mint()));
        assert!(waited(&mut watch).await >= Duration::from_secs(3600));
        // The connection is lost while it waits.
        let (lost, ()) = tokio::join!(waited(&mut watch), async {
            sleep(Duration::from_secs(1)).await;
            hints.set_connected(false);
        });
        assert!(lost < Duration::from_secs(2));
        let pause = waited(&mut watch).await;
        assert!(pause >= unhinted && pause < 2 * unhinted, "{pause:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_patience_polls_less_often_the_longer_nothing_happens() {
        let hints = Hints::new(Some(Arc::new(Nobody)), Duration::from_secs(1));
        hints.set_connected(true);
        let (hints, thread) = (Arc::new(hints), ThreadId::mint());
        let mut watch = hints.watch(thread);
        let waited = async |watch: &mut ChangeWatch| {
            let begun = Instant::now();
            watch.wait_patiently(Duration::from_millis(500)).await;
            begun.elapsed().as_secs()
        };
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            assert_eq!(waited(&mut watch).await, seconds);
        }
        hints.wake(Some(thread));
        assert_eq!(waited(&mut watch).await, 0);
        assert_eq!(waited(&mut watch).await, 1, "it begins anew");
        assert_eq!(waited(&mut watch).await, 2);
        hints.set_connected(false);
        assert_eq!(waited(&mut watch).await, 0);
        for _ in 0..3 {
            assert_eq!(waited(&mut watch).await, 0, "every half second");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_hint_is_not_lost_when_a_wait_is_dropped() {
        let (hints, thread) = (hints(), ThreadId::mint());
        let mut watch = hints.watch(thread);
        hints.wake(Some(thread));
        watch.wait(Duration::ZERO).await;
        hints.wake(Some(thread));
        // It was woken, and waits until the next reading is worth it.
        let dropped = timeout(SHORTEST / 4, watch.wait(Duration::ZERO)).await;
        assert!(dropped.is_err());
        let found = timeout(2 * SHORTEST, watch.wait(Duration::ZERO)).await;
        assert!(found.is_ok());
    }
}
