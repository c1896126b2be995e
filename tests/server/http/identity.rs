//! Who a run is for, as its nodes see it.

use super::*;
use test_support::on_both_storages;
use test_support::server::Setup;
use test_support::talk::{create, ok, turn, user};

on_both_storages!(
    nodes_see_the_user_that_the_request_names_and_who_authenticated_is_the_servers_word,
    without_another_user_nodes_see_whose_key_it_is,
);

/// What a node of `ctx` sees in `configurable`.
fn seen(client: &Client, thread: &str, more: Value) -> Value {
    let body = json!({"assistant_id": "ctx", "input": {"text": "x"}});
    let body = test_support::talk::extend(body, more);
    let path = format!("/threads/{thread}/runs/wait");
    ok(client.post(&path, &body), 200)["out"].clone()
}

fn nodes_see_the_user_that_the_request_names_and_who_authenticated_is_the_servers_word(
    place: &Place,
) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let forged = json!({
        "user_id": "alice", "langgraph_auth_user_id": "root", "langgraph_auth_role": "admin",
    });
    for (config, wanted) in [
        (json!({"configurable": forged}), json!("alice")),
        (json!({"configurable": {"user_id": 7}}), json!(7)),
        (json!({"user_id": "top"}), json!("top")),
        (json!({"configurable": {"user_id": null}}), json!("")),
        (json!({}), json!("")),
    ] {
        let config = with(config, "langgraph_auth_top", "x");
        let config = with(
            config,
            "metadata",
            json!({"langgraph_auth_user_id": "root"}),
        );
        let out = seen(&client, &thread, json!({"config": config}));
        assert_eq!(out["configurable"]["user_id"], wanted, "{config}");
        assert_eq!(
            out["configurable"]["langgraph_auth_user_id"], "",
            "{config}"
        );
        let forged = out.to_string();
        for name in ["langgraph_auth_role", "langgraph_auth_top", "root"] {
            assert!(!forged.contains(name), "{name}: {forged}");
        }
    }
    // An assistant's user counts where the request names none.
    let assistant = json!({"graph_id": "ctx", "config": {"configurable": {"user_id": "asst"}}});
    let id = ok(client.post("/assistants", &assistant), 200)["assistant_id"].clone();
    for (config, wanted) in [
        (json!({}), "asst"),
        (json!({"configurable": {"user_id": ""}}), "asst"),
        (json!({"configurable": {"user_id": "alice"}}), "alice"),
    ] {
        let more = json!({"assistant_id": id, "config": config});
        let out = seen(&client, &thread, more)["configurable"].clone();
        assert_eq!(out["user_id"], wanted, "{config}");
    }
    // A run remembers its user for whoever reads its checkpoints, and the next run has its own.
    seen(
        &client,
        &thread,
        json!({"config": {"configurable": {"user_id": "alice"}}}),
    );
    assert_eq!(client.state(&thread)["metadata"]["user_id"], "alice");
    seen(&client, &thread, json!({}));
    assert_eq!(client.state(&thread)["metadata"].get("user_id"), None);
    let run = &ok(client.get(&format!("/threads/{thread}/runs?limit=1")), 200)[0];
    assert_eq!(run["kwargs"]["config"]["configurable"]["user_id"], "");
    assert_eq!(run["kwargs"]["config"].get("langgraph_auth_top"), None);
}

fn without_another_user_nodes_see_whose_key_it_is(place: &Place) {
    let keys = "ann=key-a,local=key-l";
    let setup = Setup::example("reference_server").env("BACKSTITCH_API_KEYS", keys);
    let server = place.start(setup);
    for who in ["ann", "local"] {
        let client = Client::of(&server).with_key(&format!("key-{}", &who[..1]));
        let thread = create(&client, &json!({}));
        for (user, wanted) in [(Value::Null, who), (json!("carl"), "carl")] {
            let forged = json!({"user_id": user, "langgraph_auth_user_id": "root"});
            let config = json!({"config": {"configurable": forged}});
            let out = seen(&client, &thread, config)["configurable"].clone();
            assert_eq!(out["user_id"], wanted);
            assert_eq!(out["langgraph_auth_user_id"], who);
        }
        // Also in runs that answer messages.
        let posted = json!({"messages": [user("hi")], "run": {"assistant_id": "agent"}});
        ok(
            client.post(&format!("/threads/{thread}/messages"), &posted),
            201,
        );
        let sent = json!({"thread_id": thread, "content": "hi", "assistant_id": "agent"});
        ok(client.post("/commands/send-message", &sent), 202);
        ok(client.post("/runs/batch", &json!([turn("x")])), 200);
        let runs = ok(client.get(&format!("/threads/{thread}/runs?limit=2")), 200);
        for run in runs.as_array().unwrap() {
            let configurable = &run["kwargs"]["config"]["configurable"];
            assert_eq!(configurable["user_id"], who, "{run}");
            assert_eq!(configurable["langgraph_auth_user"]["identity"], who);
        }
    }
}
