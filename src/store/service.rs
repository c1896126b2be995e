//! Items of long-term memory for clients and nodes: what may be stored, whose it is, and when it goes.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{
    Embedder, Encoded, Index, Item, Put, Store,
    filter::Filter,
    memory::SearchMemory,
    namespace::{self, Namespace, Refused, outermost, owner_of, ranges},
    rank::Nearest,
    search::{Found, Listing, Search},
};
use crate::{
    checkpoint::{self, codec},
    value::Value,
};

/// Pause between two sweeps of expired items.
const SWEEP_PAUSE: Duration = Duration::from_secs(60);
/// Most items that one statement of a sweep deletes.
const SWEEP_BATCH: usize = 1000;

/// How much items may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most bytes of a stored value.
    pub item_bytes: usize,
    /// Most items of one principal.
    pub items: usize,
    /// Most items or namespaces that a search reads.
    pub scan_rows: usize,
    /// Most bytes of values that a search reads.
    pub scan_bytes: usize,
    /// Most bytes of values that a search returns.
    pub page_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            item_bytes: 1 << 20,
            items: 1_000_000,
            scan_rows: 50_000,
            scan_bytes: 64 << 20,
            page_bytes: 16 << 20,
        }
    }
}

/// Why an operation on items failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The namespace is not allowed.
    #[error(transparent)]
    Namespace(#[from] Refused),
    /// The value is nested too deeply.
    #[error(
        "a value in memory cannot be nested deeper than {} levels",
        codec::MAX_DEPTH
    )]
    TooDeep,
    /// The value has too many bytes.
    #[error("a value in memory has at most {limit} bytes, not {bytes}")]
    TooLarge {
        /// How many it has.
        bytes: usize,
        /// How many are allowed.
        limit: usize,
    },
    /// Its owner has as many items as it may.
    #[error(
        "a principal has at most {0} items in memory: delete some, or let the operator raise \
         BACKSTITCH_MAX_STORE_ITEMS"
    )]
    Full(usize),
    /// The search would read too much.
    #[error(
        "the search would read more than {rows} items or {bytes} bytes: give it a longer prefix"
    )]
    TooMuchToRead {
        /// How many items it may read.
        rows: usize,
        /// How many bytes it may read.
        bytes: usize,
    },
    /// The page would be too large.
    #[error("the page would have more than {limit} bytes: ask for fewer items")]
    TooMuchToReturn {
        /// How many are allowed.
        limit: usize,
    },
    /// There is not enough memory for the page now.
    #[error("too many items of long-term memory are being read: try again later")]
    NoMemory,
    /// The item has too many texts to embed.
    #[error("at most {most} texts of an item are embedded: name fewer in `index`")]
    TooManyTexts {
        /// How many it may have.
        most: usize,
    },
    /// The embedding model failed; why is for operators.
    #[error("the embedding model failed: {0}")]
    Embedding(String),
    /// The storage failed.
    #[error(transparent)]
    Storage(#[from] checkpoint::Error),
}

/// A page of items, as a client requests it.
#[derive(Clone, Debug, Default)]
pub struct ItemQuery {
    /// The first labels of their namespaces.
    pub prefix: Namespace,
    /// Which values pass.
    pub filter: Filter,
    /// What they are to be near to in meaning, the nearest first. Without it, or while nothing is
    /// embedded, they come by namespace and key.
    pub text: Option<Arc<str>>,
    /// At most so many.
    pub limit: usize,
    /// How many come before them.
    pub offset: usize,
    /// Whether their time to live begins anew.
    pub refresh: bool,
    /// What takes memory for them.
    pub memory: SearchMemory,
}

/// A page of namespaces, as a client requests it.
#[derive(Clone, Debug, Default)]
pub struct NamespaceQuery {
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
}

struct Inner {
    store: Arc<dyn Store>,
    limits: Limits,
    shared: Vec<Namespace>,
    embedder: Option<Embedder>,
}

/// The long-term memory of this server. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    inner: Arc<Inner>,
}

