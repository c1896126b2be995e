//! The frames of one run, numbered and stored in chunks that readers share.
//!
//! Frames are written straight into the tail. Reading seals the tail, which from then on is a
//! shared, immutable chunk: readers get slices of it, not copies.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::{
    frame,
    log::{CHUNK_FRAMES, LogFrames},
    mode::Modes,
};
use crate::id::CheckpointId;

/// A reader gets about this many bytes at once; tails are sealed at this size.
pub const CHUNK: usize = 64 << 10;
/// Up to this size a sealed tail is copied, so that its larger allocation can be reused.
const COPIED: usize = 16 << 10;
/// Bytes that a chunk takes besides its frames.
const OVERHEAD: usize = 128;

/// Where a frame ends in its chunk, and which modes it belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub end: usize,
    pub modes: Modes,
}

/// Sealed frames.
struct Chunk {
    /// Number of the first frame.
    first: u64,
    /// What the chunks before this one took, with their overhead.
    offset: u64,
    bytes: Bytes,
    marks: Box<[Mark]>,
    modes: Modes,
    /// The checkpoint that the run had reached.
    checkpoint: Option<CheckpointId>,
}

/// A sealed chunk as the log stores it.
pub struct Sealed {
    /// Number of the first frame.
    pub first: u64,
    /// Number of the last one.
    pub last: u64,
    /// The checkpoint that the run had reached.
    pub checkpoint: Option<CheckpointId>,
    /// The frames, encoded.
    pub frames: Bytes,
}

/// What one read returns.
pub struct Read {
    /// Frames; empty when there are none for this reader.
    pub bytes: Bytes,
    /// Number of the frame at which the next read begins.
    pub next: u64,
}

/// The frames of one run.
pub struct Buffer {
    chunks: VecDeque<Chunk>,
    tail: Vec<u8>,
    marks: Vec<Mark>,
    modes: Modes,
    /// Number of the next frame.
    next: u64,
    /// What chunks took so far with their overhead, dropped ones included.
    sealed: u64,
    /// Bytes of the sealed chunks in memory, with their overhead.
    sealed_bytes: usize,
    /// Frames carry their number.
    ids: bool,
    /// Frames were dropped.
    dropped: bool,
    /// The checkpoint that the run has reached.
    checkpoint: Option<CheckpointId>,
}

impl Buffer {
    /// An empty buffer whose first frame will have the number `first`.
    pub fn new(first: u64, ids: bool) -> Self {
        Self {
            chunks: VecDeque::new(),
            tail: vec![],
            marks: vec![],
            modes: Modes::default(),
            next: first,
            sealed: 0,
            sealed_bytes: 0,
            ids,
            dropped: false,
            checkpoint: None,
        }
    }

    /// Appends a frame whose data `data` writes.
    pub fn push(&mut self, modes: Modes, event: &str, ns: &str, data: impl FnOnce(&mut Vec<u8>)) {
        frame::open(&mut self.tail, event, ns);
        data(&mut self.tail);
        frame::close(&mut self.tail, self.ids.then_some(self.next));
        self.marks.push(Mark {
            end: self.tail.len(),
            modes,
        });
        self.modes = self.modes.and(modes);
        self.next += 1;
        if self.tail.len() >= CHUNK || self.marks.len() as i64 >= CHUNK_FRAMES {
            self.seal();
        }
    }

    /// Records that the run has reached a checkpoint: no chunk has frames from before and after.
    pub fn reach(&mut self, checkpoint: Option<CheckpointId>) {
        self.seal();
        self.checkpoint = checkpoint;
    }

    /// The chunks from frame `from` on, which begins one, for the log.
    pub fn seal_from(&mut self, from: u64) -> Vec<Sealed> {
        self.seal();
        let chunks = self.chunks.range(self.position(from)..);
        let sealed = chunks.map(|chunk| Sealed {
            first: chunk.first,
            last: chunk.first + chunk.marks.len() as u64 - 1,
            checkpoint: chunk.checkpoint,
            frames: LogFrames::encode(&chunk.marks, &chunk.bytes),
        });
        sealed.collect()
    }

    /// Number of the next frame.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Number of the oldest frame in memory, or of the next one.
    pub fn first(&self) -> u64 {
        self.chunks
            .front()
            .map_or_else(|| self.next - self.marks.len() as u64, |chunk| chunk.first)
    }

    /// Whether any frame was dropped.
    pub fn dropped(&self) -> bool {
        self.dropped
    }

    /// Bytes in memory.
    pub fn size(&self) -> usize {
        self.sealed_bytes + self.tail.len()
    }

