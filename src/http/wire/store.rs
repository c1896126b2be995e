//! Items of long-term memory.

use schemars::JsonSchema;

use super::{Flag, Limit, Offset, Timestamp};
use crate::value::{Map, Value};

super::schemas! {
    /// The labels of a namespace. None is empty or has a period, and the first one is not `langgraph`.
    Namespace = {
        "type": "array", "minItems": 1, "maxItems": 64,
        "items": {"type": "string", "minLength": 1, "pattern": "^[^.\\u0000]+$"}
    };
    /// The first or the last labels of a namespace.
    Labels = {
        "type": "array", "maxItems": 64,
        "items": {"type": "string", "minLength": 1, "pattern": "^[^.\\u0000]+$"}
    };
    /// The labels of a namespace, with periods between them.
    DottedNamespace = {
        "type": "string", "minLength": 1, "pattern": "^[^.\\u0000]+(\\.[^.\\u0000]+)*$"
    };
    /// Which texts the item is found by in meaning: false for none, or a list of paths such as `text` and
    /// `parts[*].text`. By default those that the server is configured for.
    Index = { "anyOf": [{"const": false}, {"type": "array", "items": {"type": "string"}}] };
    /// Minutes.
    Minutes = { "type": "number", "exclusiveMinimum": 0 };
}

/// An item to store.
#[derive(JsonSchema)]
pub struct PutItem {
    namespace: Namespace,
    key: String,
    value: Map,
    index: Option<Index>,
    /// After how many minutes without use it goes.
    ttl: Option<Minutes>,
}

/// The item to read.
#[derive(JsonSchema)]
pub struct GetQuery {
    namespace: DottedNamespace,
    key: ItemKey,
    /// Whether its time to live begins anew.
    refresh_ttl: Option<Flag>,
}

super::schemas! {
    /// The key of an item.
    ItemKey = { "type": "string", "minLength": 1 };
}

/// The item to delete.
#[derive(JsonSchema)]
pub struct DeleteItem {
    namespace: Option<Labels>,
    key: String,
}

/// Which items are searched.
#[derive(JsonSchema)]
pub struct SearchItems {
    namespace_prefix: Option<Labels>,
    /// Values of fields, or operators: `$eq`, `$ne`, `$gt`, `$gte`, `$lt`, `$lte`.
    filter: Option<Map>,
    limit: Option<Limit>,
    offset: Option<Offset>,
    /// The nearest to it in meaning come first, where the server has an embedding model; else it is
    /// ignored.
    query: Option<String>,
    refresh_ttl: Option<bool>,
}

/// Which namespaces are listed.
#[derive(JsonSchema)]
pub struct ListNamespaces {
    prefix: Option<Labels>,
    suffix: Option<Labels>,
    /// Longer ones are cut to as many labels.
    max_depth: Option<super::EventNumber>,
    limit: Option<Limit>,
    offset: Option<Offset>,
}

/// An item.
#[derive(JsonSchema)]
pub struct Item {
    namespace: Vec<String>,
    key: String,
    value: Value,
    created_at: Timestamp,
    updated_at: Timestamp,
}

/// The error of a missing key, in a form of its own.
#[derive(JsonSchema)]
#[serde(untagged)]
pub enum KeyError {
    Missing { error: String },
    Other { detail: String },
}

/// An item that a search found.
#[derive(JsonSchema)]
struct FoundItem {
    #[serde(flatten)]
    item: Item,
    /// How near it is to the query, from -1 to 1.
    score: Option<f64>,
}

/// What a search found.
#[derive(JsonSchema)]
pub struct FoundItems {
    items: Vec<FoundItem>,
}

/// Namespaces.
#[derive(JsonSchema)]
pub struct Namespaces {
    namespaces: Vec<Vec<String>>,
}
