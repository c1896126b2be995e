//! How long the ids of messages may be.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Most characters that any id of a message has: with four bytes each 2,000 of the 2,704 bytes that a row of an
/// index of Postgres may have.
pub const ID_MAX: usize = 500;

/// The setting of the most characters of the id of a new message, as errors name it.
pub const ID_SETTING: &str = "BACKSTITCH_MESSAGE_ID_LENGTH";

/// Most characters of the id of a new message. One value for the process: what checks it (the result of a node, an
/// update of a state, a request) is given values and a graph, and no settings. Of several servers in one process
/// the one that started last has set it.
static OF_NEW_ONES: AtomicUsize = AtomicUsize::new(255);

/// Most characters of the id of a new message. Messages that are stored may have longer ones, up to [`ID_MAX`].
pub fn most_of_new_id() -> usize {
    OF_NEW_ONES.load(Ordering::Relaxed)
}

/// Sets the most characters of the id of a new message, up to [`ID_MAX`].
#[cfg(feature = "server")]
pub fn set_most_of_new_id(characters: usize) {
    OF_NEW_ONES.store(characters.min(ID_MAX), Ordering::Relaxed);
}

/// Whether the id is too long for a new message.
pub fn is_too_long(id: &str) -> bool {
    has_more_than(id, most_of_new_id())
}

/// Whether a text has more characters than that.
pub(super) fn has_more_than(text: &str, most: usize) -> bool {
    // No text has more characters than bytes, and most ids are short.
    text.len() > most && text.chars().nth(most).is_some()
}
