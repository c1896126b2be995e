//! Contexts of A2A: messages that follow each other, interrupts that the next message resumes, and whose they are.

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::server::Setup;
use test_support::talk::ok;

use super::{a2a, call, parts, refusal, refused, streamed, text};

on_both_storages!(
    the_next_message_of_a_context_continues_its_history,
    a_message_resumes_what_the_task_waits_for,
    several_interrupts_are_resumed_by_their_ids,
    the_tasks_of_a_context_are_listed,
    of_two_messages_that_resume_one_state_one_does,
    contexts_and_tasks_of_others_are_nowhere,
);

fn texts(task: &Value) -> Vec<&str> {
    let history = task["history"].as_array().unwrap().iter();
    history
        .map(|message| message["parts"][0]["text"].as_str().unwrap())
        .collect()
}

fn the_next_message_of_a_context_continues_its_history(place: &Place) {
    let (_server, client) = serve(place);
    let first = a2a(&client, "agent", "message/send", text("one", json!({})));
    let context = json!({"contextId": first["contextId"]});
    let second = a2a(&client, "agent", "message/send", text("two", context));
    assert_eq!(second["contextId"], first["contextId"]);
    assert_ne!(second["id"], first["id"]);
    assert_eq!(texts(&second), ["one", "echo: one", "two", "echo: two"]);
    assert_eq!(second["history"][3]["taskId"], second["id"]);
    // The first task is as it was.
    assert_eq!(
        a2a(&client, "agent", "tasks/get", json!({"id": first["id"]})),
        first
    );
    let body =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": second["id"]}});
    let path = format!("/a2a/{}", super::AGENT);
    let get = |scope: &str| {
        let headers = [("langgraph-a2a-history-scope", scope)];
        client
            .send("POST", &path, &headers, body.to_string().as_bytes())
            .json()
    };
    assert_eq!(texts(&get("task")["result"]), ["two", "echo: two"]);
    assert_eq!(texts(&get("context")["result"]), texts(&second));
    assert_eq!(refusal(&get("all")).0, -32602);
    // A client may name the context that it begins.
    let own = uuid::Uuid::now_v7().to_string();
    let named = a2a(
        &client,
        "agent",
        "message/send",
        text("x", json!({"contextId": own})),
    );
    assert_eq!(named["contextId"], own);
}

/// A task of `approve` that waits for a word.
fn waiting(client: &Client) -> Value {
    let task = a2a(
        client,
        "approve",
        "message/send",
        parts(
            json!([{"kind": "data", "data": {"request": "pay"}}]),
            json!({}),
        ),
    );
    assert_eq!(task["status"]["state"], "input-required", "{task}");
    task
}

