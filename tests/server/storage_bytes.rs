//! What a conversation takes on disk: it grows with its text, not with its square.
use std::collections::BTreeMap;
use test_support::on_both_storages;

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::place::{Place, block_on};
use test_support::server::{Server, Setup};
use test_support::tables;

on_both_storages!(
    a_long_chat_takes_a_small_multiple_of_its_text,
    a_fork_of_a_long_conversation_takes_a_few_small_rows,
    branches_at_one_point_take_a_few_small_rows_each,
);

/// Characters of one turn: a question and a reply of 200 each.
const TURN: u64 = 400;

/// Of checkpoints, values and results, and of everything, per byte of text.
const STATE_LIMIT: f64 = 6.0;
const WHOLE_LIMIT: f64 = 10.0;
/// Of twice as long a chat.
const GROWTH_LIMIT: f64 = 2.1;

/// The tables that grow with every turn.
const LARGE: [&str; 6] = [
    "checkpoints",
    "checkpoint_blobs",
    "checkpoint_writes",
    "runs",
    "events",
    "message_nodes",
];

/// Of a fork, and of a branch.
const FORK_LIMIT: u64 = 4 * 1024;
const BRANCH_LIMIT: u64 = 1024;

fn a_long_chat_takes_a_small_multiple_of_its_text(place: &Place) {
    let server = place.start(Setup::example("bench_server"));
    let client = Client::of(&server);
    let thread = client.thread();
    chat(&client, &thread, 200);
    let short = Sizes::settled(place, &server);
    chat(&client, &thread, 200);
    let long = Sizes::settled(place, &server);
    short.print(200);
    long.print(400);
    print_columns(place, &server, 400);
    for (turns, sizes) in [(200, &short), (400, &long)] {
        let state = sizes.state() as f64 / (turns * TURN) as f64;
        assert!(
            state <= STATE_LIMIT,
            "state: {state:.2} bytes per byte of text"
        );
        let whole = sizes.whole() as f64 / (turns * TURN) as f64;
        assert!(
            whole <= WHOLE_LIMIT,
            "all tables: {whole:.2} bytes per byte of text"
        );
    }
    let growth = long.whole() as f64 / short.whole() as f64;
    assert!(
        growth <= GROWTH_LIMIT,
        "twice as long takes {growth:.2} times as much"
    );
    let growth = long.state() as f64 / short.state() as f64;
    assert!(
        growth <= GROWTH_LIMIT,
        "twice as long takes {growth:.2} times as much state"
    );
}

/// Of the write-ahead log of SQLite, while several clients write: it is copied back at 4 MiB, and grows on while somebody
/// reads what was there before.
const LOG_LIMIT: u64 = 8 << 20;

#[test]
fn the_write_ahead_log_of_sqlite_stays_small_while_clients_write() {
    let server = Place::sqlite().start(Setup::example("bench_server"));
    let log = tables::file(&server).with_extension("db-wal");
    let bytes = || std::fs::metadata(&log).map_or(0, |file| file.len());
    let client = Client::of(&server);
    let mut most = 0;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| chat(&client, &client.thread(), 60)))
            .collect();
        while writers.iter().any(|writer| !writer.is_finished()) {
            most = most.max(bytes());
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    });
    println!("at most {} KiB", most >> 10);
    assert!((1..=LOG_LIMIT).contains(&most), "{most} bytes");
}

fn chat(client: &Client, thread: &str, turns: usize) {
    for turn in 0..turns {
        let question = format!("{turn:0200}");
        let body = json!({
            "assistant_id": "chat",
            "input": {"messages": [{"type": "human", "content": question}]},
            "stream_mode": "updates",
        });
        let events = client.stream(thread, &body);
        let reply = &events.last().unwrap().data["bot"]["messages"];
        let reply = reply.as_array().map_or(reply, |list| &list[0]);
        assert_eq!(reply["content"].as_str().unwrap().len(), 200, "{events:?}");
    }
    let messages = &client.state(thread)["values"]["messages"];
    assert!(messages.as_array().unwrap().len() >= 2 * turns);
}

