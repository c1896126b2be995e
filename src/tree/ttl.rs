//! Times to live of threads: how long after its last change a thread expires, and what becomes of it then.

use crate::{time::Timestamp, words::words};

/// The longest time to live, in minutes: about a hundred years.
pub const MINUTES_MAX: f64 = 52_560_000.0;

/// The longest time in microseconds until a thread is seen to again that was pruned and has not changed: a day.
const LONGEST_REST: i64 = 24 * 60 * 60 * 1_000_000;

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

    /// When a thread expires that changed last at this moment.
    pub fn expiry(self, changed: Timestamp) -> Expiry {
        Expiry {
            ttl: self,
            at: Timestamp(changed.0 + self.micros()),
        }
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

impl Expiry {
    /// Whether a thread has expired, and when to see to it next. One on which work is to be done has not.
    ///
    /// A thread that stays is seen to again, since it may have changed. The longer it has not, the later, so that
    /// those which nobody uses any more do not hold up the others.
    pub fn check(self, now: Timestamp, has_work: bool) -> ExpiryCheck {
        if now.0 < self.at.0 {
            return ExpiryCheck {
                expired: None,
                next: self.at,
            };
        }
        let ttl = self.ttl.micros();
        let unchanged = now.0 - self.at.0 + ttl;
        let rest = if has_work { 0 } else { unchanged };
        ExpiryCheck {
            expired: (!has_work).then_some(self.ttl.strategy),
            next: Timestamp(now.0 + rest.min(LONGEST_REST).max(ttl)),
        }
    }
}

/// What seeing to a thread that may have expired has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpiryCheck {
    /// What becomes of the thread, if it has expired.
    pub expired: Option<TtlStrategy>,
    /// When to see to it next.
    pub next: Timestamp,
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
        assert_eq!(
            of(0.5).map(|ttl| ttl.expiry(Timestamp(5)).at.0),
            Some(30_000_005)
        );
        assert!(of(MINUTES_MAX).is_some_and(|ttl| ttl.micros() > 0));
    }

    #[test]
    fn a_thread_expires_when_its_time_is_past_and_no_work_is_to_be_done_on_it() {
        let ttl = Ttl::of(1.0, TtlStrategy::KeepLatest).unwrap();
        let expiry = ttl.expiry(Timestamp(0));
        let check = |now, has_work| {
            let check = expiry.check(Timestamp(now), has_work);
            (check.expired, check.next.0)
        };
        let minute = 60_000_000;
        assert_eq!(check(minute - 1, false), (None, minute));
        let expired = Some(TtlStrategy::KeepLatest);
        assert_eq!(check(minute, false), (expired, 2 * minute));
        assert_eq!(check(minute, true), (None, 2 * minute));
        // Of a thread that stays as it is.
        assert_eq!(check(2 * minute, false), (expired, 4 * minute));
        assert_eq!(check(5 * minute, true), (None, 6 * minute));
        let week = 7 * LONGEST_REST;
        assert_eq!(check(week, false), (expired, week + LONGEST_REST));
        let long = Ttl::of(20_160.0, TtlStrategy::KeepLatest).unwrap();
        let expiry = long.expiry(Timestamp(0));
        assert_eq!(expiry.check(expiry.at, false).next.0, 2 * long.micros());
    }
}
