//! Ids of one principal in requests of another: each is looked up together with the others.

use std::collections::HashSet;

use serde_json::json;
use test_support::access::{
    SECRET, bystander, furnished, grant, people, revoke, seen, send, serve,
};
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::routes::{Names, all, naming_threads};
use test_support::talk::{self, ok};

use crate::siege::{MIB, Watch, rounds};

on_both_storages!(
    ids_of_somebody_else_below_ones_own_thread_name_nothing,
    a_run_is_joined_below_its_own_thread_only,
    runs_without_a_thread_are_joined_by_nobody_else,
    an_id_of_somebody_else_is_taken_and_no_more,
    the_number_of_an_event_says_nothing_of_foreign_threads,
    assistants_and_crons_of_somebody_else_are_on_no_route,
);

/// What many small requests may take.
const MOST: u64 = 64 * MIB;

fn ids_of_somebody_else_below_ones_own_thread_name_nothing(place: &Place) {
    let server = serve(place);
    let watch = Watch::beside(&server, &bystander(&server));
    let [ann, bob, _] = people(&server);
    let hers = furnished(&ann, SECRET);
    let own = furnished(&bob, "of-bob");
    let before = seen(&ann, &hers.thread);
    let mixed = [
        Names {
            thread: own.thread.clone(),
            ..hers.clone()
        },
        Names {
            thread: hers.thread.clone(),
            ..own.clone()
        },
        Names {
            run: hers.run.clone(),
            ..own.clone()
        },
        Names {
            checkpoint: hers.checkpoint.clone(),
            ..own.clone()
        },
    ];
    let (checkpoint, thread) = (&hers.checkpoint, &hers.thread);
    let more = [
        json!({"checkpoint_id": checkpoint}),
        json!({"checkpoint": {"thread_id": thread, "checkpoint_id": checkpoint}}),
        json!({"config": {"configurable": {"thread_id": thread, "checkpoint_id": checkpoint}}}),
        json!({"forkedAtConversationId": thread}),
        json!({"before": checkpoint}),
    ];
    let mut routes = naming_threads();
    routes.retain(|route| route.method != "HEAD");
    let mut sent = HashSet::new();
    for route in routes {
        for names in &mixed {
            let path = route.path(names);
            let body = route.body(names);
            if route.method == "DELETE" && path == format!("/threads/{}", own.thread) {
                continue;
            }
            let mut bodies = vec![body.clone()];
            if body.is_object() {
                let extended = more
                    .iter()
                    .map(|more| talk::extend(body.clone(), more.clone()));
                bodies.extend(extended);
            }
            for body in bodies {
                let text = body.to_string();
                let text = if body.is_null() { "" } else { &*text };
                // Routes that name no run or no checkpoint have the same requests more than once.
                let is_new = sent.insert(format!("{} {path} {text}", route.method));
                if !is_new && rounds() < 10 {
                    continue;
                }
                let after = [("last-event-id", "0")];
                let answer = bob.send(route.method, &path, &after, text.as_bytes());
                let shown = answer.text();
                assert!(
                    !shown.contains(SECRET),
                    "{} {path} {body}: {shown}",
                    route.method
                );
            }
        }
    }
    assert_eq!(seen(&ann, &hers.thread), before);
    watch.held("ids of somebody else below one's own thread", MOST);
}

