//! Values as JSON text in the database, by a setting that may change at any start.
use serde_json::{Value, json};
use test_support::{
    client::Client,
    on_both_storages,
    place::Place,
    server::{Server, Setup},
    tables::rows,
    talk::{self, ok, put, turn},
};

on_both_storages!(values_in_json_are_read_in_sql_and_values_of_both_codecs_over_http,);

const CODEC: &str = "BACKSTITCH_CODEC";

/// The values of a column as somebody reads them who looks into the database.
fn texts(place: &Place, server: &Server, column: &str, rest: &str) -> Vec<String> {
    let text = if place.is_postgres() {
        format!("convert_from({column}, 'UTF8')")
    } else {
        format!("CAST({column} AS TEXT)")
    };
    let found = rows(place, server, &format!("SELECT {text} FROM {rest}"));
    found.into_iter().flatten().flatten().collect()
}

fn parsed(texts: &[String]) -> Vec<Value> {
    let parse = |text: &String| serde_json::from_str(text).unwrap_or_else(|_| panic!("{text:?}"));
    texts.iter().map(parse).collect()
}

/// The tags of all values that are stored, each once.
fn tags(place: &Place, server: &Server) -> Vec<String> {
    let tables = [
        "checkpoint_blobs",
        "all_checkpoint_writes",
        "runs",
        "store_items",
        "assistants",
        "crons",
    ];
    let each = tables.map(|table| format!("SELECT \"type\" AS t FROM {table}"));
    let all = each.join(" UNION ");
    let found = rows(place, server, &format!("{all} ORDER BY t"));
    found.into_iter().flatten().flatten().collect()
}

/// The messages of a state, and those of each checkpoint before it.
fn read(client: &Client, thread: &str) -> (Value, Vec<Value>) {
    (client.state(thread), client.history(thread))
}

fn values_in_json_are_read_in_sql_and_values_of_both_codecs_over_http(place: &Place) {
    let setup = Setup::example("reference_server").env(CODEC, "json");
    let mut server = place.start(setup);
    let client = Client::of(&server);
    let thread = client.thread();
    client.run(&thread, &turn("one \u{e9} \u{1a} \"quoted\""));
    client.run(&thread, &turn("two"));
    let item = json!({"namespace": ["notes"], "key": "a", "value": {"text": "a note"}});
    ok(put(&client, "/store/items", &item), 204);
    let created = client.post(
        "/assistants",
        &json!({"graph_id": "agent", "context": {"tone": "dry"}}),
    );
    let assistant = talk::ok(created, 200)["assistant_id"].clone();
    let cron =
        json!({"assistant_id": assistant, "schedule": "0 0 1 1 *", "input": {"messages": []}});
    ok(client.post("/runs/crons", &cron), 200);

    let found = tags(place, &server);
    assert!(found.iter().all(|tag| tag.starts_with("json")), "{found:?}");
    let messages = "checkpoint_blobs WHERE channel = 'messages' ORDER BY version";
    let messages = parsed(&texts(place, &server, "blob", messages));
    assert_eq!(messages[0][0]["content"], "one \u{e9} \u{1a} \"quoted\"");
    let last = &messages[messages.len() - 1];
    assert!(last[0].is_u64() && last[1].is_array(), "a delta: {last}");
    for envelope in parsed(&texts(place, &server, "checkpoint", "checkpoints")) {
        assert!(envelope["channel_values"].is_object(), "{envelope}");
    }
    let results = parsed(&texts(place, &server, "writes", "all_checkpoint_writes"));
    assert!(!results.is_empty() && results.iter().all(Value::is_array));
    let requests = parsed(&texts(place, &server, "kwargs", "runs ORDER BY run_id"));
    assert_eq!(requests[1]["input"]["messages"][0]["content"], "two");
    let items = parsed(&texts(place, &server, "value", "store_items"));
    assert_eq!(items, [json!({"text": "a note"})]);
    let contexts = texts(place, &server, "context", "assistants");
    assert!(parsed(&contexts).contains(&json!({"tone": "dry"})));

    let before = read(&client, &thread);
    server.restart_with(CODEC, "bincode");
    let client = Client::of(&server);
    assert_eq!(read(&client, &thread), before);
    client.run(&thread, &turn("three"));
    let found = tags(place, &server);
    assert!(found.iter().any(|tag| tag.starts_with('b')), "{found:?}");
    let before = read(&client, &thread);
    assert_eq!(before.0["values"]["messages"].as_array().unwrap().len(), 6);
    server.restart_with(CODEC, "json");
    let client = Client::of(&server);
    assert_eq!(read(&client, &thread), before);
    let all = client.run(&thread, &turn("four"));
    assert_eq!(all["messages"].as_array().unwrap().len(), 8);
    assert!(client.history(&thread).ends_with(&before.1));
}

#[test]
fn a_codec_that_does_not_exist_is_refused() {
    let (status, output) = Setup::bundled().env(CODEC, "xml").refused();
    assert!(!status.success());
    assert!(output.contains("`bincode` or `json`"), "{output}");
}
