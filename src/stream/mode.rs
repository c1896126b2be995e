//! The modes of a stream: which kinds of events a client subscribes to.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::engine::Kind;

/// One kind of events that a stream sends. The words are LangGraph's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Mode {
    /// The whole state after every superstep.
    #[serde(rename = "values")]
    Values,
    /// Messages, accumulated.
    #[serde(rename = "messages")]
    Messages,
    /// Messages as they grow, each with its metadata.
    #[serde(rename = "messages-tuple")]
    MessagesTuple,
    /// Starts and ends of tasks.
    #[serde(rename = "tasks")]
    Tasks,
    /// Checkpoints.
    #[serde(rename = "checkpoints")]
    Checkpoints,
    /// What each task wrote.
    #[serde(rename = "updates")]
    Updates,
    /// Starts and ends of graphs, nodes, models and tools in the form of LangChain's callback events.
    #[serde(rename = "events")]
    Events,
    /// Tasks and checkpoints with step and time.
    #[serde(rename = "debug")]
    Debug,
    /// Events that nodes emit themselves.
    #[serde(rename = "custom")]
    Custom,
}

impl Mode {
    /// Every word with its meaning, in the order in which they are listed to clients.
    pub const ALL: &[(&'static str, Self)] = &[
        ("values", Self::Values),
        ("messages", Self::Messages),
        ("messages-tuple", Self::MessagesTuple),
        ("tasks", Self::Tasks),
        ("checkpoints", Self::Checkpoints),
        ("updates", Self::Updates),
        ("events", Self::Events),
        ("debug", Self::Debug),
        ("custom", Self::Custom),
    ];

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Values => "values",
            Self::Messages => "messages",
            Self::MessagesTuple => "messages-tuple",
            Self::Tasks => "tasks",
            Self::Checkpoints => "checkpoints",
            Self::Updates => "updates",
            Self::Events => "events",
            Self::Debug => "debug",
            Self::Custom => "custom",
        }
    }

    /// The kinds of engine events from which this mode is encoded.
    pub fn kinds(self) -> &'static [Kind] {
        match self {
            Self::Values => &[Kind::Values],
            Self::Messages | Self::MessagesTuple => &[Kind::Messages],
            Self::Tasks => &[Kind::Tasks],
            Self::Checkpoints => &[Kind::Checkpoints],
            Self::Updates => &[Kind::Updates],
            Self::Events => &[Kind::Callbacks],
            Self::Debug => &[Kind::Tasks, Kind::Checkpoints],
            Self::Custom => &[Kind::Custom],
        }
    }

    fn bit(self) -> u16 {
        1 << self as u16
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Error: a word is no mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no stream mode: use one of values, messages, messages-tuple, tasks, checkpoints, \
     updates, events, debug, custom"
)]
pub struct Unknown(pub String);

impl FromStr for Mode {
    type Err = Unknown;

    fn from_str(word: &str) -> Result<Self, Unknown> {
        let found = Self::ALL.iter().find(|(name, _)| *name == word);
        found
            .map(|(_, mode)| *mode)
            .ok_or_else(|| Unknown(word.to_owned()))
    }
}

/// A set of modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes(u16);

impl Modes {
    /// Marks the end of a run, which only watchers of its thread get.
    pub(super) const END: Self = Self(1 << 13);
    /// Everything that a reader of a run may get.
    pub(super) const OF_RUN: Self = Self(!Self::END.0);
    /// Marks the first frame of a stream; readers of certain modes do not get it.
    pub(super) const METADATA: Self = Self(1 << 14);
    /// Marks frames that every reader gets.
    pub(super) const ALWAYS: Self = Self(1 << 15);

    /// Whether the mode is in the set.
    pub fn has(self, mode: Mode) -> bool {
        self.0 & mode.bit() != 0
    }

    /// Whether any mode is in both sets.
    pub(super) fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether every mode of this set is in the other.
    pub(super) fn within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// The set as it is stored.
    pub(super) fn bits(self) -> u16 {
        self.0
    }

    /// A set that was stored.
    pub(super) fn of_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Both sets together.
    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether any mode of the set is encoded from events of this kind.
    pub fn needs(self, kind: Kind) -> bool {
        Mode::ALL
            .iter()
            .any(|(_, mode)| self.has(*mode) && mode.kinds().contains(&kind))
    }
}

impl FromIterator<Mode> for Modes {
    fn from_iter<I: IntoIterator<Item = Mode>>(modes: I) -> Self {
        Self(modes.into_iter().fold(0, |bits, mode| bits | mode.bit()))
    }
}

impl From<Mode> for Modes {
    fn from(mode: Mode) -> Self {
        Self(mode.bit())
    }
}

/// The frames for a reader of certain modes: those of the modes, and the failure of the run. Both
/// forms of messages count as one, because a run sends only one of them.
pub(super) fn filter(modes: &[Mode]) -> Option<Modes> {
    if modes.is_empty() {
        return None;
    }
    let mut filter: Modes = modes.iter().copied().collect();
    let both: Modes = [Mode::Messages, Mode::MessagesTuple].into_iter().collect();
    if filter.meets(both) {
        filter = filter.and(both);
    }
    Some(filter.and(Modes::ALWAYS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_back_as_its_mode() {
        for (word, mode) in Mode::ALL {
            assert_eq!(word.parse::<Mode>().unwrap(), *mode);
            assert_eq!(mode.as_str(), *word);
            assert_eq!(serde_json::to_value(mode).unwrap(), *word);
        }
        let error = "messages_tuple".parse::<Mode>().unwrap_err();
        assert!(error.to_string().contains("messages-tuple"));
    }

    #[test]
    fn a_set_needs_only_what_its_modes_are_made_of() {
        let modes: Modes = [Mode::Debug, Mode::Custom].into_iter().collect();
        assert!(modes.has(Mode::Debug) && !modes.has(Mode::Tasks));
        assert!(modes.needs(Kind::Tasks) && modes.needs(Kind::Checkpoints));
        assert!(!modes.needs(Kind::Values) && !modes.needs(Kind::Messages));
    }
}
