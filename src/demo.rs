//! The graphs of the bundled server: something to look at on a fresh machine, with a real model
//! or without one.

use std::{sync::Arc, time::Duration};

use backstitch::{cli, prelude::*};

pub mod chat;
pub mod research;

/// How long scripted models wait before each word.
const PACE: Duration = Duration::from_millis(25);

/// Which model the demos ask.
pub enum Model {
    /// A server that speaks OpenAI's protocol.
    Real(Arc<dyn ChatModel>, String),
    /// Each demo's own script; why there is no real model.
    Scripted(String),
}

impl Model {
    /// A real model if the settings name one. Settings that do not hold are reported by the
    /// server, which reads them again.
    pub fn choose() -> Self {
        let settings = cli::parse(std::env::args_os()).map(|line| line.settings);
        match settings {
            Ok(found) if found.openai_api_key.is_some() || found.openai_base_url.is_some() => {
                let key = found.openai_api_key.as_ref().map(|key| key.reveal());
                Self::real(found.openai_base_url.as_deref(), key.unwrap_or_default())
            }
            _ => Self::Scripted(
                "the demos answer from a script; set OPENAI_API_KEY, or OPENAI_BASE_URL for \
                 another server, to give them a model"
                    .to_owned(),
            ),
        }
    }

    #[cfg(feature = "openai")]
    fn real(base: Option<&str>, key: &str) -> Self {
        let named = std::env::var("OPENAI_MODEL").ok();
        let named = named.filter(|name| !name.is_empty());
        let client = openai::Client::new(
            base.unwrap_or(openai::DEFAULT_BASE),
            key,
            named.as_deref().unwrap_or(openai::DEFAULT_MODEL),
        );
        match client {
            Ok(client) => {
                let notice = format!("the demos ask {} at {}", client.model(), client.base());
                Self::Real(Arc::new(client), notice)
            }
            Err(error) => Self::Scripted(format!("the demos answer from a script: {error}")),
        }
    }

    #[cfg(not(feature = "openai"))]
    fn real(_: Option<&str>, _: &str) -> Self {
        let why = "the demos answer from a script: this build is without the feature `openai`";
        Self::Scripted(why.to_owned())
    }

    /// What the server says about it when it starts.
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
