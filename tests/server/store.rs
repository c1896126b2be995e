//! Items of long-term memory over HTTP, as clients and nodes share them.

mod meaning;

use serde_json::{Value, json};
use test_support::client::{Answer, Client};
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::server::Setup;
use test_support::tables;
use test_support::talk::ok;

on_both_storages!(
    an_item_is_stored_read_replaced_and_deleted,
    items_are_searched_by_prefix_and_filter,
    namespaces_are_listed_by_prefix_suffix_and_depth,
    an_item_expires_unless_it_is_read,
    clients_and_nodes_share_items,
    principals_have_items_of_their_own,
    bad_requests_about_items_are_refused_and_store_nothing,
    what_a_request_may_store_read_and_return_is_set,
);

fn put(client: &Client, body: &Value) -> Answer {
    client.send("PUT", "/store/items", &[], body.to_string().as_bytes())
}

fn stored(client: &Client, namespace: &[&str], key: &str, value: Value) {
    let body = json!({"namespace": namespace, "key": key, "value": value});
    let answer = put(client, &body);
    assert_eq!((answer.status, answer.text()), (204, ""));
}

fn delete(client: &Client, body: &Value) -> Answer {
    client.send("DELETE", "/store/items", &[], body.to_string().as_bytes())
}

fn get(client: &Client, namespace: &str, key: &str) -> Value {
    ok(
        client.get(&format!("/store/items?namespace={namespace}&key={key}")),
        200,
    )
}

fn search(client: &Client, body: Value) -> Vec<String> {
    let found = ok(client.post("/store/items/search", &body), 200);
    let items = found["items"].as_array().unwrap();
    let key = |item: &Value| item["key"].as_str().unwrap().to_owned();
    items.iter().map(key).collect()
}

fn namespaces(client: &Client, body: Value) -> Value {
    ok(client.post("/store/namespaces", &body), 200)["namespaces"].clone()
}

fn an_item_is_stored_read_replaced_and_deleted(place: &Place) {
    let (_server, client) = serve(place);
    let value = json!({"a": 1, "s": "hel\0lo", "big": u64::MAX, "f": 2.0, "n": null});
    stored(&client, &["u", "1"], "k", value.clone());
    let first = get(&client, "u.1", "k");
    let names: Vec<_> = first.as_object().unwrap().keys().collect();
    assert_eq!(names.len(), 5, "{names:?}");
    assert_eq!(first["namespace"], json!(["u", "1"]));
    assert_eq!((&first["key"], &first["value"]), (&json!("k"), &value));
    assert_eq!(first["created_at"], first["updated_at"]);
    stored(&client, &["u", "1"], "k", json!({"a": [2]}));
    let second = get(&client, "u.1", "k");
    assert_eq!(second["value"], json!({"a": [2]}));
    assert_eq!(second["created_at"], first["created_at"]);
    assert!(second["updated_at"].as_str() > first["updated_at"].as_str());
    // Only the last of repeated parameters counts, and what is missing is null.
    let repeated = "/store/items?namespace=u&namespace=1&key=k";
    assert_eq!(ok(client.get(repeated), 200), Value::Null);
    assert_eq!(get(&client, "u.1", "nope"), Value::Null);
    assert_eq!(get(&client, "langgraph", "k"), Value::Null);
    stored(&client, &["u"], "", json!({}));
    for _ in 0..2 {
        let gone = delete(&client, &json!({"namespace": ["u", "1"], "key": "k"}));
        assert_eq!(gone.status, 204);
        assert_eq!(get(&client, "u.1", "k"), Value::Null);
    }
    assert_eq!(search(&client, json!({})), [""]);
}

