//! Positions in the feed of a thread, which are the ids of its events.

use std::{fmt, str::FromStr};

/// A position in the feed of a thread. Entries that can be replayed have numbers, shown as `7`; the
/// entries between two of those, which only those get who watch at that moment, are counted after
/// the number before them, shown as `7-2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    number: u64,
    between: u64,
}

/// A text is no position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPosition;

impl Position {
    /// Before every entry.
    pub const START: Self = Self {
        number: 0,
        between: 0,
    };

    /// The position of this number.
    pub fn numbered(number: u64) -> Self {
        Self { number, between: 0 }
    }

    /// The position of an entry behind it that cannot be replayed.
    pub(super) fn passing(self, between: u64) -> Self {
        Self { between, ..self }
    }

    /// The position as it is shown behind another one that was shown: never before that.
    #[must_use]
    pub fn not_before(self, number: u64) -> Self {
        Self {
            number: self.number.max(number),
            ..self
        }
    }

    /// Whether its entry can be replayed.
    pub fn is_logged(self) -> bool {
        self.between == 0
    }

    /// Its number, or that of the numbered entry before it.
    pub fn number(self) -> u64 {
        self.number
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.between == 0 {
            write!(f, "{}", self.number)
        } else {
            write!(f, "{}-{}", self.number, self.between)
        }
    }
}

impl FromStr for Position {
    type Err = NoPosition;

    fn from_str(text: &str) -> Result<Self, NoPosition> {
        let (number, between) = text.split_once('-').unwrap_or((text, "0"));
        let parse = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| is_number).ok_or(NoPosition)
        };
        Ok(Self {
            number: parse(number)?,
            between: parse(between)?,
        })
    }
}

/// Where a watcher of a thread begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinceThread {
    /// With what comes from now on.
    Live,
    /// After a position.
    After(Position),
}

impl SinceThread {
    /// Parses a `Last-Event-ID` header: `-`, `-1` and `0` mean from the start, and no header from
    /// now on.
    ///
    /// # Errors
    /// It is no position.
    pub fn last_event_id(header: Option<&str>) -> Result<Self, NoPosition> {
        Ok(match header.map(str::trim) {
            None => Self::Live,
            Some("-" | "-1") => Self::After(Position::START),
            Some(text) => Self::After(text.parse()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_as_they_are_shown_and_grow() {
        let first = Position::numbered(1);
        let all = [
            first,
            first.passing(1),
            first.passing(2),
            Position::numbered(2),
        ];
        assert!(all.is_sorted_by(|a, b| a < b));
        let shown = all.map(|position| position.to_string());
        assert_eq!(shown, ["1", "1-1", "1-2", "2"]);
        for (text, position) in shown.iter().zip(all) {
            assert_eq!(text.parse(), Ok(position));
        }
        for wrong in [
            "",
            "-",
            "a",
            "1-",
            "-2",
            "1-2-3",
            "+1",
            "99999999999999999999",
        ] {
            assert_eq!(wrong.parse::<Position>(), Err(NoPosition), "{wrong}");
        }
    }

    #[test]
    fn a_header_names_a_position_the_start_or_nothing() {
        let start = SinceThread::After(Position::START);
        for (header, since) in [
            (None, Ok(SinceThread::Live)),
            (Some("-"), Ok(start)),
            (Some("-1"), Ok(start)),
            (Some(" 0 "), Ok(start)),
            (Some("bogus"), Err(NoPosition)),
            (Some(""), Err(NoPosition)),
        ] {
            assert_eq!(SinceThread::last_event_id(header), since, "{header:?}");
        }
    }
}
