//! The log of a thread, in pages and as a stream.

use super::*;
use test_support::on_both_storages;
use test_support::server::Setup;
use test_support::talk::code;

on_both_storages!(
    a_run_is_told_in_order_and_with_content,
    pages_follow_each_other_without_a_gap,
    a_stream_begins_where_it_is_told_and_stays_open,
    a_stream_goes_on_after_the_last_event_seen,
    a_stream_tells_what_happens_while_it_is_open,
    a_stream_ends_with_its_thread,
    events_of_parallel_writers_have_no_gap,
    requests_that_make_no_sense_are_refused,
    the_end_of_a_run_whose_worker_was_killed_is_told_once,
    content_of_a_message_is_that_of_its_event,
);

fn a_run_is_told_in_order_and_with_content(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    say(&client, &thread, "hello");
    let all = events(&client, &thread, "");
    let expected: Vec<i64> = (1..).take(all.len()).collect();
    assert_eq!(numbers(&all), expected);
    let types = types(&all);
    assert_eq!(types[0], "ThreadCreated", "{types:?}");
    for needed in TURN {
        assert_eq!(
            types.iter().filter(|one| **one == needed).count(),
            1,
            "{needed} in {types:?}"
        );
    }
    assert_eq!(types.last(), Some(&"RunFinished"));
    let of = |kind: &str| {
        all.iter()
            .find(|event| event["event_type"] == kind)
            .unwrap()
    };
    let user = of("UserMessageAdded");
    assert_eq!(user["payload"]["content"], "hello");
    assert_eq!(user["payload"]["role"], "user");
    assert_eq!(user["payload"]["branch"], "main");
    assert_eq!(user["message_id"], user["payload"]["message_id"]);
    let answer = of("LLMResponseGenerated");
    assert_eq!(answer["payload"]["content"], "echo: hello");
    assert_eq!(answer["payload"]["reply_to"], user["message_id"]);
    let head = client.get(&format!("/threads/{thread}/head")).json();
    let settled = of("CheckpointCreated");
    assert_eq!(settled["checkpoint_id"], head["latest_checkpoint_id"]);
    assert_eq!(settled["payload"]["ai_message_id"], answer["message_id"]);
    assert_eq!(head["latest_ai_message_id"], answer["message_id"]);
    assert_eq!(head["event_number"], all.len());
    for event in &all {
        let keys: Vec<&String> = event.as_object().unwrap().keys().collect();
        assert_eq!(
            keys,
            [
                "event_number",
                "event_id",
                "event_type",
                "thread_id",
                "branch",
                "checkpoint_id",
                "message_id",
                "payload",
                "created_at"
            ]
        );
        assert_eq!(event["thread_id"], *thread);
    }
}

fn pages_follow_each_other_without_a_gap(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    say(&client, &thread, "one");
    say(&client, &thread, "two");
    let all = events(&client, &thread, "");
    let (mut paged, mut after) = (Vec::new(), json!(0));
    loop {
        let path = format!("/threads/{thread}/events?limit=3&after={after}");
        let page = client.get(&path).json();
        let events = page["events"].as_array().unwrap();
        assert!(events.len() <= 3);
        paged.extend(events.iter().cloned());
        if page["next"].is_null() {
            break;
        }
        assert_eq!(page["next"], events[2]["event_number"]);
        after = page["next"].clone();
    }
    assert_eq!(paged, all);
    let last = all.len();
    assert!(events(&client, &thread, &format!("after={last}")).is_empty());
    assert_eq!(events(&client, &thread, "inherited=true"), all);
}

fn a_stream_begins_where_it_is_told_and_stays_open(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    say(&client, &thread, "hello");
    let all = events(&client, &thread, "");
    let mut open = stream(&client, &thread, "", None);
    assert_eq!(
        open.header("content-type"),
        Some("text/event-stream; charset=utf-8")
    );
    for expected in &all {
        let event = open.event().unwrap();
        assert_eq!(event.name, expected["event_type"]);
        assert_eq!(event.id, Some(expected["event_number"].to_string()));
        assert_eq!(&event.data, expected);
    }
    let begin = Instant::now();
    let heartbeat = open.chunk().unwrap();
    assert_eq!(heartbeat, b": heartbeat\r\n\r\n");
    assert!(begin.elapsed() < Duration::from_secs(8));
    let mut later = stream(&client, &thread, "after=3", None);
    assert_eq!(later.event().unwrap().data, all[3]);
}

