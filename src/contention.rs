//! Lines at what is changed by one at a time: who waits does so in this process, in a bounded line, and
//! holds nothing meanwhile that others need.

use std::{collections::HashMap, fmt, hash::Hash, sync::Arc, time::Duration};

#[cfg(feature = "postgres")]
pub mod groups;
pub mod permits;
pub mod shares;
pub mod unlimited;

use parking_lot::Mutex;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// How many may wait for one key, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Those that wait at the same time.
    pub waiting: usize,
    /// The longest wait.
    pub limit: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            waiting: 256,
            limit: Duration::from_secs(10),
        }
    }
}

/// A turn did not come: too many wait for the same key, or those before take too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many requests wait for each other to change one thread or its relatives")]
pub struct Crowded;

/// Lets those with the same key follow each other, in the order in which they came: a line per key.
pub struct Lines<K: Eq + Hash + Copy> {
    lines: Arc<Mutex<HashMap<K, Line>>>,
    patience: Patience,
}

/// Those who have a turn at one key or wait for it.
struct Line {
    lock: Arc<RwLock<()>>,
    members: usize,
}

/// The right to go on; the next one has it when this is dropped.
pub struct Turn<K: Eq + Hash + Copy> {
    // Dropped before the membership, so that a line without members is one that nobody has locked.
    _lock: Lock,
    _member: Member<K>,
}

enum Lock {
    Alone { _guard: OwnedRwLockWriteGuard<()> },
    Shared { _guard: OwnedRwLockReadGuard<()> },
}

/// One of those who have a turn or wait for it.
struct Member<K: Eq + Hash + Copy> {
    lines: Arc<Mutex<HashMap<K, Line>>>,
    key: K,
}

impl<K: Eq + Hash + Copy> Lines<K> {
    /// Lines that are waited for with this patience.
    pub fn new(patience: Patience) -> Self {
        Self {
            lines: Arc::default(),
            patience,
        }
    }

    /// Waits until nobody else has a turn at the key.
    ///
    /// # Errors
    /// Too many wait, or the wait took too long.
    pub async fn alone(&self, key: K) -> Result<Turn<K>, Crowded> {
        let line = self.join(key, self.patience.waiting)?;
        self.turn_alone(line).await
    }

    /// The same, however many wait: for those whose number is bounded elsewhere.
    ///
    /// # Errors
    /// The wait took too long.
    #[cfg(feature = "postgres")]
    pub async fn alone_among_any(&self, key: K) -> Result<Turn<K>, Crowded> {
        let line = self.join(key, usize::MAX)?;
        self.turn_alone(line).await
    }

    /// Waits until nobody has a turn alone at the key; others may share this one.
    ///
    /// # Errors
    /// As [`alone`](Self::alone).
    pub async fn shared(&self, key: K) -> Result<Turn<K>, Crowded> {
        let (lock, member) = self.join(key, self.patience.waiting)?;
        self.turn(member, async {
            Lock::Shared {
                _guard: lock.read_owned().await,
            }
        })
        .await
    }

    /// The same if nobody has a turn alone at the key or waits for one.
    #[cfg(feature = "postgres")]
    pub fn try_shared(&self, key: K) -> Option<Turn<K>> {
        let (lock, member) = self.join(key, usize::MAX).ok()?;
        let _lock = Lock::Shared {
            _guard: lock.try_read_owned().ok()?,
        };
        Some(Turn {
            _lock,
            _member: member,
        })
    }

    /// A turn alone if nobody has a turn at the key or waits for one.
    #[cfg(feature = "postgres")]
    pub fn try_alone(&self, key: K) -> Option<Turn<K>> {
        let (lock, member) = self.join(key, usize::MAX).ok()?;
        let _lock = Lock::Alone {
            _guard: lock.try_write_owned().ok()?,
        };
        Some(Turn {
            _lock,
            _member: member,
        })
    }

    async fn turn_alone(
        &self,
        (lock, member): (Arc<RwLock<()>>, Member<K>),
    ) -> Result<Turn<K>, Crowded> {
        self.turn(member, async {
            Lock::Alone {
                _guard: lock.write_owned().await,
            }
        })
        .await
    }

    async fn turn(
        &self,
        member: Member<K>,
        lock: impl Future<Output = Lock>,
    ) -> Result<Turn<K>, Crowded> {
        match tokio::time::timeout(self.patience.limit, lock).await {
            Ok(lock) => Ok(Turn {
                _lock: lock,
                _member: member,
            }),
            Err(_) => Err(Crowded),
        }
    }

