//! The table of routes: the handler of each path and method, who may call it, and what the document
//! says of it. The router, `Allow` and the OpenAPI document are made from it.

use super::{
    assistants, branches, crons, diff, events, forks, members, messages, metrics, openapi, runs,
    server::router::{Route, routes},
    state, store, system, tags, threads, tree_view, wire,
};
use crate::value::Map;

/// Every route. A row is `METHOD | METHOD operation_id = handler: Right { description }`, where the
/// description lists, with commas, `query Type`, `body Type`, `optional body Type` (one that may be
/// absent) and each response: `200 Type`, `204` without a body, `404` with an error.
pub(super) const TABLE: &[Route] = routes! {
    "/" {
        GET | HEAD root = system::ok: Public { query wire::system::OkQuery, 200 wire::system::Health, 422, 503 }
    }
    "/ok" {
        GET | HEAD ok = system::ok: Public { query wire::system::OkQuery, 200 wire::system::Health, 422, 503 }
    }
    "/live" {
        GET | HEAD live = system::live: Public { 200 wire::system::Probe }
    }
    "/ready" {
        GET | HEAD ready = system::ready: Public { 200 wire::system::Probe, 503 }
    }
    "/info" {
        GET | HEAD info = system::info: Anyone { 200 wire::system::Info }
    }
    "/metrics" {
        GET | HEAD get_metrics = metrics::metrics: Operator { query wire::system::MetricsQuery, 200 wire::system::MetricsReport, 422 }
    }
    "/openapi.json" {
        GET | HEAD openapi = openapi::document: Anyone { 200 wire::Nothing }
    }
    "/assistants/search" {
        POST search_assistants = assistants::search: Anyone {}
    }
    "/assistants" {
        POST create_assistant = assistants::create: Anyone { body Map, 200 Map, 400, 404, 409, 422 }
    }
    "/assistants/count" {
        POST count_assistants = assistants::count: Anyone {}
    }
    "/assistants/{assistant_id}" {
        GET | HEAD get_assistant = assistants::get: Anyone {}
        PATCH patch_assistant = assistants::patch: Anyone {}
        DELETE delete_assistant = assistants::delete: Anyone {}
    }
    "/assistants/{assistant_id}/versions" {
        POST list_assistant_versions = assistants::versions: Anyone {}
    }
    "/assistants/{assistant_id}/latest" {
        POST set_latest_assistant_version = assistants::latest: Anyone {}
    }
    "/assistants/{assistant_id}/subgraphs" {
        GET | HEAD get_assistant_subgraphs = assistants::subgraphs: Anyone {}
    }
    "/assistants/{assistant_id}/subgraphs/{namespace}" {
        GET | HEAD get_assistant_subgraph = assistants::subgraphs: Anyone {}
    }
    "/assistants/{assistant_id}/graph" {
        GET | HEAD get_assistant_graph = assistants::graph: Anyone {}
    }
    "/assistants/{assistant_id}/schemas" {
        GET | HEAD get_assistant_schemas = assistants::schemas: Anyone {}
    }
    "/threads" {
        GET | HEAD list_threads = threads::search::list: Anyone {}
        POST create_thread = threads::create: Anyone {}
    }
    "/threads/search" {
        POST search_threads = threads::search::search: Anyone {}
    }
    "/threads/count" {
        POST count_threads = threads::search::count: Anyone {}
    }
    "/threads/prune" {
        POST prune_threads = threads::prune: Writer {}
    }
    "/commands/create-thread" {
        POST command_create_thread = forks::create_thread: Anyone {}
    }
    "/commands/fork-thread" {
        POST command_fork_thread = forks::fork_thread: Writer {}
    }
    "/threads/{thread_id}/fork" {
        POST fork_thread = forks::fork: Writer {}
    }
    "/threads/{thread_id}/forks" {
        GET | HEAD list_forks = forks::list: Reader {}
    }
    "/threads/{thread_id}/members" {
        GET | HEAD list_members = members::list: Reader {}
    }
    "/threads/{thread_id}/members/{principal}" {
        PUT put_member = members::put: Manager {}
        DELETE delete_member = members::delete: Manager {}
    }
    "/threads/{thread_id}/copy" {
        POST copy_thread = threads::copy: Reader { optional body Map, 200 Map, 404, 409, 422 }
    }
    "/threads/{thread_id}/stream" {
        GET stream_thread = threads::stream::watch: Reader {}
    }
    "/threads/{thread_id}" {
        GET | HEAD get_thread = threads::get: Reader {}
        PATCH patch_thread = threads::patch: Writer {}
        DELETE delete_thread = threads::delete: Owner {}
    }
    "/threads/{thread_id}/state" {
        GET | HEAD get_state = state::latest: Reader {}
        POST update_state = state::edit: Writer {}
    }
    "/threads/{thread_id}/state/checkpoint" {
        POST get_state_by_checkpoint = state::by_object: Reader {}
    }
    "/threads/{thread_id}/state/{checkpoint_id}" {
        GET | HEAD get_state_at_checkpoint = state::by_id: Reader {}
    }
    "/threads/{thread_id}/history" {
        GET | HEAD list_history = state::history_by_query: Reader {}
        POST search_history = state::history_by_body: Reader {}
    }
    "/threads/{thread_id}/messages" {
        GET | HEAD list_messages = messages::list: Reader {}
        POST post_messages = messages::post: Writer {}
    }
    "/commands/send-message" {
        POST command_send_message = messages::send: Writer {}
    }
    "/threads/{thread_id}/runs" {
        GET | HEAD list_runs = runs::list: Reader {}
        POST create_run = runs::create: Writer {}
    }
    "/threads/{thread_id}/runs/stream" {
        POST stream_run = runs::join::stream: Writer {}
    }
    "/threads/{thread_id}/runs/wait" {
        POST wait_run = runs::join::wait: Writer {}
    }
    "/threads/{thread_id}/runs/{run_id}" {
        GET | HEAD get_run = runs::get: Reader {}
        DELETE delete_run = runs::delete: Writer {}
    }
    "/threads/{thread_id}/runs/{run_id}/join" {
        GET join_run = runs::join::join: Reader {}
    }
    "/threads/{thread_id}/runs/{run_id}/stream" {
        GET join_run_stream = runs::join::join_stream: Reader {}
    }
    "/threads/{thread_id}/runs/{run_id}/cancel" {
        POST cancel_run = runs::cancel: Writer {}
    }
    "/threads/{thread_id}/branches" {
        GET | HEAD list_branches = branches::list: Reader {}
        POST create_branch = branches::create: Writer {}
    }
    "/threads/{thread_id}/branches/{name}" {
        PATCH rename_branch = branches::rename: Writer {}
        DELETE delete_branch = branches::delete: Writer {}
    }
    "/threads/{thread_id}/branches/{name}/activate" {
        POST activate_branch = branches::activate: Writer {}
    }
    "/threads/{thread_id}/rewind" {
        POST rewind_thread = branches::rewind: Writer {}
    }
    "/threads/{thread_id}/btw" {
        POST create_side_branch = branches::btw: Writer {}
    }
    "/threads/{thread_id}/restore" {
        POST restore_tag = branches::restore: Writer {}
    }
    "/threads/{thread_id}/tags" {
        GET | HEAD list_tags = tags::list: Reader {}
    }
    "/threads/{thread_id}/tags/{name}" {
        GET | HEAD get_tag = tags::get: Reader {}
        PUT put_tag = tags::put: Writer {}
        DELETE delete_tag = tags::delete: Writer {}
    }
    "/threads/{thread_id}/events" {
        GET | HEAD list_events = events::list: Reader {}
    }
    "/threads/{thread_id}/head" {
        GET | HEAD get_head = tree_view::head: Reader {}
    }
    "/threads/{thread_id}/diff" {
        GET | HEAD diff_states = diff::diff: Reader {}
    }
    "/threads/{thread_id}/tree" {
        GET | HEAD get_tree = tree_view::tree: Reader {}
    }
    "/admin/projections/rebuild" {
        POST rebuild_projections = events::rebuild: Admin {}
    }
    "/store/items" {
        GET | HEAD get_item = store::get: Anyone {}
        PUT put_item = store::put: Anyone {}
        DELETE delete_item = store::delete: Anyone {}
    }
    "/store/items/search" {
        POST search_items = store::search: Anyone {}
    }
    "/store/namespaces" {
        POST list_namespaces = store::namespaces: Anyone {}
    }
    "/runs/crons" {
        POST create_cron = crons::create: Anyone {}
    }
    "/threads/{thread_id}/runs/crons" {
        POST create_thread_cron = crons::create_on_thread: Writer {}
    }
    "/runs/crons/search" {
        POST search_crons = crons::search: Anyone {}
    }
    "/runs/crons/count" {
        POST count_crons = crons::count: Anyone {}
    }
    "/runs/crons/{cron_id}" {
        GET | HEAD get_cron = crons::get: Anyone {}
        PATCH patch_cron = crons::patch: Anyone {}
        DELETE delete_cron = crons::delete: Anyone {}
    }
    "/runs" {
        POST create_stateless_run = runs::create_stateless: Anyone {}
    }
    "/runs/stream" {
        POST stream_stateless_run = runs::join::stream_stateless: Anyone {}
    }
    "/runs/batch" {
        POST create_run_batch = runs::create_batch: Anyone {}
    }
    "/runs/cancel" {
        POST cancel_runs = runs::cancel_many: Writer {}
    }
    "/runs/{run_id}/stream" {
        GET join_stateless_run_stream = runs::by_id::stream: Reader { query wire::run_streams::StreamQuery, 200 wire::Nothing, 404, 422 }
    }
    "/runs/{run_id}/join" {
        GET join_stateless_run = runs::by_id::join: Reader { query wire::run_streams::JoinQuery, 200 Map, 404, 422 }
    }
    "/runs/wait" {
        POST wait_stateless_run = runs::join::wait_stateless: Anyone {}
    }
};

#[cfg(test)]
mod tests;
