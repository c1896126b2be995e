//! What Anthropic's Messages send and take.

use super::*;

const ANTHROPIC: Provider = Provider::Anthropic;

/// Events of a stream as Anthropic sends them.
fn events(all: &[Json]) -> String {
    let event = |data: &Json| {
        let kind = data["type"].as_str().expect("a type");
        format!("event: {kind}\ndata: {data}\n\n")
    };
    all.iter().map(event).collect()
}

fn start() -> Json {
    json!({"type": "message_start", "message": {
        "id": "msg_01", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5-20250929",
        "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": 25, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 5, "output_tokens": 1},
    }})
}

fn block(index: u32, content: Json) -> Json {
    json!({"type": "content_block_start", "index": index, "content_block": content})
}

fn delta(index: u32, delta: Json) -> Json {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn stop(index: u32) -> Json {
    json!({"type": "content_block_stop", "index": index})
}

fn end(reason: &str) -> [Json; 2] {
    let usage = json!({"input_tokens": 25, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 5, "output_tokens": 15});
    [
        json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null}, "usage": usage}),
        json!({"type": "message_stop"}),
    ]
}

fn greeting() -> Vec<Json> {
    let mut all = vec![
        start(),
        block(0, json!({"type": "text", "text": ""})),
        json!({"type": "ping"}),
        delta(0, json!({"type": "text_delta", "text": "Hello"})),
        delta(0, json!({"type": "text_delta", "text": ", Zoë!"})),
        stop(0),
    ];
    all.extend(end("end_turn"));
    all
}

#[tokio::test]
async fn text_is_streamed_and_ends_with_what_was_used() {
    let server = serve(vec![Recording::stream(&events(&greeting()))]).await;
    let pieces = pieces(&client(ANTHROPIC, &server), &hello())
        .await
        .expect("a reply");
    let texts: Vec<_> = pieces
        .iter()
        .filter_map(|piece| piece.content.as_str())
        .collect();
    assert_eq!(texts, ["Hello", ", Zoë!"]);
    assert!(pieces.last().is_some_and(|piece| piece.last));
    let mut whole = AiChunk::default();
    pieces.iter().for_each(|piece| whole.push(piece));
    let message = whole.message();
    assert_eq!(message.content(), &value!("Hello, Zoë!"));
    assert_eq!(
        message.get("response_metadata"),
        Some(&value!({"model_name": "claude-sonnet-4-5", "stop_reason": "end_turn"}))
    );
    let usage = message.get("usage_metadata").expect("usage");
    assert_eq!(usage["input_tokens"], 30);
    assert_eq!(usage["output_tokens"], 15);
    assert_eq!(usage["total_tokens"], 45);
    assert_eq!(usage["input_token_details"]["cache_read"], 5);
    let received = server.received.lock()[0].clone();
    assert_eq!(received.path, "/v1/messages");
    assert_eq!(received.headers["x-api-key"], "secret");
    assert!(received.headers.contains_key("anthropic-version"));
}

fn tool_use(index: u32, id: &str, arguments: &[&str]) -> Vec<Json> {
    let mut all = vec![block(
        index,
        json!({"type": "tool_use", "id": id, "name": "weather", "input": {}}),
    )];
    let part = |text: &&str| {
        delta(
            index,
            json!({"type": "input_json_delta", "partial_json": text}),
        )
    };
    all.extend(arguments.iter().map(part));
    all
}

#[tokio::test]
async fn parallel_calls_are_joined_from_pieces_of_their_arguments() {
    let mut all = vec![start()];
    all.extend(tool_use(0, "toolu_1", &["", "{\"city\": \"O", "slo\"}"]));
    all.push(stop(0));
    all.extend(tool_use(1, "toolu_2", &["{\"city\": \"Rome\"}"]));
    all.push(stop(1));
    all.extend(end("tool_use"));
    let message = reply(ANTHROPIC, Recording::stream(&events(&all)))
        .await
        .expect("calls");
    let ids: Vec<_> = message
        .tool_calls()
        .into_iter()
        .filter_map(|call| call.id)
        .collect();
    assert_eq!(ids, ["toolu_1".into(), "toolu_2".into()]);
    assert_eq!(
        calls(&message),
        [
            ("weather".to_owned(), json!({"city": "Oslo"})),
            ("weather".to_owned(), json!({"city": "Rome"})),
        ]
    );
}

