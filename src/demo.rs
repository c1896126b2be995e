//! The graphs of the bundled server: they run on a fresh machine, with a real model or without.

use std::{sync::Arc, time::Duration};

#[cfg(feature = "openai")]
use backstitch::Server;
use backstitch::prelude::*;

pub mod chat;
pub mod research;

/// How long scripted models wait before each word.
const PACE: Duration = Duration::from_millis(25);

/// The model of the demos.
pub enum Model {
    /// A server that speaks OpenAI's protocol.
    Real(Arc<dyn ChatModel>, String),
    /// Each demo's own script, with the reason why there is no real model.
    Scripted(String),
}

impl Model {
    /// A real model if the settings name one.
    #[cfg(feature = "openai")]
    pub fn choose() -> Self {
        match Server::model_of_settings() {
            Some(Ok(client)) => {
                let notice = format!("the demos ask {} at {}", client.model(), client.base());
                Self::Real(Arc::new(client), notice)
            }
            Some(Err(error)) => Self::Scripted(format!("the demos answer from a script: {error}")),
            None => Self::Scripted(
                "the demos answer from a script; set OPENAI_API_KEY, or OPENAI_BASE_URL for \
                 another server, to give them a model"
                    .to_owned(),
            ),
        }
    }

    /// A script: this build cannot talk to models.
    #[cfg(not(feature = "openai"))]
    pub fn choose() -> Self {
        let why = "the demos answer from a script: this build is without the feature `openai`";
        Self::Scripted(why.to_owned())
    }

    /// The line about it that the server logs when it starts.
    pub fn notice(&self) -> &str {
        match self {
            Self::Real(_, notice) | Self::Scripted(notice) => notice,
        }
    }

    /// The real model, or this script.
    fn or(&self, script: ScriptedModel) -> Arc<dyn ChatModel> {
        match self {
            Self::Real(model, _) => model.clone(),
            Self::Scripted(_) => Arc::new(script),
        }
    }
}
