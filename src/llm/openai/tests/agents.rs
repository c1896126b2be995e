//! What an agent makes of a server that refuses, is cut, or sends calls that cannot be run.

use super::*;
use crate::{Local, llm::Fallback};

/// Looks up the weather in a city.
#[tool]
async fn weather(city: String) -> String {
    if city == "Nowhere" {
        // As the output of programs is at times.
        return format!("{}\u{0}", "x".repeat(10 << 20));
    }
    format!("warm in {city}")
}

#[tool]
async fn other() {}

fn call(name: &str, arguments: &str) -> Vec<Result<String, ()>> {
    let start = json!({"tool_calls": [{"index": 0, "id": "call_a", "type": "function",
        "function": {"name": name, "arguments": arguments}}]});
    vec![
        event(start, None),
        event(json!({}), Some("tool_calls")),
        done(),
    ]
}

fn says(text: &str) -> Vec<Result<String, ()>> {
    let all = text
        .split_inclusive(' ')
        .map(|word| event(json!({"content": word}), None));
    all.chain([event(json!({}), Some("stop")), done()])
        .collect()
}

/// An agent whose model is at a server that replays these, each with a status.
async fn agent_at(replies: Vec<(u16, Vec<Result<String, ()>>)>) -> (Arc<Compiled>, Server) {
    let all = replies
        .into_iter()
        .map(|(status, parts)| Recording::of(status, parts));
    let server = replay::serve(all.collect()).await;
    let client = Client::new(format!("{}/v1", server.base), "secret", "tiny").expect("a client");
    let model = Fallback::new(client).starting_at(Duration::from_millis(1));
    let tools = [weather(), other()];
    (agent(model).tools(tools).build().expect("an agent"), server)
}

fn texts(values: &Value) -> Vec<String> {
    let messages = values["messages"].as_list().expect("a list");
    let read = |message| Message::try_from(message).expect("a message").text();
    messages.iter().map(read).collect()
}

#[tokio::test]
async fn a_busy_server_is_called_until_it_replies() {
    let busy = || (503, vec![Ok("busy".to_owned())]);
    let (graph, server) = agent_at(vec![busy(), busy(), (200, says("all is well"))]).await;
    let thread = Local::memory().expect("a storage").thread(&graph);
    let done = thread
        .invoke(json!({"messages": "hi"}))
        .await
        .expect("the third attempt");
    assert_eq!(texts(done.as_value()), ["hi", "all is well"]);
    assert_eq!(server.received.lock().len(), 3);
}

#[tokio::test]
async fn a_reply_that_is_cut_after_its_first_word_is_neither_repeated_nor_stored() {
    let text = vec![event(json!({"content": "all "}), None), Err(())];
    let mut half_call = call("weather", "{\"city\": \"Os");
    half_call.truncate(1);
    half_call.push(Err(()));
    for cut in [text, half_call] {
        let (graph, server) = agent_at(vec![(200, cut), (200, says("never"))]).await;
        let thread = Local::memory().expect("a storage").thread(&graph);
        let error = thread
            .invoke(json!({"messages": "hi"}))
            .await
            .expect_err("it is cut");
        assert!(error.to_string().contains("broke off"), "{error}");
        assert_eq!(server.received.lock().len(), 1);
        let state = thread
            .state(&"".into(), None, false)
            .await
            .expect("a state");
        let values = state.expect("the input").snapshot.values;
        assert_eq!(texts(&values), ["hi"]);
    }
}

#[tokio::test]
async fn a_wrong_key_fails_the_run_at_once_with_the_servers_words() {
    let body = json!({"error": {"message": "Incorrect API key", "type": "invalid_request_error"}});
    let (graph, server) = agent_at(vec![(401, vec![Ok(body.to_string())])]).await;
    let thread = Local::memory().expect("a storage").thread(&graph);
    let error = thread
        .invoke(json!({"messages": "hi"}))
        .await
        .expect_err("refused");
    assert!(error.to_string().contains("Incorrect API key"), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
    assert_eq!(server.received.lock().len(), 1);
}

#[tokio::test]
async fn calls_that_cannot_be_run_are_shown_to_the_model() {
    for (name, arguments, complaint) in [
        ("weather", "{\"city\": ", "not a JSON object"),
        ("weather", "[1]", "not a JSON object"),
        (
            "weather",
            "{\"town\": \"Oslo\"}",
            "the arguments do not fit",
        ),
        (
            "wether",
            "{}",
            "there is no tool `wether`, only: weather, other",
        ),
    ] {
        let replies = vec![(200, call(name, arguments)), (200, says("sorry"))];
        let (graph, server) = agent_at(replies).await;
        let thread = Local::memory().expect("a storage").thread(&graph);
        let done = thread
            .invoke(json!({"messages": "hi"}))
            .await
            .expect("a reply");
        let all = texts(done.as_value());
        assert_eq!(all.len(), 4, "{all:?}");
        assert!(all[2].contains(complaint), "{all:?}");
        // The model reads it as the result of its call.
        let body = server.received.lock()[1].body.clone();
        let result = &body["messages"][2];
        assert_eq!(result["role"], "tool");
        assert_eq!(
            result["tool_call_id"],
            body["messages"][1]["tool_calls"][0]["id"]
        );
        assert_eq!(result["content"], all[2]);
    }
}

#[tokio::test]
async fn a_long_result_with_nul_reaches_the_model_as_it_is() {
    let replies = vec![
        (200, call("weather", "{\"city\": \"Nowhere\"}")),
        (200, says("oh")),
    ];
    let (graph, server) = agent_at(replies).await;
    let thread = Local::memory().expect("a storage").thread(&graph);
    let done = thread
        .invoke(json!({"messages": "a\u{0}b"}))
        .await
        .expect("a reply");
    assert_eq!(texts(done.as_value())[3], "oh");
    let body = server.received.lock()[1].body.clone();
    assert_eq!(body["messages"][0]["content"], "a\u{0}b");
    let result = body["messages"][2]["content"].as_str().expect("a text");
    assert_eq!(result.len(), (10 << 20) + 1);
    assert!(result.ends_with('\u{0}'));
}
