//! Timestamps as clients see them: UTC, microseconds, `+00:00`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Microseconds since the Unix epoch.
///
/// Shown as `2026-11-20T21:56:24.693979+00:00`; both databases store this precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The wall clock now. Never used to decide who may write: that is the database's clock.
    pub fn now() -> Self {
        Self(jiff::Timestamp::now().as_microsecond())
    }

    /// A time as clients write it: with an offset, or a date with or without a time, which is UTC's.
    /// Times before the epoch are the epoch.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let time = match text.parse::<jiff::Timestamp>() {
            Ok(time) => time,
            Err(_) => {
                let civil: jiff::civil::DateTime = text.parse().ok()?;
                civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp()
            }
        };
        Some(Self(time.as_microsecond().max(0)))
    }

    /// This time moved by `seconds`, which may be a fraction.
    pub(crate) fn plus_seconds(self, seconds: f64) -> Self {
        Self(self.0.saturating_add((seconds * 1e6) as i64))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(time) => write!(f, "{}", time.strftime("%Y-%m-%dT%H:%M:%S.%6f+00:00")),
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse::<jiff::Timestamp>()
            .map(|time| Self(time.as_microsecond()))
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_show_microseconds_and_a_numeric_offset() {
        let time = Timestamp(1_795_211_784_693_979);
        assert_eq!(time.to_string(), "2026-11-20T21:56:24.693979+00:00");
        let json = serde_json::to_string(&time).unwrap();
        assert_eq!(serde_json::from_str::<Timestamp>(&json).unwrap(), time);
    }
}