fn items_are_searched_by_prefix_and_filter(place: &Place) {
    let (_server, client) = serve(place);
    for (namespace, key, value) in [
        (&["us"][..], "k1", json!({"n": 1, "o": {"a": 1, "b": 2}})),
        (&["us", "a"], "k2", json!({"n": 2, "s": "x"})),
        (&["us", "b"], "k3", json!({"n": 3.5, "s": "y"})),
        (&["user"], "k4", json!({"n": 4})),
    ] {
        stored(&client, namespace, key, value);
    }
    for (body, wanted) in [
        (json!({}), &["k1", "k2", "k3", "k4"][..]),
        (
            json!({"namespace_prefix": null, "filter": null}),
            &["k1", "k2", "k3", "k4"],
        ),
        (json!({"namespace_prefix": ["us"]}), &["k1", "k2", "k3"]),
        (json!({"namespace_prefix": ["us", "b"]}), &["k3"]),
        (json!({"namespace_prefix": ["use"]}), &[]),
        (json!({"namespace_prefix": ["*"]}), &[]),
        (json!({"limit": 2}), &["k1", "k2"]),
        (json!({"limit": 2, "offset": 1}), &["k2", "k3"]),
        (json!({"offset": 4}), &[]),
        (
            json!({"filter": {"n": {"$gt": 1, "$lte": 3.5}}}),
            &["k2", "k3"],
        ),
        (
            json!({"filter": {"n": {"$gt": 1}}, "offset": 1, "limit": 1}),
            &["k3"],
        ),
        (json!({"filter": {"s": {"$ne": "x"}}}), &["k1", "k3", "k4"]),
        (json!({"filter": {"o": {"a": 1}}}), &["k1"]),
        (json!({"filter": {"n": {"$gt": "1"}}}), &[]),
        (json!({"filter": {"n": 1.0}, "query": "anything"}), &["k1"]),
    ] {
        assert_eq!(search(&client, body.clone()), wanted, "{body}");
    }
    let one = ok(
        client.post("/store/items/search", &json!({"filter": {"n": 4}})),
        200,
    );
    assert_eq!(one["items"][0]["score"], Value::Null);
    assert_eq!(one["items"][0].as_object().unwrap().len(), 6);
}

fn namespaces_are_listed_by_prefix_suffix_and_depth(place: &Place) {
    let (_server, client) = serve(place);
    for namespace in [&["1"][..], &["p", "a"], &["p", "b", "c"], &["pa", "c"]] {
        stored(&client, namespace, "k", json!({}));
        stored(&client, namespace, "l", json!({}));
    }
    for (body, wanted) in [
        (
            json!({}),
            json!([["1"], ["p", "a"], ["p", "b", "c"], ["pa", "c"]]),
        ),
        (json!({"prefix": ["p"], "max_depth": 1}), json!([["p"]])),
        (json!({"max_depth": 1}), json!([["1"], ["p"], ["pa"]])),
        (
            json!({"max_depth": 1, "limit": 1, "offset": 1}),
            json!([["p"]]),
        ),
        (
            json!({"prefix": ["p"], "max_depth": 2}),
            json!([["p", "a"], ["p", "b"]]),
        ),
        (
            json!({"suffix": ["c"]}),
            json!([["p", "b", "c"], ["pa", "c"]]),
        ),
        (
            json!({"suffix": ["c"], "max_depth": 1}),
            json!([["p"], ["pa"]]),
        ),
        (json!({"prefix": ["*", "a"]}), json!([["p", "a"]])),
        (json!({"suffix": ["b", "*"]}), json!([["p", "b", "c"]])),
        (json!({"prefix": ["p", "b", "c", "d"]}), json!([])),
        (json!({"prefix": ["p"], "suffix": ["p"]}), json!([])),
        (
            json!({"limit": 2, "offset": 1}),
            json!([["p", "a"], ["p", "b", "c"]]),
        ),
    ] {
        assert_eq!(namespaces(&client, body.clone()), wanted, "{body}");
    }
}

