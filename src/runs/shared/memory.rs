//! The memory that a request takes for the states it reads: reserved before they are decoded, and until
//! the response is out, or the change that begins with them is written.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    budget::{Budget, Refusal, Reservation},
    contention::shares::Percent,
    runs::listing::{BATCH_BYTES, IN_MEMORY},
    store::memory::ItemMemory,
    tree::{
        error::{Error, Result},
        load::StateMemory,
    },
};

/// The memory for large states, and one place beside it.
#[derive(Clone, Debug)]
pub struct States {
    budget: Arc<Budget>,
    /// For what is read although there is no memory left, one at a time.
    beside: Arc<Semaphore>,
    /// The same for lists that have begun, which their clients read as slowly as they like.
    list_beside: Arc<Semaphore>,
    /// The same for results of runs, which are read and not waited for.
    result_beside: Arc<Semaphore>,
    /// The same for requests of runs of which a few fields are read, which nothing else is waited for meanwhile.
    request_beside: Arc<Semaphore>,
}

/// Whose share they take: no client's, since what is read of them does not depend on what that has.
const REQUESTS: &str = "requests of runs";

impl States {
    /// So many bytes of memory, of which each client has this share.
    pub fn with_share(bytes: usize, share: Percent) -> Self {
        Self {
            budget: Budget::with_share(bytes, share.of(bytes)),
            beside: Arc::new(Semaphore::new(1)),
            list_beside: Arc::new(Semaphore::new(1)),
            result_beside: Arc::new(Semaphore::new(1)),
            request_beside: Arc::new(Semaphore::new(1)),
        }
    }

    /// So many bytes of memory, of which each client has half.
    #[cfg(test)]
    pub fn new(bytes: usize) -> Self {
        Self::with_share(bytes, Percent::default())
    }

    /// What their memory is reserved from.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// The one place for what is read although there is no memory left, once it is free.
    pub async fn beside(&self) -> Option<OwnedSemaphorePermit> {
        // It is never closed.
        self.beside.clone().acquire_owned().await.ok()
    }

    /// The one place for what a list reads that has begun although there is no memory left, once it is free.
    pub async fn list_beside(&self) -> Option<OwnedSemaphorePermit> {
        self.list_beside.clone().acquire_owned().await.ok()
    }

    /// The one place for a result of a run that is read although there is no memory left, once it is free.
    pub async fn result_beside(&self) -> Option<OwnedSemaphorePermit> {
        self.result_beside.clone().acquire_owned().await.ok()
    }

    /// Memory for a request of a run that weighs so much, of which a few fields are read at once: small ones take none,
    /// and where none is left there is one of them at a time.
    pub async fn for_request(&self, weight: u64) -> RequestMemory {
        let Some(bytes) = bytes_of(weight, &self.budget) else {
            return RequestMemory::default();
        };
        if let Ok(reserved) = self.budget.reserve(&REQUESTS.into(), bytes) {
            return RequestMemory(Some(reserved), None);
        }
        // It is never closed.
        let beside = self.request_beside.clone().acquire_owned().await;
        RequestMemory(None, beside.ok())
    }

    /// The memory for what is read for no response that is being made.
    pub fn read_by(&self, payer: Arc<str>) -> ReadMemory {
        ReadMemory {
            budget: self.budget.clone(),
            payer,
            response: Weak::new(),
            goes_on: false,
        }
    }

    /// The memory for what the server reads by itself, as long as `taken` is there: counted, and not waited for.
    pub fn read_by_server(&self, taken: &Arc<ResponseMemory>) -> ReadMemory {
        ReadMemory {
            goes_on: true,
            ..ReadMemory::new(self.budget.clone(), "".into(), taken)
        }
    }

    /// The memory for what a change reads.
    pub fn changed_by(&self, payer: Arc<str>) -> ChangeMemory {
        ChangeMemory {
            of: Some((self.clone(), payer)),
            reserved: Mutex::default(),
        }
    }
}

/// What a request of a run takes that is read; it is free again once this is dropped.
#[derive(Debug, Default)]
pub struct RequestMemory(
    #[expect(dead_code, reason = "it is dropped")] Option<Reservation>,
    #[expect(dead_code, reason = "it is dropped")] Option<OwnedSemaphorePermit>,
);

/// What the states take that a change begins with: they are free again once this is dropped, since its response
/// shows none of them. Where nothing is left one change at a time goes on beside it: unread responses must not
/// keep their client from changing anything.
#[derive(Debug, Default)]
pub struct ChangeMemory {
    /// Whose share of what they take; without it they take nothing.
    of: Option<(States, Arc<str>)>,
    reserved: Mutex<Reserved>,
}

#[derive(Debug, Default)]
struct Reserved {
    reservation: Option<Reservation>,
    beside: Option<OwnedSemaphorePermit>,
}

