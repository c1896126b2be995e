//! Who a run is for, as its nodes see it.

use super::*;
use test_support::on_both_storages;
use test_support::server::Setup;
use test_support::tables::execute;
use test_support::talk::{create, ok, turn, until, user};

on_both_storages!(
    nodes_see_the_user_that_the_request_names_and_who_authenticated_is_the_servers_word,
    without_another_user_nodes_see_whose_key_it_is,
    the_user_of_a_thread_counts_before_those_of_assistants,
    runs_of_batches_and_crons_are_for_whom_others_would_be,
    nodes_see_their_graph_on_a_thread_and_in_a_stateless_run,
    what_the_server_fills_is_dropped_from_assistants_and_crons,
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
    // A run remembers its user for whoever reads its checkpoints, and the next run has its own, on a thread that no
    // assistant has given a user.
    let thread = client.thread();
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

/// Recorded from the official server: a thread keeps the user of the first assistant that has one, for all runs
/// whose requests name nobody; users of requests are not kept.
fn the_user_of_a_thread_counts_before_those_of_assistants(place: &Place) {
    let keys = "ann=key-a";
    let setup = Setup::example("reference_server").env("BACKSTITCH_API_KEYS", keys);
    let server = place.start(setup);
    let client = Client::of(&server).with_key("key-a");
    let assistant = |user: &str| {
        let config = json!({"configurable": {"user_id": user, "more": "x"}, "tags": ["t"]});
        let body = json!({"graph_id": "ctx", "config": config});
        ok(client.post("/assistants", &body), 200)["assistant_id"].clone()
    };
    let [one, two, nobody] = ["one", "two", ""].map(assistant);
    let thread = create(&client, &json!({}));
    let kept = || {
        let config = ok(client.get(&format!("/threads/{thread}")), 200)["config"].clone();
        config["configurable"].clone()
    };
    let named = |user: &str| json!({"configurable": {"user_id": user}});
    for (assistant, config, wanted, then_kept) in [
        (json!("ctx"), json!({}), "ann", json!({})),
        (json!("ctx"), named("alice"), "alice", json!({})),
        (nobody.clone(), json!({}), "ann", json!({})),
        (one, named("alice"), "alice", json!({"user_id": "one"})),
        (json!("ctx"), json!({}), "one", json!({"user_id": "one"})),
        (two.clone(), json!({}), "one", json!({"user_id": "one"})),
        (
            two.clone(),
            json!({"user_id": "top"}),
            "top",
            json!({"user_id": "one"}),
        ),
        (nobody, named(""), "one", json!({"user_id": "one"})),
    ] {
        let more = json!({"assistant_id": assistant, "config": config});
        let out = seen(&client, &thread, more);
        assert_eq!(
            out["configurable"]["user_id"], wanted,
            "{assistant} {config}"
        );
        assert_eq!(kept(), then_kept, "{assistant} {config}");
        let run = &ok(client.get(&format!("/threads/{thread}/runs?limit=1")), 200)[0];
        let stored = &run["kwargs"]["config"]["configurable"];
        assert_eq!(stored["user_id"], wanted, "{run}");
    }
    // Runs that end others are created in another way than those that wait for nobody.
    for strategy in ["interrupt", "rollback", "reject"] {
        let more = json!({"assistant_id": two, "multitask_strategy": strategy});
        assert_eq!(
            seen(&client, &thread, more)["configurable"]["user_id"],
            "one"
        );
    }
}

fn runs_of_batches_and_crons_are_for_whom_others_would_be(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_API_KEYS", "ann=key-a");
    let server = place.start(setup);
    let client = Client::of(&server).with_key("key-a");
    let config = json!({"configurable": {"user_id": "one"}});
    let assistant = json!({"graph_id": "ctx", "config": config});
    let one = ok(client.post("/assistants", &assistant), 200)["assistant_id"].clone();
    let run = |assistant: Value, config: Value| json!({"assistant_id": assistant, "input": {"text": "x"}, "config": config});
    let alice = json!({"configurable": {"user_id": "alice"}});
    let runs = [
        (run(one.clone(), alice), "alice"),
        (run(one.clone(), json!({})), "one"),
        (run(json!("ctx"), json!({})), "ann"),
    ];
    let whose = |run: &Value| run["kwargs"]["config"]["configurable"]["user_id"].clone();
    let bodies: Vec<&Value> = runs.iter().map(|(body, _)| body).collect();
    let made = ok(client.post("/runs/batch", &json!(bodies)), 200);
    for (run, (_, wanted)) in made.as_array().unwrap().iter().zip(&runs) {
        assert_eq!(whose(run), *wanted, "{run}");
    }
    // A thread that has had a run of such an assistant has its user.
    let named = create(&client, &json!({}));
    seen(&client, &named, json!({"assistant_id": one}));
    let mut threads = vec![(named, json!("one"))];
    let mut crons = vec![runs[2].0.clone()];
    for (body, wanted) in &runs {
        threads.push((create(&client, &json!({})), json!(wanted)));
        crons.push(body.clone());
    }
    for ((thread, _), body) in threads.iter().zip(&crons) {
        let cron = with(body.clone(), "schedule", "0 3 1 1 *");
        ok(
            client.post(&format!("/threads/{thread}/runs/crons"), &cron),
            200,
        );
    }
    let due = match place.url() {
        Some(_) => "UPDATE crons SET next_run_at = now()",
        None => "UPDATE crons SET next_run_at = 0",
    };
    execute(place, &server, due).unwrap();
    for (thread, wanted) in &threads {
        let path = format!("/threads/{thread}/runs?limit=1");
        let run = || ok(client.get(&path), 200)[0].clone();
        until("its cron has run", || {
            run()["metadata"].get("cron_id").is_some()
        });
        assert_eq!(whose(&run()), *wanted, "{}", run());
    }
}

fn nodes_see_their_graph_on_a_thread_and_in_a_stateless_run(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let body = json!({"assistant_id": "ctx", "input": {"text": "x"}});
    for path in [
        format!("/threads/{thread}/runs/wait"),
        "/runs/wait".to_owned(),
    ] {
        let out = ok(client.post(&path, &body), 200)["out"].clone();
        assert_eq!(out["metadata"]["graph_id"], "ctx", "{path}: {out}");
    }
}

fn what_the_server_fills_is_dropped_from_assistants_and_crons(place: &Place) {
    let (_server, client) = serve(place);
    let forged = json!({"langgraph_auth_user_id": "root", "k": 1});
    let own = json!({"k": 1});
    let config = json!({"configurable": forged, "langgraph_auth_user": "root", "metadata": forged});
    let cleaned = json!({"configurable": own, "metadata": own});
    let assistant = json!({"graph_id": "ctx", "config": config});
    let made = ok(client.post("/assistants", &assistant), 200);
    assert_eq!(made["config"], cleaned);
    assert_eq!(made["context"], own);
    let path = format!("/assistants/{}", made["assistant_id"].as_str().unwrap());
    let changed = ok(
        client.send(
            "PATCH",
            &path,
            &[],
            json!({"context": forged}).to_string().as_bytes(),
        ),
        200,
    );
    assert_eq!(changed["context"], own);
    let again = json!({"config": config});
    let changed = ok(
        client.send("PATCH", &path, &[], again.to_string().as_bytes()),
        200,
    );
    assert_eq!(changed["config"], cleaned);
    for (body, shown) in [
        (json!({"config": config}), json!({"config": cleaned})),
        (json!({"context": forged}), json!({"context": own})),
    ] {
        let new = json!({"assistant_id": "ctx", "schedule": "0 3 1 1 *", "input": {"text": "x"}});
        let cron = ok(
            client.post(
                "/runs/crons",
                &test_support::talk::extend(new, body.clone()),
            ),
            200,
        );
        let path = format!("/runs/crons/{}", cron["cron_id"].as_str().unwrap());
        let change = body.to_string();
        let changed = ok(client.send("PATCH", &path, &[], change.as_bytes()), 200);
        assert_eq!(changed["payload"], cron["payload"]);
        assert!(!cron.to_string().contains("langgraph_auth"), "{cron}");
        let mut payload = cron["payload"].clone();
        if let Some(configurable) = payload.pointer_mut("/config/configurable") {
            let id = configurable.as_object_mut().unwrap().remove("cron_id");
            assert_eq!(id.as_ref(), Some(&cron["cron_id"]));
        }
        for (name, value) in shown.as_object().unwrap() {
            assert_eq!(payload[name], *value, "{cron}");
        }
    }
}
