//! The text of a reply as it comes in, checked before the library reads it.

use std::str::{Utf8Error, from_utf8};

use bytes::Bytes;

/// The library that reads events waits for more as long as its bytes are no text, however many come, and panics at a
/// byte order mark. So it gets whole characters only.
#[derive(Default)]
pub(super) struct Text {
    /// The beginning of a character, at most three bytes.
    rest: Vec<u8>,
    /// Something other than byte order marks came.
    has_begun: bool,
}

impl Text {
    /// The whole characters of these bytes and of what was left before.
    ///
    /// # Errors
    /// They are no UTF-8, whatever follows.
    pub fn whole(&mut self, bytes: Bytes) -> Result<Bytes, Utf8Error> {
        let mut bytes = if self.rest.is_empty() {
            bytes
        } else {
            self.rest.extend_from_slice(&bytes);
            Bytes::from(std::mem::take(&mut self.rest))
        };
        if let Err(error) = from_utf8(&bytes) {
            if error.error_len().is_some() {
                return Err(error);
            }
            self.rest = bytes.split_off(error.valid_up_to()).to_vec();
        }
        while !self.has_begun && bytes.starts_with("\u{feff}".as_bytes()) {
            bytes = bytes.slice('\u{feff}'.len_utf8()..);
        }
        self.has_begun |= !bytes.is_empty();
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(parts: &[&[u8]]) -> Result<String, Utf8Error> {
        let mut text = Text::default();
        let mut out = Vec::new();
        for part in parts {
            let whole = text.whole(Bytes::copy_from_slice(part))?;
            assert!(from_utf8(&whole).is_ok(), "whole characters");
            assert!(text.rest.len() <= 3);
            out.extend_from_slice(&whole);
        }
        Ok(String::from_utf8(out).expect("text"))
    }

    #[test]
    fn characters_come_whole_wherever_the_network_cuts_them() {
        let text = "data: Zoë 🦀\n\n";
        let bytes: Vec<_> = text.as_bytes().chunks(1).collect();
        assert_eq!(read(&bytes).expect("text"), text);
    }

    #[test]
    fn a_byte_that_is_no_text_fails_at_once() {
        assert!(read(&[b"data: \xff"]).is_err());
        assert!(read(&[b"data: \xf0\x9f", b"\n\n"]).is_err());
    }

    #[test]
    fn byte_order_marks_at_the_beginning_are_left_out() {
        let parts: [&[u8]; 3] = [b"\xef", b"\xbb\xbf\xef\xbb\xbf", b"data: \xef\xbb\xbf"];
        assert_eq!(read(&parts).expect("text"), "data: \u{feff}");
    }
}