impl StateMemory for ChangeMemory {
    /// All of one change together take at most what one payer may have.
    fn take(&self, weight: u64) -> Result<Option<Reservation>> {
        let Some((states, payer)) = &self.of else {
            return Ok(None);
        };
        let budget = &states.budget;
        let mut reserved = self.reserved.lock();
        let Some(bytes) = bytes_of(weight, budget).filter(|_| reserved.beside.is_none()) else {
            return Ok(None);
        };
        let result = match &mut reserved.reservation {
            Some(memory) => memory.resize((memory.bytes() + bytes).min(budget.share())),
            none => budget
                .reserve(payer, bytes)
                .map(|memory| *none = Some(memory)),
        };
        if result.is_err() {
            let beside = states.beside.clone().try_acquire_owned();
            reserved.beside = Some(beside.map_err(|_| Error::no_memory())?);
        }
        Ok(None)
    }
}

/// What was reserved for the states of a response; it is free again once this is dropped.
pub type ResponseMemory = Mutex<Option<Reservation>>;

/// A reservation for a value, which ends with the last of those who share it.
pub type ReadingMemory = Arc<Reservation>;

/// Whose share of which budget a request's states take.
#[derive(Clone, Debug)]
pub struct ReadMemory {
    budget: Arc<Budget>,
    payer: Arc<str>,
    /// Of the response that is being made. Once its head is out, what a stream reads takes memory only
    /// while it is read.
    response: Weak<ResponseMemory>,
    /// It takes what it needs, also beyond what is left.
    goes_on: bool,
}

impl ReadMemory {
    /// The memory for a response: reservations go into it as long as it is there.
    pub fn new(budget: Arc<Budget>, payer: Arc<str>, response: &Arc<ResponseMemory>) -> Self {
        let response = Arc::downgrade(response);
        Self {
            budget,
            payer,
            response,
            goes_on: false,
        }
    }

    /// Whose share it is.
    pub fn payer(&self) -> &Arc<str> {
        &self.payer
    }

    /// The same for a part of a stream, as long as `part` is there.
    pub fn of_part(&self, part: &Arc<ResponseMemory>) -> Self {
        Self {
            response: Arc::downgrade(part),
            ..self.clone()
        }
    }

    /// The same for what the response shows nothing of: it has none of the memory.
    pub fn apart(&self) -> Self {
        Self {
            response: Weak::new(),
            ..self.clone()
        }
    }

    /// Memory for a state that weighs so much; small ones take none. The largest ones, and all of one response
    /// together, take at most what one payer may have, so that there is one of them at a time. `None` also when the
    /// response has taken the reservation.
    ///
    /// # Errors
    /// There is not enough left.
    pub fn reserve(&self, weight: u64) -> std::result::Result<Option<Reservation>, Refusal> {
        let Some(bytes) = bytes_of(weight, &self.budget) else {
            return Ok(None);
        };
        let Some(response) = self.response.upgrade() else {
            return self.budget.reserve(&self.payer, bytes).map(Some);
        };
        let mut reserved = response.lock();
        match &mut *reserved {
            // One after the other is read, and little of each is left.
            Some(memory) if self.goes_on => memory.charge(memory.bytes().max(bytes)),
            None if self.goes_on => *reserved = Some(self.budget.charge(&self.payer, bytes)),
            Some(memory) => memory.resize((memory.bytes() + bytes).min(self.budget.share()))?,
            None => *reserved = Some(self.budget.reserve(&self.payer, bytes)?),
        }
        Ok(None)
    }

    /// As [`reserve`](Self::reserve), for a state that the response shows. One that takes more alone than one payer
    /// may have is refused; `instead` says what else its client can do.
    ///
    /// # Errors
    /// 413 for such a state, 503 when there is not enough left.
    pub fn reserve_state(&self, weight: u64, instead: &str) -> Result<Option<Reservation>> {
        self.check_state(weight, instead)?;
        self.reserve(weight).map_err(|_| Error::no_memory())
    }

    /// Checks that a state does not take more than one payer may have, as [`reserve_state`](Self::reserve_state).
    ///
    /// # Errors
    /// 413: it does.
    pub fn check_state(&self, weight: u64, instead: &str) -> Result<()> {
        let most = BATCH_BYTES.max(self.budget.share() as u64 / IN_MEMORY);
        if weight > most && !self.goes_on {
            return Err(Error::state_too_large(weight, most, instead));
        }
        Ok(())
    }

    /// As [`reserve`](Self::reserve), as soon as there is enough, for a response whose head is out.
    pub async fn wait(&self, weight: u64) -> Option<Reservation> {
        let bytes = bytes_of(weight, &self.budget)?;
        Some(self.wait_for(bytes).await)
    }

