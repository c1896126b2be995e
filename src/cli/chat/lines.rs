//! Lines that somebody types, read by a thread of its own, so that a conversation can wait for other things too.

use std::io::{self, IsTerminal};

use tokio::sync::mpsc;

/// The lines of the standard input.
pub(super) struct Lines {
    receiver: mpsc::Receiver<io::Result<String>>,
    /// Whether the person sees what is typed.
    pub(super) is_terminal: bool,
}

impl Lines {
    pub(super) fn stdin() -> Self {
        let (sender, receiver) = mpsc::channel(1);
        // The runtime waits for its own threads when it ends, and a read ends with the next line.
        std::thread::spawn(move || {
            for line in io::stdin().lines() {
                if sender.blocking_send(line).is_err() {
                    break;
                }
            }
        });
        Self {
            receiver,
            is_terminal: io::stdin().is_terminal(),
        }
    }

    /// The next line; none at the end, or when the person stops the chat.
    pub(super) async fn next(&mut self) -> io::Result<Option<String>> {
        tokio::select! {
            line = self.receiver.recv() => line.transpose(),
            _ = tokio::signal::ctrl_c() => Ok(None),
        }
    }
}
