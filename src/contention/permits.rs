//! Permits by name: there are as many of each name, and who finds none waits in a line. Those who have begun their
//! work go before those who have not, and these before those who are patient, but for one in a while; else first come
//! first served. The patient ones leave one permit to the others, where there is more than one.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// So many of one priority are served in a row while others wait: some go on for long, one turn after another.
const IN_A_ROW: usize = 16;

/// So many permits of each name.
#[derive(Debug)]
pub struct Permits {
    each: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Only names of which permits are taken.
    lines: HashMap<Arc<str>, Line>,
    /// The number of the last waiter.
    last: u64,
}

/// The permits of one name. While somebody waits all of them are taken, or all that the patient ones may have.
#[derive(Debug, Default)]
struct Line {
    taken: usize,
    /// How many of them by patient ones.
    patient: usize,
    /// Those of each priority, those first who go first.
    waiting: [VecDeque<Waiter>; 3],
    /// How many of each were served in a row while others waited behind them.
    passed: [usize; 3],
}

/// Numbers grow from the front of a line to its end.
#[derive(Debug)]
struct Waiter {
    number: u64,
    turn: oneshot::Sender<Permit>,
}

/// Where in the line of its name somebody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Before all that have not begun: it is part of work that was given something already.
    Begun,
    /// Before those who are patient.
    New,
    /// Behind all others, and never with all of the permits if there are several.
    Patient,
}

impl Priority {
    /// Those first who go first.
    const ALL: [Self; 3] = [Self::Begun, Self::New, Self::Patient];
}

/// One permit; the next one has it when this is dropped.
#[derive(Debug)]
pub struct Permit {
    of: Arc<Permits>,
    name: Arc<str>,
    priority: Priority,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.of.pass_on(&self.name, self.priority);
    }
}

/// Somebody in a line; out of it once this is dropped.
struct InLine<'a> {
    permits: &'a Permits,
    name: &'a str,
    priority: Priority,
    number: u64,
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        let mut state = self.permits.state.lock();
        if let Some(line) = state.lines.get_mut(self.name) {
            line.leave(self.priority, self.number);
        }
    }
}

impl Permits {
    /// So many of each name, and at least one.
    pub fn new(each: usize) -> Arc<Self> {
        Arc::new(Self {
            each: each.max(1),
            state: Mutex::default(),
        })
    }

    /// A permit of a name, if one is left.
    pub fn try_take(self: &Arc<Self>, name: &Arc<str>) -> Option<Permit> {
        self.take_in(&mut self.state.lock(), name, Priority::New)
    }

    /// A permit of a name as soon as it is this one's turn. Who stops to wait has taken nothing.
    pub async fn wait(self: &Arc<Self>, name: &Arc<str>, priority: Priority) -> Permit {
        loop {
            let (turn, passed) = oneshot::channel();
            let number = {
                let mut state = self.state.lock();
                if let Some(permit) = self.take_in(&mut state, name, priority) {
                    return permit;
                }
                state.add(name, priority, turn)
            };
            let _in_line = InLine {
                permits: self,
                name,
                priority,
                number,
            };
            // Nobody but this future takes it out of the line without a permit.
            if let Ok(permit) = passed.await {
                return permit;
            }
        }
    }

    /// How many patient ones may have.
    fn most_patient(&self) -> usize {
        (self.each - 1).max(1)
    }

    fn take_in(
        self: &Arc<Self>,
        state: &mut State,
        name: &Arc<str>,
        priority: Priority,
    ) -> Option<Permit> {
        let (taken, patient) = state
            .lines
            .get(name)
            .map_or((0, 0), |line| (line.taken, line.patient));
        let may = priority != Priority::Patient || patient < self.most_patient();
        (may && taken < self.each).then(|| {
            let line = state.lines.entry(name.clone()).or_default();
            line.taken += 1;
            line.patient += usize::from(priority == Priority::Patient);
            self.permit(name, priority)
        })
    }

    fn permit(self: &Arc<Self>, name: &Arc<str>, priority: Priority) -> Permit {
        Permit {
            of: self.clone(),
            name: name.clone(),
            priority,
        }
    }

