//! Forks by the first post to a new id.

use serde_json::{Value, json};

use super::*;
use test_support::on_both_storages;
use test_support::server::Setup;

on_both_storages!(
    scenario_10_a_first_post_forks_before_its_entry,
    scenario_11_a_fork_at_the_first_entry_or_without_one_inherits_nothing,
    scenario_12_messages_of_a_fork_of_a_fork_are_paged_across_the_seams,
    scenario_17_two_first_posts_at_once_make_one_fork,
    both_spellings_mean_the_same,
    a_first_post_that_makes_no_sense_writes_nothing,
    a_run_can_answer_the_first_post,
    a_first_post_at_an_entry_keeps_it,
    a_late_first_post_to_a_deleted_fork_says_so_to_those_who_could_see_it,
);

fn first_post(client: &Client, id: &str, parent: &str, anchor: Option<&str>, text: &str) -> Answer {
    let mut body = json!({"role": "user", "content": text, "forkedAtConversationId": parent});
    if let Some(anchor) = anchor {
        body["forkedAtEntryId"] = json!(anchor);
    }
    client.post(&format!("/threads/{id}/messages"), &body)
}

fn scenario_10_a_first_post_forks_before_its_entry(place: &Place) {
    let (_server, client) = serve(place);
    let thread = thread_of(&client, &["u1", "a2", "u3", "a4"]);
    let id = new_id();
    let answer = first_post(&client, &id, &thread, Some("a4"), "other");
    assert_eq!(answer.status, 201, "{}", answer.text());
    let answer = answer.json();
    assert_eq!(answer["thread_id"], json!(id));
    assert_eq!(answer["branch"], "main");
    let new = answer["messages"][0]["message_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let expected = ["u1", "a2", "u3", &new];
    assert_eq!(path(&client, &id), expected);
    let all = family(&client, &id);
    let row = relative(&all, &id);
    assert_eq!(row["forked_at_message_id"], "a4");
    assert_eq!(row["position"], "before");
    note(&client, &thread, "u5");
    assert_eq!(path(&client, &id), expected);
    let kinds: Vec<String> = log(&client, &id)
        .into_iter()
        .map(|(_, kind)| kind)
        .collect();
    assert_eq!(
        kinds[..3],
        ["ThreadCreated", "ThreadForked", "UserMessageAdded"]
    );
    // The same lineage again only appends.
    let again = first_post(&client, &id, &thread, Some("a4"), "more");
    assert_eq!(again.status, 201, "{}", again.text());
    assert_eq!(path(&client, &id).len(), 5);
    // So does a post without.
    note(&client, &id, "u9");
    assert_eq!(path(&client, &id).len(), 6);
}

fn scenario_11_a_fork_at_the_first_entry_or_without_one_inherits_nothing(place: &Place) {
    let (_server, client) = serve(place);
    let thread = thread_of(&client, &["u1", "a2"]);
    for anchor in [Some("u1"), None] {
        let id = new_id();
        let answer = first_post(&client, &id, &thread, anchor, "new");
        assert_eq!(answer.status, 201, "{}", answer.text());
        assert_eq!(path(&client, &id).len(), 1);
        let all = family(&client, &id);
        let row = relative(&all, &id);
        assert_eq!(row["forked_at_message_id"], json!(anchor));
        assert_eq!(row["fork_checkpoint_id"], Value::Null);
        assert_eq!(row["fork_event_number"], 0);
        assert_eq!(row["metadata"]["graph_id"], "agent");
        // A blank slate stays one, also for what is forked from it.
        let nested = new_id();
        let answer = first_post(&client, &nested, &id, None, "newer");
        assert_eq!(answer.status, 201, "{}", answer.text());
        assert_eq!(path(&client, &nested).len(), 1);
    }
}

fn scenario_12_messages_of_a_fork_of_a_fork_are_paged_across_the_seams(place: &Place) {
    let (_server, client) = serve(place);
    let root = thread_of(&client, &["u1", "a2", "u3"]);
    let child = id_of(&fork(&client, &root, &json!({"message_id": "u3"})));
    let own = note(&client, &child, "a4");
    assert_eq!(own["messages"][0]["message_id"], "a4");
    let grand = new_id();
    // Anchored in the root, from the child.
    let answer = first_post(&client, &grand, &child, Some("u3"), "grand");
    assert_eq!(answer.status, 201, "{}", answer.text());
    let last = answer.json()["messages"][0]["message_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let expected = ["u1", "a2", &last];
    assert_eq!(path(&client, &grand), expected);

    let mut forward = vec![];
    let mut query = "limit=1".to_owned();
    loop {
        let page = read(&client, &grand, &query);
        forward.extend(ids(&page));
        let Some(next) = page["next"].as_str() else {
            break;
        };
        query = format!("limit=1&after={next}");
    }
    assert_eq!(forward, expected);
    let mut backward = vec![];
    let mut query = "limit=1&tail=true".to_owned();
    loop {
        let page = read(&client, &grand, &query);
        backward.extend(ids(&page));
        let Some(prev) = page["prev"].as_str() else {
            break;
        };
        query = format!("limit=1&before={prev}");
    }
    backward.reverse();
    assert_eq!(backward, expected);
    // Raw ids are cursors too, when they are on the path.
    assert_eq!(ids(&read(&client, &grand, "after=a2")), [last]);
    for off in ["a4", "u3"] {
        let answer = client.get(&format!("/threads/{grand}/messages?after={off}"));
        assert_eq!(code(&answer, 400), "invalid_cursor", "{off}");
    }
    let of_child = read(&client, &child, "limit=1&after=u3")["prev"].clone();
    let answer = client.get(&format!(
        "/threads/{grand}/messages?before={}",
        of_child.as_str().unwrap()
    ));
    assert_eq!(code(&answer, 400), "invalid_cursor");
}

fn scenario_17_two_first_posts_at_once_make_one_fork(place: &Place) {
    let (_server, client) = serve(place);
    let thread = thread_of(&client, &["u1", "a2"]);
    for _ in 0..5 {
        let id = new_id();
        let answers: Vec<Answer> = std::thread::scope(|scope| {
            let posts: Vec<_> = ["one", "two", "three"]
                .into_iter()
                .map(|text| {
                    let (client, id, thread) = (&client, &id, &thread);
                    scope.spawn(move || first_post(client, id, thread, Some("a2"), text))
                })
                .collect();
            posts.into_iter().map(|post| post.join().unwrap()).collect()
        });
        for answer in &answers {
            assert_eq!(answer.status, 201, "{}", answer.text());
        }
        assert_eq!(path(&client, &id).len(), 4);
        let conflict = first_post(&client, &id, &thread, Some("u1"), "late");
        assert_eq!(code(&conflict, 409), "lineage_conflict");
        assert_eq!(path(&client, &id).len(), 4);
    }
}

fn both_spellings_mean_the_same(place: &Place) {
    let (_server, client) = serve(place);
    let thread = thread_of(&client, &["u1", "a2"]);
    let id = new_id();
    let body = json!({
        "messages": [{"id": "x", "role": "user", "content": "x"}],
        "forked_at_thread_id": thread, "forked_at_message_id": "a2",
    });
    let path_of = format!("/threads/{id}/messages");
    assert_eq!(client.post(&path_of, &body).status, 201);
    assert_eq!(path(&client, &id), ["u1", "x"]);
    // A retry finds what is there.
    let retry = client.post(&path_of, &body);
    assert_eq!(retry.status, 200, "{}", retry.text());
    let mut both = body;
    both["forkedAtEntryId"] = json!("u1");
    assert_eq!(code(client.post(&path_of, &both), 422), "invalid_request");
}

fn a_first_post_that_makes_no_sense_writes_nothing(place: &Place) {
    let (_server, client) = serve(place);
    let thread = thread_of(&client, &["u1", "a2", "u3"]);
    let child = id_of(&fork(&client, &thread, &json!({"message_id": "a2"})));
    note(&client, &child, "u4");
    let stranger = thread_of(&client, &["s1"]);
    let gone = new_id();
    for (parent, anchor, status, expected) in [
        (&*gone, None, 404, "thread_not_found"),
        (&*thread, Some("nothing"), 404, "message_not_found"),
        (&*thread, Some("s1"), 404, "message_not_found"),
        // Known in the tree, but the parent does not see it.
        (&*thread, Some("u4"), 400, "anchor_off_path"),
        (&*child, Some("u3"), 400, "anchor_off_path"),
        ("nope", None, 400, "invalid_id"),
    ] {
        let id = new_id();
        let answer = first_post(&client, &id, parent, anchor, "x");
        assert_eq!(code(&answer, status), expected, "{parent} {anchor:?}");
        client.get(&format!("/threads/{id}")).refused(404);
    }
    // A thread of another lineage, and one that is no fork.
    let answer = first_post(&client, &child, &thread, Some("u1"), "x");
    assert_eq!(code(&answer, 409), "lineage_conflict");
    let answer = first_post(&client, &stranger, &thread, None, "x");
    assert_eq!(code(&answer, 409), "lineage_conflict");
    let answer = first_post(&client, &thread, &thread, None, "x");
    assert_eq!(code(&answer, 409), "lineage_conflict");
    // An unknown thread that says nothing of where it comes from.
    let lonely = json!({"role": "user", "content": "x"});
    let answer = client.post(&format!("/threads/{gone}/messages"), &lonely);
    assert_eq!(code(&answer, 404), "thread_not_found");
    let half = json!({"role": "user", "content": "x", "forkedAtEntryId": "u1"});
    let answer = client.post(&format!("/threads/{gone}/messages"), &half);
    assert_eq!(code(&answer, 422), "invalid_request");
    // A message that cannot be stored leaves no empty fork behind.
    let id = new_id();
    let body =
        json!({"messages": [{"role": "robot", "content": "x"}], "forkedAtConversationId": thread});
    assert_eq!(
        client
            .post(&format!("/threads/{id}/messages"), &body)
            .status,
        422
    );
    let body = json!({"role": "user", "content": "x", "parent_id": "u3",
        "forkedAtConversationId": thread, "forkedAtEntryId": "a2"});
    let refused = client.post(&format!("/threads/{id}/messages"), &body);
    assert_eq!(code(&refused, 400), "invalid_id");
    client.get(&format!("/threads/{id}")).refused(404);
    assert_eq!(
        family(&client, &thread)["threads"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

fn a_run_can_answer_the_first_post(place: &Place) {
    let (_server, client) = serve(place);
    let thread = create(&client, &json!({}));
    say(&client, &thread, "one");
    let second = read(&client, &thread, "")["messages"][1]["message_id"].clone();
    let id = new_id();
    let body = json!({
        "role": "user", "content": "other", "forkedAtConversationId": thread,
        "forkedAtEntryId": second, "run": {"assistant_id": "agent"},
    });
    let answer = client.post(&format!("/threads/{id}/messages"), &body);
    assert_eq!(answer.status, 201, "{}", answer.text());
    let run = answer.json()["run_id"].as_str().unwrap().to_owned();
    assert_eq!(client.end_of(&id, &run), "success");
    let all = read(&client, &id, "");
    assert_eq!(all["messages"].as_array().unwrap().len(), 3);
    assert_eq!(all["messages"][2]["content"], "echo: other");
    assert_eq!(path(&client, &thread).len(), 2);
}

fn a_first_post_at_an_entry_keeps_it(place: &Place) {
    let (_server, client) = serve(place);
    let thread = thread_of(&client, &["u1", "a2", "u3", "a4"]);
    // Two messages of one checkpoint: what is behind the entry is cut off.
    let both = json!({"messages": [
        {"role": "user", "content": "u5", "id": "u5"}, {"role": "user", "content": "u6", "id": "u6"},
    ]});
    let posted = client.post(&format!("/threads/{thread}/messages"), &both);
    assert_eq!(posted.status, 201, "{}", posted.text());
    let first = |id: &str, anchor: &str, position: Option<&str>| {
        let mut body = json!({"role": "user", "content": "x", "forkedAtConversationId": thread,
            "forkedAtEntryId": anchor});
        if let Some(position) = position {
            body["position"] = json!(position);
        }
        client.post(&format!("/threads/{id}/messages"), &body)
    };
    for (anchor, position, shared) in [
        ("a2", Some("at"), &["u1", "a2"][..]),
        ("u1", Some("at"), &["u1"]),
        ("u5", Some("at"), &["u1", "a2", "u3", "a4", "u5"]),
        ("u6", Some("at"), &["u1", "a2", "u3", "a4", "u5", "u6"]),
        ("a2", Some("before"), &["u1"]),
        ("a2", None, &["u1"]),
    ] {
        let id = new_id();
        let answer = first(&id, anchor, position);
        assert_eq!(answer.status, 201, "{}", answer.text());
        let own = answer.json()["messages"][0]["message_id"].clone();
        let mut expected = shared.to_vec();
        expected.push(own.as_str().unwrap());
        assert_eq!(path(&client, &id), expected, "{anchor} {position:?}");
        let all = family(&client, &id);
        let row = relative(&all, &id);
        assert_eq!(row["forked_at_message_id"], anchor);
        assert_eq!(row["position"], position.unwrap_or("before"));
        // It is the same lineage only with the same position.
        assert_eq!(first(&id, anchor, position).status, 201);
        let other = match position {
            Some("at") => None,
            _ => Some("at"),
        };
        assert_eq!(code(first(&id, anchor, other), 409), "lineage_conflict");
    }
    assert_eq!(path(&client, &thread).len(), 6);
    assert_eq!(
        code(first(&new_id(), "u1", Some("after")), 422),
        "invalid_request"
    );
    // With a parent the position is about that.
    let id = new_id();
    let body = json!({"role": "user", "content": "x", "id": "own", "parent_id": "u1", "position": "at",
        "forkedAtConversationId": thread, "forkedAtEntryId": "u3"});
    let answer = client.post(&format!("/threads/{id}/messages"), &body);
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert_eq!(path(&client, &id), ["u1", "own"]);
    let all = family(&client, &id);
    assert_eq!(relative(&all, &id)["position"], "before");
}

fn a_late_first_post_to_a_deleted_fork_says_so_to_those_who_could_see_it(place: &Place) {
    let keys = "ann=key-a,bob=key-b,cid=key-c";
    let setup = Setup::example("reference_server").env("BACKSTITCH_API_KEYS", keys);
    let server = place.start(setup);
    let [ann, bob, cid] = ["key-a", "key-b", "key-c"].map(|key| Client::of(&server).with_key(key));
    let thread = create(&ann, &json!({}));
    for id in ["u1", "a2"] {
        note(&ann, &thread, id);
    }
    let grant = |who: &str| {
        let path = format!("/threads/{thread}/members/{who}");
        let body = json!({"level": "writer"}).to_string();
        let granted = ann.send("PUT", &path, &[], body.as_bytes());
        assert_eq!(granted.status, 201, "{}", granted.text());
    };
    grant("bob");
    // Cid has a thread and a fork of his own, which ann and bob know nothing of.
    let others = create(&cid, &json!({}));
    note(&cid, &others, "c1");
    let other = new_id();
    assert_eq!(
        first_post(&cid, &other, &others, Some("c1"), "x").status,
        201
    );
    assert_eq!(cid.delete(&format!("/threads/{other}")).status, 204);
    for leaves_rows in [true, false] {
        let id = new_id();
        assert_eq!(first_post(&bob, &id, &thread, Some("a2"), "x").status, 201);
        if leaves_rows {
            let nested = new_id();
            let own = first_post(&bob, &nested, &id, Some("u1"), "y");
            assert_eq!(own.status, 201, "{}", own.text());
        }
        assert_eq!(ann.delete(&format!("/threads/{id}")).status, 204);
        for client in [&ann, &bob] {
            let late = first_post(client, &id, &thread, Some("a2"), "late");
            assert_eq!(code(&late, 409), "thread_deleted");
        }
        let late = first_post(&cid, &id, &thread, Some("a2"), "late");
        assert_eq!(code(&late, 404), "thread_not_found");
        // To those who could never see it, the thread is one that is not there.
        let late = first_post(&cid, &id, &others, Some("c1"), "late");
        assert_eq!(code(&late, 404), "thread_not_found");
        let late = first_post(&ann, &other, &thread, Some("a2"), "late");
        assert_eq!(code(&late, 404), "thread_not_found");
        let plain = json!({"role": "user", "content": "x"});
        let plain = bob.post(&format!("/threads/{id}/messages"), &plain);
        assert_eq!(code(&plain, 404), "thread_not_found");
    }
}
