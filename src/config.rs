//! Settings: their names, sources and defaults, and where each value came from.
//!
//! A flag beats the environment, which beats the file `backstitch.toml`, which beats the default.

mod keys;
mod layers;
mod resources;
mod secret;
mod table;
mod values;

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc, time::Duration};

pub use layers::{Flags, Origin};
use layers::{Found, Layers};
pub use secret::Secret;
use table::{KEYS, Key};
use values::{age, count, seconds, switch};

use crate::http::{Cors, Hosts};
use crate::{
    assistants,
    checkpoint::codec::Format,
    contention::shares::Percent,
    crons,
    engine::RunAhead,
    message, store,
    tree::{metadata, ttl::Ttl},
    webhooks,
};

/// The file read from the working directory when `--config` names no other.
pub const FILE: &str = "backstitch.toml";

/// Why settings are refused. The text names the source of the value and what to write instead.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A value is not valid for its setting.
    #[error("{name} ({origin}): {reason}")]
    Invalid {
        /// The setting, as the file spells it.
        name: &'static str,
        /// The source of the value.
        origin: Origin,
        /// What is wrong with it, and which values are valid.
        reason: String,
    },
    /// Two settings of the same weight contradict each other.
    #[error("{0}")]
    Contradiction(String),
    /// The file cannot be read, or is not TOML.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// Where everything durable is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// A Postgres database that any number of processes may share, by its URL.
    Postgres(Secret),
    /// An SQLite file in this folder, for one process.
    Sqlite(PathBuf),
    /// A private temporary file, removed at the end.
    Memory,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// A key that clients may present, and the principal of its requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// The name requests are attributed to; several keys may share it.
    pub principal: String,
    /// What the client sends.
    pub key: Secret,
}

/// All settings, checked.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address or host name to listen on.
    pub host: String,
    /// Port to listen on; 0 picks a free one.
    pub port: u16,
    /// Where everything durable is stored.
    pub storage: Storage,
    /// In which form values are written; they are read in every form.
    pub codec: Format,
    /// How long this process may be silent before other workers take over its runs.
    pub lease: Duration,
    /// How long runs and requests may go on after a request to stop.
    pub drain: Duration,
    /// Connections to Postgres, besides the one that renews the lease.
    pub connections: usize,
    /// Whether the processes on one Postgres database let each other know what they did.
    pub notifications: bool,
    /// How often a process reads what the others did without being notified.
    pub poll: Duration,
    /// How many requests may wait to change one thread.
    pub max_waiting: usize,
    /// How long a search or another read may take in the database.
    pub read_limit: Duration,
    /// How long a search through values of states may take.
    pub search_limit: Duration,
    /// How many runs this process executes at once.
    pub slots: usize,
    /// The most runs that may wait on one branch.
    pub max_queued: usize,
    /// Waiting runs whose streams a process retains although nobody reads them.
    pub known_waiting: usize,
    /// Event streams and waiting responses that may be open at once.
    pub max_streams: usize,
    /// How long streams that can be resumed are retained.
    pub stream_retention: Duration,
    /// Bytes that are retained of one run's stream.
    pub stream_log: usize,
    /// Bytes that are retained of the streams of one principal's runs.
    pub stream_log_share: usize,
    /// How long making a graph for a config may take.
    pub graph_timeout: Duration,
    /// The most tasks of one superstep.
    pub max_tasks: usize,
    /// How far a run may be ahead of what is durable.
    pub run_ahead: RunAhead,
    /// What is logged, as `info` or `backstitch=debug,info`.
    pub log_level: String,
    /// How log lines are written.
    pub log_format: LogFormat,
    /// Keys that clients may present; empty means that no key is needed.
    pub api_keys: Vec<ApiKey>,
    /// Principals who may administer; while there are no keys everybody may.
    pub admins: Vec<String>,
    /// Whether, without keys, everybody who reaches an address beyond this machine may call.
    pub allow_open: bool,
    /// Metrics need no key.
    pub public_metrics: bool,
    /// Names by which clients may call a server without keys.
    pub hosts: Hosts,
    /// Which web pages may call; without the setting it depends on whether there are keys.
    pub cors: Option<Cors>,
    /// Bytes for what many requests hold in memory at the same time.
    pub memory_budget: usize,
    /// How much of connections, streams, requests and memory one principal may have at a time.
    pub share: Percent,
    /// How long the body of a request may take besides its size at its slowest pace.
    pub body_grace: Duration,
    /// Bytes a second: the slowest pace of a body.
    pub body_pace: usize,
    /// Bytes a second: the slowest pace at which a client may take a response of known size.
    pub response_pace: usize,
    /// Connections of clients at the same time.
    pub max_connections: usize,
    /// How long a client may take nothing of a response that the server writes.
    pub stall: Duration,
    /// Requests that are worked on at the same time.
    pub requests: usize,
    /// Those of one connection.
    pub connection_requests: usize,
    /// How long a request may wait for its turn, or for its principal's share of the connections to the database.
    pub request_wait: Duration,
    /// Most bytes of a response that are stored for an idempotency key.
    pub stored_response: usize,
    /// Most values in the JSON of a request body.
    pub body_values: usize,
    /// Largest body of a request in bytes.
    pub body_limit: usize,
    /// Largest body of a request that writes states or messages, in bytes.
    pub edit_limit: usize,
    /// Bytes of content at which pages of messages, of events and of forks end.
    pub page_bytes: usize,
    /// The config and context that runs have by default, by graph.
    pub graph_defaults: BTreeMap<Arc<str>, assistants::Defaults>,
    /// Most characters of the id of a new message.
    pub message_id_length: usize,
    /// How much metadata there may be.
    pub metadata: metadata::Limits,
    /// How much an assistant may take.
    pub assistants: assistants::Limits,
    /// How long new threads live that name no time.
    pub thread_ttl: Option<Ttl>,
    /// Between two sweeps of threads that have expired.
    pub sweep_interval: Duration,
    /// Whether this process creates the runs of crons, and how much one may take.
    pub crons: crons::Options,
    /// How much items of long-term memory, and searches of them, may take.
    pub items: store::Limits,
    /// Which URLs webhooks may have.
    pub webhooks: Arc<webhooks::Policy>,
    /// What deliveries of webhooks are signed with.
    pub webhook_secret: Option<webhooks::SigningKey>,
    /// Whether the OpenAPI document and its page need no key.
    pub public_docs: bool,
    /// Key for the OpenAI-compatible chat model.
    pub openai_api_key: Option<Secret>,
    /// Base URL of the OpenAI-compatible chat model.
    pub openai_base_url: Option<String>,
    /// Name of the OpenAI-compatible chat model.
    pub openai_model: Option<String>,
    /// Name of the OpenAI-compatible embedding model that items are searched by.
    pub embedding_model: Option<String>,
    /// Which texts of items are embedded.
    pub embedding_fields: Vec<store::field::Field>,
    /// Every setting with its value and origin, in the order of the manual; secrets are masked.
    shown: Vec<Shown>,
}