impl Service {
    /// The memory in `store`. What is below one of the `shared` prefixes belongs to everybody,
    /// all else to the principal that stored it. With an embedder items are found by meaning.
    pub fn new(
        store: Arc<dyn Store>,
        limits: Limits,
        shared: Vec<Namespace>,
        embedder: Option<Embedder>,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                store,
                limits,
                shared: outermost(shared),
                embedder,
            }),
        }
    }

    /// The same memory, with items that are found by meaning.
    pub fn with_embedder(&self, embedder: Embedder) -> Self {
        let Inner {
            store,
            limits,
            shared,
            ..
        } = &*self.inner;
        Self {
            inner: Arc::new(Inner {
                store: store.clone(),
                limits: *limits,
                shared: shared.clone(),
                embedder: Some(embedder),
            }),
        }
    }

    /// Begins to delete expired items, until `drain` is cancelled.
    pub fn start(&self, drain: CancellationToken) {
        let store = self.inner.store.clone();
        tokio::spawn(async move {
            while drain
                .run_until_cancelled(tokio::time::sleep(SWEEP_PAUSE))
                .await
                .is_some()
            {
                loop {
                    match store.sweep_items(SWEEP_BATCH).await {
                        Ok(deleted) if deleted >= SWEEP_BATCH as u64 => {}
                        Ok(_) => break,
                        Err(error) => {
                            tracing::warn!(%error, "expired items could not be deleted");
                            break;
                        }
                    }
                }
            }
        });
    }

    /// One item of a principal; none that has expired. With `refresh` its time to live begins anew.
    ///
    /// # Errors
    /// The namespace is not allowed, or the storage failed.
    pub async fn get(
        &self,
        owner: &Arc<str>,
        namespace: Namespace,
        key: String,
        refresh: bool,
    ) -> Result<Option<Item>, Error> {
        namespace::check(&namespace, &key)?;
        let inner = &self.inner;
        let owner = owner_of(&inner.shared, owner, &namespace);
        let item = inner.store.item(owner, namespace, key).await?;
        if refresh && let Some(item) = &item {
            self.refresh(std::slice::from_ref(item)).await?;
        }
        Ok(item)
    }

    /// What an item of a principal weighs, without reading its value.
    ///
    /// # Errors
    /// The namespace is not allowed, or the storage failed.
    pub async fn weight(
        &self,
        owner: &Arc<str>,
        namespace: Namespace,
        key: String,
    ) -> Result<Option<u64>, Error> {
        namespace::check(&namespace, &key)?;
        let inner = &self.inner;
        let owner = owner_of(&inner.shared, owner, &namespace);
        Ok(inner.store.item_weight(owner, namespace, key).await?)
    }

    /// Stores an item of a principal; `index` are the texts that it is found by.
    ///
    /// # Errors
    /// The namespace or the value is not allowed, or the embedding model or the storage failed.
    pub async fn put(
        &self,
        owner: &Arc<str>,
        namespace: Namespace,
        key: String,
        value: Value,
        (ttl, index): (Option<Duration>, &Index),
    ) -> Result<(), Error> {
        namespace::check_new(&namespace, &key)?;
        if value.is_deeper_than(codec::MAX_DEPTH) {
            return Err(Error::TooDeep);
        }
        let (tag, bytes) = codec::encode_tagged(&value, self.inner.store.format());
        let limit = self.inner.limits.item_bytes;
        if bytes.len() > limit {
            let bytes = bytes.len();
            return Err(Error::TooLarge { bytes, limit });
        }
        let vectors = match &self.inner.embedder {
            Some(embedder) => Some(embedder.vectors(&value, index).await?),
            None => None,
        };
        let put = Put {
            owner: owner_of(&self.inner.shared, owner, &namespace),
            namespace,
            key,
            tag,
            bytes,
            ttl,
            vectors,
        };
        let most = self.inner.limits.items;
        if self.inner.store.put_item(put, most).await? {
            Ok(())
        } else {
            Err(Error::Full(most))
        }
    }

    /// Deletes an item of a principal; returns whether there was one.
    ///
    /// # Errors
    /// The namespace is not allowed, or the storage failed.
    pub async fn delete(
        &self,
        owner: &Arc<str>,
        namespace: Namespace,
        key: String,
    ) -> Result<bool, Error> {
        namespace::check(&namespace, &key)?;
        let inner = &self.inner;
        let owner = owner_of(&inner.shared, owner, &namespace);
        Ok(inner.store.delete_item(owner, namespace, key).await?)
    }

    /// A page of the items that a principal sees, by namespace and key, or those first that are nearest
    /// in meaning.
    ///
    /// # Errors
    /// A label is not allowed, the search or its page is too large, or the embedding model or the
    /// storage failed.
    pub async fn search(
        &self,
        owner: &Arc<str>,
        query: ItemQuery,
    ) -> Result<Vec<Item<Encoded>>, Error> {
        namespace::check_labels(&query.prefix)?;
        let limits = self.inner.limits;
        let ranges = ranges(&self.inner.shared, owner, &query.prefix);
        let text = query.text.filter(|text| !text.trim().is_empty());
        let found = match (&self.inner.embedder, text) {
            (Some(embedder), Some(text)) => {
                let search = Nearest {
                    ranges,
                    filter: query.filter,
                    model: embedder.model().clone(),
                    vector: embedder.query(&text).await?,
                    limit: query.limit,
                    offset: query.offset,
                    scan_rows: limits.scan_rows,
                    scan_bytes: limits.scan_bytes,
                    page_bytes: limits.page_bytes,
                    memory: query.memory,
                };
                self.inner.store.nearest_items(search).await?
            }
            _ => {
                let search = Search {
                    ranges,
                    filter: query.filter,
                    limit: query.limit,
                    offset: query.offset,
                    scan_rows: limits.scan_rows,
                    scan_bytes: limits.scan_bytes,
                    page_bytes: limits.page_bytes,
                    memory: query.memory,
                };
                self.inner.store.search_items(search).await?
            }
        };
        let items = match found {
            Found::Items(items) => items,
            Found::TooMuchToRead => {
                let (rows, bytes) = (limits.scan_rows, limits.scan_bytes);
                return Err(Error::TooMuchToRead { rows, bytes });
            }
            Found::TooMuchToReturn => {
                let limit = limits.page_bytes;
                return Err(Error::TooMuchToReturn { limit });
            }
            Found::NoMemory => return Err(Error::NoMemory),
        };
        if query.refresh {
            self.refresh(&items).await?;
        }
        Ok(items)
    }

    /// A page of the namespaces in which a principal sees items, sorted.
    ///
    /// # Errors
    /// A label is not allowed, more would be read than may be, or the storage failed.
    pub async fn namespaces(
        &self,
        owner: &Arc<str>,
        query: NamespaceQuery,
    ) -> Result<Vec<Namespace>, Error> {
        namespace::check_labels(&query.prefix)?;
        namespace::check_labels(&query.suffix)?;
        let limits = self.inner.limits;
        let literal = query.prefix.iter().take_while(|label| *label != "*");
        let literal: Namespace = literal.cloned().collect();
        let listing = Listing {
            ranges: ranges(&self.inner.shared, owner, &literal),
            prefix: query.prefix,
            suffix: query.suffix,
            max_depth: query.max_depth,
            limit: query.limit,
            offset: query.offset,
            scan_rows: limits.scan_rows,
        };
        let found = self.inner.store.item_namespaces(listing).await?;
        found.ok_or(Error::TooMuchToRead {
            rows: limits.scan_rows,
            bytes: limits.scan_bytes,
        })
    }

    /// Lets the time to live of items begin anew.
    async fn refresh<V>(&self, items: &[Item<V>]) -> Result<(), Error> {
        let names = items.iter().filter(|item| item.ttl.is_some());
        let names: Vec<_> = names
            .map(|item| (item.owner.clone(), item.namespace.clone(), item.key.clone()))
            .collect();
        if !names.is_empty() {
            self.inner.store.refresh_items(names).await?;
        }
        Ok(())
    }
}
