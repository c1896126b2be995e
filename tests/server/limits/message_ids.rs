//! How long the ids of messages may be where a setting says so, and what becomes of longer ones that are there.

use serde_json::{Value, json};
use test_support::client::{Answer, Client};
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::Setup;
use test_support::talk::{
    self, agent_thread, background, fork, ok, store, turn, turn_as, user, with,
};

const SETTING: &str = "BACKSTITCH_MESSAGE_ID_LENGTH";

on_both_storages!(
    ids_of_messages_have_the_length_of_the_setting_on_every_way_in,
    longer_ids_stay_usable_after_the_setting_was_lowered,
    a_refusal_does_not_tell_which_ids_a_thread_of_others_has,
);

/// An id of so many characters of four bytes each, which no database makes shorter.
fn random(characters: usize) -> String {
    let one = |_| {
        let number = uuid::Uuid::new_v4().as_u128() as u32 % 0x10_0000;
        char::from_u32(0x1_0000 + number).unwrap()
    };
    (0..characters).map(one).collect()
}

/// Checks that something takes ids up to the setting, and says what the setting is for one that is longer.
fn takes(name: &str, most: usize, status: u16, send: impl Fn(&str) -> Answer) {
    for length in [most - 1, most] {
        let answer = send(&random(length));
        let text = answer.text();
        assert!(answer.status < 300, "{name} {length}: {text}");
        assert!(!text.contains("__error__"), "{name} {length}: {text}");
    }
    for length in [most + 1, 501, 10_000] {
        let refused = send(&random(length)).refused(status);
        says_why(name, most, &refused);
    }
}

fn says_why(name: &str, most: usize, text: &str) {
    let has = |part: &str| text.contains(part);
    let number = has(&format!("at most {most} characters")) || has(&format!("1 to {most} visible"));
    assert!(number && has(SETTING), "{name}: {text}");
}

fn ids_of_messages_have_the_length_of_the_setting_on_every_way_in(place: &Place) {
    for most in [64, 500] {
        let setup = Setup::example("faulty_server").env(SETTING, most.to_string());
        let server = place.start(setup);
        let client = Client::of(&server);
        every_way_in(&client, most);
        let document = ok(client.get("/openapi.json"), 200);
        let sent = &document["components"]["schemas"]["SendMessage"]["properties"];
        assert_eq!(sent["message_id"]["maxLength"], most, "{sent}");
    }
}

