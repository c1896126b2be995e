//! What a server of Ollama sends and takes.

use super::*;

const OLLAMA: Provider = Provider::Ollama;

/// Lines of a stream as Ollama sends them.
fn lines(all: &[Json]) -> String {
    all.iter().map(|line| format!("{line}\n")).collect()
}

fn message(message: Json) -> Json {
    json!({"model": "qwen3", "created_at": "2026-01-01T00:00:00Z", "message": message, "done": false})
}

fn end() -> Json {
    json!({
        "model": "qwen3", "created_at": "2026-01-01T00:00:01Z",
        "message": {"role": "assistant", "content": ""}, "done": true, "done_reason": "stop",
        "total_duration": 1, "prompt_eval_count": 26, "eval_count": 4,
    })
}

fn text(text: &str) -> Json {
    message(json!({"role": "assistant", "content": text}))
}

#[tokio::test]
async fn text_and_thoughts_are_streamed_and_end_with_what_was_used() {
    let thought = message(json!({"role": "assistant", "content": "", "thinking": "Let me see."}));
    let all = [thought, text("Hello"), text(", Zoë!"), end()];
    let server = serve(vec![Recording::stream(&lines(&all))]).await;
    let options = CallOptions::new().reasoning(Reasoning::Medium);
    let reply = complete(&client(OLLAMA, &server), &hello(), &[], &options)
        .await
        .expect("a reply");
    assert_eq!(
        reply.content(),
        &value!([
            {"type": "reasoning", "reasoning": "Let me see.", "index": 0},
            {"type": "text", "text": "Hello, Zoë!", "index": 1},
        ])
    );
    assert_eq!(reply.text(), "Hello, Zoë!");
    assert_eq!(
        reply.get("usage_metadata"),
        Some(&value!({"input_tokens": 26, "output_tokens": 4, "total_tokens": 30}))
    );
    assert_eq!(
        reply.get("response_metadata").expect("metadata")["done_reason"],
        "stop"
    );
    let received = server.received.lock()[0].clone();
    assert_eq!(received.path, "/api/chat");
    assert_eq!(received.body["think"], "medium");
}

#[tokio::test]
async fn an_end_without_a_reason_is_one_and_a_stream_without_an_end_is_not() {
    let end = json!({"model": "qwen3", "done": true, "eval_count": -4});
    let message = reply(OLLAMA, Recording::stream(&lines(&[text("Hello"), end])))
        .await
        .expect("a reply");
    assert_eq!(message.text(), "Hello");
    assert_eq!(
        message.get("response_metadata"),
        Some(&value!({"model_name": "qwen3"}))
    );
    assert_eq!(
        message.get("usage_metadata").expect("usage")["output_tokens"],
        0
    );
    let error = failure(OLLAMA, Recording::stream(&lines(&[text("Hello")]))).await;
    assert!(matches!(error, Error::Broken { .. }), "{error:?}");
}

#[tokio::test]
async fn calls_come_whole_and_get_ids() {
    let call = |city: &str| json!({"function": {"name": "weather", "arguments": {"city": city}}});
    let all = [
        message(
            json!({"role": "assistant", "content": "", "tool_calls": [call("Oslo"), call("Rome")]}),
        ),
        end(),
    ];
    let reply = reply(OLLAMA, Recording::stream(&lines(&all)))
        .await
        .expect("calls");
    let cities: Vec<_> = calls(&reply)
        .into_iter()
        .map(|(_, args)| args["city"].clone())
        .collect();
    assert_eq!(cities, ["Oslo", "Rome"]);
    let ids: std::collections::HashSet<_> = reply
        .tool_calls()
        .into_iter()
        .filter_map(|call| call.id)
        .collect();
    assert_eq!(ids.len(), 2);
}

#[tokio::test]
async fn arguments_that_are_no_object_are_an_invalid_call() {
    let call = json!({"function": {"name": "weather", "arguments": "Oslo, please"}});
    let all = [
        message(json!({"role": "assistant", "content": "", "tool_calls": [call]})),
        end(),
    ];
    let reply = reply(OLLAMA, Recording::stream(&lines(&all)))
        .await
        .expect("a reply");
    assert!(reply.tool_calls().is_empty());
    assert_eq!(
        reply.get("invalid_tool_calls").expect("the call")[0]["args"],
        "Oslo, please"
    );
}

