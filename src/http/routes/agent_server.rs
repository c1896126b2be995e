//! The operations of LangGraph's Agent Server, each of which has a route or is left to later work.

use std::collections::BTreeSet;

use super::TABLE;

/// What LangGraph's server documents.
const OPERATIONS: &[&str] = &[
    "POST /assistants",
    "POST /assistants/search",
    "POST /assistants/count",
    "GET /assistants/{}",
    "PATCH /assistants/{}",
    "DELETE /assistants/{}",
    "GET /assistants/{}/graph",
    "GET /assistants/{}/schemas",
    "GET /assistants/{}/subgraphs",
    "GET /assistants/{}/subgraphs/{}",
    "POST /assistants/{}/versions",
    "POST /assistants/{}/latest",
    "POST /threads",
    "POST /threads/search",
    "POST /threads/count",
    "POST /threads/prune",
    "GET /threads/{}",
    "PATCH /threads/{}",
    "DELETE /threads/{}",
    "POST /threads/{}/copy",
    "GET /threads/{}/state",
    "POST /threads/{}/state",
    "GET /threads/{}/state/{}",
    "POST /threads/{}/state/checkpoint",
    "GET /threads/{}/history",
    "POST /threads/{}/history",
    "GET /threads/{}/storage",
    "GET /threads/{}/stream",
    "POST /threads/{}/runs",
    "GET /threads/{}/runs",
    "POST /threads/{}/runs/stream",
    "POST /threads/{}/runs/wait",
    "GET /threads/{}/runs/{}",
    "DELETE /threads/{}/runs/{}",
    "GET /threads/{}/runs/{}/join",
    "GET /threads/{}/runs/{}/stream",
    "POST /threads/{}/runs/{}/cancel",
    "POST /runs",
    "POST /runs/stream",
    "POST /runs/wait",
    "POST /runs/batch",
    "POST /runs/cancel",
    "POST /runs/crons",
    "POST /threads/{}/runs/crons",
    "POST /runs/crons/search",
    "POST /runs/crons/count",
    "GET /runs/crons/{}",
    "PATCH /runs/crons/{}",
    "DELETE /runs/crons/{}",
    "PUT /store/items",
    "GET /store/items",
    "DELETE /store/items",
    "POST /store/items/search",
    "POST /store/namespaces",
    "POST /threads/{}/commands",
    "POST /threads/{}/stream/events",
    "POST /mcp",
    "GET /mcp",
    "DELETE /mcp",
    "POST /a2a/{}",
    "GET /ok",
    "GET /info",
    "GET /metrics",
    "GET /docs",
];

/// Those that this server does not have yet. This list only shrinks.
const LATER: &[&str] = &[];

#[test]
fn every_operation_of_langgraphs_server_has_a_route_or_is_left_to_later_work() {
    assert_eq!(OPERATIONS.iter().collect::<BTreeSet<_>>().len(), 64);
    let routes: BTreeSet<String> = TABLE
        .iter()
        .map(|route| format!("{} {}", route.method, nameless(route.path)))
        .collect();
    let missing: Vec<_> = OPERATIONS
        .iter()
        .filter(|operation| !routes.contains(**operation) && !LATER.contains(operation))
        .collect();
    assert!(missing.is_empty(), "without a route: {missing:#?}");
    let done: Vec<_> = LATER
        .iter()
        .filter(|operation| routes.contains(**operation) || !OPERATIONS.contains(operation))
        .collect();
    assert!(done.is_empty(), "take these off the list: {done:#?}");
}

/// A path whose parameters have no names.
fn nameless(path: &str) -> String {
    let parts = path
        .split('/')
        .map(|part| if part.starts_with('{') { "{}" } else { part });
    parts.collect::<Vec<_>>().join("/")
}