    fn join(&self, key: K, most: usize) -> Result<(Arc<RwLock<()>>, Member<K>), Crowded> {
        let mut lines = self.lines.lock();
        let line = lines.entry(key).or_insert_with(|| Line {
            lock: Arc::default(),
            members: 0,
        });
        if line.members > most {
            return Err(Crowded);
        }
        line.members += 1;
        let member = Member {
            lines: self.lines.clone(),
            key,
        };
        Ok((line.lock.clone(), member))
    }
}

#[cfg(feature = "postgres")]
impl<K: Eq + Hash + Copy> Turn<K> {
    /// Lets others share it from now on.
    #[must_use]
    pub fn share(self) -> Self {
        let lock = match self._lock {
            Lock::Alone { _guard } => Lock::Shared {
                _guard: _guard.downgrade(),
            },
            shared => shared,
        };
        Self {
            _lock: lock,
            _member: self._member,
        }
    }
}

impl<K: Eq + Hash + Copy> Drop for Member<K> {
    fn drop(&mut self) {
        let mut lines = self.lines.lock();
        if let Some(line) = lines.get_mut(&self.key) {
            line.members -= 1;
            if line.members == 0 {
                lines.remove(&self.key);
            }
        }
    }
}

impl<K: Eq + Hash + Copy> fmt::Debug for Lines<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").finish_non_exhaustive()
    }
}

impl<K: Eq + Hash + Copy> fmt::Debug for Turn<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn lines(waiting: usize) -> Lines<u8> {
        Lines::new(Patience {
            waiting,
            limit: Duration::from_secs(1),
        })
    }

    #[tokio::test]
    async fn one_key_is_for_one_at_a_time_and_another_key_is_free() {
        let lines = lines(5);
        let first = lines.alone(1).await.unwrap();
        let mut second = Box::pin(lines.alone(1));
        assert!((&mut second).now_or_never().is_none());
        let other = lines.alone(2).await.unwrap();
        drop(first);
        let second = second.await.unwrap();
        drop((second, other));
        assert!(lines.lines.lock().is_empty());
    }

    #[tokio::test]
    async fn a_shared_turn_keeps_out_who_wants_it_alone() {
        let lines = lines(5);
        let (one, two) = (
            lines.shared(1).await.unwrap(),
            lines.shared(1).await.unwrap(),
        );
        let mut alone = Box::pin(lines.alone(1));
        assert!((&mut alone).now_or_never().is_none());
        // Who comes later waits behind.
        let mut late = Box::pin(lines.shared(1));
        assert!((&mut late).now_or_never().is_none());
        drop((one, two));
        drop(alone.await.unwrap());
        drop(late.await.unwrap());
        assert!(lines.lines.lock().is_empty());
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn a_shared_turn_is_free_while_nobody_wants_one_alone() {
        let lines = lines(5);
        let held = lines.try_shared(1).unwrap();
        drop(lines.try_shared(1).unwrap());
        assert!(lines.try_alone(1).is_none());
        let mut alone = Box::pin(lines.alone(1));
        assert!((&mut alone).now_or_never().is_none());
        assert!(lines.try_shared(1).is_none());
        drop(held);
        let alone = alone.await.unwrap();
        assert!(lines.try_shared(1).is_none());
        drop(alone);
        let alone = lines.try_alone(1).unwrap();
        assert!(lines.try_shared(1).is_none());
        drop(alone);
        drop(lines.try_shared(1).unwrap());
        assert!(lines.lines.lock().is_empty());
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn a_turn_can_be_shared_later_and_as_many_as_come_may_wait_for_one() {
        let lines = lines(1);
        let first = lines.alone(1).await.unwrap();
        let mut waiting: Vec<_> = (0..5).map(|_| lines.alone_among_any(1).boxed()).collect();
        for one in &mut waiting {
            assert!(one.now_or_never().is_none());
        }
        drop(waiting);
        let mut shared = lines.shared(1).boxed();
        assert!((&mut shared).now_or_never().is_none());
        let first = first.share();
        let shared = shared.await.unwrap();
        let mut alone = lines.alone_among_any(1).boxed();
        assert!((&mut alone).now_or_never().is_none());
        drop((first, shared));
        drop(alone.await.unwrap());
        assert!(lines.lines.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_is_bounded_in_number_and_time() {
        let lines = lines(1);
        let first = lines.alone(1).await.unwrap();
        let waiting = lines.alone(1);
        let mut waiting = Box::pin(waiting);
        assert!((&mut waiting).now_or_never().is_none());
        assert_eq!(lines.alone(1).await.unwrap_err(), Crowded, "too many");
        assert_eq!(waiting.await.unwrap_err(), Crowded, "too long");
        drop(first);
        lines.alone(1).await.unwrap();
        assert!(lines.lines.lock().is_empty());
    }
}