    /// Gives a permit that was dropped to the next one in the line of its name.
    fn pass_on(self: &Arc<Self>, name: &Arc<str>, priority: Priority) {
        let next = self.state.lock().next(name, priority, self.most_patient());
        if let Some((waiter, priority)) = next {
            // Who has left meanwhile passes it on.
            drop(waiter.turn.send(self.permit(name, priority)));
        }
    }
}

impl State {
    fn add(&mut self, name: &Arc<str>, priority: Priority, turn: oneshot::Sender<Permit>) -> u64 {
        self.last += 1;
        let number = self.last;
        let line = self.lines.entry(name.clone()).or_default();
        line.of(priority).push_back(Waiter { number, turn });
        number
    }

    /// Who has a permit next that was given back; if nobody waits who may have it, it is free.
    fn next(
        &mut self,
        name: &str,
        returned: Priority,
        most_patient: usize,
    ) -> Option<(Waiter, Priority)> {
        let line = self.lines.get_mut(name)?;
        line.patient -= usize::from(returned == Priority::Patient);
        let next = line.next(most_patient);
        match &next {
            Some((_, priority)) => {
                line.patient += usize::from(*priority == Priority::Patient);
            }
            None => {
                line.taken -= 1;
                if line.taken == 0 {
                    self.lines.remove(name);
                }
            }
        }
        next
    }
}

impl Line {
    fn of(&mut self, priority: Priority) -> &mut VecDeque<Waiter> {
        &mut self.waiting[priority as usize]
    }

    fn next(&mut self, most_patient: usize) -> Option<(Waiter, Priority)> {
        let mut waits = Priority::ALL.map(|priority| !self.of(priority).is_empty());
        waits[Priority::Patient as usize] &= self.patient < most_patient;
        for (at, priority) in Priority::ALL.into_iter().enumerate() {
            let others_wait = waits[at + 1..].contains(&true);
            if !waits[at] || others_wait && self.passed[at] >= IN_A_ROW {
                self.passed[at] = 0;
                continue;
            }
            self.passed[at] += usize::from(others_wait);
            let next = self.of(priority).pop_front();
            return next.map(|waiter| (waiter, priority));
        }
        None
    }

