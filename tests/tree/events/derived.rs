//! The tables that are derived from events, and lists that wait for them.

use super::*;
use test_support::{on_both_storages, tables, talk::until};

on_both_storages!(
    scenario_20_derived_tables_are_the_same_after_a_rebuild_under_load,
    a_rebuild_of_one_thread_or_table_is_taken,
    lists_wait_until_they_know_an_event,
    a_thread_whose_state_cannot_be_read_keeps_no_other_from_the_lists,
    a_thread_whose_rows_cannot_be_read_keeps_no_other_from_the_lists,
);

const TABLES: [&str; 1] = ["thread_heads"];

/// Rows of the derived tables once they know all there is, as text, in the order of their keys.
fn settled(
    place: &Place,
    server: &Server,
    client: &Client,
    threads: &[String],
) -> Vec<Vec<String>> {
    let wanted: Vec<(String, i64)> = threads
        .iter()
        .map(|thread| {
            let head = client.get(&format!("/threads/{thread}/head")).json();
            (thread.clone(), head["event_number"].as_i64().unwrap())
        })
        .collect();
    until("the derived tables know every event", || {
        let offsets = probe::offsets(place, server);
        let known = |thread: &str, number: i64| {
            let mut own = offsets.iter().filter(|(one, ..)| one == thread);
            let count = own.clone().count();
            count == TABLES.len() && own.all(|(.., offset)| *offset == number)
        };
        wanted.iter().all(|(thread, number)| known(thread, *number))
    });
    TABLES
        .iter()
        .map(|table| probe::rows(place, server, table))
        .collect()
}

fn scenario_20_derived_tables_are_the_same_after_a_rebuild_under_load(place: &Place) {
    let (server, client) = serve(place);
    let threads: Vec<String> = (0..4).map(|_| client.thread()).collect();
    let work = |n: usize| {
        let writers: Vec<_> = threads
            .iter()
            .cloned()
            .map(|thread| {
                let client = client.clone();
                thread::spawn(move || {
                    for i in 0..n {
                        say(&client, &thread, &format!("Message {i}\nof \u{e9}"));
                        let path = format!("/threads/{thread}/tags/t{i}");
                        assert!(client.send("PUT", &path, &[], b"{}").status < 300);
                        let path = format!("/threads/{thread}/btw");
                        assert_eq!(client.post(&path, &json!({})).status, 201);
                    }
                })
            })
            .collect();
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
    };
    work(5);
    let before = settled(place, &server, &client, &threads);
    assert_eq!(before[0].len(), 4);
    assert!(
        before[0]
            .iter()
            .all(|row| row.contains("Message 4 of \u{e9}")),
        "{:?}",
        before[0]
    );
    let rebuild = || {
        let answer = client.post("/admin/projections/rebuild", &json!({}));
        assert_eq!(answer.status, 202);
    };
    rebuild();
    assert_eq!(settled(place, &server, &client, &threads), before);
    thread::scope(|scope| {
        let load = scope.spawn(|| work(5));
        while !load.is_finished() {
            rebuild();
            // Leaves the load some of the time: the writers are to meet a rebuild, not to wait for it.
            thread::sleep(Duration::from_millis(30));
        }
        load.join().unwrap();
    });
    let after = settled(place, &server, &client, &threads);
    rebuild();
    assert_eq!(settled(place, &server, &client, &threads), after);
    for (old, new) in before.iter().zip(&after) {
        assert!(new.len() >= old.len());
    }
}

fn a_rebuild_of_one_thread_or_table_is_taken(place: &Place) {
    let (server, client) = serve(place);
    let threads = [client.thread(), client.thread()];
    for thread in &threads {
        say(&client, thread, "hello");
    }
    let before = settled(place, &server, &client, &threads);
    for body in [
        json!({"thread_id": threads[0]}),
        json!({"projection": "thread_heads"}),
        // There were tables of these names once.
        json!({"projection": "search"}),
        json!({"projection": "thread_timeline", "thread_id": threads[1]}),
        json!({"projection": "thread_heads", "thread_id": threads[1]}),
    ] {
        assert_eq!(client.post("/admin/projections/rebuild", &body).status, 202);
        assert_eq!(settled(place, &server, &client, &threads), before, "{body}");
    }
    // Everything derived goes with its thread.
    assert_eq!(
        client.delete(&format!("/threads/{}", threads[0])).status,
        204
    );
    for table in TABLES {
        let rows = probe::rows(place, &server, table);
        assert!(
            rows.iter().all(|row| !row.contains(&threads[0])),
            "{table}: {rows:?}"
        );
    }
}