#[tokio::test]
async fn arguments_that_are_no_json_are_an_invalid_call_with_their_text() {
    let mut all = vec![start()];
    all.extend(tool_use(0, "toolu_1", &["{\"city\": \"Os"]));
    all.push(stop(0));
    all.extend(end("max_tokens"));
    let message = reply(ANTHROPIC, Recording::stream(&events(&all)))
        .await
        .expect("a reply");
    assert!(message.tool_calls().is_empty());
    let invalid = message.get("invalid_tool_calls").expect("the call");
    assert_eq!(invalid[0]["args"], "{\"city\": \"Os");
    assert_eq!(invalid[0]["id"], "toolu_1");
}

#[tokio::test]
async fn reasoning_is_a_part_with_its_signature_and_goes_back_with_it() {
    let mut all = vec![
        start(),
        block(
            0,
            json!({"type": "thinking", "thinking": "", "signature": ""}),
        ),
    ];
    for text in ["Let me ", "see."] {
        all.push(delta(
            0,
            json!({"type": "thinking_delta", "thinking": text}),
        ));
    }
    all.push(delta(
        0,
        json!({"type": "signature_delta", "signature": "c2lnbmVk"}),
    ));
    all.push(stop(0));
    all.push(block(
        1,
        json!({"type": "redacted_thinking", "data": "b3BhcXVl"}),
    ));
    all.push(stop(1));
    all.push(block(2, json!({"type": "text", "text": ""})));
    all.push(delta(2, json!({"type": "text_delta", "text": "Warm."})));
    all.push(stop(2));
    all.extend(end("end_turn"));
    let server = serve(vec![
        Recording::stream(&events(&all)),
        Recording::stream(&events(&greeting())),
    ])
    .await;
    let client = client(ANTHROPIC, &server);
    let options = CallOptions::new().reasoning(Reasoning::Low);
    let first = complete(&client, &hello(), &[], &options)
        .await
        .expect("a reply");
    assert_eq!(
        first.content(),
        &value!([
            {"type": "reasoning", "reasoning": "Let me see.", "index": 0, "extras": {"signature": "c2lnbmVk"}},
            {"type": "text", "text": "Warm.", "index": 1},
            {"type": "redacted_thinking", "data": "b3BhcXVl"},
        ])
    );
    assert_eq!(first.text(), "Warm.");
    let again = [Message::human("hi"), first, Message::human("sure?")];
    complete(&client, &again, &[], &options)
        .await
        .expect("a reply");
    let received = server.received.lock();
    assert_eq!(
        received[0].body["thinking"],
        json!({"type": "enabled", "budget_tokens": 1024})
    );
    assert_eq!(
        received[1].body["messages"][1],
        json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Let me see.", "signature": "c2lnbmVk"},
            {"type": "redacted_thinking", "data": "b3BhcXVl"},
            {"type": "text", "text": "Warm."},
        ]})
    );
}

