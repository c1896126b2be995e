//! One place that principals take in turns, however many reports of one of them wait for it, and for how long each has it.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};

/// How long a principal keeps its place in the line that waits no more: its reports are put off and wait again.
const ABSENCE: Duration = Duration::from_secs(15);
/// How often those who wait look whether one before them has been away for that long.
const POLL: Duration = Duration::from_secs(1);

/// The place, and who is to have it next.
#[derive(Default)]
pub(super) struct Turns {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    is_taken: bool,
    /// Those who want it, each with the time at which it last waited: who had it longest ago is first.
    line: Vec<(Arc<str>, Instant)>,
}

/// The place, as long as this lives.
pub(super) struct Turn(Arc<Turns>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.state.lock().is_taken = false;
        self.0.changed.notify_waiters();
    }
}

impl Turns {
    /// The place, once it is the principal's turn.
    pub async fn wait(self: &Arc<Self>, principal: &Arc<str>) -> Turn {
        loop {
            let changed = self.changed.notified();
            if self.state.lock().take(principal) {
                return Turn(self.clone());
            }
            let _ = timeout(POLL, changed).await;
        }
    }
}

impl State {
    /// Takes the place if it is free and nobody else is to have it first.
    fn take(&mut self, principal: &Arc<str>) -> bool {
        let now = Instant::now();
        match self.line.iter_mut().find(|(name, _)| name == principal) {
            Some((_, waited)) => *waited = now,
            None => self.line.push((principal.clone(), now)),
        }
        self.line.retain(|(_, waited)| now - *waited < ABSENCE);
        let is_next = self.line.first().is_some_and(|(name, _)| name == principal);
        if self.is_taken || !is_next {
            return false;
        }
        self.line.remove(0);
        self.is_taken = true;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports that are put off when they have waited for three seconds, and wait again five seconds later, as often
    /// as they are told, each with the place for so long; how many of them had it until `end`.
    async fn reports(turns: &Arc<Turns>, name: &str, number: usize, end: Instant) -> usize {
        let name: Arc<str> = name.into();
        let one = async || {
            let mut had = 0;
            while Instant::now() < end {
                tokio::time::sleep(Duration::from_secs(5)).await;
                let Ok(_turn) = timeout(Duration::from_secs(3), turns.wait(&name)).await else {
                    continue;
                };
                had += 1;
                tokio::time::sleep(Duration::from_secs(20)).await;
            }
            had
        };
        let all = futures::future::join_all((0..number).map(|_| one()));
        all.await.into_iter().sum()
    }

    #[tokio::test(start_paused = true)]
    async fn a_principal_with_many_slow_receivers_leaves_others_their_turn() {
        let turns = Arc::<Turns>::default();
        let end = Instant::now() + Duration::from_secs(1000);
        let (ann, bob) = tokio::join!(
            reports(&turns, "ann", 16, end),
            reports(&turns, "bob", 1, end)
        );
        assert!(bob >= 12 && ann >= 12, "{ann} of ann, {bob} of bob");
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_come_back_keeps_nobody_waiting() {
        let turns = Arc::<Turns>::default();
        let [ann, bob] = ["ann", "bob"].map(Arc::<str>::from);
        let held = turns.wait(&ann).await;
        let limit = Duration::from_secs(1);
        assert!(timeout(limit, turns.wait(&bob)).await.is_err());
        drop(held);
        let begin = Instant::now();
        let held = turns.wait(&ann).await;
        assert!(begin.elapsed() > Duration::from_secs(10), "bob was first");
        drop(held);
        turns.wait(&bob).await;
        let begin = Instant::now();
        turns.wait(&ann).await;
        assert_eq!(begin.elapsed(), Duration::ZERO);
    }
}
