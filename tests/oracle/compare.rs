//! Comparing an outcome with the expectation of its case.

use serde_json::Value as Json;

/// Places where the outcome is not as expected, with what was expected and found.
pub fn differences(case: &Json, outcome: &Json) -> Vec<String> {
    let ignored: Vec<&str> = case["ignore"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Json::as_str)
        .collect();
    let mut found = vec![];
    let mut outcome = outcome.clone();
    let mut expect = case["expect"].clone();
    // A namespace without a checkpoint is none.
    if let Some(namespaces) = expect["final"].as_object_mut() {
        namespaces.retain(|_, records| records != &Json::Array(vec![]));
    }
    // A state that cannot be shown has no head in the expectation, and is not compared.
    let expected = case["expect"]["calls"].as_array().into_iter().flatten();
    for (index, call) in expected.enumerate() {
        for key in ["head", "next", "pending"] {
            if call.get(key).is_none()
                && let Some(call) = outcome["calls"][index].as_object_mut()
            {
                call.remove(key);
            }
        }
    }
    compare(&expect, &outcome, "", &ignored, &mut found);
    found
}

fn compare(expected: &Json, found: &Json, at: &str, ignored: &[&str], out: &mut Vec<String>) {
    if ignored.contains(&at) {
        return;
    }
    match (expected, found) {
        (Json::Object(a), Json::Object(b)) => {
            for (key, value) in a {
                let at = format!("{at}/{key}");
                match b.get(key) {
                    Some(other) => compare(value, other, &at, ignored, out),
                    None if ignored.contains(&at.as_str()) => {}
                    None => out.push(format!("{at}: missing, expected {value}")),
                }
            }
            for (key, value) in b {
                let at = format!("{at}/{key}");
                if !a.contains_key(key) && !ignored.contains(&at.as_str()) {
                    out.push(format!("{at}: not expected: {value}"));
                }
            }
        }
        (Json::Array(a), Json::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                compare(a, b, &format!("{at}/{index}"), ignored, out);
            }
        }
        (a, b) if a == b => {}
        (a, b) => out.push(format!("{at}: expected {a}\n     found {b}")),
    }
}