fn an_item_expires_unless_it_is_read(place: &Place) {
    let (server, client) = serve(place);
    for key in ["read", "searched", "passed", "let"] {
        let body = json!({"namespace": ["n"], "key": key, "value": {"k": key}, "ttl": 60});
        assert_eq!(put(&client, &body).status, 204);
    }
    let pass_40_minutes = || {
        let sql = if place.is_postgres() {
            "UPDATE store_items SET expires_at = expires_at - interval '40 minutes'"
        } else {
            "UPDATE store_items SET expires_at = expires_at - 2400000000"
        };
        assert!(tables::execute(place, &server, sql).unwrap() > 0);
    };
    pass_40_minutes();
    assert_ne!(get(&client, "n", "read"), Value::Null);
    let unrefreshed = "/store/items?namespace=n&key=let&refresh_ttl=false";
    assert_ne!(ok(client.get(unrefreshed), 200), Value::Null);
    let one = json!({"filter": {"k": "searched"}});
    assert_eq!(search(&client, one), ["searched"]);
    let other = json!({"filter": {"k": "passed"}, "refresh_ttl": false});
    assert_eq!(search(&client, other), ["passed"]);
    pass_40_minutes();
    assert_eq!(get(&client, "n", "let"), Value::Null);
    assert_eq!(get(&client, "n", "passed"), Value::Null);
    assert_eq!(search(&client, json!({})), ["read", "searched"]);
    for _ in 0..2 {
        pass_40_minutes();
    }
    assert_eq!(namespaces(&client, json!({})), json!([]));
}

fn clients_and_nodes_share_items(place: &Place) {
    let server = place.start(Setup::example("faulty_server"));
    let client = Client::of(&server);
    let run = |text: &str| {
        let body = json!({"assistant_id": "notes", "input": {"who": "ada", "text": text}});
        client.run(&client.thread(), &body)["notes"].clone()
    };
    assert_eq!(run("one"), json!(["one"]));
    let found = ok(client.post("/store/items/search", &json!({})), 200);
    let item = &found["items"][0];
    let (namespace, key) = (&item["namespace"], &item["key"]);
    assert!(item["value"].to_string().contains("one"), "{item}");
    let gone = delete(&client, &json!({"namespace": namespace, "key": key}));
    assert_eq!(gone.status, 204);
    assert_eq!(run("two"), json!(["two"]));
}

fn principals_have_items_of_their_own(place: &Place) {
    let keys = "ann=key-a,local=key-l";
    let server = place.start(Setup::example("faulty_server"));
    stored(&Client::of(&server), &["n"], "open", json!({}));
    drop(server);
    let setup = Setup::example("faulty_server").env("BACKSTITCH_API_KEYS", keys);
    let server = place.start(setup);
    let [ann, local] = ["key-a", "key-l"].map(|key| Client::of(&server).with_key(key));
    stored(&ann, &["n"], "k", json!({"of": "ann"}));
    stored(&local, &["n"], "k", json!({"of": "local"}));
    for (client, who) in [(&ann, "ann"), (&local, "local")] {
        assert_eq!(get(client, "n", "k")["value"], json!({"of": who}));
    }
    if place.is_postgres() {
        // What was stored without keys is found by the principal of that name.
        assert_eq!(search(&local, json!({})), ["k", "open"]);
    }
    assert_eq!(search(&ann, json!({})), ["k"]);
    assert_eq!(get(&ann, "n", "open"), Value::Null);
    delete(&ann, &json!({"namespace": ["n"], "key": "k"}));
    assert_eq!(namespaces(&ann, json!({})), json!([]));
    assert_eq!(get(&local, "n", "k")["value"], json!({"of": "local"}));
    // Nodes see the items of the run's principal.
    for (client, text) in [(&ann, "a"), (&local, "l")] {
        let body = json!({"assistant_id": "notes", "input": {"who": "x", "text": text}});
        let notes = client.run(&client.thread(), &body)["notes"].clone();
        assert_eq!(notes, json!([text]));
    }
    let nobody = Client::of(&server);
    for (method, path) in [
        ("GET", "/store/items?namespace=n&key=k"),
        ("PUT", "/store/items"),
        ("DELETE", "/store/items"),
        ("POST", "/store/items/search"),
        ("POST", "/store/namespaces"),
    ] {
        nobody.send(method, path, &[], b"{}").refused(401);
    }
}

