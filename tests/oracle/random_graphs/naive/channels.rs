//! What updates make of the channels.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value as Json, json};

use super::{Machine, Refused, list};
use crate::lang::text;

impl Machine {
    pub(super) fn kind(&self, channel: &str) -> (&str, bool) {
        let mut channels = list(&self.graph["channels"]).iter();
        let found = channels.find(|found| found["name"] == channel).unwrap();
        (text(&found["kind"]), found["accumulate"] == true)
    }

    /// Merges updates into the channels; with `clear` those that live for one superstep and got
    /// none are emptied.
    pub(super) fn update(
        &mut self,
        updates: &[(String, Json)],
        clear: bool,
    ) -> Result<(), Refused> {
        let mut grouped: BTreeMap<&str, Vec<&Json>> = BTreeMap::new();
        for (channel, value) in updates {
            grouped.entry(channel).or_default().push(value);
        }
        for (channel, values) in &grouped {
            let (kind, accumulate) = self.kind(channel);
            let (kind, old) = (kind.to_owned(), self.values.get(*channel).cloned());
            let new = merged(&kind, accumulate, old, values)?;
            self.values.insert((*channel).to_owned(), new);
        }
        if clear {
            let written = grouped.keys().map(|name| (*name).to_owned()).collect();
            self.clear(&written);
        }
        Ok(())
    }

    /// Empties what lives for one superstep and was not written.
    pub(super) fn clear(&mut self, written: &BTreeSet<String>) {
        for channel in list(&self.graph["channels"]) {
            let name = text(&channel["name"]);
            let short = match text(&channel["kind"]) {
                "any" | "ephemeral" => true,
                "topic" => channel["accumulate"] != true,
                _ => false,
            };
            if short && !written.contains(name) {
                self.values.remove(name);
            }
        }
    }
}

fn merged(
    kind: &str,
    accumulate: bool,
    old: Option<Json>,
    values: &[&Json],
) -> Result<Json, Refused> {
    let replaced: Vec<&Json> = values
        .iter()
        .filter_map(|v| v.get("__overwrite__"))
        .collect();
    match replaced.as_slice() {
        [] => {}
        [one] => return Ok((*one).clone()),
        _ => return Err("InvalidUpdateError"),
    }
    let mut result = old.clone().unwrap_or_default();
    match kind {
        "last" if values.len() > 1 => return Err("InvalidUpdateError"),
        "last" | "any" | "ephemeral" => result = (*values.last().unwrap()).clone(),
        "topic" => {
            let mut items = match (accumulate, old) {
                (true, Some(Json::Array(items))) => items,
                _ => vec![],
            };
            for value in values {
                match value {
                    Json::Array(more) => items.extend(more.iter().cloned()),
                    one => items.push((*one).clone()),
                }
            }
            result = json!(items);
        }
        _ => {
            for value in values {
                result = folded(kind, result, value);
            }
        }
    }
    Ok(result)
}

fn folded(kind: &str, old: Json, value: &Json) -> Json {
    match kind {
        "sum" => json!(old.as_i64().unwrap() + value.as_i64().unwrap()),
        "max" => json!(old.as_i64().unwrap().max(value.as_i64().unwrap())),
        "concat" => json!(format!("{}{}", text(&old), text(value))),
        "append" => list(&old).iter().chain(list(value)).cloned().collect(),
        "union" => {
            let mut items = list(&old).to_vec();
            for value in list(value) {
                if !items.contains(value) {
                    items.push(value.clone());
                }
            }
            json!(items)
        }
        "merge" => {
            let mut map = old.as_object().unwrap().clone();
            map.extend(value.as_object().unwrap().clone());
            json!(map)
        }
        other => panic!("unknown kind {other}"),
    }
}
