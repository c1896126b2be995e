//! The frames of a chunk as they are stored: a format byte, how many there are, where each ends and
//! which modes it belongs to, and then their bytes as they are sent.

use bytes::Bytes;

use crate::{
    checkpoint::Error,
    stream::{
        buffer::Mark,
        frame::{body, parts},
        mode::{Mode, Modes, filter},
    },
};

const FORMAT: u8 = 1;
/// Bytes of the format and the count, and of each mark.
const HEAD: usize = 5;
const MARK: usize = 6;

/// The frames of a chunk.
#[derive(Clone, Debug)]
pub struct LogFrames {
    first: u64,
    marks: Vec<Mark>,
    bytes: Bytes,
}

impl LogFrames {
    /// The bytes in which frames are stored.
    pub(in crate::stream) fn encode(marks: &[Mark], bytes: &[u8]) -> Bytes {
        let mut out = Vec::with_capacity(HEAD + marks.len() * MARK + bytes.len());
        out.push(FORMAT);
        // Chunks are far smaller.
        out.extend_from_slice(&u32::try_from(marks.len()).unwrap_or(u32::MAX).to_le_bytes());
        for mark in marks {
            out.extend_from_slice(&u32::try_from(mark.end).unwrap_or(u32::MAX).to_le_bytes());
            out.extend_from_slice(&mark.modes.bits().to_le_bytes());
        }
        out.extend_from_slice(bytes);
        out.into()
    }

    /// Reads what was stored; the first frame has the number `first`.
    ///
    /// # Errors
    /// The bytes are none that this program wrote.
    pub fn decode(first: i64, stored: Vec<u8>) -> Result<Self, Error> {
        let wrong = || Error::Corrupt("a chunk of the stream log".into());
        let stored = Bytes::from(stored);
        let (head, rest) = stored.split_at_checked(HEAD).ok_or_else(wrong)?;
        let [FORMAT, a, b, c, d] = *head else {
            return Err(wrong());
        };
        let count = u32::from_le_bytes([a, b, c, d]) as usize;
        let length = count.checked_mul(MARK).ok_or_else(wrong)?;
        let (table, frames) = rest.split_at_checked(length).ok_or_else(wrong)?;
        let (mut marks, mut before) = (Vec::with_capacity(count), 0);
        for mark in table.chunks_exact(MARK) {
            let [a, b, c, d, low, high] = *mark else {
                return Err(wrong());
            };
            let end = u32::from_le_bytes([a, b, c, d]) as usize;
            if end < before || end > frames.len() {
                return Err(wrong());
            }
            before = end;
            let modes = Modes::of_bits(u16::from_le_bytes([low, high]));
            marks.push(Mark { end, modes });
        }
        Ok(Self {
            first: u64::try_from(first).map_err(|_| wrong())?,
            marks,
            bytes: stored.slice(HEAD + length..),
        })
    }

    /// Passes on number, modes and bytes of each frame.
    pub(in crate::stream) fn each(&self, mut pass: impl FnMut(u64, Modes, &[u8])) {
        let mut start = 0;
        for (number, mark) in (self.first..).zip(&self.marks) {
            pass(number, mark.modes, &self.bytes[start..mark.end]);
            start = mark.end;
        }
    }

    /// The frames after number `after`, up to number `upto`, that a reader of these modes gets; with
    /// no modes, all of the run.
    pub fn read(&self, after: u64, upto: u64, modes: &[Mode]) -> Bytes {
        let filter = filter(modes);
        let mut out = vec![];
        self.each(|number, of, frame| {
            let is_shown = !of.meets(Modes::END) && filter.is_none_or(|filter| of.meets(filter));
            if number > after && number <= upto && is_shown {
                out.extend_from_slice(frame);
            }
        });
        out.into()
    }

    /// The data of the events that show the values of the root graph.
    pub fn root_values(&self) -> Vec<Bytes> {
        let mut found = vec![];
        self.each(|_, modes, frame| {
            if modes.meets(Mode::Values.into()) {
                let (event, ns, data) = parts(body(frame));
                if (event, ns) == ("values", "") {
                    found.push(Bytes::copy_from_slice(data));
                }
            }
        });
        found
    }

    /// Whether the last frame is the end of the run.
    pub fn has_end(&self) -> bool {
        self.marks.iter().any(|mark| mark.modes.meets(Modes::END))
    }

    /// Whether one of the frames is the failure of the run.
    pub fn has_failure(&self) -> bool {
        self.marks
            .iter()
            .any(|mark| mark.modes.meets(Modes::ALWAYS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> Vec<u8> {
        let all: [(&[u8], Modes); 3] = [
            (b"one", Modes::METADATA),
            (b"", Mode::Values.into()),
            (b"three", Mode::Custom.into()),
        ];
        let (mut bytes, mut marks) = (vec![], vec![]);
        for (frame, modes) in all {
            bytes.extend_from_slice(frame);
            let end = bytes.len();
            marks.push(Mark { end, modes });
        }
        LogFrames::encode(&marks, &bytes).to_vec()
    }

    #[test]
    fn frames_come_back_with_their_numbers_and_modes() {
        let frames = LogFrames::decode(7, stored()).unwrap();
        let mut all = vec![];
        frames.each(|number, modes, bytes| all.push((number, modes, bytes.to_vec())));
        let expected = [
            (7, Modes::METADATA, b"one".to_vec()),
            (8, Mode::Values.into(), vec![]),
            (9, Mode::Custom.into(), b"three".to_vec()),
        ];
        assert_eq!(all, expected);
        assert_eq!(frames.read(0, u64::MAX, &[]), "onethree");
        assert_eq!(frames.read(7, u64::MAX, &[]), "three");
        assert_eq!(frames.read(0, 8, &[]), "one");
        assert_eq!(frames.read(0, u64::MAX, &[Mode::Custom]), "three");
    }

    #[test]
    fn damaged_bytes_are_an_error() {
        let good = stored();
        for length in 0..good.len() {
            // A cut through the last frame leaves a mark behind the end.
            assert!(
                LogFrames::decode(1, good[..length].to_vec()).is_err(),
                "{length}"
            );
        }
        for (at, byte) in [(0, 9), (1, 200), (4, 255), (6, 1)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert!(LogFrames::decode(1, bad).is_err(), "{at}");
        }
        assert!(LogFrames::decode(-1, good).is_err());
    }
}