fn a_stream_goes_on_after_the_last_event_seen(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    say(&client, &thread, "hello");
    let all = events(&client, &thread, "");
    let mut first = stream(&client, &thread, "", None);
    first.event();
    let seen = first.event().unwrap().id.unwrap();
    drop(first);
    // The header wins over the query, as reconnecting clients repeat their first address.
    let mut again = stream(&client, &thread, "after=0", Some(&seen));
    assert_eq!(again.event().unwrap().data, all[2]);
}

fn a_stream_tells_what_happens_while_it_is_open(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let before = events(&client, &thread, "").len();
    let mut open = stream(&client, &thread, &format!("after={before}"), None);
    // The stream has read everything there is and waits for more, which nothing shows from outside.
    thread::sleep(Duration::from_millis(100));
    let (mut told, mut late) = (vec![], vec![]);
    for round in 0..10 {
        say(&client, &thread, &format!("hello {round}"));
        let end = Instant::now();
        loop {
            let event = open.event().unwrap();
            told.push(event.data);
            if event.name == "RunFinished" {
                break;
            }
        }
        late.push(end.elapsed());
    }
    let expected = events(&client, &thread, &format!("after={before}&limit=1000"));
    assert_eq!(numbers(&told), numbers(&expected));
    // In this process nobody waits for the next look, which comes each second: all rounds but the first begin behind one,
    // and would wait for the next. Some may wait for a processor.
    let shortest = late[1..].iter().min().unwrap();
    assert!(*shortest < Duration::from_millis(700), "{late:?}");
}

fn a_stream_ends_with_its_thread(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let mut open = stream(&client, &thread, "", None);
    assert_eq!(client.delete(&format!("/threads/{thread}")).status, 204);
    while open.event().is_some() {}
}

