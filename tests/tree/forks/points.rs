//! What a fork family looks like.

use serde_json::{Value, json};

use super::*;
use test_support::on_both_storages;

on_both_storages!(
    scenario_14_forks_and_branches_at_one_entry_are_options_of_one_point,
    a_fork_without_messages_is_an_option_without_one,
    forks_that_share_nothing_part_at_the_start,
    lists_show_roots_or_the_newest_of_each_family,
);

/// `(thread, branch, message, active)` of the options of a point.
fn options(point: &Value) -> Vec<(String, String, Value, bool)> {
    let of = |option: &Value| {
        let text = |key: &str| option[key].as_str().unwrap().to_owned();
        let active = option["active"].as_bool().unwrap();
        (
            text("thread_id"),
            text("branch"),
            option["message_id"].clone(),
            active,
        )
    };
    point["options"]
        .as_array()
        .unwrap()
        .iter()
        .map(of)
        .collect()
}

fn scenario_14_forks_and_branches_at_one_entry_are_options_of_one_point(place: &Place) {
    let (_server, client) = serve(place);
    let root = thread_of(&client, &["u1", "a2", "u3"]);
    let at = json!({"message_id": "a2"});
    let one = id_of(&fork(&client, &root, &at));
    note(&client, &one, "u4");
    let two = id_of(&fork(&client, &root, &at));
    note(&client, &two, "u5");
    let body = json!({"id": "u6", "role": "user", "content": "branch", "parent_id": "a2"});
    let answer = client.post(&format!("/threads/{root}/messages"), &body);
    assert_eq!(answer.status, 201, "{}", answer.text());

    let seen = |from: &str| {
        let all = family(&client, from);
        assert_eq!(all["threads"].as_array().unwrap().len(), 3);
        assert_eq!(all["tree_id"], json!(root));
        let points = all["fork_points"].as_array().unwrap().clone();
        assert_eq!(points.len(), 1, "{points:?}");
        assert_eq!(points[0]["message_id"], "a2");
        options(&points[0])
    };
    let expected = |active: &str| -> Vec<(String, String, Value, bool)> {
        [
            (&root, "main", "u3"),
            (&one, "main", "u4"),
            (&two, "main", "u5"),
            (&root, "main-v2", "u6"),
        ]
        .into_iter()
        .map(|(thread, branch, id)| (thread.clone(), branch.into(), json!(id), id == active))
        .collect()
    };
    assert_eq!(seen(&root), expected("u6"));
    assert_eq!(seen(&one), expected("u4"));
    assert_eq!(seen(&two), expected("u5"));
    let all = family(&client, &root);
    assert_eq!(all["fork_points"][0]["options"][1]["preview"], "text of u4");
    assert_eq!(all["next"], Value::Null);
    pages_hold_every_thread_and_its_points_once(&client, &root, &all);
}

fn pages_hold_every_thread_and_its_points_once(client: &Client, root: &str, all: &Value) {
    let (mut threads, mut options) = (vec![], vec![]);
    let mut next = String::new();
    for _ in 0..10 {
        let page = client.get(&format!("/threads/{root}/forks?limit=1{next}"));
        assert_eq!(page.status, 200, "{}", page.text());
        let page = page.json();
        assert_eq!(page["threads"].as_array().unwrap().len(), 1);
        threads.extend(page["threads"].as_array().unwrap().clone());
        for point in page["fork_points"].as_array().unwrap() {
            options.extend(point["options"].as_array().unwrap().clone());
        }
        match page["next"].as_str() {
            Some(text) => next = format!("&after={text}"),
            None => break,
        }
    }
    assert_eq!(json!(threads), all["threads"]);
    let thread_of = |option: &Value| option["thread_id"].as_str().map(str::to_owned);
    let named: Vec<_> = options.iter().filter_map(thread_of).collect();
    for thread in threads {
        assert!(
            named.iter().any(|id| thread["thread_id"] == **id),
            "{thread}"
        );
    }
    for wrong in ["x", "1", "-1", "-1-x", "99999999999999999999-0"] {
        let page = client.get(&format!("/threads/{root}/forks?after={wrong}"));
        assert_eq!(page.status, 422, "{wrong}: {}", page.text());
    }
}

