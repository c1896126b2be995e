//! Random operations on items of long-term memory, against a model that is as naive as can be.
//!
//! `BACKSTITCH_ITEM_CASES=n` sets how many cases, `BACKSTITCH_ITEM_SEED=n` where they begin.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use backstitch::store::{Index, ItemQuery, Limits, NamespaceQuery, Service, filter::Filter};
use backstitch::value::Value;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value as Json, json};
use test_support::on_both_storages;
use test_support::place::{Place, block_on};

use crate::memory::Clocked;

on_both_storages!(items_are_what_the_naive_model_says,);

/// What everybody shares.
const SHARED: &str = "b";
const OWNERS: [&str; 2] = ["ann", "bob"];

#[derive(Clone, Debug)]
enum Op {
    Put(usize, Vec<String>, String, Json, Option<u64>),
    Get(usize, Vec<String>, String, bool),
    Delete(usize, Vec<String>, String),
    Search(usize, Vec<String>, Json, usize, usize, bool),
    List(usize, Vec<String>, Vec<String>, Option<usize>, usize, usize),
    Pass(u64),
    Sweep(usize),
}

fn label() -> impl Strategy<Value = String> {
    proptest::sample::select(vec!["a", "b", "a!", "ab", "é"]).prop_map(str::to_owned)
}

fn pattern() -> impl Strategy<Value = String> {
    prop_oneof![3 => label(), 1 => Just("*".to_owned())]
}

fn scalar() -> impl Strategy<Value = Json> {
    prop_oneof![
        (-2..3_i64).prop_map(Json::from),
        (-2..3_i64).prop_map(|number| json!(number as f64 / 2.0)),
        proptest::sample::select(vec!["", "a", "b"]).prop_map(Json::from),
        any::<bool>().prop_map(Json::from),
        Just(Json::Null),
        Just(json!([1, 2])),
        Just(json!({"x": 1})),
    ]
}

fn item() -> impl Strategy<Value = Json> {
    let fields = vec(
        (proptest::sample::select(vec!["n", "m", "o"]), scalar()),
        0..4,
    );
    (fields, scalar()).prop_map(|(fields, inner)| {
        let mut map: serde_json::Map<String, Json> = fields
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        map.insert("in".to_owned(), json!({"x": inner, "y": 1}));
        Json::Object(map)
    })
}

