//! The providers, and what is different about each.

use genai::adapter::AdapterKind;

/// Who serves a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// Anthropic's Messages.
    Anthropic,
    /// Google's Gemini API.
    Gemini,
    /// A server of Ollama.
    Ollama,
}

impl Provider {
    /// The default base URL of requests.
    pub fn base(self) -> &'static str {
        match self {
            Self::Anthropic => "https://api.anthropic.com",
            Self::Gemini => "https://generativelanguage.googleapis.com",
            Self::Ollama => "http://localhost:11434",
        }
    }

    pub(super) fn adapter(self) -> AdapterKind {
        match self {
            Self::Anthropic => AdapterKind::Anthropic,
            Self::Gemini => AdapterKind::Gemini,
            Self::Ollama => AdapterKind::Ollama,
        }
    }

    /// What the base URL of its servers is followed by.
    pub(super) fn version(self) -> &'static str {
        match self {
            Self::Anthropic => "v1/",
            Self::Gemini => "v1beta/",
            Self::Ollama => "",
        }
    }

    /// The name of the kind of model in LangChain, by which front ends know it.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Anthropic => "ChatAnthropic",
            Self::Gemini => "ChatGoogleGenerativeAI",
            Self::Ollama => "ChatOllama",
        }
    }

    /// Its name in LangChain.
    pub(super) fn id(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Gemini => "google_genai",
            Self::Ollama => "ollama",
        }
    }

    /// Whether models of this name follow schemas while they may call tools. Of those that do not, agents get a response
    /// by a tool.
    pub(super) fn follows_schemas(self, model: &str) -> bool {
        match self {
            // Since Claude Opus 4.1 and the models 4.5.
            Self::Anthropic => {
                let without = [
                    "claude-2",
                    "claude-3",
                    "claude-instant",
                    "claude-opus-4-0",
                    "claude-opus-4-2",
                    "claude-sonnet-4-0",
                    "claude-sonnet-4-2",
                ];
                !without.iter().any(|name| model.starts_with(name))
            }
            // Before the third generation a request has either tools or a schema.
            Self::Gemini => !["gemini-1", "gemini-2", "gemma"]
                .iter()
                .any(|name| model.starts_with(name)),
            // The library here has no form for it.
            Self::Ollama => false,
        }
    }
}