fn lists_wait_until_they_know_an_event(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    for n in 0..5 {
        say(&client, &thread, &format!("say {n}"));
        let head = client.get(&format!("/threads/{thread}/head")).json();
        let number = &head["event_number"];
        // The tables need not be waited for by anybody but the list.
        client.post("/admin/projections/rebuild", &json!({"thread_id": thread}));
        let listed = client.get(&format!("/threads?min_event={thread}:{number}"));
        assert_eq!(listed.status, 200, "{}", listed.text());
        assert_eq!(listed.json()[0]["thread_id"], *thread);
    }
    let wanted = json!({"min_event": {&thread: 3}});
    assert_eq!(client.post("/threads/search", &wanted).status, 200);
    let begin = Instant::now();
    let behind = client.get(&format!("/threads?min_event={thread}:100000"));
    behind.refused(503);
    assert_eq!(behind.json()["code"], "projection_behind");
    let waited = begin.elapsed();
    assert!(
        waited >= Duration::from_secs(2) && waited < Duration::from_secs(5),
        "{waited:?}"
    );
}

/// Looks into the derived tables.
mod probe {
    use super::*;
    use test_support::tables;

    /// Rows as text, in the order of their keys.
    pub fn rows(place: &Place, server: &Server, table: &str) -> Vec<String> {
        let sql = if place.is_postgres() {
            format!("SELECT t::text FROM {table} t ORDER BY 1")
        } else {
            format!("SELECT * FROM {table} ORDER BY 1, 2, 3")
        };
        let rows = tables::rows(place, server, &sql);
        let line = |row: tables::Row| {
            let cells = row
                .into_iter()
                .map(|cell| cell.unwrap_or("null".to_owned()));
            cells.collect::<Vec<_>>().join("|")
        };
        rows.into_iter().map(line).collect()
    }

    /// Thread, table and offset.
    pub fn offsets(place: &Place, server: &Server) -> Vec<(String, String, i64)> {
        let sql = if place.is_postgres() {
            "SELECT thread_id::text, projection, last_event_number::text FROM projection_offsets"
        } else {
            "SELECT thread_id, projection, last_event_number FROM projection_offsets"
        };
        let rows = tables::rows(place, server, sql);
        let offset = |row: tables::Row| {
            let mut cells = row.into_iter().map(Option::unwrap);
            let mut next = || cells.next().unwrap();
            (next(), next(), next().parse().unwrap())
        };
        rows.into_iter().map(offset).collect()
    }
}

fn a_thread_whose_state_cannot_be_read_keeps_no_other_from_the_lists(place: &Place) {
    let bytes = if place.is_postgres() {
        "'\\xff'"
    } else {
        "x'ff'"
    };
    let damage = format!("UPDATE checkpoint_blobs SET blob = {bytes} WHERE tree_id = ");
    damage_keeps_no_other_from_the_lists(place, &damage);
}

/// The rows of all threads are read together.
fn a_thread_whose_rows_cannot_be_read_keeps_no_other_from_the_lists(place: &Place) {
    let damage = "UPDATE checkpoint_blobs SET base_version = 'none' WHERE tree_id = ";
    damage_keeps_no_other_from_the_lists(place, damage);
}

/// `damage` changes the rows of the tree whose id follows.
fn damage_keeps_no_other_from_the_lists(place: &Place, damage: &str) {
    let (mut server, client) = serve(place);
    let threads: Vec<String> = (0..3).map(|_| client.thread()).collect();
    for thread in &threads {
        say(&client, thread, "hello");
    }
    let others = &threads[1..];
    let before = settled(place, &server, &client, &threads);
    let id = if place.is_postgres() {
        format!("'{}'", threads[0])
    } else {
        format!("x'{}'", threads[0].replace('-', ""))
    };
    tables::execute(place, &server, &format!("{damage}{id}")).unwrap();
    // It remembers none of the values that it read.
    server.restart();
    let client = Client::of(&server);
    assert_eq!(
        client.post("/admin/projections/rebuild", &json!({})).status,
        202
    );
    let after = settled(place, &server, &client, others);
    let rows_of = |rows: &[String], thread: &str| -> Vec<String> {
        let own = rows.iter().filter(|row| row.contains(thread));
        own.cloned().collect()
    };
    for thread in others {
        let (before, after) = (rows_of(&before[0], thread), rows_of(&after[0], thread));
        assert_eq!(before.len(), 1, "{before:?}");
        assert_eq!(after, before);
    }
    until("the operator is told of the one", || {
        let output = server.output();
        let mut lines = output.lines();
        lines.any(|line| line.contains("could not be derived") && line.contains(&threads[0]))
    });
}
