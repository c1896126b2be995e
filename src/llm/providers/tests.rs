//! Tests of the providers' clients against recordings of what the providers send.

use futures::TryStreamExt;
use serde_json::{Value as Json, json};

use super::*;
use crate::{
    llm::{
        Embeddings, Reasoning, ReplySchema, ToolChoice, complete,
        replay::{Recording, Server, serve},
    },
    message::AiChunk,
    prelude::*,
    value,
};

mod anthropic;
mod bounds;
mod gemini;
mod ollama;

async fn pieces(client: &Client, messages: &[Message]) -> anyhow::Result<Vec<AiChunk>> {
    client.stream(messages, &[]).try_collect().await
}

/// The reply of the model of `provider` to a greeting, at a server that replays this.
async fn reply(provider: Provider, recording: Recording) -> anyhow::Result<Message> {
    let server = serve(vec![recording]).await;
    complete(
        &client(provider, &server),
        &hello(),
        &[],
        &CallOptions::new(),
    )
    .await
}

async fn failure(provider: Provider, recording: Recording) -> Error {
    let error = reply(provider, recording).await.expect_err("it fails");
    error.downcast().expect("an error of models")
}

fn client(provider: Provider, server: &Server) -> Client {
    let model = match provider {
        Provider::Anthropic => "claude-sonnet-4-5",
        Provider::Gemini => "gemini-3-flash",
        Provider::Ollama => "qwen3",
    };
    let client = Client::new(provider, "secret", model).expect("a client");
    client.at(&server.base)
}

fn hello() -> Vec<Message> {
    vec![Message::human("hi")]
}

fn calls(message: &Message) -> Vec<(String, Json)> {
    let calls = message.tool_calls().into_iter();
    calls
        .map(|call| (call.name.to_string(), call.args.to_json_value()))
        .collect()
}

/// Looks up the weather in a city.
#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is sent")]
struct Weather {
    city: String,
}

fn weather() -> Arc<Tool> {
    tool("weather", |_: Weather, _| async { Ok("fine") })
}

/// The body of the only request to a server.
fn body(server: &Server) -> Json {
    let received = server.received.lock();
    assert_eq!(received.len(), 1, "one request");
    received[0].body.clone()
}

#[tokio::test]
async fn every_provider_is_asked_for_patience_with_and_without_a_time_and_may_fail() {
    for provider in [Provider::Anthropic, Provider::Gemini, Provider::Ollama] {
        let busy = || Recording::json(429, &json!({"error": {"message": "slow down"}}));
        for (recording, wait) in [
            (
                busy().header("retry-after", "7"),
                Some(Duration::from_secs(7)),
            ),
            (busy(), None),
        ] {
            let error = failure(provider, recording).await;
            let Error::Refused {
                status: 429,
                retry_after,
                ..
            } = &error
            else {
                panic!("{provider:?}: {error:?}")
            };
            assert_eq!(*retry_after, wait, "{provider:?}");
            assert!(error.is_transient(), "{provider:?}");
        }
        let broken = Recording::of(500, vec![Ok("<html>".to_owned())]);
        let error = failure(provider, broken).await;
        assert!(
            matches!(error, Error::Refused { status: 500, .. }) && error.is_transient(),
            "{provider:?}: {error:?}"
        );
    }
}
