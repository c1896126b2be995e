//! The language of the cases: expressions, predicates, and what outlives one call.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;
use serde_json::{Value as Json, json};

/// Counters that live as long as a case.
#[derive(Default)]
pub struct World {
    started: Mutex<BTreeMap<String, u64>>,
    failures: Mutex<HashMap<String, u64>>,
}

impl World {
    pub fn start(&self, path: &str) {
        *self.started.lock().entry(path.to_owned()).or_default() += 1;
    }

    /// Whether a failure that happens `times` times happens now.
    pub fn fails(&self, key: String, times: u64) -> bool {
        let mut failures = self.failures.lock();
        let count = failures.entry(key).or_default();
        let fails = *count < times;
        *count += u64::from(fails);
        fails
    }

    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.started.lock().clone()
    }
}

/// What expressions see.
#[derive(Clone, Default)]
pub struct Scope {
    pub data: Json,
    pub item: Json,
    pub index: Json,
    pub vars: HashMap<String, Json>,
}

impl Scope {
    pub fn of(data: Json) -> Self {
        Self {
            data,
            ..Self::default()
        }
    }

    fn with_item(&self, item: &Json, index: usize) -> Self {
        Self {
            item: item.clone(),
            index: json!(index),
            ..self.clone()
        }
    }

    pub fn eval(&self, expression: &Json) -> Json {
        let map = match expression {
            Json::Array(items) => return items.iter().map(|item| self.eval(item)).collect(),
            Json::Object(map) => map,
            plain => return plain.clone(),
        };
        if map.len() == 1
            && let Some((key, value)) = map.iter().next()
            && key.starts_with('$')
        {
            return self.form(key, value);
        }
        map.iter()
            .map(|(key, value)| (key.clone(), self.eval(value)))
            .collect()
    }

    fn form(&self, key: &str, value: &Json) -> Json {
        let items = || value.as_array().cloned().unwrap_or_default();
        match key {
            "$get" => self.data[text(value)].clone(),
            "$input" => self.data.clone(),
            "$var" => self.vars.get(text(value)).cloned().unwrap_or_default(),
            "$item" => self.item.clone(),
            "$index" => self.index.clone(),
            "$field" => self.eval(&value[0])[text(&value[1])].clone(),
            "$add" => {
                let sum: i64 = items().iter().map(|item| int(&self.eval(item))).sum();
                json!(sum)
            }
            "$mul" => {
                let product: i64 = items().iter().map(|item| int(&self.eval(item))).product();
                json!(product)
            }
            "$len" => json!(self.eval(value).as_array().map_or(0, Vec::len)),
            "$str" => {
                let parts: Vec<String> = items()
                    .iter()
                    .map(|item| match self.eval(item) {
                        Json::String(text) => text,
                        other => sorted(&other).to_string(),
                    })
                    .collect();
                json!(parts.concat())
            }
            "$lit" => value.clone(),
            other => panic!("unknown expression {other}"),
        }
    }

    pub fn holds(&self, predicate: &Json) -> bool {
        if let Json::Bool(plain) = predicate {
            return *plain;
        }
        let (key, value) = predicate.as_object().unwrap().iter().next().unwrap();
        let each = || value.as_array().unwrap().iter();
        match key.as_str() {
            "not" => return !self.holds(value),
            "and" => return each().all(|one| self.holds(one)),
            "or" => return each().any(|one| self.holds(one)),
            _ => {}
        }
        let (a, b) = (self.eval(&value[0]), self.eval(&value[1]));
        match key.as_str() {
            "eq" => a == b,
            "ne" => a != b,
            "lt" => int(&a) < int(&b),
            "le" => int(&a) <= int(&b),
            "gt" => int(&a) > int(&b),
            "ge" => int(&a) >= int(&b),
            "in" => b.as_array().is_some_and(|list| list.contains(&a)),
            other => panic!("unknown predicate {other}"),
        }
    }

    /// Node and argument of every send that `op` describes.
    pub fn sends(&self, node: &Json, op: &Json) -> Vec<(String, Json)> {
        let node = text(node).to_owned();
        if let Some(args) = op["args"].as_array() {
            let each = args.iter().map(|arg| (node.clone(), self.eval(arg)));
            return each.collect();
        }
        let over = self.eval(&op["over"]);
        let items = over.as_array().cloned().unwrap_or_default();
        items
            .iter()
            .enumerate()
            .map(|(index, item)| {
                let inner = self.with_item(item, index);
                (node.clone(), inner.eval(&op["arg"]))
            })
            .collect()
    }
}

pub fn text(value: &Json) -> &str {
    value.as_str().unwrap()
}

fn int(value: &Json) -> i64 {
    value
        .as_i64()
        .unwrap_or_else(|| panic!("{value} is no integer"))
}

/// The same value with the keys of all maps sorted.
pub fn sorted(value: &Json) -> Json {
    match value {
        Json::Array(items) => items.iter().map(sorted).collect(),
        Json::Object(map) => {
            let map: BTreeMap<_, _> = map
                .iter()
                .map(|(key, value)| (key, sorted(value)))
                .collect();
            map.into_iter()
                .map(|(key, value)| (key.clone(), value))
                .collect()
        }
        other => other.clone(),
    }
}