/// One line of `config show`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The setting, as the file spells it.
    pub name: &'static str,
    /// Its value, without secrets; `-` when it is not set.
    pub value: String,
    /// Where the value came from.
    pub origin: Origin,
}

impl Settings {
    /// Reads the process's environment and the file, under the given flags and over what the program
    /// itself sets.
    ///
    /// # Errors
    /// A value is not valid, or a file that was named cannot be read.
    pub fn load(flags: Flags, program: &BTreeMap<String, String>) -> Result<Self, Error> {
        let variable = |name: &str| std::env::var(name).ok();
        let layers = Layers::read(flags, &variable, program)?;
        Self::check(&layers)
    }

    /// What is logged, if somebody chose it.
    pub fn chosen_log_level(&self) -> Option<&str> {
        let mut shown = self.shown.iter();
        let level = shown.find(|shown| shown.name == "log_level")?;
        (level.origin != Origin::Default).then_some(&*self.log_level)
    }

    fn check(layers: &Layers) -> Result<Self, Error> {
        let settings = KEYS.iter().map(|key| match layers.find(key) {
            Some(found) => Shown {
                name: key.name,
                value: (key.mask)(&found.text),
                origin: found.origin,
            },
            None => Shown {
                name: key.name,
                value: "-".into(),
                origin: Origin::Default,
            },
        });
        let shown = std::iter::once(layers.shown_file())
            .chain(settings)
            .collect();
        Ok(Self {
            host: layers.required("host", |text| Ok(text.to_owned()))?,
            port: layers.required("port", |text| {
                text.parse()
                    .map_err(|_| format!("`{text}` is not a port; write 0 to 65535"))
            })?,
            storage: storage(layers)?,
            codec: layers.required("codec", |text| match text {
                "bincode" => Ok(Format::Bincode),
                "json" => Ok(Format::Json),
                _ => Err(format!("`{text}` is no codec; write `bincode` or `json`")),
            })?,
            lease: layers.required("lease", |text| seconds(text, 1))?,
            drain: layers.required("drain", |text| seconds(text, 0))?,
            connections: layers.required("connections", |text| count(text, 3, 1000))?,
            notifications: layers.required("notifications", switch)?,
            poll: layers.required("poll", |text| seconds(text, 1))?,
            max_waiting: layers.required("max_waiting", |text| count(text, 1, 1_000_000))?,
            read_limit: layers.required("read_limit", |text| seconds(text, 1))?,
            search_limit: layers.required("search_limit", |text| seconds(text, 1))?,
            slots: layers.required("slots", |text| count(text, 1, 100_000))?,
            max_queued: layers.required("max_queued", |text| count(text, 1, 100_000))?,
            known_waiting: layers.required("known_waiting", |text| count(text, 0, 1_000_000))?,
            max_streams: layers.required("max_streams", |text| count(text, 1, 1_000_000))?,
            stream_retention: layers.required("stream_retention", age)?,
            stream_log: layers.required("stream_log", |text| count(text, 1 << 20, 1 << 40))?,
            stream_log_share: layers
                .required("stream_log_share", |text| count(text, 16 << 20, 1 << 50))?,
            graph_timeout: layers.required("graph_timeout", |text| seconds(text, 1))?,
            max_tasks: layers.required("max_tasks", |text| count(text, 1, 1_000_000))?,
            run_ahead: RunAhead {
                supersteps: layers.required("run_ahead", |text| count(text, 1, 1000))?,
                bytes: layers.required("run_ahead_bytes", |text| count(text, 1, 1 << 30))?,
                age: layers.required("run_ahead_age", |text| {
                    let milliseconds = count(text, 1, 60_000)?;
                    Ok(Duration::from_millis(milliseconds as u64))
                })?,
            },
            log_level: layers.required("log_level", |text| Ok(text.to_owned()))?,
            log_format: layers.required("log_format", |text| match text {
                "text" => Ok(LogFormat::Text),
                "json" => Ok(LogFormat::Json),
                _ => Err(format!("`{text}` is no format; write `text` or `json`")),
            })?,
            api_keys: layers
                .optional("api_keys", keys::api_keys)?
                .unwrap_or_default(),
            admins: layers.optional("admins", keys::admins)?.unwrap_or_default(),
            allow_open: layers.required("allow_open", switch)?,
            public_metrics: layers.required("public_metrics", switch)?,
            hosts: layers
                .optional("hosts", Hosts::parse)?
                .unwrap_or(Hosts::Listed(vec![])),
            cors: layers.optional("cors_origins", Cors::parse)?,
            memory_budget: layers.required("memory_budget", |text| count(text, 64, 1 << 20))? << 20,
            share: Percent::new(layers.required("share", |text| count(text, 1, 100))?),
            body_grace: layers.required("body_grace", |text| seconds(text, 1))?,
            body_pace: layers.required("body_pace", |text| count(text, 1, 1 << 30))?,
            response_pace: layers.required("response_pace", |text| count(text, 1, 1 << 30))?,
            max_connections: layers.required("max_connections", |text| count(text, 1, 1 << 20))?,
            stall: layers.required("stall", |text| seconds(text, 1))?,
            requests: layers.required("requests", |text| count(text, 2, 1 << 20))?,
            connection_requests: layers
                .required("connection_requests", |text| count(text, 1, 1 << 20))?,
            request_wait: layers.required("request_wait", |text| seconds(text, 1))?,
            stored_response: layers.required("stored_response", |text| count(text, 1, 1 << 30))?,
            body_values: layers.required("body_values", |text| count(text, 1000, 1 << 30))?,
            body_limit: layers.required("body_limit", |text| count(text, 1024, 1 << 30))?,
            edit_limit: layers.required("edit_limit", |text| count(text, 1024, 1 << 30))?,
            page_bytes: layers.required("page_bytes", |text| count(text, 1024, 1 << 30))?,
            graph_defaults: layers
                .optional("graph_defaults", resources::graph_defaults)?
                .unwrap_or_default(),
            message_id_length: layers
                .required("message_id_length", |text| count(text, 64, message::ID_MAX))?,
            metadata: resources::metadata(layers)?,
            assistants: resources::assistants(layers)?,
            thread_ttl: resources::thread_ttl(layers)?,
            sweep_interval: layers.required("sweep_interval", |text| seconds(text, 1))?,
            crons: resources::crons(layers)?,
            items: resources::items(layers)?,
            webhooks: Arc::new(resources::webhooks(layers)?),
            webhook_secret: layers.optional("webhook_secret", webhooks::SigningKey::new)?,
            public_docs: layers.required("public_docs", switch)?,
            openai_api_key: layers.optional("openai_api_key", |text| Ok(Secret::from(text)))?,
            openai_base_url: layers.optional("openai_base_url", |text| {
                if text.starts_with("http://") || text.starts_with("https://") {
                    Ok(text.trim_end_matches('/').to_owned())
                } else {
                    Err("it must begin with http:// or https://".into())
                }
            })?,
            openai_model: layers.optional("openai_model", |text| Ok(text.to_owned()))?,
            embedding_model: layers.optional("embedding_model", |text| Ok(text.to_owned()))?,
            embedding_fields: layers.required("embedding_fields", |text| {
                let fields = text
                    .split(',')
                    .map(|field| store::field::Field::parse(field.trim()));
                fields.collect()
            })?,
            shown,
        })
    }
}