/// A field of a run with a message that has the id, in every form.
fn forms(id: &str) -> [(&'static str, [Value; 2]); 6] {
    let message = json!({"type": "human", "content": "x", "id": id});
    let class = json!(["langchain", "schema", "messages", "HumanMessage"]);
    let fields = json!({"content": "x", "id": id});
    let constructor = json!({"lc": 1, "type": "constructor", "id": class, "kwargs": fields});
    let input = |messages: Value| [json!("input"), json!({"messages": messages})];
    let command = |update: Value| {
        let command = json!({"update": update, "goto": "answer"});
        [json!("command"), command]
    };
    [
        ("input", input(json!([message]))),
        ("one message", input(message.clone())),
        ("a constructor", input(json!([constructor]))),
        ("an overwrite", input(json!({"__overwrite__": [message]}))),
        ("a command", command(json!({"messages": [message]}))),
        (
            "pairs of a command",
            command(json!([["messages", [message]]])),
        ),
    ]
}

fn every_way_in(client: &Client, most: usize) {
    let message = |id: &str| json!({"type": "human", "content": "x", "id": id});
    let messages = |id: &str| json!({"messages": [message(id)]});
    let thread = || talk::create(client, &json!({"metadata": {"graph_id": "talk"}}));
    let path = |below: &str| format!("/threads/{}/{below}", thread());
    let run = |key: &str, value: Value| with(json!({"assistant_id": "talk"}), key, value);
    for (at, (name, _)) in forms("").iter().enumerate() {
        let body = |id: &str| {
            let [field, value] = forms(id)[at].1.clone();
            run(field.as_str().unwrap(), value)
        };
        takes(name, most, 400, |id| {
            client.post(&path("runs/wait"), &body(id))
        });
        takes(name, most, 400, |id| client.post("/runs/wait", &body(id)));
        takes(name, most, 400, |id| {
            client.post("/runs/batch", &json!([body(id)]))
        });
    }
    let never =
        |id: &str| json!({"assistant_id": "talk", "schedule": "0 0 1 1 *", "input": messages(id)});
    takes("a cron", most, 400, |id| {
        client.post("/runs/crons", &never(id))
    });
    takes("a cron of a thread", most, 400, |id| {
        client.post(&path("runs/crons"), &never(id))
    });
    let cron = ok(client.post("/runs/crons", &never("short")), 200);
    let cron = format!("/runs/crons/{}", cron["cron_id"].as_str().unwrap());
    takes("a changed cron", most, 400, |id| {
        let body = json!({"input": messages(id)}).to_string();
        client.send("PATCH", &cron, &[], body.as_bytes())
    });
    for node in ["answer", "__start__", "__input__"] {
        takes(node, most, 400, |id| {
            let edit = json!({"values": messages(id), "as_node": node});
            client.post(&path("state"), &edit)
        });
    }
    takes("supersteps", most, 400, |id| {
        let update = json!({"values": messages(id), "as_node": "answer"});
        let body = json!({"metadata": {"graph_id": "talk"}, "supersteps": [{"updates": [update]}]});
        client.post("/threads", &body)
    });
    takes("post", most, 422, |id| {
        client.post(&path("messages"), &with(user("y"), "id", id))
    });
    takes("a thread without a graph", most, 422, |id| {
        let path = format!("/threads/{}/messages", client.thread());
        client.post(&path, &json!({"messages": [with(user("y"), "id", id)]}))
    });
    takes("send", most, 422, |id| {
        let body = json!({"thread_id": thread(), "content": "x", "message_id": id});
        client.post("/commands/send-message", &body)
    });
    let a2a = |id: &str| {
        let message = json!({"role": "user", "messageId": id, "parts": [{"text": "x"}]});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "message/send",
            "params": {"message": message}});
        let talk = ok(
            client.post("/assistants/search", &json!({"graph_id": "talk"})),
            200,
        );
        let agent = talk[0]["assistant_id"].as_str().unwrap();
        ok(client.post(&format!("/a2a/{agent}"), &body), 200)
    };
    let sent = a2a(&random(most));
    assert_eq!(sent["result"]["status"]["state"], "completed", "{sent}");
    let refused = a2a(&random(most + 1)).to_string();
    says_why("A2A", most, &refused);
    assert!(refused.contains("`messageId`"), "{refused}");
    let begun = |id: &str| {
        let params = json!({"assistant_id": "talk", "input": messages(id)});
        let body = json!({"id": 1, "method": "run.start", "params": params});
        ok(client.post(&path("commands"), &body), 200)
    };
    let started = begun(&random(most));
    assert_eq!(started["type"], "success", "{started}");
    says_why("run.start", most, &begun(&random(most + 1)).to_string());
    // And of nodes.
    let named = |id: &str| {
        let input = json!({"messages": [user(&format!("as {id}"))]});
        client.run(&thread(), &run("input", input))
    };
    let (longest, longer) = (random(most), random(most + 1));
    assert_eq!(named(&longest)["messages"][1]["id"], longest);
    says_why("node", most, &named(&longer)["__error__"].to_string());
}