    fn leave(&mut self, priority: Priority, number: u64) {
        let line = self.of(priority);
        if let Ok(at) = line.binary_search_by_key(&number, |waiter| waiter.number) {
            line.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use futures::{FutureExt, future::BoxFuture};

    use super::*;

    /// Somebody who stands in the line.
    fn waiter(
        permits: &Arc<Permits>,
        name: &Arc<str>,
        priority: Priority,
    ) -> BoxFuture<'static, Permit> {
        let (permits, name) = (permits.clone(), name.clone());
        let mut wait = async move { permits.wait(&name, priority).await }.boxed();
        assert!(now(&mut wait).is_none(), "nothing is left");
        wait
    }

    fn now(wait: &mut BoxFuture<'static, Permit>) -> Option<Permit> {
        Pin::new(wait).now_or_never()
    }

    #[test]
    fn those_who_have_begun_go_first_and_else_those_who_came_first() {
        let permits = Permits::new(1);
        let ann: Arc<str> = "ann".into();
        let mut held = permits.try_take(&ann);
        let of = |priority| waiter(&permits, &ann, priority);
        use Priority::{Begun, New, Patient};
        let mut all = [of(Patient), of(New), of(New), of(Begun), of(New), of(Begun)];
        for at in [3, 5, 1, 2, 4, 0] {
            drop(held);
            held = now(&mut all[at]);
            assert!(held.is_some(), "{at}");
            assert!(permits.try_take(&ann).is_none());
        }
    }

    #[test]
    fn those_who_go_on_for_long_do_not_keep_others_waiting_for_ever() {
        use Priority::{Begun, New, Patient};
        for (first, behind) in [(Begun, New), (Begun, Patient), (New, Patient)] {
            let permits = Permits::new(1);
            let ann: Arc<str> = "ann".into();
            let mut held = permits.try_take(&ann);
            let mut other = waiter(&permits, &ann, behind);
            for _ in 0..IN_A_ROW {
                let mut next = waiter(&permits, &ann, first);
                drop(held);
                assert!(now(&mut other).is_none());
                held = now(&mut next);
                assert!(held.is_some());
            }
            let _next = waiter(&permits, &ann, first);
            drop(held);
            assert!(now(&mut other).is_some(), "{first:?} {behind:?}");
        }
    }

    #[test]
    fn patient_ones_leave_one_to_the_others() {
        use Priority::{New, Patient};
        let permits = Permits::new(3);
        let ann: Arc<str> = "ann".into();
        let take = |priority| {
            let mut wait = Box::pin(permits.wait(&ann, priority));
            (&mut wait).now_or_never()
        };
        let mut held = vec![take(Patient).unwrap(), take(Patient).unwrap()];
        let mut patient = waiter(&permits, &ann, Patient);
        let new = take(New).unwrap();
        let mut next = waiter(&permits, &ann, New);
        drop(new);
        let new = now(&mut next).unwrap();
        drop(new);
        assert!(now(&mut patient).is_none(), "one is left to the others");
        drop(held.pop());
        held.extend(now(&mut patient));
        assert_eq!(held.len(), 2);
        let new = take(New).unwrap();
        drop((held, new));
        assert!(permits.state.lock().lines.is_empty());
        let alone = Permits::new(1);
        let of_one = alone.wait(&ann, Patient);
        assert!(Box::pin(of_one).now_or_never().is_some());
    }

    #[test]
    fn who_leaves_the_line_or_has_left_when_its_turn_comes_keeps_nobody_waiting() {
        let permits = Permits::new(1);
        let ann: Arc<str> = "ann".into();
        let held = permits.try_take(&ann);
        let of = |priority| waiter(&permits, &ann, priority);
        let gone = of(Priority::Begun);
        let next = of(Priority::New);
        let mut last = of(Priority::New);
        drop(gone);
        drop(held);
        // It has the permit, and leaves before it has looked.
        drop(next);
        let held = now(&mut last).unwrap();
        drop(held);
        assert!(permits.try_take(&ann).is_some());
    }

    #[test]
    fn each_name_has_its_own_permits_and_is_forgotten_once_nobody_uses_it() {
        let permits = Permits::new(2);
        let (ann, bob): (Arc<str>, Arc<str>) = ("ann".into(), "bob".into());
        let held = (permits.try_take(&ann), permits.try_take(&ann));
        let waits = waiter(&permits, &ann, Priority::New);
        assert!(permits.try_take(&ann).is_none());
        assert!(permits.try_take(&bob).is_some());
        let names = || permits.state.lock().lines.len();
        assert_eq!(names(), 1, "bob has none");
        drop(waits);
        let left = permits.state.lock().lines[&ann].waiting[Priority::New as usize].len();
        assert_eq!(left, 0);
        drop(held);
        assert_eq!(names(), 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_permit_is_lost_or_given_twice_while_waiters_come_and_go() {
        use std::sync::atomic::{AtomicUsize, Ordering};

        let permits = Permits::new(2);
        let taken = Arc::new(AtomicUsize::new(0));
        let one = |at: usize| {
            let (permits, taken) = (permits.clone(), taken.clone());
            tokio::spawn(async move {
                let ann: Arc<str> = "ann".into();
                use Priority::{Begun, New, Patient};
                let priority = [Begun, New, Patient][at % 3];
                for round in 0..200 {
                    let mut wait = permits.wait(&ann, priority).boxed();
                    tokio::task::yield_now().await;
                    if (round + at).is_multiple_of(3) {
                        // This one looks once.
                        drop((&mut wait).now_or_never());
                        continue;
                    }
                    let permit = wait.await;
                    assert!(taken.fetch_add(1, Ordering::SeqCst) < 2);
                    tokio::task::yield_now().await;
                    taken.fetch_sub(1, Ordering::SeqCst);
                    drop(permit);
                }
            })
        };
        for task in (0..16).map(one).collect::<Vec<_>>() {
            task.await.unwrap();
        }
        assert!(permits.state.lock().lines.is_empty());
    }
}