/// Whether a setting has this name.
pub fn is_setting(name: &str) -> bool {
    KEYS.iter().any(|key| key.name == name)
}

/// Every setting with its default and what it does, for the help of the command line.
pub fn manual() -> String {
    let mut text = format!(
        "Settings, as a variable of the environment or a line of {FILE} (`name = value`):\n"
    );
    for key in KEYS {
        let default = key
            .default
            .map_or_else(|| "unset".to_owned(), str::to_owned);
        text += &format!(
            "  {} ({})\n      {} [{default}]\n",
            key.variable, key.name, key.about
        );
    }
    text += "  BACKSTITCH_CONFIG\n      the file of settings [./backstitch.toml]\n";
    text
}

impl fmt::Display for Settings {
    /// The table of `config show`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self
            .shown
            .iter()
            .map(|shown| shown.name.len())
            .max()
            .unwrap_or(0);
        let values = self
            .shown
            .iter()
            .map(|shown| shown.value.len())
            .max()
            .unwrap_or(0);
        for Shown {
            name,
            value,
            origin,
        } in &self.shown
        {
            writeln!(formatter, "{name:names$}  {value:values$}  {origin}")?;
        }
        Ok(())
    }
}

/// `--memory` on the command line beats a `DATABASE_URL` that happens to be in the environment,
/// and the reverse; in one source they contradict each other.
fn storage(layers: &Layers) -> Result<Storage, Error> {
    let folder = layers.required("data", |text| Ok(PathBuf::from(text)))?;
    let memory = layers.required("memory", switch)?;
    let url =
        layers.optional("database_url", |text| {
            if text.starts_with("postgres://") || text.starts_with("postgresql://") {
                Ok(Secret::from(text))
            } else {
                Err("it must begin with postgres:// or postgresql://; leave it unset for an SQLite \
                 file in the data folder"
                .into())
            }
        })?;
    match (memory, url) {
        (false, None) => Ok(Storage::Sqlite(folder)),
        (false, Some(url)) => Ok(Storage::Postgres(url)),
        (true, None) => Ok(Storage::Memory),
        (true, Some(url)) => {
            let weight = |name| layers.origin(name).map_or(0, |origin| origin.weight());
            match weight("memory").cmp(&weight("database_url")) {
                std::cmp::Ordering::Greater => Ok(Storage::Memory),
                std::cmp::Ordering::Less => Ok(Storage::Postgres(url)),
                std::cmp::Ordering::Equal => Err(Error::Contradiction(
                    "memory and database_url are both set; remove one of them".into(),
                )),
            }
        }
    }
}

impl Layers {
    fn required<T>(
        &self,
        name: &'static str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, Error> {
        self.optional(name, read)?
            .ok_or_else(|| Error::Contradiction(format!("{name} is not set and has no default")))
    }

    fn optional<T>(
        &self,
        name: &'static str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Error> {
        let Some(Found { text, origin }) = self.by_name(name) else {
            return Ok(None);
        };
        read(&text).map(Some).map_err(|reason| Error::Invalid {
            name,
            origin,
            reason,
        })
    }

    fn origin(&self, name: &str) -> Option<Origin> {
        self.by_name(name).map(|found| found.origin)
    }

    fn by_name(&self, name: &str) -> Option<Found> {
        KEYS.iter()
            .find(|key| key.name == name)
            .and_then(|key| self.find(key))
    }
}

#[cfg(test)]
mod tests;
