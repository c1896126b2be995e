//! The nearest items to a vector: what is searched for, and which of those that a storage reads are best.

use std::{cmp::Ordering, sync::Arc};

use super::{
    filter::Filter,
    memory::{self, BATCH, SearchMemory},
    namespace::{Namespace, Range},
};
use crate::value::Value;

/// What a search by meaning is for, and how much it may read.
#[derive(Clone, Debug)]
pub struct Nearest {
    /// Where the items are, in order.
    pub ranges: Vec<Range>,
    /// Which values pass.
    pub filter: Filter,
    /// The model that made the vector: those of others do not count.
    pub model: Arc<str>,
    /// What they are to be near to, of length 1.
    pub vector: Arc<[f32]>,
    /// At most so many items.
    pub limit: usize,
    /// How many better ones come before them.
    pub offset: usize,
    /// Most vectors that are read.
    pub scan_rows: usize,
    /// Most bytes of values and names that are read.
    pub scan_bytes: usize,
    /// Most bytes of values that are returned.
    pub page_bytes: usize,
    /// What takes memory for them.
    pub memory: SearchMemory,
}

impl Nearest {
    /// How many vectors weigh no more than what is read at once.
    pub fn batch(&self) -> usize {
        (BATCH / (size_of::<f32>() * self.vector.len()).max(1)).clamp(1, VECTORS)
    }

    /// Takes memory for values that weigh so much; false when there is none.
    pub fn reserve(&self, weight: usize) -> bool {
        memory::reserve(&self.memory, weight)
    }
}

/// Most vectors that are read at once.
const VECTORS: usize = 1000;

/// The name of an item.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its key.
    pub key: String,
    /// Whose it is.
    pub owner: Arc<str>,
}

impl Name {
    fn bytes(&self) -> usize {
        self.key.len() + self.namespace.iter().map(String::len).sum::<usize>()
    }
}

struct Scored {
    name: Name,
    score: f32,
}

/// A search by meaning in progress: a storage offers it the vectors of its ranges, those of an item one
/// after the other.
pub struct Ranking<'a> {
    search: &'a Nearest,
    rows: usize,
    read: usize,
    /// The item of the last vector, with its best score; `None` where it does not pass.
    current: Option<(Name, Option<f32>)>,
    best: Vec<Scored>,
    /// Bytes of the names of these.
    name_bytes: usize,
}

impl<'a> Ranking<'a> {
    /// A search that has read nothing yet.
    pub fn new(search: &'a Nearest) -> Self {
        Self {
            search,
            rows: 0,
            read: 0,
            current: None,
            best: vec![],
            name_bytes: 0,
        }
    }

    /// Counts the next vector and what its row has beside it; false when that is more than may be read.
    pub fn may_read(&mut self, bytes: usize) -> bool {
        self.rows += 1;
        self.read = self.read.saturating_add(bytes);
        self.rows <= self.search.scan_rows && self.read <= self.search.scan_bytes
    }

    /// Takes memory for what is about to be read, which weighs at most so much; false when there is none.
    pub fn reserve(&self, weight: usize) -> bool {
        let beyond = weight.saturating_sub(BATCH);
        self.search.reserve(self.name_bytes.saturating_add(beyond))
    }

    /// Whether values have to be looked at.
    pub fn filters(&self) -> bool {
        !self.search.filter.is_empty()
    }

    /// Whether the last vector was one of this item: its value is known.
    pub fn is_at(&self, name: &Name) -> bool {
        self.current.as_ref().is_some_and(|(last, _)| last == name)
    }

    /// A vector of an item, `None` if another model made it; `value` is called once an item, when
    /// values have to be looked at.
    ///
    /// # Errors
    /// The value cannot be read.
    pub fn offer<E>(
        &mut self,
        name: Name,
        vector: Option<&[u8]>,
        value: impl FnOnce() -> Result<Value, E>,
    ) -> Result<(), E> {
        if !self.is_at(&name) {
            self.next_item();
            let passes = !self.filters() || self.search.filter.passes(&value()?);
            self.read += name.bytes();
            self.current = Some((name, passes.then_some(f32::NEG_INFINITY)));
        }
        if let (Some((_, Some(best))), Some(bytes)) = (&mut self.current, vector)
            && let Some(score) = cosine(&self.search.vector, bytes)
        {
            *best = best.max(score);
        }
        Ok(())
    }