fn a_message_resumes_what_the_task_waits_for(place: &Place) {
    let (_server, client) = serve(place);
    let task = waiting(&client);
    let question = json!({"question": "approve?", "request": "pay"});
    assert_eq!(
        task["status"]["message"]["parts"],
        json!([{"kind": "data", "data": question}])
    );
    let artifact = &task["artifacts"][0];
    assert_eq!(
        (&artifact["name"], &artifact["parts"][0]["data"]["value"]),
        (&json!("Interrupt"), &question)
    );
    let of = json!({"id": task["id"]});
    assert_eq!(a2a(&client, "approve", "tasks/get", of.clone()), task);
    assert_eq!(
        refused(&client, "approve", "tasks/cancel", of.clone()).0,
        -32002
    );

    // By its context alone, and the task is the same one.
    let context = json!({"contextId": task["contextId"]});
    let ended = a2a(&client, "approve", "message/send", text("yes", context));
    assert_eq!(
        (&ended["id"], &ended["status"]["state"]),
        (&task["id"], &json!("completed"))
    );
    let values: Value =
        serde_json::from_str(ended["artifacts"][0]["parts"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(values["result"], "answer=yes");
    assert_eq!(
        a2a(&client, "approve", "tasks/get", of)["status"],
        ended["status"]
    );
    let late = text("no", json!({"taskId": task["id"]}));
    assert_eq!(refused(&client, "approve", "message/send", late).0, -32004);

    // By the task, with data, as a stream.
    let task = waiting(&client);
    let data = parts(
        json!([{"data": {"ok": true}}]),
        json!({"taskId": task["id"]}),
    );
    let events = streamed(&client, "approve", "message/stream", data);
    let last = &events[events.len() - 1];
    assert_eq!(
        (&last["taskId"], &last["status"]["state"]),
        (&task["id"], &json!("completed"))
    );
    let path = format!("/threads/{}/state", task["contextId"].as_str().unwrap());
    assert_eq!(
        ok(client.get(&path), 200)["values"]["answer"],
        json!({"ok": true})
    );
    let asked = parts(json!([{"data": {"request": "pay"}}]), json!({}));
    let events = streamed(&client, "approve", "message/stream", asked);
    let [.., artifact, last] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(artifact["artifact"]["name"], "Interrupt");
    assert_eq!(
        (&last["status"]["state"], &last["final"]),
        (&json!("input-required"), &json!(true))
    );
}

fn several_interrupts_are_resumed_by_their_ids(place: &Place) {
    let (_server, client) = serve(place);
    let begun = parts(json!([{"data": {"answers": []}}]), json!({}));
    let task = a2a(&client, "approve_many", "message/send", begun);
    let artifacts = task["artifacts"].as_array().unwrap().clone();
    let ids: Vec<&str> = artifacts
        .iter()
        .map(|artifact| artifact["parts"][0]["data"]["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids.len(), 2);
    let to_task = json!({"taskId": task["id"]});
    for wrong in [
        text("yes", to_task.clone()),
        parts(json!([{"data": {"x": 1}}]), to_task.clone()),
    ] {
        let (code, reason) = refused(&client, "approve_many", "message/send", wrong);
        assert!(code == -32602 && reason.contains(ids[0]), "{reason}");
    }
    let one = parts(json!([{"data": {ids[0]: "first"}}]), to_task.clone());
    let half = a2a(&client, "approve_many", "message/send", one);
    assert_eq!(
        (&half["id"], &half["status"]["state"]),
        (&task["id"], &json!("input-required"))
    );
    assert_eq!(half["artifacts"].as_array().unwrap().len(), 1);
    let ended = a2a(
        &client,
        "approve_many",
        "message/send",
        text("second", to_task),
    );
    assert_eq!(
        (&ended["id"], &ended["status"]["state"]),
        (&task["id"], &json!("completed"))
    );
}

fn the_tasks_of_a_context_are_listed(place: &Place) {
    let (_server, client) = serve(place);
    let list = |graph: &str, params: Value| a2a(&client, graph, "ListTasks", params);
    let first = a2a(&client, "agent", "message/send", text("one", json!({})));
    let context = &first["contextId"];
    let second = a2a(
        &client,
        "agent",
        "message/send",
        text("two", json!({"contextId": context})),
    );
    let all = list("agent", json!({"contextId": context}));
    let ids: Vec<_> = all["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| &task["id"])
        .collect();
    assert_eq!(ids, [&second["id"], &first["id"]]);
    assert_eq!(
        (&all["totalSize"], &all["nextPageToken"]),
        (&json!(2), &json!(""))
    );
    let page = list("agent", json!({"contextId": context, "pageSize": 1}));
    assert_eq!(page["nextPageToken"], "1");
    let rest = list(
        "agent",
        json!({"contextId": context, "pageSize": 1, "pageToken": "1"}),
    );
    assert_eq!(
        (&rest["tasks"][0]["id"], &rest["nextPageToken"]),
        (&first["id"], &json!(""))
    );
    let failed = list(
        "agent",
        json!({"contextId": context, "status": "TASK_STATE_FAILED"}),
    );
    assert_eq!(failed["totalSize"], 0);
    // What resumed a task is none of its own.
    let task = waiting(&client);
    let of = json!({"contextId": task["contextId"]});
    assert_eq!(
        list("approve", of.clone())["tasks"][0]["status"]["state"],
        "TASK_STATE_INPUT_REQUIRED"
    );
    a2a(&client, "approve", "message/send", text("yes", of.clone()));
    let all = list("approve", of.clone());
    assert_eq!(
        (&all["totalSize"], &all["tasks"][0]["id"]),
        (&json!(1), &task["id"])
    );
    assert_eq!(all["tasks"][0]["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(
        list("agent", of)["totalSize"],
        0,
        "they are another agent's"
    );
    for wrong in [
        json!({}),
        json!({"contextId": context, "pageSize": 0}),
        json!({"contextId": context, "pageSize": 101}),
        json!({"contextId": context, "pageToken": "x"}),
        json!({"contextId": context, "status": "x"}),
    ] {
        assert_eq!(
            refused(&client, "agent", "ListTasks", wrong.clone()).0,
            -32602,
            "{wrong}"
        );
    }
}

fn of_two_messages_that_resume_one_state_one_does(place: &Place) {
    let (_server, client) = serve(place);
    for _ in 0..4 {
        let task = waiting(&client);
        let path = format!("/a2a/{}", super::APPROVE);
        let send = |word: &str| {
            let params = text(word, json!({"taskId": task["id"]}));
            call(&client, &path, "message/send", params)
        };
        let (one, two) = std::thread::scope(|scope| {
            let one = scope.spawn(|| send("one"));
            let two = scope.spawn(|| send("two"));
            (one.join().unwrap(), two.join().unwrap())
        });
        let (done, refused): (Vec<_>, Vec<_>) = [one, two]
            .into_iter()
            .partition(|message| message["error"].is_null());
        assert_eq!((done.len(), refused.len()), (1, 1), "{done:?} {refused:?}");
        assert!(
            [-32000, -32004].contains(&refusal(&refused[0]).0),
            "{refused:?}"
        );
        let state = ok(
            client.get(&format!(
                "/threads/{}/state",
                task["contextId"].as_str().unwrap()
            )),
            200,
        );
        let shown = done[0]["result"]["artifacts"][0]["parts"][0]["text"]
            .as_str()
            .unwrap();
        let shown: Value = serde_json::from_str(shown).unwrap();
        assert_eq!(shown["answer"], state["values"]["answer"]);
    }
}

fn contexts_and_tasks_of_others_are_nowhere(place: &Place) {
    let keys = Setup::example("reference_server").env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b");
    let server = place.start(keys);
    let [ann, bob] = ["key-a", "key-b"].map(|key| Client::of(&server).with_key(key));
    let task = a2a(&ann, "agent", "message/send", text("hush", json!({})));
    let nowhere = format!("{0}:{0}", uuid::Uuid::now_v7());
    let id = task["id"].as_str().unwrap();
    for method in ["tasks/get", "tasks/cancel", "GetTask", "CancelTask"] {
        let of = |id: &str| {
            let (code, reason) = refused(&bob, "agent", method, json!({"id": id}));
            (code, reason.replace(id, "ID"))
        };
        assert_eq!(of(id), of(&nowhere), "{method}");
        assert_eq!(of(id).0, -32001);
    }
    let context = json!({"contextId": task["contextId"]});
    assert_eq!(
        refused(
            &bob,
            "agent",
            "message/send",
            text("x", json!({"taskId": id}))
        )
        .0,
        -32001
    );
    assert_eq!(
        refused(&bob, "agent", "message/send", text("x", context.clone())).0,
        -32602
    );
    assert_eq!(
        a2a(&bob, "agent", "ListTasks", context.clone())["totalSize"],
        0
    );
    assert_eq!(a2a(&ann, "agent", "tasks/get", json!({"id": id})), task);
    // Who may only read a context sees its tasks and changes nothing.
    let path = format!(
        "/threads/{}/members/bob",
        task["contextId"].as_str().unwrap()
    );
    ok(
        test_support::talk::put(&ann, &path, &json!({"level": "reader"})),
        201,
    );
    assert_eq!(
        a2a(&bob, "agent", "tasks/get", json!({"id": id}))["id"],
        task["id"]
    );
    let body =
        json!({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": text("x", context)});
    let answer = bob.post(&format!("/a2a/{}", super::AGENT), &body);
    assert_eq!(answer.status, 403, "{}", answer.text());
}