fn a_run_is_joined_below_its_own_thread_only(place: &Place) {
    let server = serve(place);
    let watch = Watch::beside(&server, &bystander(&server));
    let [ann, bob, _] = people(&server);
    let (hers, own) = (ann.thread(), bob.thread());
    let body = talk::with(talk::slow(50, 400), "stream_resumable", true);
    let run = talk::background(&ann, &hers, &body);
    let missing = json!({"error": "HTTPException", "message": "404: Run not found"});
    for _ in 0..2 {
        let path = format!("/threads/{own}/runs/{run}");
        let joined = ok(bob.get(&format!("{path}/join")), 200);
        assert_eq!(joined, json!({"__error__": missing}));
        for after in [None, Some("-"), Some("0"), Some("1")] {
            let after = after.map(|id| ("last-event-id", id));
            let headers: Vec<_> = after.into_iter().collect();
            let mut open = bob.open("GET", &format!("{path}/stream"), &headers, b"");
            let event = open.event().unwrap();
            assert_eq!((&*event.name, &event.data), ("error", &missing));
            assert_eq!(open.event(), None);
        }
        bob.get(&path).refused(404);
        bob.send("POST", &format!("{path}/cancel"), &[], b"")
            .refused(404);
        bob.delete(&path).refused(404);
        // Once more when it has ended.
        let cancel = format!("/threads/{hers}/runs/{run}/cancel?wait=true");
        ann.send("POST", &cancel, &[], b"");
    }
    assert_eq!(ann.end_of(&hers, &run), "interrupted");
    watch.held("runs joined below another thread", MOST);
}

fn runs_without_a_thread_are_joined_by_nobody_else(place: &Place) {
    let server = serve(place);
    let watch = Watch::beside(&server, &bystander(&server));
    let [ann, bob, _] = people(&server);
    let own = bob.thread();
    let row = ok(ann.post("/runs", &talk::slow(50, 4000)), 200);
    let (thread, run) = (
        row["thread_id"].as_str().unwrap(),
        row["run_id"].as_str().unwrap(),
    );
    let below = format!("/threads/{own}/runs/{run}");
    let joined = ok(bob.get(&format!("{below}/join")), 200);
    assert_eq!(joined["__error__"]["message"], "404: Run not found");
    let mut open = bob.open("GET", &format!("{below}/stream"), &[], b"");
    assert_eq!(
        open.event_named("error").data["message"],
        "404: Run not found"
    );
    for end in ["", "/join", "/stream"] {
        bob.get(&format!("/threads/{thread}/runs/{run}{end}"))
            .refused(404);
    }
    // Its creator watches it.
    let mut open = ann.open(
        "GET",
        &format!("/threads/{thread}/runs/{run}/stream"),
        &[],
        b"",
    );
    open.event_named("custom");
    watch.held("runs without a thread joined by another", MOST);
}

fn an_id_of_somebody_else_is_taken_and_no_more(place: &Place) {
    let server = serve(place);
    let watch = Watch::beside(&server, &bystander(&server));
    let [ann, bob, _] = people(&server);
    let names = furnished(&ann, SECRET);
    let own = furnished(&bob, "of-bob");
    let before = seen(&ann, &names.thread);
    let detail = format!("Thread with ID {} already exists", names.thread);
    let id = json!({"thread_id": names.thread});
    let steps = json!([{"updates": [{"values": {"messages": []}, "as_node": "agent"}]}]);
    for more in [
        json!({}),
        json!({"if_exists": "do_nothing"}),
        json!({"if_exists": "raise"}),
        json!({"if_exists": "do_nothing", "supersteps": steps}),
    ] {
        let body = talk::extend(id.clone(), more);
        for path in ["/threads", "/commands/create-thread"] {
            let answer = bob.post(path, &body);
            assert_eq!(answer.refused(409), detail, "{path} {body}");
        }
    }
    for path in [
        format!("/threads/{}/fork", own.thread),
        "/commands/fork-thread".into(),
    ] {
        let body = talk::with(id.clone(), "source_thread_id", own.thread.clone());
        let answer = bob.post(&path, &body);
        assert_eq!(answer.refused(409), detail, "{path}");
    }
    // Who may read it only gets the row, and applies nothing to it.
    grant(&ann, &names.thread, "bob", "reader");
    let shown = talk::extend(id, json!({"if_exists": "do_nothing"}));
    assert_eq!(
        ok(bob.post("/threads", &shown), 200)["metadata"]["word"],
        SECRET
    );
    let applied = talk::with(shown, "supersteps", steps);
    bob.post("/threads", &applied).refused(403);
    revoke(&ann, &names.thread, "bob");
    assert_eq!(seen(&ann, &names.thread), before);
    watch.held("ids of somebody else for new threads", MOST);
}

