//! A request whose last byte is held back.

use std::io::{BufReader, Write};
use std::net::TcpStream;

use super::{Answer, Open};

/// A request whose last byte is held back; the server has begun to read its body.
#[derive(Debug)]
pub struct Held {
    pub(super) reader: BufReader<TcpStream>,
    pub(super) method: String,
    pub(super) last: u8,
}

impl Held {
    /// Sends the last byte, and gives the whole answer.
    pub fn finish(self) -> Answer {
        self.open().whole()
    }

    /// Sends the last byte, and gives the head of the answer as soon as that is there.
    pub fn open(mut self) -> Open {
        self.reader.get_mut().write_all(&[self.last]).unwrap();
        Open::of(self.reader, &self.method)
    }
}