    /// As [`reserve`](Self::reserve) while the response is being made, and as [`wait`](Self::wait) once
    /// its head is out.
    ///
    /// # Errors
    /// There is not enough left for a response that is being made.
    pub async fn obtain(&self, weight: u64) -> std::result::Result<Option<Reservation>, Refusal> {
        if self.response.strong_count() > 0 {
            self.reserve(weight)
        } else {
            Ok(self.wait(weight).await)
        }
    }

    /// As [`reserve_state`](Self::reserve_state) while the response is being made, and as [`wait`](Self::wait) once
    /// its head is out.
    ///
    /// # Errors
    /// As [`reserve_state`](Self::reserve_state) for a response that is being made.
    pub async fn obtain_state(&self, weight: u64, instead: &str) -> Result<Option<Reservation>> {
        if self.response.strong_count() > 0 {
            self.reserve_state(weight, instead)
        } else {
            Ok(self.wait(weight).await)
        }
    }

    /// Memory of so many bytes, as soon as there is enough; more than one payer may have counts as that.
    pub async fn wait_for(&self, bytes: usize) -> Reservation {
        self.budget.wait(&self.payer, bytes).await
    }

    /// Memory of so many bytes for something small, also beyond what is left.
    pub fn charge(&self, bytes: usize) -> Reservation {
        self.budget.charge(&self.payer, bytes)
    }
}

impl ItemMemory for ReadMemory {
    /// The response reads nothing else.
    fn resize(&self, weight: u64) -> bool {
        let Some(response) = self.response.upgrade() else {
            return true;
        };
        let bytes = bytes_of(weight, &self.budget).unwrap_or(0);
        let mut reserved = response.lock();
        match &mut *reserved {
            none if bytes == 0 => {
                *none = None;
                true
            }
            Some(memory) => memory.resize(bytes).is_ok(),
            none => {
                let memory = self.budget.reserve(&self.payer, bytes);
                memory.map(|memory| *none = Some(memory)).is_ok()
            }
        }
    }
}

impl StateMemory for ReadMemory {
    /// For a state that the response shows: see [`reserve_state`](Self::reserve_state).
    fn take(&self, weight: u64) -> Result<Option<Reservation>> {
        self.reserve_state(weight, "")
    }
}

