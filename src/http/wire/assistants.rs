//! Assistants, their versions and graphs.

use schemars::JsonSchema;

use super::{Flag, Id, Integer, Limit, Metadata, Offset, SortOrder, Timestamp};
use crate::{
    assistants::request::SortBy,
    tree::IfExists,
    value::{Map, Value},
};

/// Configuration of the runs of an assistant, or of one run.
#[derive(JsonSchema)]
#[schemars(inline)]
pub struct Config {
    tags: Option<Vec<String>>,
    /// Most supersteps of a run.
    #[schemars(range(min = -9_223_372_036_854_775_808_i64, max = 10_000))]
    recursion_limit: Option<i64>,
    configurable: Option<Map>,
    metadata: Option<Map>,
}

/// An assistant to create.
#[derive(JsonSchema)]
pub struct CreateAssistant {
    graph_id: String,
    assistant_id: Option<Id>,
    name: Option<String>,
    description: Option<String>,
    config: Option<Config>,
    /// Static context of the graph; not together with `config.configurable`.
    context: Option<Map>,
    metadata: Option<Metadata>,
    if_exists: Option<IfExists>,
}

/// What a new version of an assistant has; the rest stays.
#[derive(JsonSchema)]
pub struct PatchAssistant {
    graph_id: Option<String>,
    name: Option<String>,
    description: Option<String>,
    config: Option<Config>,
    context: Option<Map>,
    /// Merged with what is there.
    metadata: Option<Metadata>,
}

/// Which assistants to list.
#[derive(JsonSchema)]
pub struct SearchAssistants {
    #[serde(flatten)]
    filter: CountAssistants,
    limit: Option<Limit>,
    offset: Option<Offset>,
    sort_by: Option<SortBy>,
    sort_order: Option<SortOrder>,
    /// The fields to show; all, if none is named.
    select: Option<Vec<Column>>,
}

/// The fields that a client may select.
pub const COLUMNS: [&str; 10] = [
    "assistant_id",
    "graph_id",
    "name",
    "description",
    "config",
    "context",
    "created_at",
    "updated_at",
    "metadata",
    "version",
];

super::schemas! {
    Column = { "type": "string", "enum": COLUMNS };
}

/// Which assistants to count.
#[derive(JsonSchema)]
pub struct CountAssistants {
    /// Contained in the metadata of the assistant.
    metadata: Option<Map>,
    graph_id: Option<String>,
    /// A part of the name.
    name: Option<String>,
}

/// Which versions to list.
#[derive(JsonSchema)]
pub struct ListVersions {
    metadata: Option<Map>,
    limit: Option<Limit>,
    offset: Option<Offset>,
}

/// The version to make the current one.
#[derive(JsonSchema)]
pub struct SetVersion {
    version: Integer,
}

/// How an assistant is deleted.
#[derive(JsonSchema)]
pub struct DeleteQuery {
    /// Whether the caller's threads of it are deleted too.
    delete_threads: Option<Flag>,
}

/// A version of an assistant.
#[derive(JsonSchema)]
pub struct AssistantVersion {
    assistant_id: Id,
    version: i64,
    graph_id: String,
    config: Map,
    context: Map,
    metadata: Map,
    created_at: Timestamp,
    name: String,
    description: Option<String>,
}

/// An assistant.
#[derive(JsonSchema)]
pub struct Assistant {
    #[serde(flatten)]
    version: AssistantVersion,
    updated_at: Timestamp,
}

/// How deep a drawing goes.
#[derive(JsonSchema)]
pub struct GraphQuery {
    /// `true`, `false`, or how many levels of subgraphs are drawn.
    #[schemars(regex(pattern = r"^(true|false|[1-9][0-9]{0,8})?$"))]
    xray: Option<String>,
}

/// The drawing of a graph.
#[derive(JsonSchema)]
pub struct Drawing {
    nodes: Vec<DrawnNode>,
    edges: Vec<DrawnEdge>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct DrawnNode {
    id: String,
    #[serde(rename = "type")]
    #[schemars(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    data: Option<Value>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    metadata: Option<Map>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct DrawnEdge {
    source: String,
    target: String,
    #[schemars(skip_serializing_if = "Option::is_none")]
    conditional: Option<bool>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    data: Option<Value>,
}

/// The JSON schemas of a graph.
#[derive(JsonSchema)]
pub struct GraphSchemas {
    graph_id: String,
    #[serde(flatten)]
    schemas: SubgraphSchemas,
}

/// How deep subgraphs are listed.
#[derive(JsonSchema)]
pub struct SubgraphsQuery {
    recurse: Option<Flag>,
}

/// The JSON schemas of subgraphs, by their names.
#[derive(JsonSchema)]
pub struct Subgraphs(std::collections::BTreeMap<String, SubgraphSchemas>);

#[derive(JsonSchema)]
#[schemars(inline)]
struct SubgraphSchemas {
    input_schema: Option<Map>,
    output_schema: Option<Map>,
    state_schema: Option<Map>,
    config_schema: Option<Map>,
    context_schema: Option<Map>,
}