/// A thread with 1,000 messages.
fn long_thread(client: &Client) -> String {
    let answer = client.post("/threads", &json!({"metadata": {"graph_id": "chat"}}));
    let thread = answer.json()["thread_id"].as_str().unwrap().to_owned();
    let messages: Vec<Value> = (0..1000)
        .map(|n| json!({"role": "user", "content": format!("{n:0200}")}))
        .collect();
    let answer = client.post(
        &format!("/threads/{thread}/messages"),
        &json!({ "messages": messages }),
    );
    assert_eq!(answer.status, 201, "{}", answer.text());
    thread
}

fn a_fork_of_a_long_conversation_takes_a_few_small_rows(place: &Place) {
    let server = place.start(Setup::example("bench_server"));
    let client = Client::of(&server);
    let thread = long_thread(&client);
    let before = Sizes::settled(place, &server).whole();
    let answer = client.post(
        &format!("/threads/{thread}/fork"),
        &json!({"branch": "main"}),
    );
    assert_eq!(answer.status, 201, "{}", answer.text());
    let fork = answer.json()["thread_id"].as_str().unwrap().to_owned();
    let added = Sizes::settled(place, &server).whole() - before;
    assert!(added < FORK_LIMIT, "a fork takes {added} bytes");
    let page = client.get(&format!("/threads/{fork}/messages")).json();
    assert_eq!(page["messages"].as_array().unwrap().len(), 1000);
}

fn branches_at_one_point_take_a_few_small_rows_each(place: &Place) {
    let server = place.start(Setup::example("bench_server"));
    let client = Client::of(&server);
    let thread = long_thread(&client);
    let grow = || {
        let before = Sizes::settled(place, &server).whole();
        for _ in 0..50 {
            let path = format!("/threads/{thread}/branches");
            let answer = client.post(&path, &json!({"branch": "main"}));
            assert_eq!(answer.status, 201, "{}", answer.text());
        }
        Sizes::settled(place, &server).whole() - before
    };
    let (first, second) = (grow(), grow());
    assert!(
        first < 50 * BRANCH_LIMIT,
        "fifty branches take {first} bytes"
    );
    let growth = second as f64 / first as f64;
    assert!(
        growth <= 1.2,
        "fifty more take {growth:.2} times as much ({first}, {second})"
    );
}

/// Bytes of the rows of every table, without indexes.
struct Sizes(BTreeMap<String, u64>);

impl Sizes {
    fn of(place: &Place, server: &Server) -> Self {
        Self(match place.url() {
            Some(url) => block_on(postgres_tables(url)),
            None => sqlite_tables(&server.folder().join("data")),
        })
    }

    /// Once the tables derived from events are made.
    fn settled(place: &Place, server: &Server) -> Self {
        tables::settled(place, server);
        Self::of(place, server)
    }

    fn state(&self) -> u64 {
        ["checkpoints", "checkpoint_blobs", "checkpoint_writes"]
            .iter()
            .map(|table| self.0[*table])
            .sum()
    }

    fn whole(&self) -> u64 {
        self.0.values().sum()
    }

    fn print(&self, turns: u64) {
        let text = (turns * TURN) as f64;
        println!(
            "{turns} turns: state {:.2} x, all {:.2} x the text",
            self.state() as f64 / text,
            self.whole() as f64 / text
        );
        for (table, bytes) in self.0.iter().filter(|(_, bytes)| **bytes > 1000) {
            println!("  {table:20} {bytes:>9} {:>6.2} x", *bytes as f64 / text);
        }
    }
}