fn events_of_parallel_writers_have_no_gap(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let mut open = stream(&client, &thread, "", None);
    let writers: Vec<_> = (0..50)
        .map(|n| {
            let (client, thread) = (client.clone(), thread.clone());
            thread::spawn(move || {
                let path = format!("/threads/{thread}/tags/tag-{n}");
                if n % 5 == 0 {
                    say(&client, &thread, &format!("say {n}"));
                }
                // So many at once may find no free connection: the answer says to try again.
                loop {
                    let status = client.send("PUT", &path, &[], b"{}").status;
                    if status != 503 {
                        return status;
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        assert!(matches!(writer.join().unwrap(), 201 | 409));
    }
    let all = events(&client, &thread, "limit=1000");
    let expected: Vec<i64> = (1..).take(all.len()).collect();
    assert_eq!(numbers(&all), expected);
    assert!(all.len() > 60, "{}", all.len());
    for number in expected {
        assert_eq!(open.event().unwrap().id, Some(number.to_string()));
    }
    assert_eq!(
        types(&all)
            .iter()
            .filter(|one| **one == "RunFinished")
            .count(),
        10
    );
}

fn requests_that_make_no_sense_are_refused(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let nowhere = "5a65802f-74fe-4e41-9a19-5fa219b2c04e";
    for (status, path) in [
        (422, format!("/threads/{thread}/events?limit=0")),
        (422, format!("/threads/{thread}/events?limit=1001")),
        (422, format!("/threads/{thread}/events?limit=x")),
        (422, format!("/threads/{thread}/events?after=x")),
        (422, format!("/threads/{thread}/events?after=-1")),
        (422, format!("/threads/{thread}/events?inherited=maybe")),
        (422, "/threads/none/events".to_owned()),
        (404, format!("/threads/{nowhere}/events")),
        (422, format!("/threads/{thread}/head?branch=no%20good")),
        (404, format!("/threads/{thread}/head?branch=none")),
        (404, format!("/threads/{nowhere}/head")),
        (422, "/threads/none/head".to_owned()),
        (422, format!("/threads/{thread}/tree?limit=0")),
        (422, format!("/threads/{thread}/tree?limit=10001")),
        (422, format!("/threads/{thread}/tree?format=none")),
        (422, format!("/threads/{thread}/tree?after_depth=x")),
        (422, format!("/threads/{thread}/tree?after_depth=-1")),
        (404, format!("/threads/{nowhere}/tree")),
    ] {
        let answer = client.get(&path);
        answer.refused(status);
        assert!(
            answer.json()["code"].is_string(),
            "{path}: {}",
            answer.text()
        );
    }
    for last in ["x", "-1", "1.5", "9999999999999999999999"] {
        let headers = [("accept", "text/event-stream"), ("last-event-id", last)];
        let path = format!("/threads/{thread}/events");
        client.send("GET", &path, &headers, b"").refused(422);
    }
    let rebuild = "/admin/projections/rebuild";
    client
        .post(rebuild, &json!({"projection": "none"}))
        .refused(422);
    client
        .post(rebuild, &json!({"thread_id": "none"}))
        .refused(422);
    let unknown = client.post(rebuild, &json!({"thread_id": nowhere}));
    assert_eq!(code(unknown, 404), "thread_not_found");
}

/// The event part of scenario 19.
fn the_end_of_a_run_whose_worker_was_killed_is_told_once(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_LEASE", "1");
    let mut server = place.start(setup);
    let client = Client::of(&server);
    let thread = client.thread();
    let run = background(&client, &thread, &slow(400, 1));
    let mut open = stream(&client, &thread, "", None);
    while open.event().unwrap().name != "RunStarted" {}
    server.kill();
    server.restart();
    let client = Client::of(&server);
    assert_eq!(client.end_of(&thread, &run), "success");
    say(&client, &thread, "hello");
    let all = events(&client, &thread, "");
    assert_eq!(numbers(&all), (1..).take(all.len()).collect::<Vec<_>>());
    let ends = |run: &str| {
        let ends = all
            .iter()
            .filter(|event| event["event_type"] == "RunFinished");
        ends.filter(|event| event["payload"]["run_id"] == run)
            .count()
    };
    assert_eq!(ends(&run), 1, "{:?}", types(&all));
    let answers = types(&all)
        .into_iter()
        .filter(|one| *one == "LLMResponseGenerated")
        .count();
    assert_eq!(answers, 1);
}

fn content_of_a_message_is_that_of_its_event(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let state = say(&client, &thread, "one");
    let id = &state["messages"][0]["id"];
    let change = |text: &str| {
        let edit = json!({"type": "human", "id": id, "content": text});
        let body = json!({"values": {"messages": [edit]}, "as_node": "model"});
        let answer = client.post(&format!("/threads/{thread}/state"), &body);
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    change("two");
    change("three");
    let removal = json!({"type": "remove", "id": id, "content": ""});
    let body = json!({"values": {"messages": [removal]}, "as_node": "model"});
    assert_eq!(
        client
            .post(&format!("/threads/{thread}/state"), &body)
            .status,
        200
    );
    let all = events(&client, &thread, "");
    let told: Vec<_> = all
        .iter()
        .filter(|event| event["message_id"] == *id && event["payload"].get("content").is_some())
        .map(|event| {
            (
                event["event_type"].as_str().unwrap(),
                &event["payload"]["content"],
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("UserMessageAdded", &json!("one")),
            ("MessageEdited", &json!("two")),
            ("MessageEdited", &json!("three")),
            ("MessageRemoved", &Value::Null),
        ]
    );
    let queued = json!({"thread_id": thread, "content": "wait for it", "assistant_id": "agent"});
    let sent = client.post("/commands/send-message", &queued);
    assert_eq!(sent.status, 202, "{}", sent.text());
    let after = sent.json()["event_number"].as_i64().unwrap() - 1;
    let told = events(&client, &thread, &format!("after={after}&limit=1"));
    assert_eq!(told[0]["event_type"], "UserMessageAdded");
    assert_eq!(told[0]["payload"]["content"], "wait for it");
}
