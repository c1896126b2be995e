//! Lists of threads with keys: every order, filter and page is that of all threads that the principal sees, sorted.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use serde_json::{Value, json};
use test_support::{
    client::Client,
    on_both_storages,
    place::{Place, block_on},
    server::{Server, Setup},
    tables::{connect, file, rows},
    talk::{background, create, fork, id_of, ok, patch, put, slow, with},
};

on_both_storages!(
    each_order_and_filter_and_page_is_that_of_all_visible_threads_sorted,
    a_filter_by_values_visits_every_thread_once_in_each_order,
    labels_are_the_texts_in_the_metadata_of_threads,
);

const KEYS: &str = "ann=key-a,bob=key-b,cid=key-c";
const PEOPLE: [(&str, &str); 3] = [("ann", "key-a"), ("bob", "key-b"), ("cid", "key-c")];
const ORDERS: [&str; 5] = [
    "updated_at",
    "created_at",
    "thread_id",
    "state_updated_at",
    "status",
];

fn serve(place: &Place) -> (Server, Client) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_API_KEYS", KEYS);
    let server = place.start(setup);
    let client = Client::of(&server);
    (server, client)
}

fn execute(place: &Place, server: &Server, sql: &str) {
    match place.url() {
        Some(url) => block_on(async { connect(url).await.batch_execute(sql).await }).unwrap(),
        None => {
            let db = rusqlite::Connection::open(file(server)).unwrap();
            db.busy_timeout(std::time::Duration::from_secs(60)).unwrap();
            db.execute_batch(sql).unwrap();
        }
    }
}

/// What databases write in different ways.
const ODD: &str = "\u{0}\u{1a}a\"\\'ä\u{7}\u{1f600}=";

/// Texts that differ in their end.
fn long(number: usize) -> String {
    format!("{}{number}", "é".repeat(150))
}

/// Threads of three people: shared by every level, deleted, forked, given away, and in every status. By the id of
/// each its family, which is the id of the first of it.
fn threads(client: &Client) -> BTreeMap<String, String> {
    let mut families = BTreeMap::new();
    for (who, key) in PEOPLE {
        let client = client.with_key(key);
        let made: Vec<String> = (0..16)
            .map(|number| {
                let color = ["red", "green", "blue"][number % 3];
                let metadata = json!({"color": color, "number": number % 4, "of": {"who": who}});
                create(&client, &json!({"metadata": metadata}))
            })
            .collect();
        for (number, thread) in made.iter().enumerate() {
            families.insert(thread.clone(), thread.clone());
            let levels = ["reader", "writer", "manager", "owner"];
            if who != "ann"
                && let Some(level) = levels.get(number % 6)
            {
                let path = format!("/threads/{thread}/members/ann");
                ok(put(&client, &path, &json!({"level": level})), 201);
            }
            if number % 5 == 1 {
                let made = id_of(&fork(&client, thread, &json!({})));
                families.insert(made, thread.clone());
            }
            match number {
                2 | 7 => {
                    let approve = json!({"assistant_id": "approve", "input": {"request": "r"}});
                    client.run(thread, &approve);
                }
                3 | 8 => {
                    let failing = json!({"assistant_id": "failing", "input": {"fail": true}});
                    let run = background(&client, thread, &failing);
                    assert_eq!(client.end_of(thread, &run), "error");
                }
                4 | 9 => drop(background(
                    &client,
                    thread,
                    &with(slow(1, 1), "after_seconds", 36_000),
                )),
                5 | 11 => {
                    ok(client.delete(&format!("/threads/{thread}")), 204);
                }
                // What follows the metadata in other tables follows their changes, too.
                12 | 13 => {
                    let metadata =
                        json!({"color": "red", "odd": ODD, "long": long(number), "number": 9});
                    let changed = json!({"metadata": metadata});
                    ok(patch(&client, &format!("/threads/{thread}"), &changed), 200);
                }
                15 if who != "ann" => {
                    // Whoever else is an owner has it from now on.
                    let owner = json!({"level": "owner"});
                    put(&client, &format!("/threads/{thread}/members/ann"), &owner);
                    client.delete(&format!("/threads/{thread}/members/{who}"));
                }
                _ => {}
            }
        }
    }
    // The first and the last id that there can be.
    for (key, digit) in [("key-a", "0"), ("key-b", "f")] {
        let id = uuid(digit);
        let new = json!({"thread_id": id, "metadata": {"color": "red"}});
        create(&client.with_key(key), &new);
        families.insert(id.clone(), id);
    }
    families
}

/// An id of one digit.
fn uuid(digit: &str) -> String {
    [8, 4, 4, 4, 12].map(|count| digit.repeat(count)).join("-")
}

