//! Reading messages page by page.

use serde_json::{Value, json};

use super::conversation;
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::talk::{agent_thread, code, get, ids, path, post, read, store, user, with};

on_both_storages!(
    pages_go_both_ways_without_gap_or_overlap,
    a_message_id_is_a_cursor_and_exclusive,
    a_page_past_either_end_leads_back,
    a_cursor_off_the_path_is_refused,
    siblings_are_counted_on_every_branch,
    what_a_graph_removed_stays_on_the_path_and_leaves_the_state,
    a_page_that_ends_between_a_call_and_its_result_says_so,
    an_empty_thread_has_an_empty_page,
    a_long_path_is_read_from_its_end,
    the_newest_leaf_is_read_when_asked_whichever_branch_is_active,
);

fn pages_go_both_ways_without_gap_or_overlap(place: &Place) {
    let (_server, client) = serve(place);
    let thread = conversation(&client, 7);
    let whole = path(&client, &thread, "");
    let (mut forward, mut query) = (vec![], "limit=3".to_owned());
    loop {
        let page = read(&client, &thread, &query);
        forward.extend(ids(&page));
        match page["next"].as_str() {
            Some(next) => query = format!("limit=3&after={next}"),
            None => break,
        }
    }
    assert_eq!(forward, whole);
    let (mut backward, mut query) = (vec![], "limit=3&tail=true".to_owned());
    loop {
        let page = read(&client, &thread, &query);
        let mut part = ids(&page);
        part.extend(backward);
        backward = part;
        match page["prev"].as_str() {
            Some(prev) => query = format!("limit=3&before={prev}"),
            None => break,
        }
    }
    assert_eq!(backward, whole);
    let first = read(&client, &thread, "limit=3");
    assert_eq!(first["prev"], Value::Null);
    assert_eq!(first["leaf_id"], "M7");
    let last = read(&client, &thread, "limit=3&tail=true");
    assert_eq!(last["next"], Value::Null);
    // Following a cursor is as good after the conversation went on.
    let next = first["next"].as_str().unwrap();
    store(&client, &thread, &with(user("more"), "id", "M8"));
    let rest = path(&client, &thread, &format!("after={next}"));
    assert_eq!(rest, ["M4", "M5", "M6", "M7", "M8"]);
    // The same in the view of the model.
    let state = read(&client, &thread, "view=state&limit=5");
    assert_eq!(ids(&state), ["M1", "M2", "M3", "M4", "M5"]);
    let next = state["next"].as_str().unwrap();
    let state = read(
        &client,
        &thread,
        &format!("view=state&limit=5&after={next}"),
    );
    assert_eq!(ids(&state), ["M6", "M7", "M8"]);
    assert_eq!(state["next"], Value::Null);
}

fn a_message_id_is_a_cursor_and_exclusive(place: &Place) {
    let (_server, client) = serve(place);
    let thread = conversation(&client, 5);
    assert_eq!(path(&client, &thread, "after=M2&limit=2"), ["M3", "M4"]);
    assert_eq!(path(&client, &thread, "before=M4&limit=2"), ["M2", "M3"]);
    assert_eq!(path(&client, &thread, "view=state&after=M3"), ["M4", "M5"]);
}

fn a_page_past_either_end_leads_back(place: &Place) {
    let (_server, client) = serve(place);
    let thread = conversation(&client, 5);
    let get = |query: &str| {
        let page = read(&client, &thread, query);
        let cursor = |key: &str| page[key].as_str().map(str::to_owned);
        (ids(&page), cursor("next"), cursor("prev"))
    };
    for view in ["path", "state"] {
        let (nothing, next, prev) = get(&format!("view={view}&after=M5"));
        assert_eq!((nothing.len(), next), (0, None), "{view}");
        let prev = prev.unwrap();
        let (last, ..) = get(&format!("view={view}&limit=2&before={prev}"));
        assert_eq!(last, ["M4", "M5"], "{view}");
        let (nothing, next, none) = get(&format!("view={view}&before=M1"));
        assert_eq!((nothing.len(), none), (0, None), "{view}");
        let next = next.unwrap();
        let (first, ..) = get(&format!("view={view}&limit=2&after={next}"));
        assert_eq!(first, ["M1", "M2"], "{view}");
        // They stay where they are when the conversation goes on elsewhere.
        let aside = json!({"id": format!("A-{view}"), "role": "user", "content": "x",
            "parent_id": "M2", "activate": false});
        let branch = store(&client, &thread, &aside)["branch"].clone();
        let branch = branch.as_str().unwrap();
        let query = format!("messages?view={view}&branch={branch}&before={prev}");
        let answer = client.get(&format!("/threads/{thread}/{query}"));
        assert_eq!(code(&answer, 400), "invalid_cursor");
    }
    let (.., prev) = get("after=M5");
    store(&client, &thread, &with(user("more"), "id", "M6"));
    for view in ["path", "state"] {
        let (last, ..) = get(&format!(
            "view={view}&limit=2&before={}",
            prev.clone().unwrap()
        ));
        assert_eq!(last, ["M4", "M5"], "{view}");
    }
}

