//! Models that reply from a script: for tests, demonstrations and work without a network.

use std::{sync::Arc, time::Duration};

use super::{ChatModel, Error, Tokens, Tool, pieces};
use crate::message::{Message, Role};

type Reply = dyn Fn(&[Message], &[Arc<Tool>]) -> anyhow::Result<Message> + Send + Sync;

/// A model with scripted replies, streamed word by word like those of a real one.
pub struct ScriptedModel {
    reply: Box<Reply>,
    pace: Duration,
}

impl ScriptedModel {
    /// Replies with the message that `reply` returns for the conversation and the tools.
    pub fn new(
        reply: impl Fn(&[Message], &[Arc<Tool>]) -> anyhow::Result<Message> + Send + Sync + 'static,
    ) -> Self {
        Self {
            reply: Box::new(reply),
            pace: Duration::ZERO,
        }
    }

    /// Replies with these messages, one after another. The replies in the conversation are counted
    /// to find the next one, so that replays and forks get the replies that belong there.
    pub fn replying(replies: impl IntoIterator<Item = Message>) -> Self {
        let replies: Vec<Message> = replies.into_iter().collect();
        Self::new(move |messages, _| {
            let replied = messages.iter().filter(|m| m.role() == Role::Ai).count();
            let replies = replies.as_slice();
            Ok(replies.get(replied).cloned().ok_or(Error::ScriptEnds {
                replies: replies.len(),
            })?)
        })
    }

    /// Waits before each word.
    #[must_use]
    pub fn pace(self, pace: Duration) -> Self {
        Self { pace, ..self }
    }
}

impl ChatModel for ScriptedModel {
    fn stream(&self, messages: &[Message], tools: &[Arc<Tool>]) -> Tokens {
        let (reply, pace) = ((self.reply)(messages, tools), self.pace);
        Box::pin(async_stream::try_stream! {
            for piece in pieces(&reply?) {
                if !pace.is_zero() {
                    tokio::time::sleep(pace).await;
                }
                yield piece;
            }
        })
    }

    fn name(&self) -> &str {
        "ScriptedModel"
    }
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;

    use super::*;
    use crate::{message::AiChunk, value};

    async fn answer(model: &ScriptedModel, messages: &[Message]) -> anyhow::Result<Vec<AiChunk>> {
        model.stream(messages, &[]).try_collect().await
    }

    fn whole(pieces: &[AiChunk]) -> Message {
        let mut whole = AiChunk::default();
        pieces.iter().for_each(|piece| whole.push(piece));
        whole.message()
    }

    #[tokio::test]
    async fn the_place_in_the_conversation_chooses_the_reply() {
        let model = ScriptedModel::replying([Message::ai("one"), Message::ai("two")]);
        let mut said = vec![Message::human("hi")];
        let first = answer(&model, &said).await.expect("scripted");
        let again = answer(&model, &said).await.expect("scripted");
        assert_eq!(whole(&first).text(), "one");
        assert_eq!(first, again, "asking twice at one place gives one answer");
        said.extend([whole(&first), Message::human("and?")]);
        let second = answer(&model, &said).await.expect("scripted");
        assert_eq!(whole(&second).text(), "two");
        said.push(whole(&second));
        let error = answer(&model, &said).await.expect_err("the script is over");
        assert_eq!(
            error.downcast_ref(),
            Some(&Error::ScriptEnds { replies: 2 })
        );
    }

    #[tokio::test]
    async fn words_and_tool_calls_come_in_pieces_that_add_up_to_the_message() {
        let message = Message::ai("let me  look")
            .calling("weather", value!({"city": "Oslo"}))
            .calling("weather", value!({"city": "Rome"}));
        let model = ScriptedModel::replying([message.clone()]);
        let pieces = answer(&model, &[]).await.expect("scripted");
        let texts: Vec<_> = pieces.iter().filter_map(|p| p.content.as_str()).collect();
        assert_eq!(texts, ["let ", "me ", " ", "look"]);
        assert_eq!(pieces.iter().filter(|piece| piece.last).count(), 1);
        assert!(pieces.last().is_some_and(|piece| piece.last));
        assert_eq!(whole(&pieces), message);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pace_makes_every_word_take_its_time() {
        let pace = Duration::from_millis(50);
        let model = ScriptedModel::replying([Message::ai("a b c")]).pace(pace);
        let start = tokio::time::Instant::now();
        answer(&model, &[]).await.expect("scripted");
        assert_eq!(start.elapsed(), pace * 4, "three words and the end");
    }
}
