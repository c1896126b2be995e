//! A model that records its replies in a file, from which a scripted model repeats them in a test.

use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::StreamExt;

use super::{CallOptions, ChatModel, ScriptedModel, Tokens, Tool};
use crate::{
    message::{Message, Sum},
    value::{Map, Value},
};

/// Records the replies of a model, one line of JSON each. A reply that fails is not recorded.
///
/// ```no_run
/// use backstitch::{llm::Recorder, prelude::*};
///
/// # fn real_model() -> ScriptedModel { ScriptedModel::replying([]) }
/// // Once, with the real model:
/// let model = Recorder::new(real_model(), "tests/conversation.jsonl");
/// // Ever after, in a test:
/// let model = ScriptedModel::recorded("tests/conversation.jsonl")?;
/// # anyhow::Ok(())
/// ```
pub struct Recorder<M> {
    model: M,
    path: PathBuf,
}

impl<M: ChatModel> Recorder<M> {
    /// Adds the replies of `model` to the end of this file, which is created with the first one.
    pub fn new(model: M, path: impl Into<PathBuf>) -> Self {
        Self {
            model,
            path: path.into(),
        }
    }
}

/// What a line of a record has around a reply that follows a schema.
const BY_SCHEMA: &str = "by_schema";

fn write(path: &Path, reply: &Message, by_schema: bool) -> std::io::Result<()> {
    let mut line = reply.as_value().clone();
    if by_schema {
        line = Value::map(Map::from([(BY_SCHEMA, line)]));
    }
    let mut file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(path)?;
    // In one write, so that replies which come at once do not mix.
    file.write_all(format!("{}\n", line.to_json()).as_bytes())
}

impl<M: ChatModel> ChatModel for Recorder<M> {
    fn stream(&self, messages: &[Message], tools: &[Arc<Tool>]) -> Tokens {
        self.stream_with(messages, tools, &CallOptions::new())
    }

    fn stream_with(
        &self,
        messages: &[Message],
        tools: &[Arc<Tool>],
        options: &CallOptions,
    ) -> Tokens {
        let mut pieces = self.model.stream_with(messages, tools, options);
        let path = self.path.clone();
        let by_schema = options.schema.is_some();
        Box::pin(async_stream::try_stream! {
            let mut whole = Sum::default();
            while let Some(piece) = pieces.next().await {
                let piece = piece?;
                whole.push(&piece);
                yield piece;
            }
            let message = whole.message();
            let written = tokio::task::spawn_blocking(move || write(&path, &message, by_schema)).await;
            written?.map_err(|error| anyhow::anyhow!("the reply cannot be recorded: {error}"))?;
        })
    }

    fn inner(&self) -> Option<&dyn ChatModel> {
        Some(&self.model)
    }
}

impl ScriptedModel {
    /// Repeats the replies that a [`Recorder`] has written, one a call. It follows schemas if the recorded model did.
    ///
    /// # Errors
    /// The file cannot be read, or a line of it is no message.
    pub fn recorded(path: impl AsRef<Path>) -> anyhow::Result<Self> {
        let path = path.as_ref();
        let failed = |what: String| anyhow::anyhow!("the record {}: {what}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        let (mut replies, mut schemas) = (Vec::new(), false);
        for (number, line) in text.lines().enumerate() {
            let wrong =
                |error: &dyn std::fmt::Display| failed(format!("line {}: {error}", number + 1));
            let value = Value::from_json_slice(line.as_bytes()).map_err(|error| wrong(&error))?;
            let by_schema = value.get(BY_SCHEMA);
            schemas |= by_schema.is_some();
            let message =
                Message::try_from(by_schema.unwrap_or(&value)).map_err(|error| wrong(&error))?;
            replies.push(message.into());
        }
        Ok(Self::in_turn(replies).schemas(schemas))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{llm::complete, value};

    #[tokio::test]
    async fn a_recorded_conversation_is_repeated() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("conversation.jsonl");
        let replies = [
            Message::ai("Let me see.").calling("weather", value!({"city": "Oslo"})),
            Message::ai(value!([
                {"type": "reasoning", "reasoning": "Is it warm?", "index": 0, "extras": {"signature": "s"}},
                {"type": "image", "url": "https://x/y.png"},
                {"type": "text", "text": "It is warm.", "index": 1},
            ]))
            .with_name("weather")
            .with_field("usage_metadata", value!({"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}))
            .with_field("response_metadata", value!({"model_name": "tiny", "finish_reason": "stop"}))
            .with_field("additional_kwargs", value!({"extra": true})),
            Message::ai("").with_field(
                "invalid_tool_calls",
                value!([{"name": "weather", "args": "{oops", "id": "c1"}]),
            ),
        ];
        let originals = replies.clone();
        let recorder = Recorder::new(ScriptedModel::in_turn(replies.map(Into::into)), &path);
        let options = CallOptions::new();
        let mut first = Vec::new();
        for _ in 0..3 {
            first.push(
                complete(&recorder, &[], &[], &options)
                    .await
                    .expect("scripted"),
            );
        }
        assert_eq!(first[1], originals[1], "with usage and parts");
        assert_eq!(
            first[2].get("invalid_tool_calls").expect("the call")[0]["args"],
            "{oops"
        );
        let repeated = ScriptedModel::recorded(&path).expect("three messages");
        for message in first {
            let reply = complete(&repeated, &[], &[], &options)
                .await
                .expect("recorded");
            assert_eq!(reply, message);
        }
        assert!(complete(&repeated, &[], &[], &options).await.is_err());
    }

    #[test]
    fn a_record_that_is_no_record_is_named_with_its_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("broken.jsonl");
        std::fs::write(&path, "{\"type\": \"ai\", \"content\": \"x\"}\n[]\n").expect("a file");
        let Err(error) = ScriptedModel::recorded(&path) else {
            panic!("line 2 is no message")
        };
        assert!(
            error.to_string().contains("broken.jsonl: line 2"),
            "{error}"
        );
        assert!(ScriptedModel::recorded(folder.path().join("none")).is_err());
    }
}