/// Gives threads times that have nothing to do with each other, many of them equal. A state is never newer than
/// its thread, nor older than its creation.
fn scatter(place: &Place, server: &Server, families: &BTreeMap<String, String>) {
    let mut sql = "BEGIN;".to_owned();
    for (number, id) in families.keys().enumerate() {
        let created = (number * 7) % 11;
        let state = created + (number * 5) % 13;
        let updated = state + [0, 0, 3][number % 3];
        let at = |second: usize| {
            if place.is_postgres() {
                format!("timestamptz '2026-01-01' + interval '{second} seconds'")
            } else {
                format!("{}", 1_767_225_600_000_000 + second * 1_000_000)
            }
        };
        let id = if place.is_postgres() {
            format!("'{id}'")
        } else {
            format!("x'{}'", id.replace('-', ""))
        };
        sql += &format!(
            "UPDATE threads SET created_at = {}, updated_at = {} WHERE thread_id = {id};
             UPDATE branches SET updated_at = {} WHERE thread_id = {id};",
            at(created),
            at(updated),
            at(state)
        );
    }
    execute(place, server, &(sql + "COMMIT"));
}

/// Those of the threads that are shown to somebody.
fn visible(client: &Client, families: &BTreeMap<String, String>) -> Vec<Value> {
    let shown = |id: &String| {
        let answer = client.get(&format!("/threads/{id}"));
        (answer.status == 200).then(|| answer.json())
    };
    families.keys().filter_map(shown).collect()
}

fn compare(a: &Value, b: &Value, by: &str) -> Ordering {
    let key = |thread: &Value| {
        let text = |name: &str| thread[name].as_str().unwrap().to_owned();
        (text(by), text("thread_id"))
    };
    key(a).cmp(&key(b))
}

fn ids<'a>(threads: impl IntoIterator<Item = &'a Value>) -> Vec<&'a str> {
    let id = |thread: &'a Value| thread["thread_id"].as_str().unwrap();
    threads.into_iter().map(id).collect()
}

fn search(client: &Client, body: &Value) -> Vec<Value> {
    let found = ok(client.post("/threads/search", body), 200);
    found.as_array().unwrap().clone()
}

fn each_order_and_filter_and_page_is_that_of_all_visible_threads_sorted(place: &Place) {
    let (server, client) = serve(place);
    let families = threads(&client);
    scatter(place, &server, &families);
    // The newest of each family, whoever sees it.
    let mut newest: BTreeMap<&str, Value> = BTreeMap::new();
    let everybody = PEOPLE.map(|(_, key)| visible(&client.with_key(key), &families));
    for thread in everybody.iter().flatten() {
        let family = &families[thread["thread_id"].as_str().unwrap()];
        let known = newest.entry(family).or_insert_with(|| thread.clone());
        if compare(thread, known, "updated_at") == Ordering::Greater {
            *known = thread.clone();
        }
    }
    let newest: BTreeSet<&str> = ids(newest.values()).into_iter().collect();
    let some: Vec<&String> = families.keys().step_by(3).collect();
    let filters = [
        json!({}),
        json!({"metadata": {"color": "red"}}),
        json!({"metadata": {"color": "blue", "number": 1}}),
        json!({"metadata": {"number": 2, "of": {"who": "bob"}}}),
        json!({"metadata": {"color": "black"}}),
        json!({"metadata": {"odd": ODD}}),
        json!({"metadata": {"odd": "a"}}),
        json!({"metadata": {"long": long(12)}}),
        json!({"metadata": {"graph_id": "failing", "color": "red"}}),
        json!({"metadata": {"color": "red"}, "status": "interrupted"}),
        json!({"metadata": {"color": "green"}, "mode": "roots"}),
        json!({"status": "idle"}),
        json!({"status": "busy"}),
        json!({"status": "error", "metadata": {"color": "blue"}}),
        json!({"status": "interrupted"}),
        json!({"mode": "roots"}),
        json!({"mode": "latest-fork"}),
        json!({"ids": some}),
    ];
    for ((who, key), all) in PEOPLE.iter().zip(&everybody) {
        let client = client.with_key(key);
        let most = if *who == "ann" { 30 } else { 14 };
        assert!(all.len() >= most, "{who} sees {}", all.len());
        for filter in &filters {
            let passes = |thread: &&Value| {
                let id = thread["thread_id"].as_str().unwrap();
                let has = |(name, value): (&String, &Value)| thread["metadata"][name] == *value;
                filter
                    .get("status")
                    .is_none_or(|one| thread["status"] == *one)
                    && filter
                        .get("metadata")
                        .is_none_or(|one| one.as_object().unwrap().iter().all(has))
                    && filter
                        .get("ids")
                        .is_none_or(|_| some.iter().any(|one| *one == id))
                    && match filter.get("mode").and_then(Value::as_str) {
                        Some("roots") => families[id] == id,
                        Some(_) => newest.contains(id),
                        None => true,
                    }
            };
            let mut expected: Vec<&Value> = all.iter().filter(passes).collect();
            let count = ok(client.post("/threads/count", filter), 200);
            assert_eq!(count, expected.len(), "{who} {filter}");
            for sort_by in ORDERS {
                for order in ["asc", "desc"] {
                    expected.sort_by(|a, b| compare(a, b, sort_by));
                    if order == "desc" {
                        expected.reverse();
                    }
                    let expected = ids(expected.iter().copied());
                    for limit in [7, 100] {
                        let mut found: Vec<Value> = vec![];
                        loop {
                            let mut body = with(filter.clone(), "sort_by", sort_by);
                            body = with(with(body, "sort_order", order), "limit", limit);
                            let page = search(&client, &with(body, "offset", found.len()));
                            let is_last = page.len() < limit;
                            found.extend(page);
                            if is_last {
                                break;
                            }
                        }
                        assert_eq!(ids(&found), expected, "{who} {filter} {sort_by} {order}");
                    }
                }
            }
        }
    }
}

