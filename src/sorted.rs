//! A page of a list that has several orders.

/// Which entries of a list, and in which order.
#[derive(Clone, Debug, Default)]
pub struct Sorted<Filter, SortBy> {
    /// Which ones.
    pub filter: Filter,
    /// At most so many; one more than the client requested, to know whether there are more.
    pub limit: usize,
    /// How many to skip.
    pub offset: usize,
    /// Order.
    pub sort_by: SortBy,
    /// Smallest first.
    pub ascending: bool,
}

impl<Filter, SortBy: PartialEq> Sorted<Filter, SortBy> {
    /// Which of the orders it has, in a list with two for each of these words: falling and rising.
    pub fn order(&self, words: &[(&'static str, SortBy)]) -> usize {
        let column = words.iter().position(|(_, by)| *by == self.sort_by);
        2 * column.unwrap_or_default() + usize::from(self.ascending)
    }
}