/// What each column of the largest tables takes, in bytes a turn.
fn print_columns(place: &Place, server: &Server, turns: u64) {
    let per_turn = |text: &str| text.parse::<f64>().unwrap() / turns as f64;
    for table in LARGE {
        let names = if place.is_postgres() {
            format!(
                "SELECT column_name::text FROM information_schema.columns \
                 WHERE table_schema = 'public' AND table_name = '{table}' ORDER BY ordinal_position"
            )
        } else {
            format!("SELECT name FROM pragma_table_info('{table}')")
        };
        let names = tables::rows(place, server, &names);
        let names: Vec<String> = names.into_iter().flatten().flatten().collect();
        let sum = |column: &String| {
            let length = if place.is_postgres() {
                format!("pg_column_size(\"{column}\")")
            } else {
                sqlite_length(column)
            };
            format!("CAST(COALESCE(sum({length}), 0) AS text)")
        };
        let sums: Vec<String> = names.iter().map(sum).collect();
        let sums = format!(
            "SELECT CAST(count(*) AS text), {} FROM {table}",
            sums.join(", ")
        );
        let sums = tables::rows(place, server, &sums);
        let mut sums = sums.into_iter().flatten().flatten();
        println!("  {table}: {:.2} rows", per_turn(&sums.next().unwrap()));
        for (name, sum) in names.iter().zip(sums).filter(|(_, sum)| sum != "0") {
            println!("    {name:22} {:>7.1}", per_turn(&sum));
        }
    }
}

/// The length of a value of a column; an integer counts as eight bytes.
fn sqlite_length(column: &str) -> String {
    format!(
        "CASE typeof(\"{column}\") WHEN 'null' THEN 0 WHEN 'integer' THEN 8 \
         WHEN 'real' THEN 8 ELSE length(CAST(\"{column}\" AS BLOB)) END"
    )
}

async fn postgres_tables(url: &str) -> BTreeMap<String, u64> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    let names = "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'";
    let mut sizes = BTreeMap::new();
    for row in client.query(names, &[]).await.unwrap() {
        let name: String = row.get(0);
        let sum = format!("SELECT COALESCE(sum(pg_column_size(t.*)), 0)::bigint FROM \"{name}\" t");
        let bytes: i64 = client.query_one(&sum, &[]).await.unwrap().get(0);
        sizes.insert(name, u64::try_from(bytes).unwrap());
    }
    sizes
}

/// The lengths of the values of all columns.
fn sqlite_tables(folder: &std::path::Path) -> BTreeMap<String, u64> {
    let file = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|end| end == "db"))
        .unwrap();
    let db =
        rusqlite::Connection::open_with_flags(file, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY)
            .unwrap();
    let list = |query: &str| -> Vec<String> {
        let mut statement = db.prepare(query).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    };
    let mut sizes = BTreeMap::new();
    for table in list("SELECT name FROM sqlite_schema WHERE type = 'table'") {
        let columns = list(&format!("SELECT name FROM pragma_table_info('{table}')"));
        let length: Vec<String> = columns.iter().map(|column| sqlite_length(column)).collect();
        let sum = format!(
            "SELECT COALESCE(sum({}), 0) FROM \"{table}\"",
            length.join(" + ")
        );
        let bytes: i64 = db.query_row(&sum, [], |row| row.get(0)).unwrap();
        sizes.insert(table, u64::try_from(bytes).unwrap());
    }
    sizes
}

#[test]
fn metadata_of_checkpoints_holds_nothing_empty_and_nothing_of_the_request() {
    let server = Place::sqlite().start(Setup::example("bench_server"));
    let client = Client::of(&server);
    let thread = client.thread();
    client.run(
        &thread,
        &json!({"assistant_id": "seq10", "input": {"count": 0, "log": []}}),
    );
    let metadata = &client.state(&thread)["metadata"];
    let keys: Vec<&String> = metadata.as_object().unwrap().keys().collect();
    for key in keys {
        assert!(!key.starts_with("langgraph_auth_"), "{metadata}");
    }
    assert_eq!(metadata.get("langgraph_request_id"), None::<&Value>);
    assert_eq!(metadata.get("user_id"), None::<&Value>);
}