fn longer_ids_stay_usable_after_the_setting_was_lowered(place: &Place) {
    let mut server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    let [first, second, inner, posted, waiting] = [(); 5].map(|()| random(200));
    let thread = agent_thread(&client);
    client.run(&thread, &turn_as("one", &first, json!({})));
    client.run(&thread, &turn_as("two", &second, json!({})));
    let of_subgraph = agent_thread(&client);
    let in_subgraph = |body: Value| with(body, "assistant_id", "chatsub");
    client.run(
        &of_subgraph,
        &in_subgraph(turn_as("one", &inner, json!({}))),
    );
    let of_posts = agent_thread(&client);
    store(&client, &of_posts, &with(user("one"), "id", &*posted));
    let of_waiting = agent_thread(&client);
    let later = turn_as("one", &waiting, json!({"after_seconds": 2}));
    let later = background(&client, &of_waiting, &later);

    server.restart_with(SETTING, "64");
    let client = Client::of(&server);
    let messages = |values: &Value| values["messages"].as_array().unwrap().clone();
    let took_turn = |values: Value, count: usize| {
        assert_eq!(values.get("__error__"), None, "{values}");
        assert_eq!(messages(&values).len(), count);
    };
    // Turns, also where a graph inside has the messages, and of a run that was waiting.
    took_turn(client.run(&thread, &turn("three")), 6);
    took_turn(client.run(&of_subgraph, &in_subgraph(turn("two"))), 4);
    took_turn(client.run(&of_posts, &turn("two")), 3);
    assert_eq!(client.end_of(&of_waiting, &later), "success");
    // It is read, and names its message.
    talk::whole(&client, &thread);
    assert_eq!(talk::path(&client, &thread, "")[0], first);
    let leaf: String = second.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let up_to = talk::path(&client, &thread, &format!("leaf_id={leaf}"));
    assert_eq!(up_to[2..], [&*second]);
    let forked = fork(&client, &thread, &json!({"message_id": second}));
    let forked = forked["thread_id"].as_str().unwrap();
    took_turn(client.run(forked, &turn("of a fork")), 5);
    let at = |below: &str| format!("/threads/{thread}/{below}");
    let branch = json!({"name": "b", "message_id": second});
    ok(client.post(&at("branches"), &branch), 201);
    took_turn(
        client.run(&thread, &with(turn("of a branch"), "branch", "b")),
        5,
    );
    // Others are written behind it and in its place.
    let behind = with(user("behind"), "parent_id", &*first);
    store(&client, &thread, &behind);
    let edit = with(user("instead"), "id", &*first);
    let edited = store(&client, &thread, &edit);
    assert_eq!(edited["branch_created"], true, "{edited}");
    ok(
        client.post(&at("rewind"), &json!({"message_id": second})),
        201,
    );
    store(
        &client,
        &thread,
        &with(
            with(user("changed"), "id", &*second),
            "on_existing",
            "replace",
        ),
    );
    // A client sends the conversation back with what is new, as a run, as a post and as a state.
    let known = messages(&client.state(&thread)["values"]);
    assert_eq!(known[2]["id"], second);
    let mut all = known.clone();
    all.push(user("new"));
    let again = json!({"assistant_id": "agent", "input": {"messages": all}});
    took_turn(client.run(&thread, &again), known.len() + 2);
    let known = messages(&client.state(&thread)["values"]);
    let all = json!({"values": {"messages": known}});
    ok(client.post(&at("state"), &all), 200);
    let post = json!({"messages": [with(user("one"), "id", &*posted), user("new")]});
    store(&client, &of_posts, &post);
    let removal = json!({"type": "remove", "content": "", "id": first});
    ok(
        client.post(&at("state"), &json!({"values": {"messages": [removal]}})),
        200,
    );
    let left = messages(&client.state(&thread)["values"]);
    assert_eq!(left.len(), known.len() - 1);
    // What is new is as short as the setting says, though another thread has such an id.
    for id in [random(65), random(200), posted] {
        let refused = client.post(&at("runs/wait"), &turn_as("x", &id, json!({})));
        says_why("run", 64, &refused.refused(400));
        let refused = client.post(&at("messages"), &with(user("x"), "id", &*id));
        says_why("post", 64, &refused.refused(422));
        let message = with(user("x"), "id", &*id);
        let values = json!({"values": {"messages": [message]}});
        says_why(
            "state",
            64,
            &client.post(&at("state"), &values).refused(400),
        );
    }
}

fn a_refusal_does_not_tell_which_ids_a_thread_of_others_has(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_API_KEYS", "ann=a,bob=b");
    let mut server = place.start(setup);
    let ann = Client::of(&server).with_key("a");
    let thread = agent_thread(&ann);
    let known = random(200);
    ann.run(&thread, &turn_as("one", &known, json!({})));
    server.restart_with(SETTING, "64");
    let [ann, bob] = ["a", "b"].map(|key| Client::of(&server).with_key(key));
    let path = |thread: &str| format!("/threads/{thread}/runs/wait");
    let nowhere = uuid::Uuid::now_v7().to_string();
    let of = |client: &Client, thread: &str, id: &str| {
        let body = turn_as("x", id, json!({"if_not_exists": "create"}));
        let answer = client.post(&path(thread), &body);
        (answer.status, answer.text().to_owned())
    };
    let refused = of(&bob, &thread, &known);
    assert_eq!(refused.0, 400, "{}", refused.1);
    assert_eq!(of(&bob, &thread, &random(200)), refused);
    assert_eq!(of(&bob, &nowhere, &known), refused);
    assert_eq!(of(&ann, &thread, &known).0, 200);
}
