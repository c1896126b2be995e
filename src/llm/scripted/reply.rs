//! Replies of scripted models: whole ones, failures, silence, and ones that are cut.

use crate::{llm::Error, message::Message};

/// One reply of a scripted model; a message is one as well.
#[derive(Clone, Debug)]
pub struct Reply(pub(super) Form);

#[derive(Clone, Debug)]
pub(super) enum Form {
    Whole(Message),
    Failing(Error),
    Silent,
    Cut(Message, usize),
}

impl Reply {
    /// An error before the first piece.
    pub fn failing(error: Error) -> Self {
        Self(Form::Failing(error))
    }

    /// Silence: no piece ever comes.
    pub fn silent() -> Self {
        Self(Form::Silent)
    }

    /// A connection that is cut after as many pieces of the message.
    pub fn cut(message: Message, pieces: usize) -> Self {
        Self(Form::Cut(message, pieces))
    }
}

impl From<Message> for Reply {
    fn from(message: Message) -> Self {
        Self(Form::Whole(message))
    }
}
