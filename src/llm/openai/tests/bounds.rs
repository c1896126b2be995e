//! What the client makes of reasoning, refusals, errors in mid-stream, long replies, and parts that are no text.

use super::*;
use crate::llm::{Reasoning, ReplySchema, ToolChoice};

fn error_of(result: anyhow::Result<Vec<AiChunk>>) -> Error {
    let error = result.expect_err("it fails");
    error.downcast().expect("an error of this room")
}

#[tokio::test]
async fn reasoning_of_other_servers_is_a_part_of_its_own() {
    let server = serve(
        200,
        vec![
            event(
                json!({"role": "assistant", "content": null, "reasoning_content": "Let me "}),
                None,
            ),
            event(json!({"reasoning": "see."}), None),
            event(json!({"content": "Warm."}), None),
            event(json!({}), Some("stop")),
            done(),
        ],
    )
    .await;
    let pieces = ask(&server, &[Message::human("hi")])
        .await
        .expect("a reply");
    let message = whole(&pieces);
    assert_eq!(
        message.content(),
        &value!([
            {"type": "reasoning", "reasoning": "Let me see.", "index": 0},
            {"type": "text", "text": "Warm.", "index": 1},
        ])
    );
    assert_eq!(message.text(), "Warm.");
    let client = Client::new(server.base.clone(), "secret", "tiny").expect("a client");
    let options = CallOptions::new().reasoning(Reasoning::High);
    let again = [Message::human("hi"), message];
    let stream = client.stream_with(&again, &[], &options);
    stream.try_collect::<Vec<_>>().await.expect("a reply");
    let received = server.received.lock()[1].body.clone();
    assert_eq!(received["reasoning_effort"], "high");
    assert_eq!(
        received["messages"][1],
        json!({"role": "assistant", "content": "Warm."})
    );
}

