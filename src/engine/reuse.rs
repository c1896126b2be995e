//! Results of nodes that may be used again for equal inputs (LangGraph's node cache): in memory,
//! shared by all runs of a service.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_128;

use super::drive::Writes;
use crate::{
    checkpoint::codec,
    graph::{Body, Node},
    value::Value,
};

/// What a result is kept under: the node and the part of its input that counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Address of the function or graph; the entry keeps that alive, so nothing else gets it.
    body: usize,
    name: Arc<str>,
    input: u128,
}

/// Kept results, the oldest of which go when there are too many.
pub struct Results {
    limit: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    entries: HashMap<Key, Entry>,
    /// Keys in the order they came, with the number of the entry they stand for.
    order: VecDeque<(Key, u64)>,
    bytes: usize,
    count: u64,
}

struct Entry {
    writes: Writes,
    until: Option<Instant>,
    bytes: usize,
    number: u64,
    /// Keeps the address in the key from being given to another node.
    _body: Body,
}

impl Results {
    /// Keeps about `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            inner: Mutex::default(),
        }
    }

    /// Where the result of `node` for `input` is kept; none for a node without reuse.
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

    /// The writes of a task that had this key before.
    pub fn get(&self, key: &Key) -> Option<Writes> {
        let inner = self.inner.lock();
        let entry = inner.entries.get(key)?;
        let holds = entry.until.is_none_or(|until| Instant::now() < until);
        holds.then(|| entry.writes.clone())
    }

    /// Keeps what a task of `node` wrote.
    pub fn put(&self, key: Key, node: &Node, writes: &Writes) {
        let size = |value: &Value| codec::encode(value).len();
        let bytes = writes
            .iter()
            .map(|(name, value)| name.len() + size(value) + size_of::<Value>())
            .sum::<usize>()
            + size_of::<Entry>();
        if bytes > self.limit / 4 {
            return;
        }
        let ttl = node.cache.as_ref().and_then(|policy| policy.ttl);
        let mut inner = self.inner.lock();
        inner.count += 1;
        let entry = Entry {
            writes: writes.clone(),
            until: ttl.and_then(|ttl: Duration| Instant::now().checked_add(ttl)),
            bytes,
            number: inner.count,
            _body: node.body.clone(),
        };
        inner.order.push_back((key.clone(), entry.number));
        inner.bytes += bytes;
        if let Some(old) = inner.entries.insert(key, entry) {
            inner.bytes -= old.bytes;
        }
        while inner.bytes > self.limit || inner.order.len() > 2 * inner.entries.len() + 16 {
            let Some((key, number)) = inner.order.pop_front() else {
                break;
            };
            // A newer entry under the same key has a place of its own further back.
            if inner
                .entries
                .get(&key)
                .is_some_and(|entry| entry.number == number)
                && let Some(entry) = inner.entries.remove(&key)
            {
                inner.bytes -= entry.bytes;
            }
        }
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

    #[test]
    fn the_oldest_results_go_when_there_are_too_many_bytes() {
        let (node, results) = (node(Cache::forever()), Results::new(4096));
        let key = |x: i64| Results::key(&node, &value!({"x": x})).unwrap();
        for x in 0..100 {
            results.put(key(x), &node, &writes(&"t".repeat(100)));
        }
        assert_eq!(results.get(&key(0)), None);
        assert_eq!(results.get(&key(99)), Some(writes(&"t".repeat(100))));
        assert!(results.inner.lock().bytes <= 4096);
        // Too large to be kept at all.
        results.put(key(100), &node, &writes(&"t".repeat(2000)));
        assert_eq!(results.get(&key(100)), None);
        assert!(results.get(&key(99)).is_some());
    }

    #[test]
    fn a_result_that_is_put_again_and_again_takes_one_place() {
        let (node, results) = (node(Cache::forever()), Results::default());
        let key = Results::key(&node, &Value::Null).unwrap();
        for round in 0..1000 {
            results.put(key.clone(), &node, &writes(&round.to_string()));
        }
        assert_eq!(results.get(&key), Some(writes("999")));
        let inner = results.inner.lock();
        assert!(inner.order.len() < 32, "{}", inner.order.len());
        assert_eq!(inner.bytes, inner.entries[&key].bytes);
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
