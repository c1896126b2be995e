//! Models that reply from a script: for tests, demonstrations and work without a network.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use super::{ChatModel, Error, Tokens, Tool, pieces};
use crate::{
    message::{Message, Role},
    value::Value,
};
use reply::Form;

mod reply;

pub use reply::Reply;

type Choose = dyn Fn(&[Message], &[Arc<Tool>]) -> anyhow::Result<Message> + Send + Sync;

/// Where the replies come from.
enum Script {
    /// From the conversation.
    Chosen(Box<Choose>),
    /// One after another, whatever the conversation.
    InTurn {
        replies: Vec<Reply>,
        next: AtomicUsize,
        repeats: bool,
    },
}

/// A model with scripted replies, streamed word by word like those of a real one.
pub struct ScriptedModel {
    script: Script,
    pace: Duration,
    fixed_ids: bool,
    schemas: bool,
}

impl ScriptedModel {
    /// Replies with the message that `reply` returns for the conversation and the tools.
    pub fn new(
        reply: impl Fn(&[Message], &[Arc<Tool>]) -> anyhow::Result<Message> + Send + Sync + 'static,
    ) -> Self {
        Self::of(Script::Chosen(Box::new(reply)))
    }

    fn of(script: Script) -> Self {
        Self {
            script,
            pace: Duration::ZERO,
            fixed_ids: false,
            schemas: false,
        }
    }

    /// Replies with these, one a call, whatever the conversation: messages, failures, silence. A call that is repeated
    /// gets the next one.
    ///
    /// ```
    /// use backstitch::{llm::Reply, prelude::*};
    ///
    /// let model = ScriptedModel::in_turn([Reply::silent(), Message::ai("Hello!").into()]).repeating();
    /// ```
    pub fn in_turn(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self::of(Script::InTurn {
            replies: replies.into_iter().collect(),
            next: AtomicUsize::new(0),
            repeats: false,
        })
    }

    /// Begins anew after the last of the replies [in turn](Self::in_turn).
    #[must_use]
    pub fn repeating(mut self) -> Self {
        if let Script::InTurn { repeats, .. } = &mut self.script {
            *repeats = true;
        }
        self
    }

    /// Counts the ids of tool calls (`call_1_1` is the first call of the first reply in the conversation), so that
    /// they are the same in every run of a test.
    #[must_use]
    pub fn fixed_ids(mut self) -> Self {
        self.fixed_ids = true;
        self
    }

    /// Follows the schema of a response, as many models do: an agent takes its text for the response, and gives it no
    /// tool for that.
    #[must_use]
    pub fn schemas(mut self, follows: bool) -> Self {
        self.schemas = follows;
        self
    }

    /// Waits between words so that about as many come in a second.
    #[must_use]
    pub fn words_per_second(self, words: u32) -> Self {
        let pace = Duration::from_secs(1).checked_div(words);
        self.pace(pace.unwrap_or_default())
    }

    fn next(&self, messages: &[Message], tools: &[Arc<Tool>]) -> anyhow::Result<Reply> {
        match &self.script {
            Script::Chosen(choose) => choose(messages, tools).map(Reply::from),
            Script::InTurn {
                replies,
                next,
                repeats,
            } => {
                let turn = next.fetch_add(1, Ordering::Relaxed);
                let reply = if *repeats {
                    replies.get(turn.checked_rem(replies.len()).unwrap_or_default())
                } else {
                    replies.get(turn)
                };
                Ok(reply.cloned().ok_or(Error::ScriptEnds {
                    replies: replies.len(),
                })?)
            }
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
        let (reply, pace) = (self.next(messages, tools), self.pace);
        let replied = messages.iter().filter(|m| m.role() == Role::Ai).count();
        let number = self.fixed_ids.then_some(replied + 1);
        Box::pin(async_stream::try_stream! {
            let (message, most) = match reply?.0 {
                Form::Whole(message) => (message, usize::MAX),
                Form::Cut(message, pieces) => (message, pieces),
                Form::Failing(error) => return Err(error)?,
                Form::Silent => return futures::future::pending().await,
            };
            let message = match number {
                Some(number) => with_ids(message, number),
                None => message,
            };
            for (index, piece) in pieces(&message).into_iter().enumerate() {
                if index == most {
                    Err(Error::Broken {
                        at: "the script".to_owned(),
                        reason: "it is cut here".to_owned(),
                    })?;
                }
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

    fn follows_schemas(&self) -> bool {
        self.schemas
    }
}

/// The reply with counted ids of its tool calls.
fn with_ids(message: Message, number: usize) -> Message {
    let calls = (1..).zip(message.tool_calls());
    let calls = calls.map(|(index, mut call)| {
        call.id = Some(format!("call_{number}_{index}").into());
        call.to_value()
    });
    let calls: Vec<Value> = calls.collect();
    if calls.is_empty() {
        message
    } else {
        message.with_field("tool_calls", Value::list(calls))
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

    #[tokio::test]
    async fn ids_of_calls_can_be_counted() {
        let message = Message::ai("")
            .calling("a", value!({}))
            .calling("b", value!({}));
        let model = ScriptedModel::in_turn([message.into()])
            .repeating()
            .fixed_ids();
        let first = whole(&answer(&model, &[]).await.expect("scripted"));
        let second = answer(&model, &[Message::human("hi"), first.clone()]).await;
        let second = whole(&second.expect("it repeats"));
        let ids = |message: &Message| -> Vec<String> {
            let calls = message.tool_calls().into_iter();
            calls
                .filter_map(|call| Some(call.id?.to_string()))
                .collect()
        };
        assert_eq!(ids(&first), ["call_1_1", "call_1_2"]);
        assert_eq!(ids(&second), ["call_2_1", "call_2_2"]);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_lasts_and_a_cut_reply_breaks_off() {
        let cut = Reply::cut(Message::ai("one two"), 1);
        let model = ScriptedModel::in_turn([Reply::silent(), cut]);
        let waited = tokio::time::timeout(Duration::from_secs(3600), answer(&model, &[])).await;
        assert!(waited.is_err(), "nothing comes");
        let error = answer(&model, &[]).await.expect_err("it is cut");
        assert!(error.to_string().contains("broke off"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn as_many_words_come_in_a_second_as_were_asked_for() {
        let model = ScriptedModel::replying([Message::ai("a b c")]).words_per_second(4);
        let start = tokio::time::Instant::now();
        answer(&model, &[]).await.unwrap();
        let quarter = Duration::from_millis(250);
        assert_eq!(start.elapsed(), quarter * 4, "three words and the end");
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