fn bad_requests_about_items_are_refused_and_store_nothing(place: &Place) {
    let (_server, client) = serve(place);
    let item = |more: Value| {
        let body = json!({"namespace": ["n"], "key": "k", "value": {}});
        test_support::talk::extend(body, more)
    };
    for (body, status, detail) in [
        (json!([]), 422, "object"),
        (
            json!({"key": "k", "value": {}}),
            422,
            "\"namespace\" is a required property",
        ),
        (
            json!({"namespace": ["n"], "value": {}}),
            422,
            "\"key\" is a required property",
        ),
        (
            json!({"namespace": ["n"], "key": "k"}),
            422,
            "\"value\" is a required property",
        ),
        (
            item(json!({"namespace": []})),
            400,
            "Namespace cannot be empty.",
        ),
        (item(json!({"namespace": [""]})), 422, "label ''"),
        (
            item(json!({"namespace": ["a.b"]})),
            422,
            "label 'a.b' must be a non-empty string without periods",
        ),
        (item(json!({"namespace": ["a\0"]})), 400, "NUL"),
        (
            item(json!({"namespace": ["langgraph"]})),
            400,
            "Root label for namespace cannot be \"langgraph\". Got: ('langgraph',)",
        ),
        (
            item(json!({"namespace": ["langgraph", "x"]})),
            400,
            "('langgraph', 'x')",
        ),
        (item(json!({"namespace": "n"})), 422, "array"),
        (item(json!({"namespace": [1]})), 422, "string"),
        (
            item(json!({"namespace": vec!["n"; 1000]})),
            422,
            "at most 64 labels",
        ),
        (
            item(json!({"namespace": ["n".repeat(2000)]})),
            422,
            "at most 1536 bytes",
        ),
        (
            item(json!({"key": "k".repeat(2000)})),
            422,
            "at most 1536 bytes",
        ),
        (item(json!({"key": 1})), 422, "string"),
        (item(json!({"key": null})), 422, "key"),
        (item(json!({"value": [1]})), 422, "object"),
        (item(json!({"value": "x"})), 422, "object"),
        (item(json!({"value": null})), 422, "value"),
        (item(json!({"ttl": 0})), 422, "minutes above 0"),
        (item(json!({"ttl": -1})), 422, "minutes above 0"),
        (item(json!({"ttl": "x"})), 422, "number"),
        (item(json!({"index": true})), 422, "index"),
        (item(json!({"index": [1]})), 422, "string"),
    ] {
        let refused = put(&client, &body).refused(status);
        assert!(refused.contains(detail), "{body}: {refused}");
    }
    for body in [
        &br#"{"namespace":["n"],"key":"k","value":{},"ttl":Infinity}"#[..],
        br#"{"namespace":["n"],"key":"k","value":{},"ttl":1e999}"#,
        br#"{"namespace":["n"],"key":"k","value":{"#,
        b"\xff\xfe",
        b"",
    ] {
        client.send("PUT", "/store/items", &[], body).refused(422);
    }
    assert_eq!(client.get("/store/items?namespace=n").status, 400);
    for query in ["", "?namespace=n", "?namespace=n&key="] {
        let answer = client.get(&format!("/store/items{query}"));
        match query {
            "" => drop(answer.refused(422)),
            _ => assert_eq!(answer.json(), json!({"error": "Key is required"})),
        }
    }
    for namespace in ["", ".", "a..b", ".a"] {
        let path = format!("/store/items?namespace={namespace}&key=k");
        client.get(&path).refused(422);
    }
    client.get("/store/items?namespace=n%00&key=k").refused(400);
    for (body, status) in [
        (json!({"namespace": ["n"]}), 422),
        (json!({"namespace": ["a.b"], "key": "k"}), 422),
        (json!({"namespace": "n", "key": "k"}), 422),
        (json!({"namespace": ["n"], "key": 1}), 422),
        (json!([]), 422),
    ] {
        delete(&client, &body).refused(status);
    }
    for (body, detail) in [
        (
            json!({"filter": {"a": {"$in": [1]}}}),
            "Unsupported operator: $in",
        ),
        (
            json!({"filter": {"a": {"$gt": 1, "b": 1}}}),
            "Unsupported operator: b",
        ),
        (json!({"filter": []}), "object"),
        (json!({"namespace_prefix": "n"}), "array"),
        (json!({"namespace_prefix": ["n", ""]}), "label ''"),
        (
            json!({"namespace_prefix": vec!["n"; 1000]}),
            "at most 64 labels",
        ),
        (json!({"limit": 0}), "minimum"),
        (json!({"limit": -1}), "minimum"),
        (json!({"limit": 1001}), "maximum"),
        (json!({"limit": 9_223_372_036_854_775_808_u64}), "maximum"),
        (json!({"limit": "3"}), "integer"),
        (json!({"limit": 1.5}), "integer"),
        (json!({"offset": -1}), "minimum"),
        (json!({"query": 5}), "string"),
        (json!({"refresh_ttl": "x"}), "boolean"),
    ] {
        let refused = client.post("/store/items/search", &body).refused(422);
        assert!(refused.contains(detail), "{body}: {refused}");
    }
    let far = json!({"offset": i64::MAX, "limit": 1000});
    assert_eq!(search(&client, far.clone()), [""; 0]);
    assert_eq!(namespaces(&client, far), json!([]));
    for body in [
        json!({"prefix": "n"}),
        json!({"prefix": ["a.b"]}),
        json!({"suffix": [""]}),
        json!({"max_depth": 0}),
        json!({"max_depth": "x"}),
        json!({"limit": 0}),
        json!({"limit": 1001}),
        json!({"offset": -1}),
    ] {
        client.post("/store/namespaces", &body).refused(422);
    }
    let answer = client.send("PATCH", "/store/items", &[], b"{}");
    assert_eq!(answer.header("allow"), Some("GET, HEAD, PUT, DELETE"));
    answer.refused(405);
    assert_eq!(search(&client, json!({})), [""; 0]);
}

