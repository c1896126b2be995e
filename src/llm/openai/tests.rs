//! Tests of the model client against a scripted server.

use futures::TryStreamExt;
use serde_json::{Value as Json, json};
use tokio::net::TcpListener;

use super::*;
use crate::{
    llm::replay::{self, Recording, Server},
    message::AiChunk,
    prelude::*,
    value,
};

async fn serve(status: u16, parts: Vec<Result<String, ()>>) -> Server {
    let mut server = replay::serve(vec![Recording::of(status, parts)]).await;
    server.base.push_str("/v1");
    server
}

fn event(delta: Json, finish: Option<&str>) -> Result<String, ()> {
    let event = json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "tiny",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    });
    Ok(format!("data: {event}\n\n"))
}

fn usage() -> Result<String, ()> {
    let event = json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "tiny",
        "choices": [],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
    });
    Ok(format!("data: {event}\n\n"))
}

fn done() -> Result<String, ()> {
    Ok("data: [DONE]\n\n".to_owned())
}

/// What a server sends whose model replies with this text.
fn whole_reply(text: &str) -> Vec<Result<String, ()>> {
    vec![event(json!({"content": text}), Some("stop")), done()]
}

async fn ask(server: &Server, messages: &[Message]) -> anyhow::Result<Vec<AiChunk>> {
    let client = Client::new(server.base.clone(), "secret", "tiny").expect("a client");
    client.stream(messages, &[]).try_collect().await
}

async fn refusal(server: &Server) -> Error {
    let error = ask(server, &[Message::human("hi")])
        .await
        .expect_err("no answer");
    error.downcast().expect("an error of this room")
}

fn whole(pieces: &[AiChunk]) -> Message {
    let mut whole = AiChunk::default();
    pieces.iter().for_each(|piece| whole.push(piece));
    whole.message()
}

#[tokio::test]
async fn a_whole_reply_does_not_fail_by_what_comes_after_it() {
    let reply = || {
        vec![
            event(json!({"content": "Hello"}), None),
            event(json!({}), Some("stop")),
        ]
    };
    for after in [
        vec![Err(())],
        vec![usage(), Err(())],
        vec![Ok("data: {\n\n".to_owned())],
    ] {
        let counts = after.len() == 2;
        let server = serve(200, reply().into_iter().chain(after).collect()).await;
        let pieces = ask(&server, &[Message::human("hi")]).await;
        let pieces = pieces.expect("a reply");
        assert_eq!(whole(&pieces).text(), "Hello");
        let counted = pieces
            .last()
            .is_some_and(|piece| piece.usage_metadata.is_some());
        assert_eq!(counted, counts);
    }
    // An empty reason is none.
    let piece = event(json!({"content": "Hello"}), Some(""));
    let broken = serve(200, vec![piece, Err(())]).await;
    assert!(matches!(refusal(&broken).await, Error::Broken { .. }));
    let cut = serve(200, reply().into_iter().take(1).chain([Err(())]).collect()).await;
    assert!(matches!(refusal(&cut).await, Error::Broken { .. }));
}

#[tokio::test]
async fn content_in_parts_is_what_the_model_thinks_and_says() {
    let thinking =
        json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]});
    let parts = json!({"content": [{"type": "text", "text": "Hel"}, {"type": "reference", "reference_ids": [1]}]});
    let server = serve(
        200,
        vec![
            event(thinking, None),
            event(parts, None),
            event(json!({"content": "lo"}), None),
            event(json!({}), Some("stop")),
            done(),
        ],
    )
    .await;
    let pieces = ask(&server, &[Message::human("hi")])
        .await
        .expect("a reply");
    let message = whole(&pieces);
    assert_eq!(message.text(), "Hello");
    let content = message.content().to_json_value();
    assert_eq!(
        content[0],
        json!({"type": "reasoning", "reasoning": "Hm.", "index": 0}),
        "{content}"
    );
}

#[tokio::test]
async fn redirects_are_refused_and_passwords_of_addresses_are_not_shown() {
    let other = serve(200, whole_reply("stolen")).await;
    let mut recording = Recording::of(307, vec![]);
    recording.headers = vec![("location", format!("{}/chat/completions", other.base))];
    let mut server = replay::serve(vec![recording]).await;
    server.base = server.base.replace("http://", "http://ann:geheim@");
    let refused = refusal(&server).await.to_string();
    assert!(
        refused.contains("307") && refused.contains(&other.base),
        "{refused}"
    );
    assert!(!refused.contains("geheim"), "{refused}");
}

