//! Lists of items and of namespaces: what is searched for, and how far a search goes.

use super::{
    Encoded, Item,
    filter::Filter,
    memory::{self, BATCH, SearchMemory},
    namespace::{Namespace, Range},
};
use crate::checkpoint;

/// What a search is for, and how much it may read.
#[derive(Clone, Debug)]
pub struct Search {
    /// Where the items are, in order.
    pub ranges: Vec<Range>,
    /// Which values pass.
    pub filter: Filter,
    /// At most so many items.
    pub limit: usize,
    /// How many that pass come before them.
    pub offset: usize,
    /// Most items that are read.
    pub scan_rows: usize,
    /// Most bytes of values that are read.
    pub scan_bytes: usize,
    /// Most bytes of values that are returned.
    pub page_bytes: usize,
    /// What takes memory for them.
    pub memory: SearchMemory,
}

/// What a search has found.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// A page of items in their order.
    Items(Vec<Item<Encoded>>),
    /// It would have read more than it may.
    TooMuchToRead,
    /// The page would have more bytes than it may.
    TooMuchToReturn,
    /// There is not enough memory for it now.
    NoMemory,
}

/// What to do with the next item of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is part of the offset: pass over it unread.
    Skip,
    /// Read it, and offer it.
    Read,
    /// The search is over.
    Stop,
}

/// A search in progress: a storage offers it the items of its ranges, in their order.
#[derive(Debug)]
pub struct Scan<'a> {
    search: &'a Search,
    rows: usize,
    read: usize,
    returned: usize,
    /// What is read together weighs at most so much beyond what every search may read.
    batch: usize,
    skip: usize,
    items: Vec<Item<Encoded>>,
    exceeded: Option<Found>,
}

impl<'a> Scan<'a> {
    /// A search that has read nothing yet.
    pub fn new(search: &'a Search) -> Self {
        Self {
            search,
            rows: 0,
            read: 0,
            returned: 0,
            batch: 0,
            skip: search.offset,
            items: Vec::new(),
            exceeded: None,
        }
    }

    /// How many items without a look at their values come next.
    pub fn unread(&self) -> usize {
        if self.search.filter.is_empty() {
            self.skip
        } else {
            0
        }
    }

    /// Whether nothing more is wanted.
    pub fn is_over(&self) -> bool {
        self.exceeded.is_some() || self.items.len() >= self.search.limit
    }

    /// Takes memory for items that a storage is about to read together, which weigh at most so much, beyond what every
    /// search may read; false when the search is over because there is none.
    pub fn begin_batch(&mut self, weight: usize) -> bool {
        self.batch = weight.saturating_sub(BATCH);
        self.reserve(self.batch)
    }

    /// Takes memory for those that are returned, and for what is read beside them.
    fn reserve(&mut self, weight: usize) -> bool {
        let is_reserved =
            memory::reserve(&self.search.memory, self.returned.saturating_add(weight));
        if !is_reserved {
            self.exceeded = Some(Found::NoMemory);
        }
        is_reserved
    }

    /// What to do with the next item, whose value weighs so much.
    pub fn next(&mut self, weight: usize) -> Next {
        if self.is_over() {
            return Next::Stop;
        }
        self.rows += 1;
        let is_unread = self.unread() > 0;
        if !is_unread {
            self.read = self.read.saturating_add(weight);
        }
        if self.rows > self.search.scan_rows || self.read > self.search.scan_bytes {
            self.exceeded = Some(Found::TooMuchToRead);
            return Next::Stop;
        }
        if is_unread {
            self.skip -= 1;
            Next::Skip
        } else if self.reserve(weight.max(self.batch)) {
            Next::Read
        } else {
            Next::Stop
        }
    }

    /// An item that was read. Its value is decoded only to be compared.
    ///
    /// # Errors
    /// It cannot be decoded.
    pub fn offer(&mut self, item: Item<Encoded>, weight: usize) -> checkpoint::Result<()> {
        let filter = &self.search.filter;
        if !filter.is_empty() && !filter.passes(&item.value.decode()?) {
            return Ok(());
        }
        if self.skip > 0 {
            self.skip -= 1;
            return Ok(());
        }
        self.returned = self.returned.saturating_add(weight);
        if self.returned > self.search.page_bytes {
            self.exceeded = Some(Found::TooMuchToReturn);
        } else {
            self.items.push(item);
        }
        Ok(())
    }

    /// What was found.
    pub fn finish(self) -> Found {
        self.exceeded.unwrap_or(Found::Items(self.items))
    }
}

/// Which namespaces are listed, and how many may be read.
#[derive(Clone, Debug)]
pub struct Listing {
    /// Where they are, in order.
    pub ranges: Vec<Range>,
    /// Their first labels; `*` is any label.
    pub prefix: Namespace,
    /// Their last labels; `*` is any label.
    pub suffix: Namespace,
    /// They are cut to so many labels.
    pub max_depth: Option<usize>,
    /// At most so many.
    pub limit: usize,
    /// How many come before them.
    pub offset: usize,
    /// Most namespaces that are read.
    pub scan_rows: usize,
}

impl Listing {
    /// The depth at which all namespaces below one are as good as that one: a storage need not
    /// read more than the first of them.
    pub fn depth(&self) -> Option<usize> {
        let whole = |depth: &usize| self.suffix.is_empty() && self.prefix.len() <= *depth;
        self.max_depth.filter(whole)
    }

    fn matches(&self, namespace: &[String]) -> bool {
        let fits = |(wanted, label): (&String, &String)| wanted == "*" || wanted == label;
        let starts =
            self.prefix.len() <= namespace.len() && self.prefix.iter().zip(namespace).all(fits);
        let ends = self.suffix.len() <= namespace.len()
            && self
                .suffix
                .iter()
                .rev()
                .zip(namespace.iter().rev())
                .all(fits);
        starts && ends
    }
}

/// A listing in progress: a storage offers it the namespaces of its ranges, in their order.
#[derive(Debug)]
pub struct ListScan<'a> {
    listing: &'a Listing,
    rows: usize,
    skip: usize,
    last: Option<Namespace>,
    found: Vec<Namespace>,
}

impl<'a> ListScan<'a> {
    /// A listing that has read nothing yet.
    pub fn new(listing: &'a Listing) -> Self {
        Self {
            listing,
            rows: 0,
            skip: listing.offset,
            last: None,
            found: Vec::new(),
        }
    }

    /// Whether nothing more is wanted.
    pub fn is_over(&self) -> bool {
        self.found.len() >= self.listing.limit || self.rows > self.listing.scan_rows
    }

    /// A namespace that has items.
    pub fn offer(&mut self, mut namespace: Namespace) {
        if self.is_over() {
            return;
        }
        self.rows += 1;
        if self.rows > self.listing.scan_rows || !self.listing.matches(&namespace) {
            return;
        }
        if let Some(depth) = self.listing.max_depth {
            namespace.truncate(depth);
        }
        if self.last.as_ref() == Some(&namespace) {
            return;
        }
        self.last = Some(namespace.clone());
        if self.skip > 0 {
            self.skip -= 1;
        } else {
            self.found.push(namespace);
        }
    }

    /// What was found; `None` when more would have been read than may be.
    pub fn finish(self) -> Option<Vec<Namespace>> {
        (self.rows <= self.listing.scan_rows).then_some(self.found)
    }
}