fn a_fork_without_messages_is_an_option_without_one(place: &Place) {
    let (_server, client) = serve(place);
    let root = thread_of(&client, &["u1", "a2", "u3"]);
    let empty = id_of(&fork(&client, &root, &json!({"message_id": "a2"})));
    let all = family(&client, &empty);
    assert_eq!(
        options(&all["fork_points"][0]),
        [
            (root.clone(), "main".to_owned(), json!("u3"), false),
            (empty.clone(), "main".to_owned(), Value::Null, true),
        ]
    );
    let body = json!({"message_id": "u1"});
    let back = client.post(&format!("/threads/{empty}/rewind"), &body);
    assert_eq!(back.status, 201, "{}", back.text());
    let elsewhere = family(&client, &empty);
    assert!(!options(&elsewhere["fork_points"][0])[1].3, "{elsewhere}");
    let from_root = family(&client, &root);
    let seen = options(&from_root["fork_points"][0]);
    assert_eq!((seen[0].3, seen[1].3), (true, false));
}

fn forks_that_share_nothing_part_at_the_start(place: &Place) {
    let (_server, client) = serve(place);
    let root = thread_of(&client, &["u1", "a2"]);
    let blank = new_id();
    let body = json!({"id": "b1", "role": "user", "content": "b", "forkedAtConversationId": root});
    let answer = client.post(&format!("/threads/{blank}/messages"), &body);
    assert_eq!(answer.status, 201, "{}", answer.text());
    let all = family(&client, &root);
    assert_eq!(all["fork_points"][0]["message_id"], Value::Null);
    assert_eq!(
        options(&all["fork_points"][0]),
        [
            (root, "main".to_owned(), json!("u1"), true),
            (blank, "main".to_owned(), json!("b1"), false),
        ]
    );
    let alone = thread_of(&client, &["x1", "x2"]);
    assert_eq!(family(&client, &alone)["fork_points"], json!([]));
}

fn lists_show_roots_or_the_newest_of_each_family(place: &Place) {
    let (_server, client) = serve(place);
    let root = thread_of(&client, &["u1"]);
    let alone = thread_of(&client, &["u1"]);
    let child = id_of(&fork(&client, &root, &json!({})));
    let grand = id_of(&fork(&client, &child, &json!({})));
    let ids = |path: &str| {
        let answer = client.get(path);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let rows = answer.json();
        let id = |row: &Value| row["thread_id"].as_str().unwrap().to_owned();
        rows.as_array().unwrap().iter().map(id).collect::<Vec<_>>()
    };
    assert_eq!(
        ids("/threads"),
        [grand.clone(), child, alone.clone(), root.clone()]
    );
    assert_eq!(ids("/threads?mode=all").len(), 4);
    assert_eq!(ids("/threads?mode=roots"), [alone.clone(), root.clone()]);
    assert_eq!(ids("/threads?mode=latest-fork"), [grand, alone.clone()]);
    note(&client, &root, "u2");
    assert_eq!(ids("/threads?mode=latest-fork"), [root.clone(), alone]);
    let count = |body: Value| client.post("/threads/count", &body).json();
    assert_eq!(count(json!({"mode": "roots"})), 2);
    assert_eq!(count(json!({"mode": "latest-fork"})), 2);
    let search = json!({"mode": "roots", "sort_by": "created_at", "sort_order": "asc"});
    let found = client.post("/threads/search", &search).json();
    assert_eq!(found[0]["thread_id"], json!(root));
    let number = log(&client, &root).len();
    assert_eq!(
        ids(&format!("/threads?mode=roots&min_event={root}:{number}"))[0],
        root
    );
    let late = client.get(&format!("/threads?min_event={root}:{}", number + 1));
    assert_eq!(code(&late, 503), "projection_behind");
}
