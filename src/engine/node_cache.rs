//! Results of nodes that may be used again for equal inputs (LangGraph's node cache): in memory,
//! shared by all runs of a service.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_128;

use super::apply::Writes;
use crate::{
    cache::ByteCache,
    checkpoint::codec,
    graph::{Body, Node},
    value::Value,
};

/// What a result is stored under: the node and the part of its input that counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Address of the function or graph; the entry owns that too, so that no other node gets the
    /// address while the entry is there.
    body: usize,
    name: Arc<str>,
    input: u128,
}

/// Results of nodes by key, bounded by their bytes.
pub struct Results {
    entries: ByteCache<Key, Entry>,
}

#[derive(Clone)]
struct Entry {
    writes: Writes,
    /// The owner of the address in the key.
    _body: Body,
}

impl Results {
    /// An empty cache for about `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            entries: ByteCache::new(limit),
        }
    }

    /// The key of the result of `node` for `input`; none for a node whose results are not cached.
    pub fn key(node: &Node, input: &Value) -> Option<Key> {
        let policy = node.cache.as_ref()?;
        let part = policy.key.as_ref().map(|part| part(input));
        Some(Key {
            body: match &node.body {
                Body::Function(function) => Arc::as_ptr(function).cast::<()>().addr(),
                Body::Graph(graph) => Arc::as_ptr(graph).addr(),
            },
            name: node.name.clone(),
            input: xxh3_128(&codec::encode(part.as_ref().unwrap_or(input))),
        })
    }

    /// The writes of an earlier task with this key.
    pub fn get(&self, key: &Key) -> Option<Writes> {
        self.entries.get(key).map(|entry| entry.writes)
    }

    /// Stores what a task of `node` wrote, as long as the policy of the node allows.
    pub fn put(&self, key: Key, node: &Node, writes: &Writes) {
        let size = |value: &Value| codec::encode(value).len();
        let bytes = writes
            .iter()
            .map(|(name, value)| name.len() + size(value) + size_of::<Value>())
            .sum::<usize>()
            + size_of::<Entry>();
        let ttl = node.cache.as_ref().and_then(|policy| policy.ttl);
        let expires = ttl.and_then(|ttl: Duration| Instant::now().checked_add(ttl));
        let entry = Entry {
            writes: writes.clone(),
            _body: node.body.clone(),
        };
        self.entries.insert(key, entry, bytes, expires);
    }
}

impl Default for Results {
    /// 32 MiB.
    fn default() -> Self {
        Self::new(32 << 20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        graph::{Cache, Graph, NodeOpts, Output, START},
        value,
    };

    fn node(cache: Cache) -> Node {
        let opts = NodeOpts::new().cache(cache);
        let graph = Graph::untyped()
            .channel("x", crate::channel::Kind::Last)
            .node_with("n", |_| async { Ok(Output::default()) }, opts)
            .edge(START, "n")
            .build()
            .unwrap();
        graph.nodes[0].clone()
    }

    fn writes(text: &str) -> Writes {
        vec![("x".into(), text.into())]
    }

    #[test]
    fn equal_inputs_of_one_node_share_a_key() {
        let (one, two) = (node(Cache::forever()), node(Cache::forever()));
        let key = |node: &Node, x: i64| Results::key(node, &value!({"x": x}));
        assert_eq!(key(&one, 1), key(&one, 1));
        assert_ne!(key(&one, 1), key(&one, 2));
        assert_ne!(key(&one, 1), key(&two, 1));
        let part = node(Cache::forever().key(|input| input["x"].clone()));
        let with_more = Results::key(&part, &value!({"x": 1, "y": 2}));
        assert_eq!(key(&part, 1), with_more);
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_holds_as_long_as_its_policy_says() {
        let (node, results) = (node(Cache::ttl(Duration::from_secs(5))), Results::default());
        let key = Results::key(&node, &Value::Null).unwrap();
        results.put(key.clone(), &node, &writes("x"));
        tokio::time::advance(Duration::from_millis(4999)).await;
        assert!(results.get(&key).is_some());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(results.get(&key), None);
    }
}
