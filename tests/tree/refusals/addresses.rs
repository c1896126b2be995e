//! Places that are not there, and requests that are malformed.

use super::*;
use test_support::on_both_storages;

on_both_storages!(
    places_that_are_not_in_the_thread_are_not_found,
    what_has_no_good_form_is_refused,
    values_of_the_message_api_that_are_malformed_are_400,
);

/// What every operation with an address says to one that leads nowhere.
fn astray(family: &Family) -> Vec<(Value, &'static str)> {
    let foreign = family.client.state(&family.stranger)["checkpoint"]["checkpoint_id"].clone();
    let later = family.client.state(&family.fork)["checkpoint"]["checkpoint_id"].clone();
    vec![
        (json!({"message_id": "x1"}), "message_not_found"),
        (json!({"message_id": nothing()}), "message_not_found"),
        (json!({"message_id": "s1"}), "message_not_found"),
        // Of the fork, behind the place where it begins.
        (json!({"message_id": "f3"}), "message_not_found"),
        (json!({"checkpoint_id": nothing()}), "checkpoint_not_found"),
        (json!({"checkpoint_id": foreign}), "checkpoint_not_found"),
        (json!({"checkpoint_id": later}), "checkpoint_not_found"),
        (json!({"branch": "nowhere"}), "branch_not_found"),
        (json!({"tag": "nowhere"}), "tag_not_found"),
        (json!({"event_number": 99_999}), "checkpoint_not_found"),
    ]
}

fn places_that_are_not_in_the_thread_are_not_found(place: &Place) {
    let family = Family::new(place);
    let mut rows = vec![];
    for (address, expected) in astray(&family) {
        for path in ["branches", "rewind", "fork"] {
            rows.push((family.post(path, address.clone()), 404, expected));
        }
        rows.push((family.at("PUT", "tags/new", address.clone()), 404, expected));
        let of_thread = talk::with(address.clone(), "source_thread_id", &*family.thread);
        rows.push((command("fork-thread", of_thread), 404, expected));
        let (kind, value) = address.as_object().unwrap().iter().next().unwrap();
        let kind = kind.split('_').next().unwrap();
        let value = value.as_str().map_or(value.to_string(), str::to_owned);
        let diff = format!("diff?from={kind}:{value}&to=branch:main");
        rows.push((family.at("GET", &diff, Value::Null), 404, expected));
    }
    let anchored = |anchor: &str| {
        let mut body = user("new");
        body["forkedAtConversationId"] = json!(family.thread);
        body["forkedAtEntryId"] = json!(anchor);
        ("POST", format!("/threads/{}/messages", nothing()), body)
    };
    let send = |key: &str, value: &str| {
        let body = json!({"thread_id": family.thread, "content": "x", key: value});
        command("send-message", body)
    };
    let said = |key: &str, value: &str| {
        let mut body = user("new");
        body[key] = json!(value);
        family.post("messages", body)
    };
    let get = |path: &str| family.at("GET", path, Value::Null);
    let (id, gone) = (nothing(), Value::Null);
    rows.extend([
        (said("parent_id", &id), 404, "message_not_found"),
        (said("branch", "nowhere"), 404, "branch_not_found"),
        (send("parent_id", &id), 404, "message_not_found"),
        (send("branch", "nowhere"), 404, "branch_not_found"),
        (anchored("x1"), 404, "message_not_found"),
        (anchored("s1"), 404, "message_not_found"),
        (anchored("f3"), 400, "anchor_off_path"),
        (
            get(&format!("messages?leaf_id={id}")),
            404,
            "message_not_found",
        ),
        (
            get(&format!("messages?checkpoint_id={id}")),
            404,
            "checkpoint_not_found",
        ),
        (get("messages?branch=nowhere"), 404, "branch_not_found"),
        (get("head?branch=nowhere"), 404, "branch_not_found"),
        (get("state?branch=nowhere"), 404, "branch_not_found"),
        (get("state?tag=nowhere"), 404, "tag_not_found"),
        (get("history?branch=nowhere"), 404, "branch_not_found"),
        (get("tags/nowhere"), 404, "tag_not_found"),
        (
            family.at("DELETE", "tags/nowhere", gone.clone()),
            404,
            "tag_not_found",
        ),
        (
            family.at("DELETE", "branches/nowhere", gone.clone()),
            404,
            "branch_not_found",
        ),
        (
            family.at("PATCH", "branches/nowhere", json!({"name": "x"})),
            404,
            "branch_not_found",
        ),
        (
            family.post("branches/nowhere/activate", json!({})),
            404,
            "branch_not_found",
        ),
        (
            family.post("restore", json!({"tag": "nowhere"})),
            404,
            "tag_not_found",
        ),
        (
            family.at("DELETE", "members/nobody", gone),
            404,
            "member_not_found",
        ),
        (
            family.post("state", json!({"values": {}, "branch": "nowhere"})),
            404,
            "branch_not_found",
        ),
        (
            family.post("runs", json!({"assistant_id": "agent", "tag": "nowhere"})),
            404,
            "tag_not_found",
        ),
        (
            family.post(
                "runs",
                json!({"assistant_id": "agent", "branch": "nowhere"}),
            ),
            404,
            "branch_not_found",
        ),
        (
            family.post("runs", json!({"assistant_id": "agent", "parent_id": "f3"})),
            400,
            "invalid_id",
        ),
    ]);
    family.refuses(rows);
}

