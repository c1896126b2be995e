//! Requests that are refused.

use super::*;
use test_support::on_both_storages;

on_both_storages!(
    malformed_bodies_are_refused,
    wrong_types_are_refused_with_the_field_that_is_wrong,
    unknown_assistants_are_refused,
    malformed_ids_are_refused_and_unknown_ones_not_found,
    a_body_that_is_too_large_is_refused,
);

fn malformed_bodies_are_refused(place: &Place) {
    let scene = Scene::new(place);
    for body in [
        &b""[..],
        b"{",
        b"{\"assistant_id\": \"fault\",}",
        b"{\"assistant_id\": NaN}",
        b"assistant_id=fault",
        b"\xff\xfe",
        b"{\"assistant_id\": \"fault\", \"input\": \"\xc3\x28\"}",
        b"{\"assistant_id\": \"fault\"} {}",
    ] {
        assert_eq!(scene.refused(body, 422), "Invalid JSON in request body");
    }
    for body in ["[]", "\"text\"", "5", "null"] {
        let detail = scene.refused(body, 422);
        assert!(detail.contains("is not of type \"object\""), "{detail}");
    }
    let deep = format!(
        "{{\"assistant_id\": \"fault\", \"input\": {}{}}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let detail = scene.refused(deep, 422);
    assert!(detail.contains("at most 127 levels"), "{detail}");
    scene.unharmed();
}

fn wrong_types_are_refused_with_the_field_that_is_wrong(place: &Place) {
    let scene = Scene::new(place);
    for (field, value) in [
        ("assistant_id", json!(5)),
        ("config", json!("x")),
        ("config", json!([])),
        ("context", json!(1)),
        ("metadata", json!("x")),
        ("command", json!("x")),
        ("stream_mode", json!("everything")),
        ("stream_mode", json!(["values", "everything"])),
        ("stream_mode", json!(5)),
        ("stream_subgraphs", json!("yes")),
        ("stream_resumable", json!(1)),
        ("multitask_strategy", json!("wait")),
        ("on_disconnect", json!("sleep")),
        ("durability", json!("never")),
        ("if_not_exists", json!("panic")),
        ("after_seconds", json!("soon")),
        ("interrupt_before", json!(7)),
        ("checkpoint", json!("x")),
    ] {
        let mut body = good();
        body[field] = value.clone();
        let detail = scene.refused(body.to_string(), 422);
        assert!(detail.contains(field), "{field} = {value}: {detail}");
    }
    let mut body = good();
    body["config"] = json!({"recursion_limit": "many"});
    assert!(
        scene
            .refused(body.to_string(), 422)
            .contains("recursion_limit")
    );
    let missing = scene.refused(b"{\"input\": {}}", 422);
    assert!(
        missing.contains("\"assistant_id\" is a required property"),
        "{missing}"
    );
    scene.unharmed();
}

fn unknown_assistants_are_refused(place: &Place) {
    let scene = Scene::new(place);
    let detail = scene.refused(b"{\"assistant_id\": \"nobody\"}", 422);
    assert!(
        detail.contains("'nobody'") && detail.contains("fault"),
        "{detail}"
    );
    let body = json!({"assistant_id": "6ba7b821-9dad-11d1-80b4-00c04fd430c8"});
    assert_eq!(
        scene.refused(body.to_string(), 404),
        "Thread or assistant not found."
    );
    scene.unharmed();
}

fn malformed_ids_are_refused_and_unknown_ones_not_found(place: &Place) {
    let scene = Scene::new(place);
    let client = &scene.client;
    let thread = &scene.thread;
    let unknown = "01a1fbb1-8812-732a-aaef-3404857dee8e";

    for path in ["", "/state", "/history", "/runs"] {
        let bad = client.get(&format!("/threads/nonsense{path}"));
        assert!(bad.refused(422).contains("must be a UUID"));
        if path != "/history" || client.get(&format!("/threads/{unknown}{path}")).status != 200 {
            client
                .get(&format!("/threads/{unknown}{path}"))
                .refused(404);
        }
    }
    client.delete(&format!("/threads/{unknown}")).refused(404);
    client
        .get(&format!("/threads/{thread}/runs/nonsense"))
        .refused(422);
    client
        .get(&format!("/threads/{thread}/runs/{unknown}"))
        .refused(404);
    client.get("/assistants/nonsense").refused(422);
    client.get(&format!("/assistants/{unknown}")).refused(404);
    for (verb, path) in [("POST", "cancel"), ("GET", "join"), ("GET", "stream")] {
        let answer = client.send(
            verb,
            &format!("/threads/{thread}/runs/nonsense/{path}"),
            &[],
            b"",
        );
        answer.refused(422);
    }
    let cancel = format!("/threads/{thread}/runs/{unknown}/cancel");
    client.send("POST", &cancel, &[], b"").refused(404);
    let joined = client
        .get(&format!("/threads/{thread}/runs/{unknown}/join"))
        .json();
    assert_eq!(joined["__error__"]["message"], "404: Run not found");

    for door in ["", "/stream", "/wait"] {
        let status = client
            .post(&format!("/threads/nonsense/runs{door}"), &good())
            .status;
        assert!(matches!(status, 400 | 422), "{status}");
        client
            .post(&format!("/threads/{unknown}/runs{door}"), &good())
            .refused(404);
    }
    let mut body = good();
    body["checkpoint_id"] = json!("nonsense");
    scene.refused(body.to_string(), 422);
    body["checkpoint_id"] = json!("1f1e52d3-b51d-655d-8000-078d7d9aa83f");
    assert!(
        scene
            .refused(body.to_string(), 404)
            .contains("1f1e52d3-b51d")
    );
    let mut body = good();
    body["checkpoint"] = json!({"checkpoint_id": "1f1e52d3-b51d-655d-8000-078d7d9aa83f"});
    scene.refused(body.to_string(), 404);

    // A checkpoint of another thread is none of this one.
    let other = client.thread();
    client.run(&other, &good());
    let foreign = client.state(&other)["checkpoint"]["checkpoint_id"].clone();
    body["checkpoint"] = json!({"checkpoint_id": foreign});
    scene.refused(body.to_string(), 404);
    scene.unharmed();
}

fn a_body_that_is_too_large_is_refused(place: &Place) {
    let scene = Scene::new(place);
    let body = json!({"assistant_id": "fault", "input": {"how": "x".repeat(5 << 20)}});
    let path = format!("/threads/{}/runs", scene.thread);
    let detail = scene.client.post(&path, &body).refused(413);
    assert!(detail.contains("limit of 4194304 bytes"), "{detail}");
    // The same when the size is not announced.
    let chunk = format!("100000\r\n{}\r\n", "x".repeat(1 << 20)).repeat(5);
    let mut open = scene.client.open_chunked(&path, chunk.as_bytes());
    assert_eq!(open.status, 413);
    open.rest();
    scene.unharmed();
}
