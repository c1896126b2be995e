//! The two generations of A2A: what messages, tasks and updates look like in each. In 0.3 every object names its
//! kind; in 1.0 the field that is there tells it.

use std::sync::Arc;

use super::part::{File, Part, Source};
use crate::{
    value,
    value::{Map, Value},
};

/// A generation of A2A. The method of a request says which one it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// 0.3: `message/send`.
    Old,
    /// 1.0: `SendMessage`.
    New,
}

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Submitted,
    Working,
    InputRequired,
    Completed,
    Canceled,
    Failed,
}

impl State {
    /// Each with its words.
    const ALL: [(Self, &'static str, &'static str); 6] = [
        (Self::Submitted, "submitted", "TASK_STATE_SUBMITTED"),
        (Self::Working, "working", "TASK_STATE_WORKING"),
        (
            Self::InputRequired,
            "input-required",
            "TASK_STATE_INPUT_REQUIRED",
        ),
        (Self::Completed, "completed", "TASK_STATE_COMPLETED"),
        (Self::Canceled, "canceled", "TASK_STATE_CANCELED"),
        (Self::Failed, "failed", "TASK_STATE_FAILED"),
    ];

    /// The state with this word of either generation.
    pub fn parse(word: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        let found = all.find(|(_, old, new)| word == *old || word == *new);
        found.map(|(state, ..)| state)
    }

    /// Whether the task takes no further message.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Canceled | Self::Failed)
    }
}

/// A message of a task.
#[derive(Clone, Debug)]
pub struct Message {
    pub is_users: bool,
    pub parts: Vec<Part>,
    pub id: Arc<str>,
    /// The task that it belongs to, where that is known.
    pub task: Option<Arc<str>>,
}

/// A result of a task.
#[derive(Clone, Debug)]
pub struct Artifact {
    pub id: String,
    pub name: &'static str,
    pub description: String,
    pub parts: Vec<Part>,
}

/// How a task stands.
#[derive(Clone, Debug)]
pub struct Status {
    pub state: State,
    pub message: Option<Message>,
    pub at: String,
}

impl Generation {
    fn word(self, state: State) -> &'static str {
        let mut all = State::ALL.into_iter();
        let found = all.find(|(one, ..)| *one == state);
        let (_, old, new) = found.unwrap_or(State::ALL[0]);
        match self {
            Self::Old => old,
            Self::New => new,
        }
    }

    /// A map that begins with its kind, where kinds are named.
    fn object(self, kind: &str) -> Map {
        let mut map = Map::with_capacity(6);
        if self == Self::Old {
            map.insert("kind", kind);
        }
        map
    }

    fn part(self, part: &Part) -> Value {
        let (kind, field, value) = match part {
            Part::Text(text) => ("text", "text", Value::Str(text.clone())),
            Part::Data(data) => ("data", "data", data.clone()),
            Part::File(file) => return self.file(file),
        };
        let mut map = self.object(kind);
        map.insert(field, value);
        Value::map(map)
    }

    fn file(self, file: &File) -> Value {
        let (old, new, source) = match &file.source {
            Source::Url(url) => ("uri", "url", url),
            Source::Bytes(text) => ("bytes", "raw", text),
        };
        let (field, kind, name) = match self {
            Self::Old => (old, "mimeType", "name"),
            Self::New => (new, "mediaType", "filename"),
        };
        let mut inner = Map::from([(field, Value::Str(source.clone()))]);
        for (field, text) in [(kind, &file.media_type), (name, &file.name)] {
            if let Some(text) = text {
                inner.insert(field, Value::Str(text.clone()));
            }
        }
        match self {
            Self::Old => {
                let mut map = self.object("file");
                map.insert("file", Value::map(inner));
                Value::map(map)
            }
            Self::New => Value::map(inner),
        }
    }

    fn parts(self, parts: &[Part]) -> Value {
        Value::list(parts.iter().map(|part| self.part(part)).collect())
    }

    /// A message of a context.
    pub fn message(self, message: &Message, context: &str) -> Value {
        let role = match (self, message.is_users) {
            (Self::Old, true) => "user",
            (Self::Old, false) => "agent",
            (Self::New, true) => "ROLE_USER",
            (Self::New, false) => "ROLE_AGENT",
        };
        let mut map = self.object("message");
        map.insert("role", role);
        map.insert("parts", self.parts(&message.parts));
        map.insert("messageId", Value::Str(message.id.clone()));
        if let Some(task) = &message.task {
            map.insert("taskId", Value::Str(task.clone()));
        }
        map.insert("contextId", context);
        Value::map(map)
    }

    pub fn status(self, status: &Status, context: &str) -> Value {
        let mut map = Map::with_capacity(3);
        map.insert("state", self.word(status.state));
        if let Some(message) = &status.message {
            map.insert("message", self.message(message, context));
        }
        map.insert("timestamp", status.at.clone());
        Value::map(map)
    }

    pub fn artifact(self, artifact: &Artifact) -> Value {
        value!({
            "artifactId": (artifact.id.clone()),
            "name": (artifact.name),
            "description": (artifact.description.clone()),
            "parts": (self.parts(&artifact.parts))
        })
    }

    /// A task, without its own fields.
    pub fn task(self) -> Map {
        self.object("task")
    }

    /// A task where something else might come as well.
    pub fn task_or_message(self, task: Value) -> Value {
        self.one_of("task", task)
    }

    /// The update that a task has another status.
    pub fn status_update(self, task: &str, context: &str, status: &Status, ends: bool) -> Value {
        let mut map = Map::with_capacity(5);
        map.insert("taskId", task);
        map.insert("contextId", context);
        if self == Self::Old {
            map.insert("kind", "status-update");
        }
        map.insert("status", self.status(status, context));
        if self == Self::Old {
            map.insert("final", ends);
        }
        self.one_of("statusUpdate", Value::map(map))
    }

    /// The update that a task has a result.
    pub fn artifact_update(self, task: &str, context: &str, artifact: &Artifact) -> Value {
        let mut map = Map::with_capacity(6);
        map.insert("taskId", task);
        map.insert("contextId", context);
        if self == Self::Old {
            map.insert("kind", "artifact-update");
        }
        map.insert("artifact", self.artifact(artifact));
        map.insert("append", false);
        map.insert("lastChunk", true);
        self.one_of("artifactUpdate", Value::map(map))
    }

    fn one_of(self, field: &str, value: Value) -> Value {
        match self {
            Self::Old => value,
            Self::New => Value::map(Map::from([(field, value)])),
        }
    }
}