/// What a state takes that weighs so much; `None` for a small one.
pub fn bytes_of(weight: u64, budget: &Budget) -> Option<usize> {
    let bytes = usize::try_from(weight.saturating_mul(IN_MEMORY)).unwrap_or(usize::MAX);
    (weight > BATCH_BYTES).then(|| bytes.min(budget.share()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_states_take_nothing_and_of_the_largest_there_is_one_at_a_time() {
        let budget = Budget::new(100 << 20);
        let memory = ReadMemory::new(budget.clone(), "ann".into(), &Arc::default());
        assert!(memory.reserve(BATCH_BYTES).unwrap().is_none());
        let large = memory.reserve(2 << 20).unwrap();
        assert_eq!(budget.reserved(), 12 << 20);
        drop(large);
        let largest = memory.reserve(1 << 40).unwrap();
        assert_eq!(budget.reserved(), 50 << 20);
        assert_eq!(memory.reserve(2 << 20).unwrap_err(), Refusal::Exhausted);
        drop(largest);
        assert_eq!(budget.reserved(), 0);
    }

    #[test]
    fn a_change_has_the_memory_of_its_states_and_goes_on_beside_it_alone() {
        let states = States::new(100 << 20);
        let change = || states.changed_by("ann".into());
        let first = change();
        assert!(first.take(BATCH_BYTES).unwrap().is_none());
        assert_eq!(states.budget().reserved(), 0);
        assert!(first.take(2 << 20).unwrap().is_none());
        assert!(first.take(3 << 20).unwrap().is_none());
        assert_eq!(states.budget().reserved(), 30 << 20);
        // What one change takes is never too much for it alone.
        assert!(first.take(1 << 40).unwrap().is_none());
        assert_eq!(states.budget().reserved(), 50 << 20);
        let (second, third) = (change(), change());
        assert!(second.take(2 << 20).unwrap().is_none());
        assert!(second.take(2 << 20).unwrap().is_none(), "it goes on");
        let refused = third.take(2 << 20).unwrap_err();
        assert!(refused.to_string().contains("Try again later"), "{refused}");
        assert!(third.take(BATCH_BYTES).unwrap().is_none(), "a small one");
        drop(second);
        assert!(third.take(2 << 20).unwrap().is_none());
        drop((first, third));
        assert_eq!(states.budget().reserved(), 0);
        assert!(ChangeMemory::default().take(1 << 40).unwrap().is_none());
    }

    #[tokio::test]
    async fn requests_are_read_one_at_a_time_where_no_memory_is_left() {
        let states = States::new(100 << 20);
        drop(states.for_request(BATCH_BYTES).await);
        assert_eq!(states.budget().reserved(), 0, "a small one");
        let all = states.for_request(1 << 40).await;
        assert_eq!(states.budget().reserved(), 50 << 20);
        let beside = states.for_request(2 << 20).await;
        assert_eq!(states.budget().reserved(), 50 << 20);
        let mut waiting = std::pin::pin!(states.for_request(2 << 20));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        drop(beside);
        drop(waiting.await);
        drop(all);
        assert_eq!(states.budget().reserved(), 0);
    }

    #[tokio::test]
    async fn once_its_head_is_out_a_response_waits_for_memory() {
        let states = States::new(100 << 20);
        let response = Arc::<ResponseMemory>::default();
        let memory = ReadMemory::new(states.budget().clone(), "ann".into(), &response);
        let other = states.budget().reserve(&"ann".into(), 50 << 20).unwrap();
        assert_eq!(
            memory.obtain(2 << 20).await.unwrap_err(),
            Refusal::Exhausted
        );
        drop(response);
        let mut waiting = std::pin::pin!(memory.obtain(2 << 20));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        drop(other);
        assert_eq!(waiting.await.unwrap().unwrap().bytes(), 12 << 20);
    }

    #[test]
    fn a_state_that_takes_more_than_one_payer_may_have_is_refused_and_one_of_just_that_is_not() {
        let budget = Budget::new(120 << 20);
        let memory = ReadMemory::new(budget.clone(), "ann".into(), &Arc::default());
        let whole = memory.reserve_state(10 << 20, "").unwrap();
        assert_eq!(budget.reserved(), 60 << 20);
        let code = |weight| match memory.reserve_state(weight, " or so").unwrap_err() {
            Error::Refused { code, detail, .. } => (code, detail.contains("SHARE or so")),
            other => panic!("{other}"),
        };
        assert_eq!(code((10 << 20) + 1), ("too_large", true));
        assert_eq!(code(2 << 20), ("no_memory", false));
        drop(whole);
        // However little memory there is, small states take none.
        let memory = ReadMemory::new(Budget::new(1), "ann".into(), &Arc::default());
        assert!(memory.reserve_state(BATCH_BYTES, "").unwrap().is_none());
        assert_eq!(budget.reserved(), 0);
    }

    #[test]
    fn a_response_has_the_memory_of_the_items_that_it_has_now() {
        let budget = Budget::new(100 << 20);
        let response = Arc::default();
        let memory = ReadMemory::new(budget.clone(), "ann".into(), &response);
        for (weight, reserved) in [
            (BATCH_BYTES, 0),
            (4 << 20, 24),
            (2 << 20, 12),
            (BATCH_BYTES, 0),
            (1000 << 20, 50),
            (3 << 20, 18),
        ] {
            assert!(memory.resize(weight));
            assert_eq!(budget.reserved(), reserved << 20);
        }
        let other = budget.reserve(&"ann".into(), 32 << 20).unwrap();
        assert!(!memory.resize(4 << 20), "more than there is");
        assert_eq!(budget.reserved(), 50 << 20);
        drop((response, other));
        assert_eq!(budget.reserved(), 0);
    }

    #[test]
    fn what_the_server_reads_by_itself_is_counted_and_never_refused() {
        let states = States::new(100 << 20);
        let taken = Arc::default();
        let memory = states.read_by_server(&taken);
        let full = states.budget().reserve(&"ann".into(), 50 << 20).unwrap();
        for _ in 0..3 {
            memory.reserve_state(6 << 20, "").unwrap();
        }
        assert_eq!(states.budget().reserved(), (50 + 36) << 20);
        memory.reserve_state(1 << 40, "").unwrap();
        assert_eq!(states.budget().reserved(), (50 + 50) << 20);
        drop((full, taken));
        assert_eq!(states.budget().reserved(), 0);
    }

    #[test]
    fn a_response_has_the_memory_of_its_states_until_it_is_out() {
        let budget = Budget::new(100 << 20);
        let response = Arc::default();
        let memory = ReadMemory::new(budget.clone(), "ann".into(), &response);
        assert!(memory.reserve(2 << 20).unwrap().is_none());
        assert_eq!(budget.reserved(), 12 << 20, "the state itself is gone");
        // A second one counts too, and what one response takes is never too much for it alone.
        assert!(memory.reserve(3 << 20).unwrap().is_none());
        assert_eq!(budget.reserved(), 30 << 20);
        assert!(memory.reserve(1 << 40).unwrap().is_none());
        assert_eq!(budget.reserved(), 50 << 20);
        drop(response);
        assert_eq!(budget.reserved(), 0);
        assert!(memory.reserve(2 << 20).unwrap().is_some());
    }
}
