//! Times to live of threads: how long after its last change a thread expires, and what becomes of it then.

use crate::{time::Timestamp, words::words};

/// The longest time to live, in minutes: about a hundred years.
pub const MINUTES_MAX: f64 = 52_560_000.0;

words! {
    /// What becomes of a thread that has expired.
    pub enum TtlStrategy, "strategy of a time to live" {
        /// It is deleted.
        Delete = "delete",
        /// It stays with its latest checkpoint.
        KeepLatest = "keep_latest",
    }
}

/// A time to live.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ttl {
    /// Minutes from the last change on.
    pub minutes: f64,
    /// What becomes of the thread.
    pub strategy: TtlStrategy,
}

impl Ttl {
    /// A time to live of so many minutes; `None` for a number that is none.
    pub fn of(minutes: f64, strategy: TtlStrategy) -> Option<Self> {
        let is_sound = minutes > 0.0 && minutes <= MINUTES_MAX;
        is_sound.then_some(Self { minutes, strategy })
    }

    /// Its length in microseconds.
    pub fn micros(self) -> i64 {
        // At most 3.2e15.
        (self.minutes * 60e6) as i64
    }
}

/// When a thread expires, unless it changes before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expiry {
    /// Its time to live.
    pub ttl: Ttl,
    /// The moment.
    pub at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_to_live_is_positive_and_finite() {
        let of = |minutes| Ttl::of(minutes, TtlStrategy::Delete);
        for wrong in [
            0.0,
            -1.0,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            MINUTES_MAX * 1.01,
        ] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
        assert_eq!(of(0.5).map(Ttl::micros), Some(30_000_000));
        assert!(of(MINUTES_MAX).is_some_and(|ttl| ttl.micros() > 0));
    }
}