fn a_filter_by_values_visits_every_thread_once_in_each_order(place: &Place) {
    let (server, client) = serve(place);
    let families = threads(&client);
    scatter(place, &server, &families);
    // More than are read at once, between those of the others.
    let more = 350;
    let (numbers, at, id) = if place.is_postgres() {
        (
            format!("SELECT i FROM generate_series(1, {more}) i"),
            "timestamptz '2026-01-01' + i % 24 * interval '1 second'",
            "gen_random_uuid()",
        )
    } else {
        (
            format!(
                "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < {more}) SELECT i FROM c"
            ),
            "1767225600000000 + i % 24 * 1000000",
            "randomblob(16)",
        )
    };
    let sql = format!(
        "CREATE TEMP TABLE n AS SELECT i, {at} AS at, {id} AS id, {id} AS branch FROM ({numbers}) c;
         INSERT INTO trees (tree_id, owner, created_at) SELECT id, CASE WHEN i % 4 = 0 THEN 'cid' ELSE 'ann' END, at FROM n;
         INSERT INTO tree_members (tree_id, principal, level) SELECT id, 'ann', 'reader' FROM n WHERE i % 4 = 0;
         INSERT INTO threads (thread_id, tree_id, active_branch_id, owner, created_at, updated_at)
         SELECT id, id, branch, CASE WHEN i % 4 = 0 THEN 'cid' ELSE 'ann' END, at, at FROM n;
         INSERT INTO branches (tree_id, branch_id, thread_id, name, origin, created_at, updated_at)
         SELECT id, branch, id, 'main', 'root', at, at FROM n"
    );
    execute(place, &server, &sql);
    let ann = client.with_key("key-a");
    let all = visible(&ann, &families);
    let mut expected: Vec<&Value> = (all.iter())
        .filter(|thread| thread["values"]["request"] == "r")
        .collect();
    assert!(expected.len() >= 3, "{}", expected.len());
    let wanted = json!({"values": {"request": "r"}});
    assert_eq!(ok(ann.post("/threads/count", &wanted), 200), expected.len());
    for sort_by in ORDERS {
        for order in ["asc", "desc"] {
            expected.sort_by(|a, b| compare(a, b, sort_by));
            if order == "desc" {
                expected.reverse();
            }
            let body = with(wanted.clone(), "sort_by", sort_by);
            let found = search(&ann, &with(body, "sort_order", order));
            let expected = ids(expected.iter().copied());
            assert_eq!(ids(&found), expected, "{sort_by} {order}");
        }
    }
}

fn labels_are_the_texts_in_the_metadata_of_threads(place: &Place) {
    let (server, client) = serve(place);
    threads(&client);
    let text = if place.is_postgres() { "::text" } else { "" };
    let sql = format!("SELECT thread_id{text}, owner, metadata{text} FROM threads");
    let mut expected = BTreeSet::new();
    for row in rows(place, &server, &sql) {
        let [id, owner, metadata] = [0, 1, 2].map(|at| row[at].clone().unwrap());
        let metadata: Value = serde_json::from_str(&metadata).unwrap();
        for (key, value) in metadata.as_object().unwrap() {
            if let Some(value) = value.as_str()
                && !["graph_id", "assistant_id"].contains(&&**key)
            {
                let label = format!("{key}={value}");
                // A text of SQLite's functions ends before NUL; no filter asks for such a label.
                let label = label.chars().take_while(|char| *char != '\0');
                let label = label.take(100).collect();
                expected.insert((label, owner.clone(), id.clone()));
            }
        }
    }
    assert!(expected.len() > 40, "{}", expected.len());
    let sql = format!("SELECT label, owner, thread_id{text} FROM thread_labels");
    let found: BTreeSet<(String, String, String)> = rows(place, &server, &sql)
        .into_iter()
        .map(|row| [0, 1, 2].map(|at| row[at].clone().unwrap()).into())
        .collect();
    assert_eq!(found, expected);
}
