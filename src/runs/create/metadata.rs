//! Metadata and config that a new run has, and that its thread collects of it.

use std::sync::Arc;

use crate::{
    runs::request::{self, Ids, identity},
    tree::{self, metadata::Limits},
    value::{Map, Value},
};

/// Metadata that a thread collects of its runs.
pub fn thread_metadata(ids: &Ids) -> Map {
    let mut map = Map::with_capacity(2);
    map.insert("graph_id", Value::Str(ids.graph.clone()));
    map.insert("assistant_id", ids.assistant.to_string());
    map
}

/// Fields of a config that a thread collects.
const COLLECTED: [&str; 5] = [
    "tags",
    "metadata",
    "recursion_limit",
    "run_name",
    "max_concurrency",
];

/// What a thread collects of its runs' config: everything but `configurable`, of which it keeps the user of the
/// first assistant that has one.
pub fn thread_config(request: &request::Run, of_assistant: Option<&Value>, limits: Limits) -> Map {
    let mut config = request.config.clone();
    // Other fields are configurable, and would add up from run to run.
    config.retain(|key, _| COLLECTED.contains(&&**key));
    // A name of any length is none that a list of threads could show.
    let user = of_assistant.filter(|user| user.rough_size() <= limits.bytes);
    let user = user.map(|user| ("user_id".into(), user.clone()));
    config.insert("configurable", Value::map(user.into_iter().collect()));
    config
}

/// Ids in metadata that are those of the run, whatever a client calls so.
const IDS: [&str; 5] = ["graph_id", "assistant_id", "run_id", "thread_id", "cron_id"];

/// Metadata of a run from its request: config's and the request's; later wins.
fn request_metadata(request: &request::Run) -> Map {
    let of_config = request.config.get("metadata").and_then(Value::as_map);
    let all = of_config.into_iter().chain([&request.metadata]).flatten();
    let own = all.filter(|(key, _)| !IDS.contains(&&***key));
    let own = own.map(|(key, value)| (key.clone(), value.clone()));
    identity::without_servers(&own.collect())
}

/// Keys of a run's metadata that it does not inherit from its thread.
pub fn own_keys(request: &request::Run) -> Vec<Arc<str>> {
    let ids = IDS.into_iter().map(Arc::from);
    let own = request_metadata(request);
    own.keys().cloned().chain(ids).collect()
}

/// Metadata of a run: assistant's, the request's, ids. The storage adds the thread's.
pub fn run_metadata(request: &request::Run, ids: &Ids, assistant: &Map, temporary: bool) -> Map {
    let mut map = identity::without_servers(assistant);
    map.retain(|key, _| !IDS.contains(&&**key));
    map.extend(request_metadata(request));
    if !temporary {
        map.insert("graph_id", Value::Str(ids.graph.clone()));
    }
    map.insert("assistant_id", ids.assistant.to_string());
    if let Some(cron) = request.cron {
        map.insert("cron_id", cron.to_string());
    }
    map
}

/// Checks the metadata that a run has of its request together with that of its assistant, and of the assistant's config.
/// What the server adds counts for nobody: ids, and what the assistants have that it made itself. An assistant that has
/// too much since the limits were lowered can still be run.
///
/// # Errors
/// 422: it is too much.
pub fn check_metadata(
    request: &request::Run,
    (of_assistant, of_config): (&Map, Option<&Map>),
    limits: Limits,
) -> Result<(), tree::Error> {
    let mut own = identity::without_servers(of_assistant);
    own.extend(of_config.cloned().unwrap_or_default());
    own.retain(|key, _| !IDS.contains(&&**key) && &**key != "created_by");
    limits.merged(&own, request_metadata(request)).map(drop)
}
