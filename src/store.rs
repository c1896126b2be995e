//! Long-term memory: values by namespace and key that outlive threads and are shared between them.

pub mod embed;
pub mod field;
pub mod filter;
pub mod memory;
pub mod namespace;
mod of_nodes;
pub mod rank;
pub mod search;
mod service;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

pub use embed::{Embedder, Index};
pub use namespace::Namespace;
pub use service::{Error, ItemQuery, Limits, NamespaceQuery, Service};

use crate::{
    checkpoint::{
        self,
        codec::{self, Format},
    },
    time::Timestamp,
    value::Value,
};
use embed::Vectors;
use rank::Nearest;
use search::{Found, Listing, Search};

/// An item to be stored.
#[derive(Clone, Debug)]
pub struct Put {
    /// Whose it is.
    pub owner: Arc<str>,
    /// Its namespace.
    pub namespace: Namespace,
    /// Its key in the namespace.
    pub key: String,
    /// The codec of its value.
    pub tag: Arc<str>,
    /// Its value as stored.
    pub bytes: Vec<u8>,
    /// How long after this write it expires; by default never.
    pub ttl: Option<Duration>,
    /// Vectors of its texts; `None` while nothing is embedded.
    pub vectors: Option<Vectors>,
}

/// A stored item, with its value or with the bytes of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Item<V = Value> {
    /// Whose it is.
    pub owner: Arc<str>,
    /// Its namespace.
    pub namespace: Namespace,
    /// Its key in the namespace.
    pub key: String,
    /// Its value.
    pub value: V,
    /// When it was first stored.
    pub created_at: Timestamp,
    /// When it was last written.
    pub updated_at: Timestamp,
    /// How long after it was written or refreshed it expires.
    pub ttl: Option<Duration>,
    /// How near it is to what was searched for, from -1 to 1; `None` where nothing was.
    pub score: Option<f32>,
}

/// A value as it is stored: many small ones take several times as much memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Encoded {
    /// Its codec.
    pub tag: Arc<str>,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Encoded {
    /// The value.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn decode(&self) -> Result<Value, checkpoint::Error> {
        codec::decode(&self.tag, &self.bytes)
            .map_err(|error| checkpoint::Error::Corrupt(error.to_string()))
    }

    /// What the value weighs.
    pub fn weight(&self) -> u64 {
        codec::weight(&self.tag, self.bytes.len())
    }
}

impl Item<Encoded> {
    /// The item with its value.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn decode(self) -> Result<Item, checkpoint::Error> {
        Ok(Item {
            value: self.value.decode()?,
            owner: self.owner,
            namespace: self.namespace,
            key: self.key,
            created_at: self.created_at,
            updated_at: self.updated_at,
            ttl: self.ttl,
            score: self.score,
        })
    }
}

/// A time to live as storages have it, in microseconds: at most 1,000 years, so that the moment
/// at which an item expires is one that every database knows.
pub fn ttl_micros(ttl: Duration) -> i64 {
    const LONGEST: i64 = 1000 * 365 * 24 * 3600 * 1_000_000;
    i64::try_from(ttl.as_micros()).map_or(LONGEST, |micros| micros.min(LONGEST))
}

/// A storage of long-term memory. Nobody sees an item that has expired, by the storage's clock.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// In which form values are to be encoded that are written.
    fn format(&self) -> Format;

    /// One item.
    async fn item(
        &self,
        owner: Arc<str>,
        namespace: Namespace,
        key: String,
    ) -> Result<Option<Item>, checkpoint::Error>;

    /// What an item weighs, without reading its value.
    async fn item_weight(
        &self,
        owner: Arc<str>,
        namespace: Namespace,
        key: String,
    ) -> Result<Option<u64>, checkpoint::Error>;

    /// Stores an item with its vectors and replaces the one with its key, whose creation time stays.
    /// False, and nothing is stored, when its owner has so many others already; those that several store
    /// at the same time may be a few more.
    async fn put_item(&self, put: Put, most: usize) -> Result<bool, checkpoint::Error>;

    /// Deletes an item; returns whether there was one.
    async fn delete_item(
        &self,
        owner: Arc<str>,
        namespace: Namespace,
        key: String,
    ) -> Result<bool, checkpoint::Error>;

    /// A page of items by namespace and key.
    async fn search_items(&self, search: Search) -> Result<Found, checkpoint::Error>;

    /// A page of the items whose vectors are nearest, the nearest first.
    async fn nearest_items(&self, search: Nearest) -> Result<Found, checkpoint::Error>;

    /// A page of namespaces that have items, sorted; `None` when more would be read than may be.
    async fn item_namespaces(
        &self,
        listing: Listing,
    ) -> Result<Option<Vec<Namespace>>, checkpoint::Error>;

    /// Lets the time to live of items begin anew, each by owner, namespace and key.
    async fn refresh_items(
        &self,
        names: Vec<(Arc<str>, Namespace, String)>,
    ) -> Result<(), checkpoint::Error>;

    /// Deletes at most so many expired items; returns how many.
    async fn sweep_items(&self, limit: usize) -> Result<u64, checkpoint::Error>;
}