    /// What is in memory from the chunk that contains frame `from` on.
    pub fn behind(&self, from: u64) -> u64 {
        let end = self.sealed + self.tail.len() as u64;
        let start = match self.chunks.get(self.position(from)) {
            Some(chunk) => chunk.offset,
            None => self.sealed,
        };
        end - start
    }

    /// Drops whole chunks in front of frame `before`.
    pub fn drop_before(&mut self, before: u64) {
        while self
            .chunks
            .front()
            .is_some_and(|chunk| chunk.first + chunk.marks.len() as u64 <= before)
        {
            self.drop_front();
        }
    }

    /// Drops the oldest chunks until at most `most` bytes are left, but none with frames from number
    /// `before` on.
    pub fn shrink_to(&mut self, most: usize, before: u64) {
        while self.size() > most
            && let Some(chunk) = self.chunks.front()
            && chunk.first + (chunk.marks.len() as u64) <= before
        {
            self.drop_front();
        }
    }

    /// The frames from number `from` on and before `end`, at most about [`CHUNK`] bytes of them. With a
    /// filter only frames of its modes. `end` is at most where the last chunk ends, or behind the last frame.
    pub fn read(&mut self, from: u64, end: u64, filter: Option<Modes>) -> Read {
        let end = self.next.min(end);
        let mut read = Read {
            bytes: Bytes::new(),
            next: from.max(self.first()).min(end),
        };
        if read.next >= end {
            return read;
        }
        if end == self.next {
            self.seal();
        }
        let mut many = BytesMut::new();
        while read.next < end {
            let Some(chunk) = self.chunks.get(self.position(read.next)) else {
                break;
            };
            let mut next = read.next;
            let piece = chunk.read(&mut next, end, filter);
            let length = read.bytes.len() + many.len();
            if length > 0 && length + piece.len() > CHUNK {
                break;
            }
            read.next = next;
            if piece.is_empty() {
                continue;
            }
            if length == 0 {
                read.bytes = piece;
                continue;
            }
            if many.is_empty() {
                many.extend_from_slice(&std::mem::take(&mut read.bytes));
            }
            many.extend_from_slice(&piece);
        }
        if !many.is_empty() {
            read.bytes = many.freeze();
        }
        read
    }

    /// Passes on number, modes and bytes of each frame from number `from` on and before `end`.
    pub fn each(&self, from: u64, end: u64, mut pass: impl FnMut(u64, Modes, &[u8])) {
        let mut pass_all = |first: u64, marks: &[Mark], bytes: &[u8]| {
            let mut start = 0;
            for (number, mark) in (first..).zip(marks) {
                if (from..end).contains(&number) {
                    pass(number, mark.modes, &bytes[start..mark.end]);
                }
                start = mark.end;
            }
        };
        for chunk in self.chunks.range(self.position(from)..) {
            pass_all(chunk.first, &chunk.marks, &chunk.bytes);
        }
        let first = self.next - self.marks.len() as u64;
        pass_all(first, &self.marks, &self.tail);
    }

    fn position(&self, frame: u64) -> usize {
        self.chunks
            .partition_point(|chunk| chunk.first + chunk.marks.len() as u64 <= frame)
    }

    fn seal(&mut self) {
        if self.marks.is_empty() {
            return;
        }
        let bytes = if self.tail.len() <= COPIED {
            let bytes = Bytes::copy_from_slice(&self.tail);
            self.tail.clear();
            bytes
        } else {
            let mut tail = std::mem::take(&mut self.tail);
            tail.shrink_to_fit();
            Bytes::from(tail)
        };
        let marks: Box<[Mark]> = self.marks.drain(..).collect();
        let offset = self.sealed;
        let size = bytes.len() + OVERHEAD + size_of_val(&*marks);
        self.sealed += size as u64;
        self.sealed_bytes += size;
        self.chunks.push_back(Chunk {
            first: self.next - marks.len() as u64,
            offset,
            bytes,
            marks,
            modes: std::mem::take(&mut self.modes),
            checkpoint: self.checkpoint,
        });
    }

    fn drop_front(&mut self) {
        if let Some(chunk) = self.chunks.pop_front() {
            self.dropped = true;
            self.sealed_bytes -= chunk.bytes.len() + OVERHEAD + size_of_val(&*chunk.marks);
        }
    }
}

