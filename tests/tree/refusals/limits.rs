//! Limits: so many branches, tags and forks, and no more.

use super::*;
use test_support::on_both_storages;
use test_support::tables::{execute, rows};
use test_support::talk::turn;

on_both_storages!(
    of_ten_thousand_branches_none_is_added,
    of_ten_thousand_tags_none_is_added,
    forks_nest_1024_deep,
    a_copy_has_five_thousand_checkpoints_at_most,
);

/// How many rows each table has.
fn counts(place: &Place, family: &Family) -> Vec<String> {
    let tables = [
        "threads",
        "branches",
        "tags",
        "checkpoints",
        "message_nodes",
        "events",
        "runs",
    ];
    let count = |table: &str| {
        let sql = format!("SELECT CAST(count(*) AS TEXT) FROM {table}");
        let rows = rows(place, &family.server, &sql);
        format!("{} {table}", rows[0][0].as_ref().unwrap())
    };
    tables.into_iter().map(count).collect()
}

/// Each is refused with this code, and no table has a row more.
fn refuses(place: &Place, family: &Family, expected: &str, requests: Vec<Request>) {
    let before = counts(place, family);
    for request in requests {
        let answer = send(&family.client, &request);
        assert_eq!(answer.status, 409, "{request:?}: {}", answer.text());
        assert_eq!(code(answer, 409), expected, "{request:?}");
        assert_eq!(counts(place, family), before, "{request:?}");
    }
}

/// Adds rows to a table until the thread has `n` of them: these columns, and what they are.
fn fill(place: &Place, family: &Family, table: &str, columns: &str, values: [&str; 2], n: usize) {
    let thread = &family.thread;
    let sql = if place.is_postgres() {
        format!(
            "INSERT INTO {table} (tree_id, thread_id, name, {columns})
             SELECT tree_id, thread_id, 'filler-' || n, {} FROM threads, generate_series(1, {n}) n
             WHERE thread_id = '{thread}'",
            values[0]
        )
    } else {
        format!(
            "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {n})
             INSERT INTO {table} (tree_id, thread_id, name, created_at, updated_at, {columns})
             SELECT tree_id, thread_id, 'filler-' || n, 0, 0, {} FROM threads, s
             WHERE thread_id = x'{}'",
            values[1],
            thread.replace('-', "")
        )
    };
    assert_eq!(execute(place, &family.server, &sql), Ok(n as u64));
}

fn of_ten_thousand_branches_none_is_added(place: &Place) {
    let family = Family::new(place);
    let old = get(&family.client, &family.thread, "tags/t")["checkpoint_id"].clone();
    let values = ["gen_random_uuid(), 'btw'", "randomblob(16), 'btw'"];
    fill(
        place,
        &family,
        "branches",
        "branch_id, origin",
        values,
        10_000 - 2,
    );
    let at = json!({"message_id": "u1"});
    let post = |path: &str, body: Value| family.post(path, body);
    refuses(
        place,
        &family,
        "too_many",
        vec![
            post("branches", json!({})),
            post("branches", talk::with(at.clone(), "name", "named")),
            post("rewind", at),
            post("btw", json!({})),
            post("restore", json!({"tag": "t"})),
            post("messages", talk::with(user("new"), "parent_id", "u1")),
            post("messages", user("u3")),
            post(
                "state",
                json!({"values": {"messages": [user("new")]}, "checkpoint_id": old}),
            ),
            post("runs/wait", talk::with(turn("new"), "checkpoint_id", old)),
        ],
    );
    // What needs none goes on, and where one goes another may come.
    store(&family.client, &family.thread, &user("u5"));
    let filler = format!("/threads/{}/branches/filler-1", family.thread);
    ok(family.client.delete(&filler), 204);
    ok(send(&family.client, &post("btw", json!({}))), 201);
    ok(send(&family.client, &post("fork", json!({}))), 201);
}

fn of_ten_thousand_tags_none_is_added(place: &Place) {
    let family = Family::new(place);
    let head = get(&family.client, &family.thread, "head")["latest_checkpoint_id"].clone();
    let head = head.as_str().unwrap();
    let values = [
        format!("'{head}'::uuid, 2"),
        format!("x'{}', 2", head.replace('-', "")),
    ];
    let values = values.each_ref().map(|text| &**text);
    fill(
        place,
        &family,
        "tags",
        "checkpoint_id, depth",
        values,
        10_000 - 1,
    );
    let new = family.at("PUT", "tags/new", json!({}));
    refuses(place, &family, "too_many", vec![new.clone()]);
    // One that is there may be moved, and where one goes another may come.
    ok(
        send(&family.client, &family.at("PUT", "tags/t", json!({}))),
        200,
    );
    ok(
        send(&family.client, &family.at("DELETE", "tags/t", Value::Null)),
        204,
    );
    ok(send(&family.client, &new), 201);
}

fn forks_nest_1024_deep(place: &Place) {
    let family = Family::new(place);
    let id = if place.is_postgres() {
        format!("'{}'", family.fork)
    } else {
        format!("x'{}'", family.fork.replace('-', ""))
    };
    let sql = format!("UPDATE threads SET fork_level = 1023 WHERE thread_id = {id}");
    assert_eq!(execute(place, &family.server, &sql), Ok(1));
    let last = id_of(&fork(&family.client, &family.fork, &json!({})));
    let first = talk::with(user("new"), "forkedAtConversationId", &*last);
    refuses(
        place,
        &family,
        "lineage_too_deep",
        vec![
            below(&last, "POST", "fork", json!({})),
            below(&last, "POST", "fork", json!({"message_id": "u1"})),
            command("fork-thread", json!({"source_thread_id": last})),
            below(&nothing(), "POST", "messages", first),
        ],
    );
    // The way out that the refusal names.
    let copy = below(&last, "POST", "copy", Value::Null);
    let copy = id_of(&ok(send(&family.client, &copy), 200));
    fork(&family.client, &copy, &json!({}));
}

fn a_copy_has_five_thousand_checkpoints_at_most(place: &Place) {
    let family = Family::new(place);
    let head = get(&family.client, &family.thread, "head")["latest_checkpoint_id"].clone();
    let head = head.as_str().unwrap();
    let there = get(&family.client, &family.thread, "history?limit=100");
    let n = 5_001 - there.as_array().unwrap().len();
    let columns = "parent_checkpoint_id, depth, thread_id, branch_id, root_checkpoint_id, \
        last_node_id, event_number, run_id, source, step, checkpoint, metadata, created_at";
    let sql = if place.is_postgres() {
        format!(
            "INSERT INTO checkpoints (tree_id, checkpoint_id, {columns})
             SELECT tree_id, gen_random_uuid(), {columns} FROM checkpoints, generate_series(1, {n})
             WHERE checkpoint_id = '{head}'"
        )
    } else {
        format!(
            "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {n})
             INSERT INTO checkpoints (tree_id, checkpoint_id, {columns})
             SELECT tree_id, randomblob(16), {columns} FROM checkpoints, s
             WHERE checkpoint_id = x'{}'",
            head.replace('-', "")
        )
    };
    assert_eq!(execute(place, &family.server, &sql), Ok(n as u64));
    let before = counts(place, &family);
    let copy = family.post("copy", Value::Null);
    assert_eq!(code(send(&family.client, &copy), 413), "too_large");
    assert_eq!(counts(place, &family), before);
    // The way out that the refusal names.
    let prune = json!({"thread_ids": [family.thread], "strategy": "keep_latest"});
    ok(family.client.post("/threads/prune", &prune), 200);
    ok(send(&family.client, &copy), 200);
}