#[tokio::test]
async fn text_comes_piece_by_piece_and_ends_with_what_the_model_reports() {
    let server = serve(
        200,
        vec![
            event(json!({"role": "assistant", "content": ""}), None),
            event(json!({"content": "Hel"}), None),
            event(json!({"content": "lo"}), None),
            event(json!({}), Some("stop")),
            usage(),
            done(),
        ],
    )
    .await;
    let pieces = ask(&server, &[Message::human("hi")])
        .await
        .expect("an answer");
    let texts: Vec<_> = pieces.iter().filter_map(|p| p.content.as_str()).collect();
    assert_eq!(texts, ["Hel", "lo"]);
    assert!(pieces.last().is_some_and(|piece| piece.last));
    let message = whole(&pieces);
    assert_eq!(message.text(), "Hello");
    assert_eq!(
        message.get("response_metadata"),
        Some(&value!({"model_name": "tiny", "finish_reason": "stop"}))
    );
    assert_eq!(
        message.get("usage_metadata"),
        Some(&value!({"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}))
    );
}

#[tokio::test]
async fn parallel_tool_calls_are_put_together_from_their_deltas() {
    let delta =
        |index: u32, call: Json| json!({"tool_calls": [{"index": index, "function": call}]});
    let start = |index: u32, id: &str| {
        json!({"tool_calls": [{
            "index": index, "id": id, "type": "function",
            "function": {"name": "weather", "arguments": ""},
        }]})
    };
    let server = serve(
        200,
        vec![
            event(start(0, "call_a"), None),
            event(delta(0, json!({"arguments": "{\"city\": "})), None),
            event(delta(0, json!({"arguments": "\"Oslo\"}"})), None),
            event(start(1, "call_b"), None),
            event(delta(1, json!({"arguments": "{\"city\": \"Rome\"}"})), None),
            event(json!({}), Some("tool_calls")),
            done(),
        ],
    )
    .await;
    let message = whole(
        &ask(&server, &[Message::human("hi")])
            .await
            .expect("an answer"),
    );
    let calls: Vec<_> = message
        .tool_calls()
        .into_iter()
        .map(|call| (call.id.unwrap_or_default(), call.args["city"].to_json()))
        .collect();
    assert_eq!(
        calls,
        [
            ("call_a".into(), "\"Oslo\"".to_owned()),
            ("call_b".into(), "\"Rome\"".to_owned())
        ]
    );
    assert_eq!(message.text(), "");
}

/// Looks up the weather in a city.
#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is sent")]
struct Weather {
    city: String,
}

#[tokio::test]
async fn the_request_carries_the_conversation_and_the_tools() {
    let server = serve(200, vec![event(json!({}), Some("stop")), done()]).await;
    let client = Client::new(format!("{}/", server.base), "secret", "tiny").expect("a client");
    let weather = tool("weather", |_: Weather, _| async { Ok("fine") });
    let ask = Message::ai("").with_tool_call(crate::message::ToolCall {
        id: Some("call_a".into()),
        name: "weather".into(),
        args: value!({"city": "Oslo"}),
    });
    let messages = [
        Message::system("Be brief."),
        Message::human(
            value!(["Look: ", {"type": "image_url", "image_url": {"url": "http://x/y.png"}}]),
        ),
        ask,
        Message::tool("21 °C", "call_a"),
        Message::ai("Fine."),
    ];
    let stream = client.stream(&messages, &[weather]);
    stream.try_collect::<Vec<_>>().await.expect("an answer");
    let received = server.received.lock()[0].clone();
    assert_eq!(received.path, "/v1/chat/completions");
    assert_eq!(received.headers["authorization"], "Bearer secret");
    let asked = received.body;
    assert_eq!(asked["model"], "tiny");
    assert_eq!(asked["stream"], true);
    assert_eq!(asked["stream_options"]["include_usage"], true);
    assert_eq!(
        asked["messages"],
        json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [
                {"type": "text", "text": "Look: "},
                {"type": "image_url", "image_url": {"url": "http://x/y.png"}},
            ]},
            {"role": "assistant", "tool_calls": [{
                "id": "call_a", "type": "function",
                "function": {"name": "weather", "arguments": "{\"city\":\"Oslo\"}"},
            }]},
            {"role": "tool", "content": "21 °C", "tool_call_id": "call_a"},
            {"role": "assistant", "content": "Fine."},
        ])
    );
    let function = &asked["tools"][0]["function"];
    assert_eq!(function["name"], "weather");
    assert_eq!(function["description"], "Looks up the weather in a city.");
    assert_eq!(function["parameters"]["required"], json!(["city"]));
}

#[tokio::test]
async fn an_error_status_is_told_with_the_servers_words_and_without_the_key() {
    let body = json!({"error": {"message": "slow down", "type": "rate_limit", "param": null, "code": null}});
    let server = serve(429, vec![Ok(body.to_string())]).await;
    let error = refusal(&server).await;
    assert!(
        matches!(error, Error::Refused { status: 429, .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("slow down"), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[tokio::test]
async fn a_page_in_place_of_an_error_is_shortened() {
    let server = serve(404, vec![Ok("<html>".repeat(1_000))]).await;
    let error = refusal(&server).await;
    assert!(
        matches!(error, Error::Refused { status: 404, .. }),
        "{error:?}"
    );
    assert!(error.to_string().len() < 1_000, "{error}");
}

#[tokio::test]
async fn a_cut_connection_and_a_stream_without_an_end_are_errors() {
    let cut = serve(200, vec![event(json!({"content": "Hel"}), None), Err(())]).await;
    let error = refusal(&cut).await;
    assert!(matches!(error, Error::Broken { .. }), "{error:?}");
    let early = serve(200, vec![event(json!({"content": "Hel"}), None)]).await;
    let error = refusal(&early).await;
    assert!(
        error.to_string().contains("before the model was done"),
        "{error}"
    );
}

#[tokio::test]
async fn an_event_that_is_no_json_is_an_error() {
    let server = serve(200, vec![Ok("data: {oops\n\n".to_owned())]).await;
    let error = refusal(&server).await;
    assert!(matches!(error, Error::Unreadable { .. }), "{error:?}");
}

#[tokio::test]
async fn a_server_that_does_not_listen_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let base = format!("http://{}/v1", listener.local_addr().expect("bound"));
    drop(listener);
    let server = Server {
        base: base.clone(),
        received: Arc::default(),
    };
    let error = refusal(&server).await;
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains(&base), "{error}");
}

#[tokio::test]
async fn a_message_without_a_form_is_named_before_anything_is_sent() {
    let server = serve(200, vec![]).await;
    let messages = [Message::human("hi"), Message::remove("x")];
    let error = ask(&server, &messages).await.expect_err("a removal");
    let error = error.downcast::<Error>().expect("an error of this room");
    assert!(
        matches!(error, Error::Message { index: 1, .. }),
        "{error:?}"
    );
    assert!(server.received.lock().is_empty());
}

#[cfg(feature = "sqlite")]
mod agents;
mod bounds;