#[tokio::test]
async fn the_request_has_the_conversation_the_tools_and_the_options() {
    let server = serve(vec![Recording::stream(&events(&greeting()))]).await;
    let asking = |id: &str| crate::message::ToolCall {
        id: Some(id.into()),
        name: "weather".into(),
        args: value!({"city": "Oslo"}),
    };
    let messages = [
        Message::system("Be brief."),
        Message::human(value!([
            "Look: ",
            {"type": "image", "base64": "aGk=", "mime_type": "image/png"},
            {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
            {"type": "file", "base64": "aGk=", "mime_type": "application/pdf"},
            {"type": "file", "base64": "aGk=", "mime_type": "text/plain"},
        ])),
        Message::ai("")
            .with_tool_call(asking("a"))
            .with_tool_call(asking("b")),
        Message::tool("21 °C\u{0}", "a"),
        Message::tool("no idea", "b").with_field("status", "error"),
    ];
    let schema = ReplySchema {
        name: "report".into(),
        schema: json!({"type": "object", "properties": {"degrees": {"type": "integer"}}}),
    };
    let mut options = CallOptions::new()
        .temperature(0.2)
        .max_tokens(100)
        .stop("END")
        .tool_choice(ToolChoice::Tool("weather".into()));
    options.schema = Some(schema);
    complete(
        &client(ANTHROPIC, &server),
        &messages,
        &[weather()],
        &options,
    )
    .await
    .expect("a reply");
    let body = body(&server);
    assert_eq!(body["system"], "Be brief.");
    assert_eq!(body["model"], "claude-sonnet-4-5");
    assert_eq!(body["stream"], true);
    assert_eq!(body["max_tokens"], 100);
    assert_eq!(body["temperature"], 0.2);
    assert_eq!(body["stop_sequences"], json!(["END"]));
    assert_eq!(
        body["tool_choice"],
        json!({"type": "tool", "name": "weather"})
    );
    assert_eq!(body["tools"][0]["name"], "weather");
    assert_eq!(
        body["tools"][0]["description"],
        "Looks up the weather in a city."
    );
    assert_eq!(
        body["tools"][0]["input_schema"]["required"],
        json!(["city"])
    );
    assert_eq!(body["output_config"]["format"]["type"], "json_schema");
    let bytes = |kind: &str, mime: &str| {
        let source = json!({"type": "base64", "media_type": mime, "data": "aGk="});
        json!({"type": kind, "source": source})
    };
    let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "weather", "input": {"city": "Oslo"}});
    assert_eq!(
        body["messages"],
        json!([
            {"role": "user", "content": [
                {"type": "text", "text": "Look: "},
                bytes("image", "image/png"),
                {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
                bytes("document", "application/pdf"),
                {"type": "text", "text": "hi"},
            ]},
            {"role": "assistant", "content": [call("a"), call("b")]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "21 °C\u{0}"},
                {"type": "tool_result", "tool_use_id": "b", "content": "no idea", "is_error": true},
            ]},
        ])
    );
}

#[tokio::test]
async fn what_it_does_not_take_is_an_error_before_anything_is_sent() {
    let server = serve(vec![Recording::stream("")]).await;
    for (part, reason) in [
        (
            value!({"type": "audio", "base64": "aGk=", "mime_type": "audio/wav"}),
            "does not take audio",
        ),
        (
            value!({"type": "image", "base64": "aGk="}),
            "no `mime_type`",
        ),
        (
            value!({"type": "file", "base64": "/w==", "mime_type": "text/plain"}),
            "not UTF-8",
        ),
        (value!({"type": "hologram"}), "`hologram` has no form"),
    ] {
        let messages = [
            Message::human("hi"),
            Message::human(Value::list(vec![part])),
        ];
        let error = pieces(&client(ANTHROPIC, &server), &messages)
            .await
            .expect_err("no form");
        let error = error.downcast::<Error>().expect("an error of models");
        assert!(
            matches!(error, Error::Message { index: 1, .. }),
            "{error:?}"
        );
        assert!(error.to_string().contains(reason), "{error}");
    }
    assert!(server.received.lock().is_empty());
}