#[tokio::test]
async fn the_request_has_the_conversation_the_tools_and_the_options() {
    let server = serve(vec![Recording::stream(&lines(&[text("ok"), end()]))]).await;
    let messages = [
        Message::system("Be brief."),
        Message::human(
            value!(["Look: ", {"type": "image", "base64": "aGk=", "mime_type": "image/png"}]),
        ),
        Message::ai("").with_tool_call(crate::message::ToolCall {
            id: Some("a".into()),
            name: "weather".into(),
            args: value!({"city": "Oslo"}),
        }),
        Message::tool("21 °C", "a"),
    ];
    let options = CallOptions::new().temperature(0.5).max_tokens(10).seed(1);
    complete(&client(OLLAMA, &server), &messages, &[weather()], &options)
        .await
        .expect("a reply");
    let first = body(&server);
    assert_eq!(
        first["options"],
        json!({"temperature": 0.5, "num_predict": 10, "seed": 1})
    );
    assert_eq!(first["tools"][0]["function"]["name"], "weather");
    assert_eq!(
        first["messages"],
        json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Look: ", "images": ["aGk="]},
            {"role": "assistant", "tool_calls": [
                {"function": {"name": "weather", "arguments": {"city": "Oslo"}}}]},
            {"role": "tool", "content": "21 °C"},
        ])
    );
    // It has no word for calling no tool: then it gets none.
    let options = CallOptions::new().tool_choice(ToolChoice::None);
    complete(&client(OLLAMA, &server), &hello(), &[weather()], &options)
        .await
        .expect("a reply");
    assert_eq!(server.received.lock()[1].body.get("tools"), None);
    let image = Message::human(value!([{"type": "image", "url": "https://x/y.png"}]));
    let error = pieces(&client(OLLAMA, &server), &[image])
        .await
        .expect_err("a URL");
    assert!(error.to_string().contains("as `base64` only"), "{error}");
}

#[tokio::test]
async fn refusals_and_errors_in_mid_stream_say_why() {
    let missing = json!({"error": "model 'qwen3' not found"});
    let error = failure(OLLAMA, Recording::json(404, &missing)).await;
    assert!(
        matches!(error, Error::Refused { status: 404, .. }),
        "{error:?}"
    );
    assert!(
        error.to_string().contains("model 'qwen3' not found"),
        "{error}"
    );
    let all = [
        text("Hel"),
        json!({"error": "an error was encountered while running the model"}),
    ];
    let error = failure(OLLAMA, Recording::stream(&lines(&all))).await;
    assert!(matches!(error, Error::Broken { .. }), "{error:?}");
    assert!(
        error.to_string().contains("while running the model"),
        "{error}"
    );
}

#[tokio::test]
async fn a_stream_that_ends_early_is_an_error() {
    let call = json!({"function": {"name": "weather", "arguments": {"city": "Oslo"}}});
    let call = message(json!({"role": "assistant", "content": "", "tool_calls": [call]}));
    for all in [vec![text("Hel")], vec![call], vec![]] {
        for recording in [Recording::stream, Recording::cut] {
            let error = failure(OLLAMA, recording(&lines(&all))).await;
            assert!(matches!(error, Error::Broken { .. }), "{error:?}");
        }
    }
}

#[tokio::test]
async fn texts_become_vectors() {
    let body = json!({"model": "nomic", "embeddings": [[1.0, 0.0], [0.0, 2.0]]});
    let server = serve(vec![Recording::json(200, &body)]).await;
    let model = Client::new(OLLAMA, "", "nomic")
        .expect("a client")
        .at(&server.base);
    let model = EmbeddingModel::new(model).expect("it has embeddings");
    let vectors = model
        .embed(vec!["a".into(), "b".into()])
        .await
        .expect("vectors");
    assert_eq!(vectors, [[1.0, 0.0], [0.0, 2.0]]);
    assert_eq!(server.received.lock()[0].path, "/api/embed");
}
