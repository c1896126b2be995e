//! Search of long-term memory by meaning, with an embedding model at a server.

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::Setup;
use test_support::talk::ok;

use super::{put, search, stored};
use crate::receiver::{Received, Receiver, Reply};

on_both_storages!(
    items_are_found_by_meaning_once_there_is_a_model,
    nodes_find_items_by_meaning,
    the_model_may_be_one_of_another_provider,
);

/// What an OpenAI-compatible server responds with: how often each text has a letter.
fn letters(request: &Received) -> Value {
    let body = request.body();
    let texts = body["input"].as_array().unwrap();
    let vector = |text: &Value| -> Vec<usize> {
        let text = text.as_str().unwrap();
        ["a", "b", "."]
            .iter()
            .map(|letter| text.matches(letter).count())
            .collect()
    };
    let data: Vec<_> = texts
        .iter()
        .enumerate()
        .map(|(index, text)| json!({"object": "embedding", "index": index, "embedding": vector(text)}))
        // In any order: each has its number.
        .rev()
        .collect();
    json!({"object": "list", "data": data, "model": body["model"],
           "usage": {"prompt_tokens": 1, "total_tokens": 1}})
}

/// What Google responds with.
fn letters_of_google(request: &Received) -> Value {
    let body = request.body();
    let requests = body["requests"].as_array().unwrap().iter();
    let vector = |request: &Value| {
        let text = request["content"]["parts"][0]["text"].as_str().unwrap();
        ["a", "b", "."].map(|letter| text.matches(letter).count())
    };
    let vectors = requests.map(|request| json!({"values": vector(request)}));
    json!({"embeddings": vectors.collect::<Vec<_>>()})
}

fn the_model_may_be_one_of_another_provider(place: &Place) {
    let model = Receiver::replying(&[Reply::Json(letters_of_google)]);
    let setup = Setup::example("reference_server")
        .env("GEMINI_BASE_URL", model.url("google"))
        .env("GEMINI_API_KEY", "secret")
        .env("BACKSTITCH_EMBEDDING_MODEL", "gemini:gemini-embedding-001");
    let server = place.start(setup);
    let client = Client::of(&server);
    for text in ["aaa.", "bbb."] {
        stored(&client, &["n"], text, json!({"text": text}));
    }
    let found = search(&client, json!({"namespace_prefix": ["n"], "query": "b"}));
    assert_eq!(found, ["bbb.", "aaa."]);
    let first = &model.received()[0];
    assert_eq!(
        first.path,
        "/google/v1beta/models/gemini-embedding-001:batchEmbedContents"
    );
}

fn nodes_find_items_by_meaning(place: &Place) {
    let model = Receiver::replying(&[Reply::Json(letters)]);
    let setup = Setup::example("faulty_server")
        .env("OPENAI_BASE_URL", model.url("v1"))
        .env("OPENAI_API_KEY", "secret")
        .env("BACKSTITCH_EMBEDDING_MODEL", "letters");
    let server = place.start(setup);
    let client = Client::of(&server);
    for text in ["aaa.", "bbb.", "ab."] {
        stored(&client, &["n"], text, json!({"text": text}));
    }
    let near = |text: &str| {
        let body = json!({"assistant_id": "notes", "input": {"who": "ada", "text": text}});
        client.run(&client.thread(), &body)["notes"].clone()
    };
    assert_eq!(near("near a."), json!(["aaa.", "ab."]));
    assert_eq!(near("near b."), json!(["bbb.", "ab."]));
}

fn items_are_found_by_meaning_once_there_is_a_model(place: &Place) {
    let model = Receiver::replying(&[Reply::Json(letters)]);
    let setup = Setup::example("reference_server")
        .env("OPENAI_BASE_URL", model.url("v1"))
        .env("OPENAI_API_KEY", "secret")
        .env("BACKSTITCH_EMBEDDING_MODEL", "letters")
        .env("BACKSTITCH_EMBEDDING_FIELDS", "text,tags[*]");
    let server = place.start(setup);
    let client = Client::of(&server);
    stored(&client, &["n"], "as", json!({"text": "aaa."}));
    stored(
        &client,
        &["n"],
        "bs",
        json!({"text": "bbb.", "tags": ["b."]}),
    );
    let first = &model.received()[0];
    assert_eq!(
        (&*first.path, &*first.headers["authorization"]),
        ("/v1/embeddings", "Bearer secret")
    );
    assert_eq!(first.body()["model"], "letters");
    let off = json!({"namespace": ["n"], "key": "off", "value": {"text": "aaa"}, "index": false});
    assert_eq!(put(&client, &off).status, 204);
    let own = json!({"namespace": ["n"], "key": "own", "value": {"text": "b", "other": "aaab."},
                     "index": ["other"]});
    assert_eq!(put(&client, &own).status, 204);
    let query = |text: &str| json!({"namespace_prefix": ["n"], "query": text});
    let found = ok(client.post("/store/items/search", &query("a.")), 200);
    let found = found["items"].as_array().unwrap();
    let keys: Vec<_> = found
        .iter()
        .map(|item| item["key"].as_str().unwrap())
        .collect();
    assert_eq!(keys, ["as", "own", "bs"]);
    let scores: Vec<_> = found
        .iter()
        .map(|item| item["score"].as_f64().unwrap())
        .collect();
    assert!(
        scores.is_sorted_by(|a, b| a > b) && scores[0] < 1.0,
        "{scores:?}"
    );
    let filtered = json!({"query": "a.", "filter": {"text": {"$ne": "aaa."}}, "limit": 1});
    assert_eq!(search(&client, filtered), ["own"]);
    // Without a query they come by name.
    assert_eq!(search(&client, json!({})), ["as", "bs", "off", "own"]);
    let wrong = json!({"namespace": ["n"], "key": "k", "value": {}, "index": ["a["]});
    assert!(put(&client, &wrong).refused(422).contains("a["));
    // A model that fails is no fault of the client, and nothing is stored.
    model.reply(&[Reply::Status(500)]);
    let body = json!({"namespace": ["n"], "key": "new", "value": {"text": "a."}});
    let detail = put(&client, &body).refused(503);
    assert!(
        detail.contains("embedding model") && !detail.contains("127.0.0.1"),
        "{detail}"
    );
    client
        .post("/store/items/search", &query("a."))
        .refused(503);
    assert_eq!(search(&client, json!({})), ["as", "bs", "off", "own"]);
}