#[tokio::test]
async fn details_of_what_was_used_are_told() {
    let usage = json!({"model": "tiny", "choices": [], "usage": {
        "prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 1}}});
    let usage = Ok(format!("data: {usage}\n\n"));
    let server = serve(
        200,
        vec![event(json!({"content": "x"}), Some("stop")), usage, done()],
    )
    .await;
    let message = whole(
        &ask(&server, &[Message::human("hi")])
            .await
            .expect("a reply"),
    );
    let usage = message.get("usage_metadata").expect("usage");
    assert_eq!(usage["input_token_details"]["cache_read"], 4);
    assert_eq!(usage["output_token_details"]["reasoning"], 1);
}

#[tokio::test]
async fn a_refusal_says_how_long_to_wait_and_is_not_repeated_here() {
    let body = json!({"error": {"message": "slow down", "type": "requests", "param": null, "code": "rate_limit"}});
    let limited = Recording::json(429, &body).header("retry-after", "7");
    let mut server = replay::serve(vec![limited]).await;
    server.base.push_str("/v1");
    let error = refusal(&server).await;
    let Error::Refused {
        status: 429,
        retry_after,
        reason,
        ..
    } = error
    else {
        panic!("{error:?}")
    };
    assert_eq!(retry_after, Some(Duration::from_secs(7)));
    assert_eq!(reason, "requests: slow down");
    assert_eq!(server.received.lock().len(), 1);
}

#[tokio::test]
async fn an_error_in_mid_stream_is_the_error_of_the_call() {
    let late = |error: Json| Ok(format!("data: {}\n\n", json!({"error": error})));
    let begun = event(json!({"content": "Hel"}), None);
    let server = serve(
        200,
        vec![
            begun.clone(),
            late(json!({"message": "overloaded", "code": 503})),
        ],
    )
    .await;
    let error = refusal(&server).await;
    assert!(
        matches!(error, Error::Refused { status: 503, .. }),
        "{error:?}"
    );
    let server = serve(
        200,
        vec![
            begun,
            late(json!({"message": "it broke", "type": "server_error"})),
        ],
    )
    .await;
    let error = refusal(&server).await;
    assert!(matches!(error, Error::Broken { .. }), "{error:?}");
    assert!(error.to_string().contains("it broke"), "{error}");
}

#[tokio::test]
async fn replies_and_events_that_are_too_long_are_given_up() {
    let texts = |count: usize| vec![event(json!({"content": "x".repeat(1000)}), None); count];
    let server = serve(200, texts(20)).await;
    let client = Client::new(server.base.clone(), "secret", "tiny").expect("a client");
    let client = client.reply_bytes(10_000);
    let error = error_of(
        client
            .stream(&[Message::human("hi")], &[])
            .try_collect()
            .await,
    );
    assert!(
        matches!(error, Error::TooLong { most: 10_000, .. }),
        "{error:?}"
    );
    // One event without an end.
    let server = serve(200, vec![Ok("data: x".to_owned()), Ok("x".repeat(2 << 20))]).await;
    let client = Client::new(server.base.clone(), "secret", "tiny").expect("a client");
    let client = client.reply_bytes(1000);
    let error = error_of(
        client
            .stream(&[Message::human("hi")], &[])
            .try_collect()
            .await,
    );
    assert!(matches!(error, Error::TooLong { .. }), "{error:?}");
}

#[tokio::test]
async fn parts_are_sent_in_openais_form_and_what_it_does_not_take_is_an_error() {
    let server = serve(200, whole_reply("ok")).await;
    let message = Message::human(value!([
        {"type": "image", "base64": "aGk=", "mime_type": "image/png"},
        {"type": "file", "base64": "aGk=", "mime_type": "application/pdf", "filename": "a.pdf"},
        {"type": "audio", "base64": "aGk=", "mime_type": "audio/wav"},
    ]));
    ask(&server, &[message, Message::tool("a\u{0}b", "c1")])
        .await
        .expect("a reply");
    let body = server.received.lock()[0].body.clone();
    assert_eq!(
        body["messages"],
        json!([
            {"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
                {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="}},
                {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
            ]},
            {"role": "tool", "content": "a\u{0}b", "tool_call_id": "c1"},
        ])
    );
    let video =
        Message::human(value!([{"type": "video", "base64": "aGk=", "mime_type": "video/mp4"}]));
    let error = error_of(ask(&server, &[video]).await);
    assert!(
        error.to_string().contains("does not take a video"),
        "{error}"
    );
}

#[tokio::test]
async fn a_long_prompt_arrives_whole() {
    let server = serve(200, whole_reply("ok")).await;
    let text = "long ".repeat(2 << 20);
    ask(&server, &[Message::human(text.as_str())])
        .await
        .expect("a reply");
    let received = server.received.lock();
    assert_eq!(received[0].body["messages"][0]["content"], text);
}

#[test]
fn schemas_are_followed_by_models_that_are_known_to() {
    let follows = |model: &str| {
        let client = Client::new(DEFAULT_BASE, "", model.to_owned()).expect("a client");
        (
            client.follows_schemas(),
            client.schemas(true).follows_schemas(),
        )
    };
    assert_eq!(follows("gpt-4o-mini"), (true, true));
    assert_eq!(follows("o3"), (true, true));
    assert_eq!(follows("gpt-3.5-turbo"), (false, true));
    assert_eq!(follows("tiny"), (false, true));
}

#[tokio::test]
async fn an_error_in_place_of_a_stream_is_the_error_of_the_server() {
    let body = json!({"error": {"message": "no such model", "type": "not_found", "code": 404}});
    let coded = replay::serve(vec![Recording::json(200, &body)]).await;
    let error = refusal(&coded).await;
    assert!(
        matches!(error, Error::Refused { status: 404, .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("no such model"), "{error}");
    let body = json!({"choices": [{"message": {"content": "Hello"}}]});
    let whole = replay::serve(vec![Recording::json(200, &body)]).await;
    let error = refusal(&whole).await;
    assert!(error.to_string().contains("no stream of events"), "{error}");
}

#[tokio::test]
async fn events_that_are_called_json_are_read_and_a_byte_order_mark_is_left_out() {
    let parts = vec![
        Ok("\u{feff}\u{feff}".to_owned()),
        event(json!({"content": "x"}), Some("stop")),
        done(),
    ];
    let recording = Recording::of(200, parts).header("content-type", "application/json");
    let server = replay::serve(vec![recording]).await;
    let pieces = ask(&server, &[Message::human("hi")])
        .await
        .expect("a reply");
    assert_eq!(whole(&pieces).text(), "x");
}

#[tokio::test]
async fn every_option_reaches_the_server() {
    let server = serve(200, whole_reply("x")).await;
    let client = Client::new(server.base.clone(), "secret", "tiny").expect("a client");
    let options = CallOptions {
        schema: Some(ReplySchema {
            name: "Booking".into(),
            schema: json!({"type": "object"}),
        }),
        tool_choice: ToolChoice::Tool("weather".into()),
        ..CallOptions::new()
            .temperature(0.2)
            .max_tokens(50)
            .stop("END")
            .seed(7)
    };
    let tools = [tool("weather", |_: Weather, _| async { Ok("fine") })];
    let stream = client.stream_with(&[Message::human("hi")], &tools, &options);
    stream.try_collect::<Vec<_>>().await.expect("a reply");
    let received = server.received.lock()[0].body.clone();
    let field = |name: &str| received[name].clone();
    assert_eq!(received["temperature"].to_string(), "0.2");
    assert_eq!(field("max_completion_tokens"), 50);
    assert_eq!(field("stop"), json!(["END"]));
    assert_eq!(field("seed"), 7);
    assert_eq!(
        field("tool_choice"),
        json!({"type": "function", "function": {"name": "weather"}})
    );
    let schema = json!({"name": "Booking", "schema": {"type": "object"}});
    assert_eq!(
        field("response_format"),
        json!({"type": "json_schema", "json_schema": schema})
    );
}

#[tokio::test]
async fn a_file_of_text_that_is_not_utf_8_is_not_sent() {
    let server = serve(200, vec![done()]).await;
    let file = value!([{"type": "file", "base64": "/w==", "mime_type": "text/plain"}]);
    let error = error_of(ask(&server, &[Message::human("").with_field("content", file)]).await);
    assert!(error.to_string().contains("UTF-8"), "{error}");
    assert!(server.received.lock().is_empty());
}
