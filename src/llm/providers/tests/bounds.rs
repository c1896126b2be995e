//! How much of a reply is taken, and how long a provider may be silent.

use super::*;
use crate::llm::{Fallback, openai};

const MEGABYTE: usize = 1 << 20;

fn event(data: &Json) -> String {
    // Anthropic names its events.
    let kind = data["type"].as_str().unwrap_or("message");
    format!("event: {kind}\ndata: {data}\n\n")
}

/// The stream of a provider that sends this text so often, one event each, and is then done if it says so.
fn texts(provider: Provider, text: &str, times: usize, done: bool) -> Vec<Result<String, ()>> {
    let (start, one, end) = match provider {
        Provider::Anthropic => (
            event(&json!({"type": "message_start", "message": {"id": "m", "content": []}}))
                + &event(
                    &json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
                ),
            event(
                &json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
            ),
            event(&json!({"type": "content_block_stop", "index": 0}))
                + &event(
                    &json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}),
                )
                + &event(&json!({"type": "message_stop"})),
        ),
        Provider::Gemini => {
            let candidate =
                |text: &str| json!({"content": {"parts": [{"text": text}]}, "index": 0});
            let mut last = candidate("");
            last["finishReason"] = "STOP".into();
            (
                String::new(),
                event(&json!({"candidates": [candidate(text)]})),
                event(&json!({"candidates": [last]})),
            )
        }
        Provider::Ollama => (
            String::new(),
            format!("{}\n", json!({"message": {"content": text}, "done": false})),
            format!(
                "{}\n",
                json!({"message": {"content": ""}, "done": true, "done_reason": "stop", "eval_count": 1})
            ),
        ),
    };
    let mut parts = vec![Ok(start)];
    parts.extend(std::iter::repeat_n(Ok(one), times));
    if done {
        parts.push(Ok(end));
    }
    parts
}

#[tokio::test]
async fn a_reply_of_every_provider_may_have_ten_megabytes_and_no_more() {
    let text = "x".repeat(MEGABYTE);
    for provider in [Provider::Anthropic, Provider::Gemini, Provider::Ollama] {
        let of = |times| Recording::of(200, texts(provider, &text, times, true));
        let long = reply(provider, of(10)).await.expect("ten megabytes");
        assert_eq!(long.text().len(), 10 * MEGABYTE, "{provider:?}");
        let error = failure(provider, of(11)).await;
        assert!(
            matches!(error, Error::TooLong { most, .. } if most == 10 * MEGABYTE),
            "{provider:?}: {error:?}"
        );
        assert!(!error.is_transient(), "another attempt is as long");
    }
}

#[tokio::test]
async fn a_reply_of_openai_may_have_ten_megabytes_and_no_more() {
    let text = "x".repeat(MEGABYTE);
    let of = |times| {
        let delta = json!({"choices": [{"delta": {"content": text}}]});
        let end = json!({"model": "tiny", "choices": [{"delta": {}, "finish_reason": "stop"}]});
        let mut parts = vec![Ok(event(&delta)); times];
        parts.push(Ok(event(&end) + "data: [DONE]\n\n"));
        Recording::of(200, parts)
    };
    for (times, fits) in [(10, true), (11, false)] {
        let server = serve(vec![of(times)]).await;
        let client = openai::Client::new(&*server.base, "secret", "tiny").expect("a client");
        let reply = complete(&client, &hello(), &[], &CallOptions::new()).await;
        if fits {
            assert_eq!(reply.expect("ten megabytes").text().len(), 10 * MEGABYTE);
        } else {
            let error = reply.expect_err("eleven").downcast().expect("of models");
            assert!(matches!(error, Error::TooLong { .. }), "{error:?}");
        }
    }
}

