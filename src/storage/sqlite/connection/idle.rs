//! Work for a few threads: the one that became idle last gets the next job, since what SQLite and the allocator keep for
//! it is warm. In turns each thread would keep as much as the largest job took, although fewer of them would do.

use std::{
    collections::VecDeque,
    sync::{Arc, mpsc},
};

use parking_lot::Mutex;

/// Jobs, in the order in which they came, and the threads that wait for one.
pub(super) struct Queue<J>(Mutex<State<J>>);

struct State<J> {
    waiting: VecDeque<J>,
    /// The one that became idle last comes last.
    idle: Vec<mpsc::Sender<J>>,
    /// Threads that have not ended.
    threads: usize,
    is_closed: bool,
}

impl<J> Queue<J> {
    /// One without threads, which [`Worker::of`] adds.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            waiting: VecDeque::new(),
            idle: Vec::new(),
            threads: 0,
            is_closed: false,
        })))
    }

    /// Gives a job to an idle thread, or lets it wait for one. Without threads it is dropped.
    pub(super) fn push(&self, job: J) {
        let mut state = self.0.lock();
        if state.is_closed || state.threads == 0 {
            return;
        }
        let mut job = job;
        while let Some(thread) = state.idle.pop() {
            match thread.send(job) {
                Ok(()) => return,
                Err(mpsc::SendError(back)) => job = back,
            }
        }
        state.waiting.push_back(job);
    }

    /// Takes no more jobs; the threads end once they have done those that wait.
    pub(super) fn close(&self) {
        let mut state = self.0.lock();
        state.is_closed = true;
        // Each waits for the other end of what is dropped here.
        state.idle.clear();
    }
}

/// The end of a queue that one thread has.
pub(super) struct Worker<J>(Arc<Queue<J>>);

impl<J> Worker<J> {
    /// One more thread of the queue.
    pub(super) fn of(queue: &Arc<Queue<J>>) -> Self {
        queue.0.lock().threads += 1;
        Self(Arc::clone(queue))
    }

    /// Waits for the next job; `None` when there will be no more.
    pub(super) fn next(&self) -> Option<J> {
        let (send, comes) = mpsc::channel();
        {
            let mut state = self.0.0.lock();
            if let Some(job) = state.waiting.pop_front() {
                return Some(job);
            }
            if state.is_closed {
                return None;
            }
            state.idle.push(send);
        }
        comes.recv().ok()
    }
}

impl<J> Drop for Worker<J> {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.threads -= 1;
        if state.threads == 0 {
            // Whoever waits for them learns that nobody will do them. A job may close the queue as it goes.
            let waiting = std::mem::take(&mut state.waiting);
            drop(state);
            drop(waiting);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn the_thread_that_became_idle_last_gets_the_next_job() {
        let queue = Queue::new();
        let workers = [Worker::of(&queue), Worker::of(&queue), Worker::of(&queue)];
        let (send, done) = mpsc::channel();
        thread::scope(|scope| {
            for (number, worker) in workers.into_iter().enumerate() {
                let send = send.clone();
                scope.spawn(move || {
                    while let Some(job) = worker.next() {
                        send.send((number, job)).unwrap();
                    }
                });
            }
            let idle = |count: usize| {
                while queue.0.lock().idle.len() < count {
                    thread::yield_now();
                }
            };
            idle(3);
            queue.push(0);
            let (last, _) = done.recv().unwrap();
            for job in 1..100 {
                idle(3);
                queue.push(job);
                assert_eq!(done.recv().unwrap(), (last, job));
            }
            // With as many jobs as threads each does one.
            idle(3);
            (0..3).for_each(|job| queue.push(job));
            let mut all: Vec<_> = (0..3).map(|_| done.recv().unwrap().1).collect();
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2]);
            queue.close();
        });
        queue.push(7);
        assert!(done.try_recv().is_err());
    }

    #[test]
    fn jobs_that_wait_are_done_before_the_threads_end_and_dropped_when_those_have_ended() {
        let queue = Queue::new();
        queue.push(0);
        let worker = Worker::of(&queue);
        assert!(queue.0.lock().waiting.is_empty(), "it had no thread");
        (1..3).for_each(|job| queue.push(job));
        queue.close();
        queue.push(3);
        assert_eq!((worker.next(), worker.next()), (Some(1), Some(2)));
        assert_eq!(worker.next(), None);

        let queue = Queue::new();
        let worker = Worker::of(&queue);
        let job = Arc::new(());
        queue.push(Arc::clone(&job));
        drop(worker);
        assert_eq!(Arc::strong_count(&job), 1);
    }
}