    fn next_item(&mut self) {
        if let Some((name, Some(score))) = self.current.take()
            && score.is_finite()
        {
            self.name_bytes += name.bytes();
            self.best.push(Scored { name, score });
        }
        let wanted = self.search.offset.saturating_add(self.search.limit);
        if self.best.len() >= wanted.saturating_mul(2).max(1024) {
            self.cut(wanted);
        }
    }

    fn cut(&mut self, wanted: usize) {
        self.best.sort_unstable_by(better_first);
        self.best.truncate(wanted);
        self.name_bytes = self.best.iter().map(|scored| scored.name.bytes()).sum();
    }

    /// The names of the page, the nearest first, with their scores.
    pub fn finish(mut self) -> Vec<(Name, f32)> {
        self.next_item();
        self.cut(self.search.offset.saturating_add(self.search.limit));
        let page = self.best.into_iter().skip(self.search.offset);
        page.map(|scored| (scored.name, scored.score)).collect()
    }
}

/// Of those that are equally near the one comes first whose name does.
fn better_first(a: &Scored, b: &Scored) -> Ordering {
    b.score
        .total_cmp(&a.score)
        .then_with(|| a.name.cmp(&b.name))
}

/// The cosine of two vectors of length 1; none when they have different numbers of numbers.
fn cosine(vector: &[f32], stored: &[u8]) -> Option<f32> {
    let (numbers, rest) = stored.as_chunks::<4>();
    if !rest.is_empty() || numbers.len() != vector.len() {
        return None;
    }
    let products = vector.iter().zip(numbers);
    Some(products.map(|(a, b)| a * f32::from_le_bytes(*b)).sum())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn search(limit: usize, offset: usize) -> Nearest {
        Nearest {
            ranges: vec![],
            filter: Filter::default(),
            model: "m".into(),
            vector: vec![1.0, 0.0].into(),
            limit,
            offset,
            scan_rows: 10_000,
            scan_bytes: 1 << 20,
            page_bytes: 1 << 20,
            memory: None,
        }
    }

    fn bytes(vector: &[f32]) -> Vec<u8> {
        vector
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect()
    }

    fn name(number: usize) -> Name {
        Name {
            namespace: vec!["a".into()],
            key: format!("{number:05}"),
            owner: "me".into(),
        }
    }

    fn offer(ranking: &mut Ranking<'_>, number: usize, vector: &[f32]) {
        assert!(ranking.may_read(0));
        let unread = || -> Result<Value, Infallible> { unreachable!("nothing is filtered") };
        let Ok(()) = ranking.offer(name(number), Some(&bytes(vector)), unread);
    }

    #[test]
    fn the_best_part_of_an_item_counts_and_a_page_is_cut_out() {
        let all = search(2, 1);
        let mut ranking = Ranking::new(&all);
        for number in 0..5000 {
            offer(&mut ranking, number, &[-1.0, 0.0]);
        }
        offer(&mut ranking, 6000, &[0.0, 1.0]);
        offer(&mut ranking, 6000, &[1.0, 0.0]);
        offer(&mut ranking, 6001, &[0.6, 0.8]);
        offer(&mut ranking, 6002, &[0.8, 0.6]);
        // Of another size: another model of the same name made it.
        offer(&mut ranking, 6003, &[1.0]);
        assert_eq!(ranking.finish(), [(name(6002), 0.8), (name(6001), 0.6)]);
    }

    #[test]
    fn what_is_read_is_bounded() {
        let few = Nearest {
            scan_rows: 1,
            ..search(1, 0)
        };
        let mut ranking = Ranking::new(&few);
        assert!(ranking.may_read(0) && !ranking.may_read(0));
    }
}
