//! Requests that wait for the response of another one with their key.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Key;

/// Those who wait, by key.
#[derive(Default)]
pub struct Waiting {
    lines: Mutex<HashMap<Key, Weak<Line>>>,
}

/// Those who wait for one key: one of them reads the storage at a time, the others wait for it.
#[derive(Default)]
pub struct Line {
    pub turn: tokio::sync::Mutex<()>,
    /// The request with the key was completed here, or given up.
    pub changed: Notify,
}

impl Waiting {
    /// The line of a key; it ends with its last member.
    pub fn line(&self, key: &Key) -> Arc<Line> {
        let mut lines = self.lines.lock();
        if let Some(line) = lines.get(key).and_then(Weak::upgrade) {
            return line;
        }
        lines.retain(|_, line| line.strong_count() > 0);
        let line = Arc::new(Line::default());
        lines.insert(key.clone(), Arc::downgrade(&line));
        line
    }

    /// Lets those who wait for a key look again.
    pub fn wake(&self, key: &Key) {
        let line = self.lines.lock().get(key).and_then(Weak::upgrade);
        if let Some(line) = line {
            line.changed.notify_waiters();
        }
    }
}