fn what_a_request_may_store_read_and_return_is_set(place: &Place) {
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_STORE_ITEM_BYTES", "2000")
        .env("BACKSTITCH_STORE_SCAN_ITEMS", "10")
        .env("BACKSTITCH_STORE_PAGE_BYTES", "4000");
    let server = place.start(setup);
    let client = Client::of(&server);
    let large = json!({"namespace": ["n"], "key": "k", "value": {"x": "x".repeat(2000)}});
    let refused = put(&client, &large).refused(413);
    assert!(refused.contains("at most 2000 bytes"), "{refused}");
    for number in 0..11 {
        let value = json!({"n": number, "x": "x".repeat(1500)});
        stored(&client, &["n"], &format!("{number:02}"), value);
    }
    let post = |body: Value| client.post("/store/items/search", &body);
    let refused = post(json!({"limit": 3})).refused(413);
    assert!(refused.contains("fewer items"), "{refused}");
    assert_eq!(search(&client, json!({"limit": 2})), ["00", "01"]);
    let refused = post(json!({"filter": {"n": 10}})).refused(422);
    assert!(refused.contains("longer prefix"), "{refused}");
    assert_eq!(
        search(&client, json!({"filter": {"n": 9}, "limit": 1})),
        ["09"]
    );
    post(json!({"limit": 1, "offset": 10})).refused(422);
}