fn what_has_no_good_form_is_refused(place: &Place) {
    let family = Family::new(place);
    let mut rows = vec![];
    for address in [
        json!({"message_id": 1}),
        json!({"checkpoint_id": "nothing"}),
        json!({"branch": "a b"}),
        json!({"branch": ".."}),
        json!({"tag": "a//b"}),
        json!({"tag": "x".repeat(129)}),
        json!({"event_number": 0}),
        json!({"event_number": "1"}),
        json!({"message_id": "u1", "branch": "main"}),
        json!({"message_id": "u1", "position": "behind"}),
        json!([]),
        json!("u1"),
    ] {
        for path in ["branches", "rewind", "fork"] {
            rows.push((family.post(path, address.clone()), 422));
        }
        rows.push((family.at("PUT", "tags/new", address), 422));
    }
    let long = "x".repeat(129);
    for name in [
        "", "a b", "a//b", "/a", "a/", ".", "..", "a/../b", "\u{e9}", &long,
    ] {
        let named = json!({"name": name});
        for path in ["branches", "btw"] {
            rows.push((family.post(path, named.clone()), 422));
        }
        rows.push((family.at("PATCH", "branches/main-v2", named), 422));
    }
    let many: Vec<Value> = (0..1001).map(|n| user(&format!("m{n}"))).collect();
    let large = json!({"role": "user", "content": "x".repeat((1 << 20) + 1)});
    rows.extend([
        (family.post("rewind", json!({})), 422),
        (family.post("restore", json!({})), 422),
        (family.post("restore", json!({"branch": "main"})), 422),
        (family.post("messages", json!({})), 422),
        (family.post("messages", json!({"messages": []})), 422),
        (
            family.post("messages", json!({"role": "robot", "content": "x"})),
            422,
        ),
        (
            family.post(
                "messages",
                json!({"role": "user", "content": "x", "id": ""}),
            ),
            422,
        ),
        (
            family.post(
                "messages",
                json!({"role": "user", "content": "x", "id": "a b"}),
            ),
            422,
        ),
        (
            family.post(
                "messages",
                json!({"role": "user", "content": "x", "id": "x".repeat(256)}),
            ),
            422,
        ),
        (
            family.post(
                "messages",
                json!({"role": "user", "content": "x", "on_existing": "keep"}),
            ),
            422,
        ),
        (
            family.at("PUT", "members/bob", json!({"level": "king"})),
            422,
        ),
        (family.at("PUT", "members/bob", json!({})), 422),
        (family.at("GET", "messages?limit=1001", Value::Null), 422),
        (family.at("GET", "events?limit=1001", Value::Null), 422),
        (family.at("GET", "tree?limit=10001", Value::Null), 422),
        (family.at("GET", "forks?limit=0", Value::Null), 422),
        (family.at("GET", "diff?from=branch:main", Value::Null), 422),
        (family.at("GET", "diff?from=main&to=main", Value::Null), 422),
        (family.at("GET", "head?branch=a%20b", Value::Null), 422),
        (
            command("create-thread", json!({"thread_id": "nothing"})),
            422,
        ),
        (command("fork-thread", json!({})), 422),
        (command("send-message", json!({"content": "x"})), 422),
    ]);
    let mut rows: Vec<_> = rows
        .into_iter()
        .map(|(request, status)| (request, status, "invalid_request"))
        .collect();
    rows.extend([
        (
            family.post("messages", json!({"messages": many})),
            413,
            "too_large",
        ),
        (family.post("messages", large), 413, "too_large"),
    ]);
    family.refuses(rows);
}

fn values_of_the_message_api_that_are_malformed_are_400(place: &Place) {
    let family = Family::new(place);
    let read = |query: &str| family.at("GET", &format!("messages?{query}"), Value::Null);
    let with = |key: &str, value: &str| {
        let mut body = user("new");
        body[key] = json!(value);
        body
    };
    let first = |key: &str, value: &str| {
        let path = format!("/threads/{}/messages", nothing());
        ("POST", path, with(key, value))
    };
    let send = |content: &str, parent: Option<&str>| {
        let mut body = json!({"thread_id": family.thread, "content": content});
        if let Some(parent) = parent {
            body["parent_id"] = json!(parent);
        }
        command("send-message", body)
    };
    // Before what only the fork has.
    let page = get(&family.client, &family.fork, "messages?limit=1&after=a2");
    let foreign = page["prev"].as_str().unwrap();
    family.refuses(vec![
        (
            family.post("messages", with("parent_id", "no id")),
            400,
            "invalid_id",
        ),
        (
            first("forkedAtConversationId", "nothing"),
            400,
            "invalid_id",
        ),
        (read("leaf_id=nothing"), 400, "invalid_id"),
        (read("checkpoint_id=nothing"), 400, "invalid_id"),
        (read("after=nothing"), 400, "invalid_cursor"),
        (read("after=u4"), 400, "invalid_cursor"),
        (read("before=f3"), 400, "invalid_cursor"),
        (read(&format!("before={foreign}")), 400, "invalid_cursor"),
        (read("after=u1&before=u3"), 400, "invalid_cursor"),
        (read("after=u1&tail=true"), 400, "invalid_cursor"),
        (send("x", Some("nothing")), 400, "invalid_id"),
        (send("", None), 400, "blank_message"),
        (send(" \n\t", None), 400, "blank_message"),
    ]);
}