impl Chunk {
    /// The frames of this chunk from number `next` on and before `end`; `next` moves behind them.
    fn read(&self, next: &mut u64, end: u64, filter: Option<Modes>) -> Bytes {
        let from = usize::try_from(*next - self.first).unwrap_or(usize::MAX);
        let left = usize::try_from(end - self.first).unwrap_or(usize::MAX);
        let to = self.marks.len().min(left);
        *next = self.first + to as u64;
        let start = |index: usize| match index {
            0 => 0,
            index => self.marks[index - 1].end,
        };
        match filter {
            Some(filter) if !self.modes.within(filter) => {
                let mut out = BytesMut::new();
                for index in from..to {
                    let mark = self.marks[index];
                    if mark.modes.meets(filter) {
                        out.extend_from_slice(&self.bytes[start(index)..mark.end]);
                    }
                }
                out.freeze()
            }
            _ => self.bytes.slice(start(from)..start(to)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::Mode;

    fn filled(frames: u64) -> Buffer {
        let mut buffer = Buffer::new(1, true);
        for number in 1..=frames {
            let (event, mode) = match number % 2 {
                0 => ("values", Mode::Values),
                _ => ("custom", Mode::Custom),
            };
            buffer.push(mode.into(), event, "", |out| {
                out.extend_from_slice(number.to_string().as_bytes());
            });
        }
        buffer
    }

    fn data(bytes: &[u8]) -> Vec<u64> {
        String::from_utf8(bytes.to_vec())
            .unwrap()
            .lines()
            .filter_map(|line| line.strip_prefix("data: ")?.parse().ok())
            .collect()
    }

    #[test]
    fn readers_get_what_is_new_in_one_piece_and_share_it() {
        let mut buffer = filled(3);
        let one = buffer.read(1, u64::MAX, None);
        let two = buffer.read(1, u64::MAX, None);
        assert_eq!(data(&one.bytes), [1, 2, 3]);
        assert_eq!(one.bytes.as_ptr(), two.bytes.as_ptr());
        assert_eq!(data(&buffer.read(3, u64::MAX, None).bytes), [3]);
        assert!(buffer.read(one.next, u64::MAX, None).bytes.is_empty());
    }

    #[test]
    fn small_chunks_are_joined_for_a_late_reader() {
        let mut buffer = Buffer::new(1, false);
        for number in 1..=5u64 {
            buffer.push(Mode::Custom.into(), "custom", "", |out| {
                out.extend_from_slice(number.to_string().as_bytes());
            });
            buffer.read(number, u64::MAX, None);
        }
        let all = buffer.read(2, u64::MAX, None);
        assert_eq!(data(&all.bytes), [2, 3, 4, 5]);
        assert_eq!(all.next, 6);
    }

    #[test]
    fn a_filter_leaves_out_frames_and_keeps_the_count() {
        let mut buffer = filled(6);
        let values = buffer.read(1, u64::MAX, Some(Mode::Values.into()));
        assert_eq!((data(&values.bytes), values.next), (vec![2, 4, 6], 7));
    }

    #[test]
    fn no_piece_is_much_larger_than_the_limit() {
        let mut buffer = Buffer::new(1, false);
        for _ in 0..100 {
            buffer.push(Mode::Custom.into(), "custom", "", |out| {
                out.extend_from_slice(&[b'7'; 5000]);
            });
        }
        let (mut from, mut pieces) = (1, 0);
        while from < buffer.next() {
            let read = buffer.read(from, u64::MAX, None);
            assert!(!read.bytes.is_empty() && read.bytes.len() <= CHUNK + 5100);
            (from, pieces) = (read.next, pieces + 1);
        }
        assert!(pieces >= 7);
    }

    #[test]
    fn a_read_ends_where_it_is_to_within_a_chunk() {
        let mut buffer = filled(5);
        buffer.seal_from(1);
        let values = Some(Mode::Values.into());
        for (end, filter, expected) in [
            (1, None, &[][..]),
            (3, None, &[1, 2]),
            (5, values, &[2, 4]),
            (4, values, &[2]),
            (6, None, &[1, 2, 3, 4, 5]),
        ] {
            let read = buffer.read(1, end, filter);
            assert_eq!((&data(&read.bytes)[..], read.next), (expected, end));
        }
        assert_eq!(data(&buffer.read(3, 5, None).bytes), [3, 4]);
    }

    #[test]
    fn dropped_frames_are_gone_and_the_rest_keeps_its_numbers() {
        let mut buffer = filled(4);
        buffer.read(1, u64::MAX, None);
        buffer.push(Mode::Custom.into(), "custom", "", |out| out.push(b'5'));
        buffer.drop_before(5);
        assert_eq!(buffer.first(), 5);
        let rest = buffer.read(1, u64::MAX, None);
        assert_eq!((data(&rest.bytes), rest.next), (vec![5], 6));
        buffer.shrink_to(0, u64::MAX);
        assert_eq!((buffer.size(), buffer.first()), (0, 6));
    }
}
