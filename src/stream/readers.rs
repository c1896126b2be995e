//! The readers of a stream: how far each has read, which one is the slowest, and which clients they are.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

/// The readers of one stream, with the numbers of the frames that they read next.
#[derive(Default)]
pub(super) struct Readers {
    by_id: HashMap<u64, Reader>,
    /// The next frame and the id of each that was not cut off: the slowest is the first.
    order: BTreeSet<(u64, u64)>,
    last: u64,
}

struct Reader {
    /// `None` once it fell too far behind.
    next: Option<u64>,
    /// The client whose share of the memory has what it has not read.
    payer: Arc<str>,
}

impl Readers {
    /// Another reader, which begins with frame `next`; its id.
    pub fn add(&mut self, next: u64) -> u64 {
        self.last += 1;
        let reader = Reader {
            next: Some(next),
            payer: Arc::default(),
        };
        self.by_id.insert(self.last, reader);
        self.order.insert((next, self.last));
        self.last
    }

    pub fn remove(&mut self, id: u64) {
        if let Some(reader) = self.by_id.remove(&id)
            && let Some(next) = reader.next
        {
            self.order.remove(&(next, id));
        }
    }

    /// Names the client of a reader.
    pub fn pay(&mut self, id: u64, payer: &Arc<str>) {
        if let Some(reader) = self.by_id.get_mut(&id) {
            reader.payer = payer.clone();
        }
    }

    /// The frame that a reader reads next; `None` once it fell too far behind.
    pub fn next(&self, id: u64) -> Option<u64> {
        self.by_id.get(&id)?.next
    }

    /// Moves a reader that was not cut off forward to a frame.
    pub fn advance(&mut self, id: u64, to: u64) {
        if let Some(next) = self
            .by_id
            .get_mut(&id)
            .and_then(|reader| reader.next.as_mut())
            && *next < to
        {
            self.order.remove(&(*next, id));
            self.order.insert((to, id));
            *next = to;
        }
    }

    /// Moves all readers that have not come as far forward to a frame.
    pub fn advance_all(&mut self, to: u64) {
        while let Some((next, id)) = self.order.first().copied()
            && next < to
        {
            self.advance(id, to);
        }
    }

    /// The frame that the slowest reader reads next.
    pub fn slowest(&self) -> Option<u64> {
        self.order.first().map(|(next, _)| *next)
    }

    /// The client of the slowest reader; nobody, if all have read what comes before `end`.
    pub fn payer(&self, end: u64) -> Arc<str> {
        let slowest = self.order.first().filter(|(next, _)| *next < end);
        let reader = slowest.and_then(|(_, id)| self.by_id.get(id));
        reader.map_or_else(Arc::default, |reader| reader.payer.clone())
    }

    /// Cuts off the readers that are too far behind with their next frame, of one client or of all.
    pub fn cut_off(&mut self, of: Option<&str>, is_too_far: impl Fn(u64) -> bool) {
        let behind = self.order.iter().take_while(|(next, _)| is_too_far(*next));
        let cut: Vec<_> = behind
            .filter(|(_, id)| {
                let reader = self.by_id.get(id);
                of.is_none_or(|of| reader.is_some_and(|reader| &*reader.payer == of))
            })
            .copied()
            .collect();
        for (next, id) in cut {
            self.order.remove(&(next, id));
            if let Some(reader) = self.by_id.get_mut(&id) {
                reader.next = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_reader_is_known_wherever_they_move() {
        let mut readers = Readers::default();
        assert_eq!((readers.slowest(), &*readers.payer(9)), (None, ""));
        let (one, two) = (readers.add(1), readers.add(1));
        readers.pay(one, &"ann".into());
        readers.pay(two, &"bob".into());
        readers.advance(one, 5);
        assert_eq!(readers.slowest(), Some(1));
        assert_eq!((&*readers.payer(2), &*readers.payer(1)), ("bob", ""));
        readers.advance(two, 7);
        readers.advance(two, 2);
        assert_eq!((readers.slowest(), readers.next(two)), (Some(5), Some(7)));
        readers.advance_all(6);
        assert_eq!((readers.next(one), readers.next(two)), (Some(6), Some(7)));
        readers.remove(one);
        assert_eq!((readers.slowest(), readers.next(one)), (Some(7), None));
    }

    #[test]
    fn readers_of_one_client_are_cut_off_and_stay_where_they_are() {
        let mut readers = Readers::default();
        let [one, two, three] = [1, 2, 9].map(|next| readers.add(next));
        readers.pay(one, &"ann".into());
        readers.pay(three, &"ann".into());
        readers.cut_off(Some("ann"), |next| next < 5);
        assert_eq!(readers.next(one), None);
        assert_eq!((readers.next(two), readers.next(three)), (Some(2), Some(9)));
        readers.advance(one, 20);
        readers.advance_all(4);
        assert_eq!((readers.next(one), readers.slowest()), (None, Some(4)));
        readers.cut_off(None, |_| true);
        assert_eq!(readers.slowest(), None);
    }
}