#[tokio::test]
async fn counts_that_are_too_large_fail_the_reply_or_are_left_out() {
    let most = i32::MAX;
    let usage =
        json!({"input_tokens": most, "cache_read_input_tokens": most, "output_tokens": most});
    let start =
        json!({"type": "message_start", "message": {"id": "m", "content": [], "usage": usage}});
    let end =
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage});
    let stop = json!({"type": "message_stop"});
    let of_anthropic = [start, end, stop].iter().map(event).collect::<String>();
    let counts = json!({
        "promptTokenCount": most, "candidatesTokenCount": most, "thoughtsTokenCount": most, "totalTokenCount": most,
    });
    let of_gemini = event(&json!({
        "candidates": [{"content": {"parts": [{"text": "Hello"}]}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": counts,
    }));
    for (provider, text) in [
        (Provider::Anthropic, of_anthropic),
        (Provider::Gemini, of_gemini),
    ] {
        match reply(provider, Recording::stream(&text)).await {
            Ok(reply) => {
                let usage = reply.get("usage_metadata").expect("usage");
                assert!(usage["input_tokens"].as_i64() >= Some(0), "{usage:?}");
            }
            Err(error) => {
                let error: Error = error.downcast().expect("an error of models");
                assert!(matches!(error, Error::Unreadable { .. }), "{error:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_provider_that_falls_silent_in_its_reply_is_left_and_not_called_anew() {
    for provider in [Provider::Anthropic, Provider::Gemini, Provider::Ollama] {
        let begun = texts(provider, "Hello", 1, false).into_iter();
        let begun: String = begun.map(|part| part.expect("a text")).collect();
        let server = serve(vec![Recording::stalling(&begun)]).await;
        let model = Fallback::new(client(provider, &server)).silence(Duration::from_millis(50));
        let mut pieces = model.stream(&hello(), &[]);
        let first = pieces
            .next()
            .await
            .expect("a piece")
            .expect("the beginning");
        assert_eq!(first.content.as_str(), Some("Hello"), "{provider:?}");
        let error = pieces.next().await.expect("more").expect_err("silence");
        let error: Error = error.downcast().expect("an error of models");
        assert!(
            matches!(error, Error::Silent { .. }),
            "{provider:?}: {error:?}"
        );
        assert_eq!(server.received.lock().len(), 1, "{provider:?}");
    }
}

#[tokio::test]
async fn a_provider_that_does_not_begin_is_called_anew() {
    let provider = Provider::Ollama;
    let whole = Recording::of(200, texts(provider, "Hello", 1, true));
    let server = serve(vec![Recording::stalling(""), whole]).await;
    // More attempts than a slow machine needs to send the whole reply in time.
    let model = Fallback::new(client(provider, &server)).starting_at(Duration::ZERO);
    let model = model.begin_within(Duration::from_millis(500)).attempts(20);
    let reply = complete(&model, &hello(), &[], &CallOptions::new()).await;
    assert_eq!(reply.expect("a later attempt").text(), "Hello");
}

#[test]
fn a_minute_of_silence_is_the_limit_but_where_a_provider_is_known_to_work_without_a_sign() {
    let limits = |provider, model: &str, tools| {
        let client = Client::new(provider, "", model).expect("a client");
        let limits = client.limits.of_call(&CallOptions::new(), tools);
        (limits.begin.as_secs(), limits.silence.as_secs())
    };
    let claude = |tools| limits(Provider::Anthropic, "claude-sonnet-4-5", tools);
    assert_eq!((claude(0), claude(3)), ((60, 60), (60, 60)));
    let gemini = |tools| limits(Provider::Gemini, "gemini-2.0-flash", tools);
    assert_eq!((gemini(0), gemini(3)), ((60, 60), (300, 300)));
    assert_eq!(limits(Provider::Gemini, "gemini-2.5-pro", 0), (300, 60));
    let qwen = |tools| limits(Provider::Ollama, "qwen3", tools);
    assert_eq!((qwen(0), qwen(3)), ((300, 60), (300, 300)));
}