#[tokio::test]
async fn refusals_have_the_providers_words_and_how_long_to_wait_but_never_the_key() {
    let body = json!({"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}});
    let error = failure(ANTHROPIC, Recording::json(401, &body)).await;
    assert!(
        matches!(error, Error::Refused { status: 401, .. }),
        "{error:?}"
    );
    assert!(!error.is_transient());
    assert!(
        error
            .to_string()
            .contains("authentication_error: invalid x-api-key"),
        "{error}"
    );
    assert!(!error.to_string().contains("secret"), "{error}");
    let body =
        json!({"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}});
    let limited = Recording::json(429, &body).header("retry-after", "7");
    let error = failure(ANTHROPIC, limited).await;
    let Error::Refused {
        status: 429,
        retry_after,
        ..
    } = &error
    else {
        panic!("{error:?}")
    };
    assert_eq!(*retry_after, Some(Duration::from_secs(7)));
    assert!(error.is_transient());
    let error = failure(
        ANTHROPIC,
        Recording::of(500, vec![Ok("<html>".repeat(1000))]),
    )
    .await;
    assert!(
        matches!(error, Error::Refused { status: 500, .. }),
        "{error:?}"
    );
    assert!(error.to_string().len() < 1000, "{error}");
}

#[tokio::test]
async fn a_stream_that_ends_early_is_an_error_wherever_it_ends() {
    let text = &greeting()[..4];
    let mut call = vec![start()];
    call.extend(tool_use(0, "toolu_1", &["{\"city\": \"O"]));
    for events in [events(text), events(&call), events(&[start()])] {
        for recording in [Recording::stream(&events), Recording::cut(&events)] {
            let error = failure(ANTHROPIC, recording).await;
            assert!(matches!(error, Error::Broken { .. }), "{error:?}");
            assert!(error.is_transient());
        }
    }
}

#[tokio::test]
async fn an_error_in_the_middle_of_a_stream_is_the_error_of_the_call() {
    let mut all = greeting()[..4].to_vec();
    all.push(
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
    );
    let error = failure(ANTHROPIC, Recording::stream(&events(&all))).await;
    assert!(
        matches!(error, Error::Refused { status: 529, .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("Overloaded"), "{error}");
    let error = failure(
        ANTHROPIC,
        Recording::stream("event: content_block_delta\ndata: {oops\n\n"),
    )
    .await;
    assert!(matches!(error, Error::Unreadable { .. }), "{error:?}");
}

#[tokio::test]
async fn a_reply_that_is_too_long_is_given_up() {
    let mut all = greeting()[..3].to_vec();
    let text = "x".repeat(1000);
    all.extend((0..20).map(|_| delta(0, json!({"type": "text_delta", "text": text}))));
    all.push(stop(0));
    all.extend(end("end_turn"));
    let server = serve(vec![Recording::of(200, vec![Ok(events(&all))])]).await;
    let client = client(ANTHROPIC, &server).reply_bytes(10_000);
    let error = complete(&client, &hello(), &[], &CallOptions::new())
        .await
        .expect_err("20 kB");
    assert!(
        error.to_string().contains("longer than 10000 bytes"),
        "{error}"
    );
}

#[tokio::test]
async fn a_silent_server_is_left() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let base = format!("http://{}", listener.local_addr().expect("bound"));
    let client = Client::new(ANTHROPIC, "secret", "claude").expect("a client");
    let client = client.at(&base).begin_within(Duration::from_millis(50));
    let error = complete(&client, &hello(), &[], &CallOptions::new())
        .await
        .expect_err("silence");
    let error = error.downcast::<Error>().expect("an error of models");
    assert!(matches!(error, Error::Silent { .. }), "{error:?}");
    drop(listener);
}

#[tokio::test]
async fn a_signature_without_an_end_is_too_long_before_it_is_a_piece() {
    let mut all = vec![
        start(),
        block(
            0,
            json!({"type": "thinking", "thinking": "", "signature": ""}),
        ),
    ];
    let part = json!({"type": "signature_delta", "signature": "x".repeat(200)});
    all.extend((0..6).map(|_| delta(0, part.clone())));
    let server = serve(vec![Recording::stream(&events(&all))]).await;
    let client = client(ANTHROPIC, &server).reply_bytes(1000);
    let error = pieces(&client, &hello()).await.expect_err("it is too long");
    let error = error.downcast::<Error>().expect("an error of models");
    assert!(
        matches!(error, Error::TooLong { most: 1000, .. }),
        "{error}"
    );
}