fn a_cursor_off_the_path_is_refused(place: &Place) {
    let (_server, client) = serve(place);
    let thread = conversation(&client, 5);
    let other = conversation(&client, 5);
    let foreign = read(&client, &other, "limit=2")["next"].clone();
    let own = read(&client, &thread, "limit=4")["next"].clone();
    let own = own.as_str().unwrap();
    let body = with(with(user("aside"), "parent_id", "M2"), "id", "A");
    store(&client, &thread, &body);
    let mut changed = own.to_owned();
    let tail = changed.pop().unwrap();
    changed.push(if tail == 'A' { 'B' } else { 'A' });
    for cursor in [
        foreign.as_str().unwrap(),
        own,
        &*changed,
        "M4",
        "nothing",
        "",
    ] {
        for way in ["after", "before"] {
            let answer = client.get(&format!("/threads/{thread}/messages?{way}={cursor}"));
            assert_eq!(code(&answer, 400), "invalid_cursor", "{cursor}");
        }
    }
    // On its own branch it still leads on.
    let page = path(&client, &thread, &format!("branch=main&after={own}"));
    assert_eq!(page, ["M5"]);
}

fn siblings_are_counted_on_every_branch(place: &Place) {
    let (_server, client) = serve(place);
    let thread = conversation(&client, 3);
    for id in ["A", "B"] {
        let body = with(with(user(id), "parent_id", "M2"), "id", id);
        store(&client, &thread, &body);
    }
    let page = read(&client, &thread, "branch=main&siblings=true");
    let of = |n: usize| page["messages"][n]["siblings"].clone();
    let alone = |id: &str| json!({"index": 1, "count": 1, "message_ids": [id]});
    assert_eq!(of(0), alone("M1"));
    assert_eq!(of(1), alone("M2"));
    assert_eq!(
        of(2),
        json!({"index": 1, "count": 3, "message_ids": ["M3", "A", "B"]})
    );
    let last = read(&client, &thread, "siblings=true&tail=true&limit=1");
    assert_eq!(last["messages"][0]["siblings"]["index"], 3);
    assert!(
        read(&client, &thread, "")["messages"][0]
            .get("siblings")
            .is_none(),
        "only when asked for"
    );
    // The first messages of a thread are siblings too.
    let root = with(with(user("anew"), "parent_id", "M1"), "position", "before");
    store(&client, &thread, &with(root, "id", "R"));
    let page = read(&client, &thread, "siblings=true");
    assert_eq!(
        page["messages"][0]["siblings"],
        json!({"index": 2, "count": 2, "message_ids": ["M1", "R"]})
    );
}

fn what_a_graph_removed_stays_on_the_path_and_leaves_the_state(place: &Place) {
    let (_server, client) = serve(place);
    let thread = conversation(&client, 3);
    let edit =
        json!({"values": {"messages": [{"type": "remove", "id": "M2"}]}, "as_node": "model"});
    let answer = client.post(&format!("/threads/{thread}/state"), &edit);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let page = read(&client, &thread, "");
    assert_eq!(ids(&page), ["M1", "M2", "M3"]);
    assert_eq!(page["messages"][1]["in_state"], false);
    assert_eq!(page["messages"][1]["content"], "text 2");
    assert_eq!(page["messages"][0]["in_state"], true);
    assert_eq!(path(&client, &thread, "view=state"), ["M1", "M3"]);
    let state = read(&client, &thread, "view=state");
    assert_eq!(state["messages"][1]["parent_id"], "M2");
    // Another path does not see it gone.
    let aside = with(with(user("aside"), "parent_id", "M2"), "id", "A");
    store(&client, &thread, &aside);
    assert_eq!(path(&client, &thread, "view=state"), ["M1", "M2", "A"]);
    assert_eq!(read(&client, &thread, "")["messages"][1]["in_state"], true);
}