fn filter() -> impl Strategy<Value = Json> {
    let operator = proptest::sample::select(vec!["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]);
    let tests = vec((operator, scalar()), 1..3).prop_map(|tests| {
        Json::Object(tests.into_iter().map(|(o, v)| (o.to_owned(), v)).collect())
    });
    let wanted = prop_oneof![scalar(), tests].boxed();
    let inner = wanted
        .clone()
        .prop_map(|wanted| json!({"in": {"x": wanted}}));
    let field = (proptest::sample::select(vec!["n", "m", "o", "in"]), wanted)
        .prop_map(|(name, wanted)| json!({name: wanted}));
    prop_oneof![2 => Just(json!({})), 5 => field, 2 => inner]
}

fn op() -> impl Strategy<Value = Op> {
    let who = 0..OWNERS.len();
    let namespace = || vec(label(), 1..4);
    let key = || proptest::sample::select(vec!["", "k", "k!", "l"]).prop_map(str::to_owned);
    let ttl = proptest::option::of(1..5_u64);
    prop_oneof![
        8 => (who.clone(), namespace(), key(), item(), ttl).prop_map(|(w, n, k, v, t)| Op::Put(w, n, k, v, t)),
        2 => (who.clone(), namespace(), key(), any::<bool>()).prop_map(|(w, n, k, r)| Op::Get(w, n, k, r)),
        1 => (who.clone(), namespace(), key()).prop_map(|(w, n, k)| Op::Delete(w, n, k)),
        5 => (who.clone(), vec(label(), 0..3), filter(), 1..6_usize, 0..4_usize, any::<bool>())
            .prop_map(|(w, p, f, l, o, r)| Op::Search(w, p, f, l, o, r)),
        4 => (who, vec(pattern(), 0..3), vec(pattern(), 0..3), proptest::option::of(1..4_usize), 1..6_usize, 0..3_usize)
            .prop_map(|(w, p, s, d, l, o)| Op::List(w, p, s, d, l, o)),
        2 => (1..3_u64).prop_map(Op::Pass),
        1 => (1..4_usize).prop_map(Op::Sweep),
    ]
}

/// An item of the model: its value, its time to live, and the hours that are left of it.
struct Known(Json, Option<u64>, Option<u64>);

#[derive(Default)]
struct Model(BTreeMap<(String, Vec<String>, String), Known>);

impl Model {
    fn owner(who: usize, namespace: &[String]) -> String {
        if namespace[0] == SHARED {
            String::new()
        } else {
            OWNERS[who].to_owned()
        }
    }

    /// What a principal sees, sorted.
    fn seen(&mut self, who: usize) -> Vec<(&Vec<String>, &String, &mut Known)> {
        let mut seen: Vec<_> = self
            .0
            .iter_mut()
            .filter(|((owner, namespace, _), known)| {
                *owner == Self::owner(who, namespace) && known.2 != Some(0)
            })
            .map(|((_, namespace, key), known)| (namespace, key, known))
            .collect();
        seen.sort_by_key(|(namespace, key, _)| (*namespace, *key));
        seen
    }
}

fn fits(patterns: &[String], labels: &[&String]) -> bool {
    let fit = |(pattern, label): (&String, &&String)| pattern == "*" || pattern == *label;
    patterns.len() <= labels.len() && patterns.iter().zip(labels).all(fit)
}

fn equal(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Number(a), Json::Number(b)) => a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}

fn passes(value: &Json, wanted: &Json) -> bool {
    let Some(map) = wanted.as_object() else {
        return equal(value, wanted);
    };
    map.iter().all(|(name, wanted)| {
        let order = match (value, wanted) {
            (Json::Number(a), Json::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
            (Json::String(a), Json::String(b)) => a.partial_cmp(b),
            _ => None,
        };
        match &**name {
            "$eq" => equal(value, wanted),
            "$ne" => !equal(value, wanted),
            "$gt" => order.is_some_and(|order| order.is_gt()),
            "$gte" => order.is_some_and(|order| order.is_ge()),
            "$lt" => order.is_some_and(|order| order.is_lt()),
            "$lte" => order.is_some_and(|order| order.is_le()),
            _ => value.is_object() && passes(value.get(name).unwrap_or(&Json::Null), wanted),
        }
    })
}

fn plain(value: &Value) -> Json {
    serde_json::from_str(&value.to_json()).unwrap()
}

fn engine(value: &Json) -> Value {
    Value::from_json_slice(value.to_string().as_bytes()).unwrap()
}

async fn attempt(clocked: &Clocked, ops: &[Op]) -> Result<(), String> {
    let shared = vec![vec![SHARED.to_owned()]];
    let service = Service::new(clocked.store.clone(), Limits::default(), shared, None);
    let mut model = Model::default();
    let hours = |hours: u64| Duration::from_secs(3600 * hours);
    let owners: [Arc<str>; 2] = OWNERS.map(Into::into);
    let whose = |who: usize| &owners[who];
    for (number, op) in ops.iter().enumerate() {
        let (got, wanted) = match op.clone() {
            Op::Put(who, namespace, key, value, ttl) => {
                let done = service.put(
                    whose(who),
                    namespace.clone(),
                    key.clone(),
                    engine(&value),
                    (ttl.map(hours), &Index::Default),
                );
                done.await.unwrap();
                let owner = Model::owner(who, &namespace);
                model
                    .0
                    .insert((owner, namespace, key), Known(value, ttl, ttl));
                (Json::Null, Json::Null)
            }
            Op::Get(who, namespace, key, refresh) => {
                let got = service
                    .get(whose(who), namespace.clone(), key.clone(), refresh)
                    .await;
                let wanted = model
                    .seen(who)
                    .into_iter()
                    .find(|(n, k, _)| **n == namespace && **k == key);
                let wanted = wanted.map(|(_, _, known)| {
                    if refresh {
                        known.2 = known.1;
                    }
                    known.0.clone()
                });
                (
                    json!(got.unwrap().map(|item| plain(&item.value))),
                    json!(wanted),
                )
            }
            Op::Delete(who, namespace, key) => {
                let got = service.delete(whose(who), namespace.clone(), key.clone());
                let owner = Model::owner(who, &namespace);
                let was = model.0.remove(&(owner, namespace, key));
                let wanted = was.is_some_and(|known| known.2 != Some(0));
                (json!(got.await.unwrap()), json!(wanted))
            }
            Op::Search(who, prefix, filter, limit, offset, refresh) => {
                let query = ItemQuery {
                    prefix: prefix.clone(),
                    filter: Filter::read(engine(&filter).as_map().unwrap()).unwrap(),
                    limit,
                    offset,
                    refresh,
                    text: None,
                    memory: None,
                };
                let got = service.search(whose(who), query).await.unwrap();
                let got: Vec<_> = got
                    .iter()
                    .map(|item| {
                        json!([
                            item.namespace,
                            item.key,
                            plain(&item.value.decode().unwrap())
                        ])
                    })
                    .collect();
                let wanted: Vec<_> = model
                    .seen(who)
                    .into_iter()
                    .filter(|(namespace, _, known)| {
                        namespace.starts_with(&prefix) && passes(&known.0, &filter)
                    })
                    .skip(offset)
                    .take(limit)
                    .map(|(namespace, key, known)| {
                        if refresh {
                            known.2 = known.1;
                        }
                        json!([namespace, key, known.0])
                    })
                    .collect();
                (json!(got), json!(wanted))
            }
            Op::List(who, prefix, suffix, max_depth, limit, offset) => {
                let query = NamespaceQuery {
                    prefix: prefix.clone(),
                    suffix: suffix.clone(),
                    max_depth,
                    limit,
                    offset,
                };
                let got = service.namespaces(whose(who), query).await.unwrap();
                let from_end: Vec<_> = suffix.iter().rev().cloned().collect();
                let seen = model.seen(who);
                let mut wanted: Vec<_> = seen
                    .iter()
                    .filter(|(namespace, ..)| {
                        let labels: Vec<_> = namespace.iter().collect();
                        let reversed: Vec<_> = namespace.iter().rev().collect();
                        fits(&prefix, &labels) && fits(&from_end, &reversed)
                    })
                    .map(|(namespace, ..)| {
                        let depth = max_depth.unwrap_or(usize::MAX);
                        namespace.iter().take(depth).cloned().collect::<Vec<_>>()
                    })
                    .collect();
                wanted.dedup();
                let wanted: Vec<_> = wanted.into_iter().skip(offset).take(limit).collect();
                (json!(got), json!(wanted))
            }
            Op::Pass(passed) => {
                clocked.pass(passed).await;
                for known in model.0.values_mut() {
                    known.2 = known.2.map(|left| left.saturating_sub(passed));
                }
                (Json::Null, Json::Null)
            }
            Op::Sweep(limit) => {
                let got = clocked.store.sweep_items(limit).await.unwrap();
                let all = model.0.values().filter(|known| known.2 == Some(0)).count();
                // Which of them were deleted nobody can see: the rest count as deleted too late.
                let wanted = all.min(limit) as u64;
                while clocked.store.sweep_items(1000).await.unwrap() > 0 {}
                model.0.retain(|_, known| known.2 != Some(0));
                (json!(got), json!(wanted))
            }
        };
        if got != wanted {
            return Err(format!("{number} {op:?}\n got    {got}\n wanted {wanted}"));
        }
    }
    Ok(())
}

fn number(name: &str, usual: u64) -> u64 {
    let set = std::env::var(name);
    set.map_or(usual, |text| text.parse().unwrap())
}

fn items_are_what_the_naive_model_says(place: &Place) {
    let cases = number("BACKSTITCH_ITEM_CASES", 40);
    let seed = number("BACKSTITCH_ITEM_SEED", 1);
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    block_on(async {
        let clocked = Clocked::open(place).await;
        for case in 0..cases {
            let mut tree = vec(op(), 1..80).new_tree(&mut runner).unwrap();
            let clear = "DELETE FROM store_items";
            let mut failed = attempt(&clocked, &tree.current()).await.err();
            clocked.execute(clear, clear).await;
            let Some(mut why) = failed.take() else {
                continue;
            };
            // The smallest case that still fails, within reason.
            for _ in 0..200 {
                if !tree.simplify() {
                    break;
                }
                let outcome = attempt(&clocked, &tree.current()).await;
                clocked.execute(clear, clear).await;
                match outcome {
                    Err(smaller) => why = smaller,
                    Ok(()) => {
                        if !tree.complicate() {
                            break;
                        }
                    }
                }
            }
            panic!("seed {seed}, case {case}: {why}\n{:#?}", tree.current());
        }
    });
}
