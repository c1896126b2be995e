//! Pages of forks, of the tree and of branches: how much they have, and what of it is read.

use serde_json::{Value, json};

use super::*;
use test_support::on_both_storages;
use test_support::server::{Server, Setup};
use test_support::tables::execute;
use test_support::talk::{agent_thread, get};

on_both_storages!(
    pages_of_forks_end_early_and_read_no_more_than_they_show,
    pages_with_many_ways_to_go_on_have_fewer_forks,
    forks_beside_branches_are_listed_without_their_metadata,
    of_a_long_role_the_beginning_is_shown,
);

/// A server whose pages end at so many bytes.
fn serve_pages(place: &Place, bytes: usize) -> (Server, Client) {
    let setup = Setup::example("reference_server");
    let server = place.start(setup.env("BACKSTITCH_PAGE_BYTES", bytes.to_string()));
    let client = Client::of(&server);
    (server, client)
}

/// All pages of forks.
fn pages(client: &Client, thread: &str) -> Vec<Value> {
    let (mut pages, mut query) = (vec![], String::new());
    loop {
        let page = get(client, thread, &format!("forks{query}"));
        let next = page["next"].as_str().map(|next| format!("?after={next}"));
        pages.push(page);
        match next {
            Some(next) => query = next,
            None => return pages,
        }
    }
}

fn ids_of(page: &Value) -> Vec<String> {
    let threads = page["threads"].as_array().unwrap().iter();
    threads.map(id_of).collect()
}

/// Makes the metadata of a thread unreadable, of as many bytes.
fn spoil(place: &Place, server: &Server, thread: &str, bytes: usize) {
    let text = "x".repeat(bytes);
    if place.is_postgres() {
        // One reads the metadata that is written.
        execute(place, server, "ALTER TABLE threads DISABLE TRIGGER USER").unwrap();
    }
    let id = if place.is_postgres() {
        format!("'{thread}'")
    } else {
        format!("x'{}'", thread.replace('-', ""))
    };
    let sql = format!("UPDATE threads SET metadata = '[\"{text}\"]' WHERE thread_id = {id}");
    assert_eq!(execute(place, server, &sql), Ok(1));
}

fn pages_of_forks_end_early_and_read_no_more_than_they_show(place: &Place) {
    let (server, client) = serve_pages(place, 20_000);
    let root = thread_of(&client, &["u1"]);
    let sizes = [
        10, 6000, 6000, 15_000, 15_000, 6000, 10, 10, 6000, 6000, 6000,
    ];
    let forked = |size: &usize| {
        let metadata = json!({"text": "m".repeat(*size)});
        id_of(&fork(&client, &root, &json!({"metadata": metadata})))
    };
    let forks: Vec<String> = sizes.iter().map(forked).collect();
    let found: Vec<Vec<String>> = pages(&client, &root).iter().map(ids_of).collect();
    let expected = [
        [std::slice::from_ref(&root), &forks[..3]].concat(),
        forks[3..4].to_vec(),
        forks[4..5].to_vec(),
        forks[5..10].to_vec(),
        forks[10..].to_vec(),
    ];
    assert_eq!(found, expected);
    // The limit counts as before.
    let two = get(&client, &root, "forks?limit=2");
    assert_eq!(ids_of(&two), expected[0][..2]);

    spoil(place, &server, &forks[3], 15_000);
    assert_eq!(ids_of(&get(&client, &root, "forks")), expected[0]);
    let next = two["next"].as_str().unwrap();
    let path = format!("/threads/{root}/forks?after={next}");
    assert_eq!(ids_of(&ok(client.get(&path), 200)), forks[1..3]);
    let next = get(&client, &root, "forks")["next"].clone();
    let path = format!("/threads/{root}/forks?after={}", next.as_str().unwrap());
    assert_eq!(client.get(&path).status, 500, "it cannot be read");
}

fn pages_with_many_ways_to_go_on_have_fewer_forks(place: &Place) {
    let (_server, client) = serve_pages(place, 4096);
    let root = thread_of(&client, &["u1"]);
    // Each parts from the others at a message of its own.
    let fork = |number: usize| {
        let id = format!("u{number}{}", "-".repeat(200));
        note(&client, &root, &id);
        let fork = id_of(&fork(&client, &root, &json!({"message_id": id})));
        note(&client, &fork, &format!("{id}-of-fork"));
        fork
    };
    let forks: Vec<String> = (2..10).map(fork).collect();
    // The thread goes on where the last fork parts from it too.
    note(&client, &root, "end");
    let pages = pages(&client, &root);
    assert!(pages.len() > 2, "{} pages", pages.len());
    let found: Vec<String> = pages.iter().flat_map(ids_of).collect();
    assert_eq!(found, [std::slice::from_ref(&root), &*forks].concat());
    let mut options: Vec<String> = vec![];
    for page in &pages {
        assert!(!ids_of(page).is_empty());
        let points = page["fork_points"].as_array().unwrap();
        let points = points.iter().flat_map(|point| point["options"].as_array());
        options.extend(points.flatten().map(id_of));
    }
    assert!(forks.iter().all(|fork| options.contains(fork)));
}

fn forks_beside_branches_are_listed_without_their_metadata(place: &Place) {
    let (server, client) = serve(place);
    let root = thread_of(&client, &["u1"]);
    let forked = id_of(&fork(&client, &root, &json!({})));
    let before = get(&client, &root, "branches")["forks"].clone();
    assert_eq!(before[0]["thread_id"], json!(forked));
    spoil(place, &server, &forked, 10);
    assert_eq!(get(&client, &root, "branches")["forks"], before);
}

fn of_a_long_role_the_beginning_is_shown(place: &Place) {
    let (_server, client) = serve(place);
    let thread = agent_thread(&client);
    let role = "r".repeat(10_000);
    let message = json!({"type": role, "id": "u1", "content": "hi"});
    let input = json!({"assistant_id": "agent", "input": {"messages": [message]}});
    client.run(&thread, &input);
    let tree = get(&client, &thread, "tree");
    assert_eq!(tree["nodes"][0]["role"], json!(role[..64]));
    let messages = read(&client, &thread, "");
    assert_eq!(
        messages["messages"][0]["role"],
        json!(role),
        "as it is stored"
    );
}