fn the_number_of_an_event_says_nothing_of_foreign_threads(place: &Place) {
    let server = serve(place);
    let watch = Watch::beside(&server, &bystander(&server));
    let [ann, bob, _] = people(&server);
    let hers = ann.thread();
    let asked = |thread: &str| {
        let answer = bob.get(&format!("/threads?min_event={thread}:1"));
        (answer.status, answer.text().replace(thread, "THREAD"))
    };
    let nowhere = uuid::Uuid::now_v7().to_string();
    // The server waits for such an event before it answers.
    let (of_none, of_hers) = std::thread::scope(|scope| {
        let of_hers = scope.spawn(|| asked(&hers));
        (asked(&nowhere), of_hers.join().unwrap())
    });
    assert_eq!(of_none.0, 503, "{}", of_none.1);
    assert_eq!(of_hers, of_none);
    assert_eq!(asked(&bob.thread()).0, 200);
    watch.held("numbers of events of foreign threads", MOST);
}

fn assistants_and_crons_of_somebody_else_are_on_no_route(place: &Place) {
    let server = serve(place);
    let watch = Watch::beside(&server, &bystander(&server));
    let [ann, bob, _] = people(&server);
    let new = json!({"graph_id": "agent", "name": SECRET, "metadata": {"word": SECRET}});
    let assistant = ok(ann.post("/assistants", &new), 200);
    let assistant = assistant["assistant_id"].as_str().unwrap();
    let run = json!({"assistant_id": assistant, "input": {"messages": [talk::user(SECRET)]}});
    let cron = talk::with(run.clone(), "schedule", "0 0 1 1 *");
    let cron = ok(ann.post("/runs/crons", &cron), 200);
    let cron = cron["cron_id"].as_str().unwrap();
    let seen = || {
        [
            format!("/assistants/{assistant}"),
            format!("/runs/crons/{cron}"),
        ]
        .map(|path| ok(ann.get(&path), 200))
    };
    let before = seen();
    let nothing = uuid::Uuid::now_v7().to_string();
    let own = bob.thread();
    let mut named = 0;
    for route in all() {
        let is_there = ["{assistant_id}", "{cron_id}"]
            .iter()
            .any(|part| route.path.contains(part));
        if !is_there {
            continue;
        }
        named += 1;
        let names = Names::of(&own);
        let body = match route.path {
            "/assistants/{assistant_id}/latest" => json!({"version": 1}),
            "/runs/crons/{cron_id}" if route.method == "PATCH" => json!({"enabled": false}),
            _ => route.body(&names),
        };
        let [hers, of_none] = [(assistant, cron), (&*nothing, &*nothing)].map(|(one, other)| {
            let path = route.path.replace("{assistant_id}", one);
            let path = path.replace("{cron_id}", other).replace("{namespace}", "x");
            let answer = send(&bob, route.method, &path, &body);
            (
                answer.status,
                answer.text().replace(one, "ID").replace(other, "ID"),
            )
        });
        assert_eq!(hers, of_none, "{route:?}");
        assert!(!hers.1.contains(SECRET), "{route:?}: {}", hers.1);
    }
    assert!(named > 20, "{named}");
    // In a body an assistant is named by every kind of run.
    let thread = format!("/threads/{own}/runs");
    let runs = [
        "/runs",
        "/runs/wait",
        "/runs/stream",
        "/runs/crons",
        "/runs/batch",
    ];
    let of_thread = ["", "/wait", "/stream", "/crons"].map(|end| format!("{thread}{end}"));
    for path in runs
        .iter()
        .copied()
        .chain(of_thread.iter().map(|path| &**path))
    {
        let mut body = run.clone();
        if path.ends_with("crons") {
            body = talk::with(body, "schedule", "0 0 1 1 *");
        }
        if path.ends_with("batch") {
            body = json!([body]);
        }
        let answer = bob.post(path, &body);
        assert_eq!(answer.status, 404, "{path}: {}", answer.text());
    }
    for path in ["/assistants/search", "/runs/crons/search"] {
        assert!(!bob.post(path, &json!({})).text().contains(SECRET));
    }
    assert_eq!(seen(), before);
    watch.held("assistants and crons of somebody else", MOST);
}