fn a_page_that_ends_between_a_call_and_its_result_says_so(place: &Place) {
    let (_server, client) = serve(place);
    let thread = agent_thread(&client);
    let input = json!({"messages": [{"role": "user", "content": "tool: 2 3"}]});
    client.run(&thread, &json!({"assistant_id": "agent", "input": input}));
    let whole = read(&client, &thread, "");
    assert_eq!(whole["messages"].as_array().unwrap().len(), 4);
    assert!(whole.get("splits_tool_calls").is_none());
    assert_eq!(read(&client, &thread, "limit=2")["splits_tool_calls"], true);
    assert!(
        read(&client, &thread, "limit=3")
            .get("splits_tool_calls")
            .is_none()
    );
    assert!(
        read(&client, &thread, "limit=1")
            .get("splits_tool_calls")
            .is_none()
    );
    let tail = read(&client, &thread, "tail=true&limit=2");
    assert_eq!(tail["splits_tool_calls"], true);
    let settled = &whole["messages"][3];
    assert_eq!(settled["settled_checkpoint_id"], whole["checkpoint_id"]);
    assert_eq!(whole["messages"][0]["settled_checkpoint_id"], Value::Null);
    assert!(settled["event_number"].is_i64());
    assert_eq!(settled["inherited"], false);
    assert_eq!(settled["thread_id"], json!(thread));
}

fn an_empty_thread_has_an_empty_page(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    assert_eq!(
        read(&client, &thread, "tail=true&siblings=true"),
        json!({
            "thread_id": thread, "branch": "main", "leaf_id": null, "checkpoint_id": null,
            "messages": [], "next": null, "prev": null,
        })
    );
}

fn a_long_path_is_read_from_its_end(place: &Place) {
    let (_server, client) = serve(place);
    let thread = agent_thread(&client);
    for part in 0..3 {
        let list: Vec<Value> = (0..1000)
            .map(|n| json!({"id": format!("{part}-{n}"), "role": "assistant", "content": "x"}))
            .collect();
        let answer = post(&client, &thread, &json!({"messages": list}));
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
    let tail = read(&client, &thread, "tail=true&limit=50");
    assert_eq!(tail["messages"][49]["depth"], 3000);
    assert_eq!(tail["messages"][0]["message_id"], "2-950");
    let prev = tail["prev"].as_str().unwrap();
    let before = read(&client, &thread, &format!("before={prev}&limit=50"));
    assert_eq!(before["messages"][49]["message_id"], "2-949");
    let middle = path(&client, &thread, "after=0-999&limit=2");
    assert_eq!(middle, ["1-0", "1-1"]);
}

fn the_newest_leaf_is_read_when_asked_whichever_branch_is_active(place: &Place) {
    let (_server, client) = serve(place);
    let thread = conversation(&client, 4);
    let aside = with(with(user("aside"), "parent_id", "M2"), "id", "A");
    store(&client, &thread, &aside);
    let back = format!("/threads/{thread}/branches/main/activate");
    assert_eq!(client.post(&back, &json!({})).status, 200);
    let active = ["M1", "M2", "M3", "M4"];
    assert_eq!(path(&client, &thread, ""), active);
    assert_eq!(path(&client, &thread, "leaf=latest"), ["M1", "M2", "A"]);
    let state = client.state(&thread);
    assert_eq!(state["values"]["messages"].as_array().unwrap().len(), 4);
    let head = get(&client, &thread, "head");
    assert_eq!(
        head["latest_checkpoint_id"],
        state["checkpoint"]["checkpoint_id"]
    );
    assert_eq!(head["branch"], "main");
}
