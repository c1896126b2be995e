//! Health and what a server is.

use schemars::JsonSchema;

/// What `GET /ok` reads.
#[derive(JsonSchema)]
pub struct OkQuery {
    /// Whether the database is asked too.
    check_db: Option<super::Flag>,
}

/// The server works.
#[derive(JsonSchema)]
pub struct Health {
    ok: bool,
    /// Nothing, as LangGraph's server has it.
    services: super::Nothing,
}

/// What `GET /metrics` reads.
#[derive(JsonSchema)]
pub struct MetricsQuery {
    /// The form of the response; a text for Prometheus when it is absent or empty.
    format: Option<MetricsFormat>,
}

#[derive(JsonSchema)]
#[schemars(inline, rename_all = "lowercase")]
enum MetricsFormat {
    Prometheus,
    Json,
    #[schemars(rename = "")]
    Empty,
}

/// Counters and measurements: this form with `format=json`, else the text format of Prometheus.
#[derive(JsonSchema)]
pub struct MetricsReport {
    queue: crate::value::Map,
    api: crate::value::Map,
    workers: crate::value::Map,
}

/// What a server is and can do.
#[derive(JsonSchema)]
pub struct Info {
    version: String,
    /// The version of LangGraph whose behaviour it has.
    langgraph_py_version: String,
    flags: Flags,
    host: Host,
}

/// What the server has.
#[derive(JsonSchema)]
#[schemars(inline)]
struct Flags {
    assistants: bool,
    crons: bool,
    langsmith: bool,
    langsmith_tracing_replicas: bool,
    langsmith_tracing_session_on_runs: bool,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Host {
    kind: String,
    project_id: Option<String>,
    host_revision_id: Option<String>,
    revision_id: Option<String>,
    tenant_id: Option<String>,
}

/// A server that is up.
#[derive(JsonSchema)]
pub struct Probe {
    ok: bool,
}
