//! What Google's Gemini API sends and takes.

use super::*;

const GEMINI: Provider = Provider::Gemini;

/// Events of a stream as Google sends them.
fn events(all: &[Json]) -> String {
    all.iter()
        .map(|data| format!("data: {data}\r\n\r\n"))
        .collect()
}

fn parts(parts: Json) -> Json {
    json!({
        "candidates": [{"content": {"parts": parts, "role": "model"}, "index": 0}],
        "usageMetadata": {"promptTokenCount": 8, "totalTokenCount": 8},
        "modelVersion": "gemini-3-flash",
    })
}

fn end(parts: Json) -> Json {
    json!({
        "candidates": [{"content": {"parts": parts, "role": "model"}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {
            "promptTokenCount": 8, "candidatesTokenCount": 4, "thoughtsTokenCount": 10,
            "totalTokenCount": 22, "cachedContentTokenCount": 2,
        },
        "modelVersion": "gemini-3-flash",
    })
}

#[tokio::test]
async fn text_is_streamed_and_ends_with_what_was_used() {
    let all = [
        parts(json!([{"text": "Hello"}])),
        end(json!([{"text": ", Zoë!"}])),
    ];
    let server = serve(vec![Recording::stream(&events(&all))]).await;
    let message = complete(&client(GEMINI, &server), &hello(), &[], &CallOptions::new()).await;
    let message = message.expect("a reply");
    assert_eq!(message.content(), &value!("Hello, Zoë!"));
    let usage = message.get("usage_metadata").expect("usage");
    assert_eq!(usage["input_tokens"], 8);
    assert_eq!(usage["output_tokens"], 14, "with what it thought");
    assert_eq!(usage["total_tokens"], 22);
    assert_eq!(usage["output_token_details"]["reasoning"], 10);
    assert_eq!(usage["input_token_details"]["cache_read"], 2);
    assert_eq!(
        message.get("response_metadata"),
        Some(&value!({"model_name": "gemini-3-flash", "finish_reason": "STOP"}))
    );
    let received = server.received.lock()[0].clone();
    assert_eq!(
        received.path,
        "/v1beta/models/gemini-3-flash:streamGenerateContent?alt=sse"
    );
    assert_eq!(received.headers["x-goog-api-key"], "secret");
}

fn function(name: &str, city: &str, signature: Option<&str>) -> Json {
    let mut part = json!({"functionCall": {"name": name, "args": {"city": city}}});
    if let Some(signature) = signature {
        part["thoughtSignature"] = signature.into();
    }
    part
}

#[tokio::test]
async fn calls_get_ids_and_go_back_with_their_signatures() {
    // Two in one event, and one more of this name in the next.
    let first = json!([
        function("weather", "Oslo", Some("c2ln")),
        function("weather", "Rome", None)
    ]);
    let all = [
        parts(first),
        end(json!([function("weather", "Lima", None)])),
    ];
    let last = [end(json!([{"text": "Warm."}]))];
    let server = serve(vec![
        Recording::stream(&events(&all)),
        Recording::stream(&events(&last)),
    ])
    .await;
    let client = client(GEMINI, &server);
    let message = complete(&client, &hello(), &[], &CallOptions::new())
        .await
        .expect("calls");
    let cities: Vec<_> = calls(&message)
        .into_iter()
        .map(|(_, args)| args["city"].clone())
        .collect();
    assert_eq!(cities, ["Oslo", "Rome", "Lima"]);
    let ids: Vec<_> = message
        .tool_calls()
        .into_iter()
        .filter_map(|call| call.id)
        .collect();
    let different: std::collections::HashSet<_> = ids.iter().collect();
    assert_eq!(different.len(), 3, "{ids:?}");
    let mut messages = vec![Message::human("hi"), message];
    let results = ids
        .iter()
        .map(|id| Message::tool("warm", id.clone()).with_name("weather"));
    messages.extend(results);
    complete(&client, &messages, &[], &CallOptions::new())
        .await
        .expect("a reply");
    let body = server.received.lock()[1].body.clone();
    let model = body["contents"][1]["parts"]
        .as_array()
        .expect("parts")
        .clone();
    assert_eq!(model.len(), 3);
    assert_eq!(model[0]["thoughtSignature"], "c2ln");
    assert_eq!(model[0]["functionCall"]["args"], json!({"city": "Oslo"}));
    assert_eq!(model[1].get("thoughtSignature"), None);
    let results = body["contents"][2]["parts"]
        .as_array()
        .expect("parts")
        .clone();
    assert_eq!(results.len(), 3, "in one turn");
    assert_eq!(results[2]["functionResponse"]["name"], "weather");
    assert_eq!(
        results[2]["functionResponse"]["id"],
        model[2]["functionCall"]["id"]
    );
}

#[tokio::test]
async fn thoughts_are_parts_of_reasoning() {
    let all = [
        parts(json!([{"text": "Let me see.", "thought": true}])),
        parts(json!([{"text": "Warm", "thoughtSignature": "c2ln"}])),
        end(json!([{"text": "."}])),
    ];
    let server = serve(vec![Recording::stream(&events(&all))]).await;
    let options = CallOptions::new().reasoning(Reasoning::High);
    let message = complete(&client(GEMINI, &server), &hello(), &[], &options).await;
    assert_eq!(
        message.expect("a reply").content(),
        &value!([
            {"type": "reasoning", "reasoning": "Let me see.", "index": 0},
            {"type": "text", "text": "Warm.", "index": 1},
        ])
    );
    let config = &body(&server)["generationConfig"]["thinkingConfig"];
    assert_eq!(config["includeThoughts"], true);
    assert_eq!(config["thinkingLevel"], "HIGH");
}

#[tokio::test]
async fn the_request_has_the_conversation_the_tools_and_the_options() {
    let server = serve(vec![Recording::stream(&events(&[end(
        json!([{"text": "{}"}]),
    )]))])
    .await;
    let weather = weather();
    let messages = [
        Message::system("Be brief."),
        Message::human(value!([
            "Look: ",
            {"type": "image", "base64": "aGk=", "mime_type": "image/png"},
            {"type": "file", "url": "https://x/y.pdf", "mime_type": "application/pdf"},
            {"type": "audio", "base64": "aGk=", "mime_type": "audio/wav"},
        ])),
        Message::ai("Fine."),
        Message::human("And now?"),
    ];
    let mut options = CallOptions::new()
        .max_tokens(100)
        .seed(7)
        .tool_choice(ToolChoice::Any);
    options.schema = Some(ReplySchema {
        name: "report".into(),
        schema: json!({"type": "object"}),
    });
    complete(&client(GEMINI, &server), &messages, &[weather], &options)
        .await
        .expect("a reply");
    let body = body(&server);
    assert_eq!(body["systemInstruction"]["parts"][0]["text"], "Be brief.");
    let config = &body["generationConfig"];
    assert_eq!(config["maxOutputTokens"], 100);
    assert_eq!(config["seed"], 7);
    assert_eq!(config["responseMimeType"], "application/json");
    assert_eq!(config["responseJsonSchema"], json!({"type": "object"}));
    assert_eq!(config.get("thinkingConfig"), None, "not every model thinks");
    assert_eq!(body["toolConfig"]["functionCallingConfig"]["mode"], "ANY");
    let function = &body["tools"][0]["functionDeclarations"][0];
    assert_eq!(function["name"], "weather");
    assert_eq!(
        function["parametersJsonSchema"]["required"],
        json!(["city"])
    );
    assert_eq!(
        body["contents"],
        json!([
            {"role": "user", "parts": [
                {"text": "Look: "},
                {"inline_data": {"mime_type": "image/png", "data": "aGk="}},
                {"file_data": {"mime_type": "application/pdf", "file_uri": "https://x/y.pdf"}},
                {"inline_data": {"mime_type": "audio/wav", "data": "aGk="}},
            ]},
            {"role": "model", "parts": [{"text": "Fine."}]},
            {"role": "user", "parts": [{"text": "And now?"}]},
        ])
    );
}

#[tokio::test]
async fn refusals_and_errors_in_mid_stream_have_their_status() {
    let body = json!({"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT"}});
    let error = failure(GEMINI, Recording::json(400, &body)).await;
    assert!(
        matches!(error, Error::Refused { status: 400, .. }),
        "{error:?}"
    );
    assert!(
        error
            .to_string()
            .contains("INVALID_ARGUMENT: API key not valid."),
        "{error}"
    );
    assert!(!error.to_string().contains("secret"), "{error}");
    let late = json!({"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}});
    let all = [parts(json!([{"text": "Hel"}])), late];
    let error = failure(GEMINI, Recording::stream(&events(&all))).await;
    assert!(
        matches!(error, Error::Refused { status: 503, .. }),
        "{error:?}"
    );
    assert!(error.is_transient());
    let blocked = json!({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 8}});
    let error = failure(GEMINI, Recording::stream(&events(&[blocked]))).await;
    assert!(
        error.to_string().contains("may have been blocked"),
        "{error}"
    );
}

#[tokio::test]
async fn a_stream_that_ends_early_is_an_error_wherever_it_ends() {
    for all in [
        vec![parts(json!([{"text": "Hel"}]))],
        vec![parts(json!([function("weather", "Oslo", None)]))],
        vec![],
    ] {
        let events = events(&all);
        for recording in [Recording::stream(&events), Recording::cut(&events)] {
            let error = failure(GEMINI, recording).await;
            assert!(matches!(error, Error::Broken { .. }), "{error:?}");
        }
    }
}

#[tokio::test]
async fn texts_become_vectors_in_their_order() {
    let body = json!({"embeddings": [{"values": [1.0, 0.0]}, {"values": [0.0, 2.0]}]});
    let busy = Recording::json(503, &json!({"error": {"message": "busy"}}));
    let busy = busy.header("retry-after", "0");
    let server = serve(vec![busy, Recording::json(200, &body)]).await;
    let model = Client::new(GEMINI, "secret", "gemini-embedding-001").expect("a client");
    let model = EmbeddingModel::new(model.at(&server.base)).expect("it has embeddings");
    let vectors = model
        .embed(vec!["a".into(), "b".into()])
        .await
        .expect("vectors");
    assert_eq!(vectors, [[1.0, 0.0], [0.0, 2.0]]);
    assert_eq!(model.name(), "gemini-embedding-001");
    let received = server.received.lock()[0].clone();
    assert_eq!(
        received.path,
        "/v1beta/models/gemini-embedding-001:batchEmbedContents"
    );
    // Fewer vectors than texts are no vectors.
    let error = model.embed(vec!["a".into()]).await.expect_err("two of one");
    assert!(
        error.to_string().contains("2 vectors of 1 texts"),
        "{error}"
    );
}
