//! The table of routes: the handler of each path and method, who may call it, and what the document
//! says of it. The router, `Allow` and the OpenAPI document are made from it.

use super::{
    a2a, assistants, branches, crons, diff, docs, events, forks, mcp, members, messages, metrics,
    openapi, protocol, runs,
    server::router::{Route, routes},
    start_page, state, store, system, tags, threads, tree_view, wire,
};
use crate::value::Map;

/// Every route. A row is `METHOD | METHOD operation_id = handler: Right { description }`, where the
/// description lists, with commas, `coded` first where LangGraph has no such operation (each error has a code then), `query Type`, `body Type`, `optional body Type` (one that may be
/// absent), `takes "Header"` that it reads, `returns 200 "Header"` of its responses, and each response:
/// `200 Type`, `stream 200` for events, `page 200` for HTML, `text 200` for plain text, `204` without
/// a body, `404` with an error, `empty 404` without one. What all operations of a kind may respond with is added: 408, 413 and 422 to those with a
/// body, 401, 403 and 503 to all that are not public.
pub(super) const TABLE: &[Route] = routes! {
    "/" {
        GET | HEAD root = start_page::root: Public { query wire::system::OkQuery, 200 wire::system::Health, page 200, 422, 503 }
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
        GET | HEAD get_metrics = metrics::metrics: Operator { query wire::system::MetricsQuery, text 200, 200 wire::system::MetricsReport, 422 }
    }
    "/openapi.json" {
        GET | HEAD openapi = openapi::document: Anyone {
            200 Map
        }
    }
    "/docs" {
        GET | HEAD docs = docs::page: Anyone {
            page 200
        }
    }
    "/mcp" {
        POST call_tools = mcp::post: Anyone {
            body wire::json_rpc::McpMessage, 200 wire::json_rpc::Response, 202, 400 wire::json_rpc::BadRequest
        }
        GET get_mcp = mcp::get: Anyone { empty 405, returns 405 "Allow" }
        DELETE delete_mcp = mcp::delete: Anyone { empty 404 }
    }
    "/.well-known/agent-card.json" {
        GET | HEAD find_agent_card = a2a::card::of_query: Anyone {
            query wire::json_rpc::CardQuery, 200 wire::json_rpc::AgentCard, 400 wire::json_rpc::CardError
        }
    }
    "/a2a/{assistant_id}" {
        POST call_agent = a2a::post: Anyone {
            body wire::json_rpc::Request, 200 wire::json_rpc::Response, stream 200, 400 wire::json_rpc::BadRequest
        }
        GET | HEAD get_agent = a2a::card::of_path: Anyone {
            200 wire::json_rpc::AgentCard, 400 wire::json_rpc::CardError
        }
    }
    "/a2a/{assistant_id}/.well-known/agent-card.json" {
        GET | HEAD get_agent_card = a2a::card::of_path: Anyone {
            200 wire::json_rpc::AgentCard, 400 wire::json_rpc::CardError
        }
    }
    "/a2a/{assistant_id}/.well-known/agent.json" {
        GET | HEAD get_older_agent_card = a2a::card::of_path: Anyone {
            200 wire::json_rpc::AgentCard, 400 wire::json_rpc::CardError
        }
    }
    "/assistants/search" {
        POST search_assistants = assistants::search: Anyone {
            body wire::assistants::SearchAssistants, 200 Vec<wire::Selected<wire::assistants::Assistant>>,
            404, returns 200 "X-Pagination-Total", returns 200 "X-Pagination-Next"
        }
    }
    "/assistants" {
        POST create_assistant = assistants::create: Anyone {
            body wire::assistants::CreateAssistant, 200 wire::assistants::Assistant, 400, 404, 409
        }
    }
    "/assistants/count" {
        POST count_assistants = assistants::count: Anyone {
            body wire::assistants::CountAssistants, 200 u64,
            404
        }
    }
    "/assistants/{assistant_id}" {
        GET | HEAD get_assistant = assistants::get: Anyone {
            200 wire::assistants::Assistant, 404, 422
        }
        PATCH patch_assistant = assistants::patch: Anyone {
            body wire::assistants::PatchAssistant, 200 wire::assistants::Assistant, 400, 403, 404, 409
        }
        DELETE delete_assistant = assistants::delete: Anyone {
            query wire::assistants::DeleteQuery, 204, 403, 404, 409, 422
        }
    }
    "/assistants/{assistant_id}/versions" {
        POST list_assistant_versions = assistants::versions: Anyone {
            body wire::assistants::ListVersions, 200 Vec<wire::assistants::AssistantVersion>, 404
        }
    }
    "/assistants/{assistant_id}/latest" {
        POST set_latest_assistant_version = assistants::latest: Anyone {
            body wire::assistants::SetVersion, 200 wire::assistants::Assistant, 403, 404
        }
    }
    "/assistants/{assistant_id}/subgraphs" {
        GET | HEAD get_assistant_subgraphs = assistants::subgraphs: Anyone {
            query wire::assistants::SubgraphsQuery, 200 wire::assistants::Subgraphs, 404, 422
        }
    }
    "/assistants/{assistant_id}/subgraphs/{namespace}" {
        GET | HEAD get_assistant_subgraph = assistants::subgraphs: Anyone {
            query wire::assistants::SubgraphsQuery, 200 wire::assistants::Subgraphs, 404, 422
        }
    }
    "/assistants/{assistant_id}/graph" {
        GET | HEAD get_assistant_graph = assistants::graph: Anyone {
            query wire::assistants::GraphQuery, 200 wire::assistants::Drawing, 404, 422
        }
    }
    "/assistants/{assistant_id}/schemas" {
        GET | HEAD get_assistant_schemas = assistants::schemas: Anyone {
            200 wire::assistants::GraphSchemas, 404, 422
        }
    }
    "/threads" {
        GET | HEAD list_threads = threads::search::list: Anyone {
            coded, query wire::threads::ListQuery, 200 Vec<wire::threads::Thread>, 413, 422, returns 200 "X-Pagination-Total", returns 200 "X-Pagination-Next"
        }
        POST create_thread = threads::create: Anyone {
            body wire::threads::CreateThread, 200 wire::threads::Thread, 201, 400, 409
        }
    }
    "/threads/search" {
        POST search_threads = threads::search::search: Anyone {
            body wire::threads::SearchThreads, 200 Vec<wire::threads::SelectedThread>, 400, returns 200 "X-Pagination-Total", returns 200 "X-Pagination-Next"
        }
    }
    "/threads/count" {
        POST count_threads = threads::search::count: Anyone {
            body wire::threads::CountThreads, 200 u64, 400
        }
    }
    "/threads/prune" {
        POST prune_threads = threads::prune: Writer {
            body wire::threads::PruneThreads, 200 wire::threads::Pruned, 409
        }
    }
    "/commands/create-thread" {
        POST command_create_thread = forks::create_thread: Anyone {
            coded, body wire::threads::CreateThread, 200 wire::threads::CreatedThread, 201, 400, 409
        }
    }
    "/commands/fork-thread" {
        POST command_fork_thread = forks::fork_thread: Writer {
            coded, body wire::threads::CommandForkThread, 201 wire::threads::Forked, 400, 404, 409
        }
    }
    "/threads/{thread_id}/fork" {
        POST fork_thread = forks::fork: Writer {
            coded, optional body wire::threads::ForkThread, 201 wire::threads::Forked, 400, 404, 409
        }
    }
    "/threads/{thread_id}/forks" {
        GET | HEAD list_forks = forks::list: Reader {
            coded, query wire::threads::ForksQuery, 200 wire::threads::Family, 404, 422
        }
    }
    "/threads/{thread_id}/members" {
        GET | HEAD list_members = members::list: Reader {
            coded, 200 wire::threads::Members, 404, 422
        }
    }
    "/threads/{thread_id}/members/{principal}" {
        PUT put_member = members::put: Manager {
            coded, body wire::threads::PutMember, 200 wire::threads::GrantedMember, 201 wire::threads::GrantedMember, 404, 409
        }
        DELETE delete_member = members::delete: Manager {
            coded, 204, 404, 409, 422
        }
    }
    "/threads/{thread_id}/copy" {
        POST copy_thread = threads::copy: Reader {
            200 wire::threads::Thread, 404, 409, 422
        }
    }
    "/threads/{thread_id}/stream" {
        GET stream_thread = threads::stream::watch: Reader {
            query wire::threads::StreamQuery, stream 200, 404, 422, takes "Last-Event-ID"
        }
    }
    "/threads/{thread_id}/stream/events" {
        GET connect_events = protocol::websocket::connect: Reader {
            101, 400, 404, 405, 422, 426, returns 405 "Allow"
        }
        POST stream_events = protocol::events::stream: Reader {
            body wire::protocol::EventStreamRequest, stream 200, 400
        }
    }
    "/threads/{thread_id}/commands" {
        POST send_command = protocol::commands::send: Writer {
            body wire::protocol::Command, 200 wire::protocol::Reply, 400 wire::protocol::Failure
        }
    }
    "/threads/{thread_id}" {
        GET | HEAD get_thread = threads::get: Reader {
            query wire::threads::ThreadQuery, 200 wire::threads::Thread, 404, 413, 422
        }
        PATCH patch_thread = threads::patch: Writer {
            body wire::threads::PatchThread, 200 wire::threads::Thread, 204, 404, takes "Prefer"
        }
        DELETE delete_thread = threads::delete: Owner {
            query wire::threads::DeleteQuery, 200 wire::threads::Deletable, 204, 404, 409, 422
        }
    }
    "/threads/{thread_id}/storage" {
        GET | HEAD get_thread_storage = threads::storage::get: Reader {
            200 wire::threads::Storage, 404, 422
        }
    }
    "/threads/{thread_id}/state" {
        GET | HEAD get_state = state::latest: Reader {
            query wire::state::StateQuery, 200 wire::state::ThreadState, 400, 404, 409, 413, 422
        }
        POST update_state = state::edit: Writer {
            body wire::state::UpdateState, 200 wire::state::UpdatedState, 400, 404, 409
        }
    }
    "/threads/{thread_id}/state/checkpoint" {
        POST get_state_by_checkpoint = state::by_object: Reader {
            body wire::state::ReadState, 200 wire::state::ThreadState, 400, 404, 409
        }
    }
    "/threads/{thread_id}/state/{checkpoint_id}" {
        GET | HEAD get_state_at_checkpoint = state::by_id: Reader {
            query wire::state::StateAtQuery, 200 wire::state::ThreadState, 400, 404, 409, 413, 422
        }
    }
    "/threads/{thread_id}/history" {
        GET | HEAD list_history = state::history_by_query: Reader {
            query wire::state::HistoryQuery, 200 Vec<wire::state::ThreadState>, 400, 404, 409, 413, 422
        }
        POST search_history = state::history_by_body: Reader {
            body wire::state::SearchHistory, 200 Vec<wire::state::ThreadState>, 400, 404, 409
        }
    }
    "/threads/{thread_id}/messages" {
        GET | HEAD list_messages = messages::list: Reader {
            coded, query wire::messages::ListQuery, 200 wire::messages::MessagePage, 400, 404, 409, 413, 422
        }
        POST post_messages = messages::post: Writer {
            coded, body wire::messages::PostMessages, 200 wire::messages::StoredMessages, 201 wire::messages::StoredMessages, 400, 404, 409
        }
    }
    "/commands/send-message" {
        POST command_send_message = messages::send: Writer {
            coded, body wire::messages::SendMessage, 202 wire::messages::PostedMessage, 400, 404, 409
        }
    }
    "/threads/{thread_id}/runs" {
        GET | HEAD list_runs = runs::list: Reader {
            query wire::runs::ListQuery, 200 Vec<wire::Selected<wire::runs::Run>>, 404, 413, 422
        }
        POST create_run = runs::create: Writer {
            body wire::runs::CreateRun, 200 wire::runs::Run, 400, 404, 409, returns 200 "Content-Location"
        }
    }
    "/threads/{thread_id}/runs/stream" {
        POST stream_run = runs::join::stream: Writer {
            body wire::runs::CreateRun, stream 200, 400, 404, 409, returns 200 "Location", returns 200 "Content-Location"
        }
    }
    "/threads/{thread_id}/runs/wait" {
        POST wait_run = runs::join::wait: Writer {
            body wire::runs::CreateRun, 200 wire::runs::Outcome, 400, 404, 409, returns 200 "Location", returns 200 "Content-Location"
        }
    }
    "/threads/{thread_id}/runs/{run_id}" {
        GET | HEAD get_run = runs::get: Reader {
            200 wire::runs::Run, 404, 422
        }
        DELETE delete_run = runs::delete: Writer {
            204, 404, 409, 422
        }
    }
    "/threads/{thread_id}/runs/{run_id}/join" {
        GET join_run = runs::join::join: Reader {
            query wire::runs::JoinQuery, 200 wire::runs::Outcome, 404, 422, returns 200 "Location", returns 200 "Content-Location"
        }
    }
    "/threads/{thread_id}/runs/{run_id}/stream" {
        GET join_run_stream = runs::join::join_stream: Reader {
            query wire::runs::JoinStreamQuery, stream 200, 404, 422, returns 200 "Location", returns 200 "Content-Location", takes "Last-Event-ID"
        }
    }
    "/threads/{thread_id}/runs/{run_id}/cancel" {
        POST cancel_run = runs::cancel: Writer {
            query wire::runs::CancelQuery, 200 wire::runs::Outcome, 202, 404, 409, 422, returns 200 "Location", returns 200 "Content-Location"
        }
    }
    "/threads/{thread_id}/branches" {
        GET | HEAD list_branches = branches::list: Reader {
            coded, 200 wire::branches::Branches, 404, 422
        }
        POST create_branch = branches::create: Writer {
            coded, optional body wire::branches::CreateBranch, 201 wire::branches::ChangedBranch, 400, 404, 409
        }
    }
    "/threads/{thread_id}/branches/{name}" {
        PATCH rename_branch = branches::rename: Writer {
            coded, body wire::branches::Rename, 200 wire::branches::ChangedBranch, 404, 409
        }
        DELETE delete_branch = branches::delete: Writer {
            coded, 204, 404, 409, 422
        }
    }
    "/threads/{thread_id}/branches/{name}/activate" {
        POST activate_branch = branches::activate: Writer {
            coded, optional body wire::branches::Activate, 200 wire::branches::ChangedBranch, 404, 409
        }
    }
    "/threads/{thread_id}/rewind" {
        POST rewind_thread = branches::rewind: Writer {
            coded, body wire::branches::Rewind, 201 wire::branches::ChangedBranch, 400, 404, 409
        }
    }
    "/threads/{thread_id}/btw" {
        POST create_side_branch = branches::btw: Writer {
            coded, optional body wire::branches::SideBranch, 201 wire::branches::ChangedBranch, 400, 404, 409
        }
    }
    "/threads/{thread_id}/restore" {
        POST restore_tag = branches::restore: Writer {
            coded, body wire::branches::Restore, 201 wire::branches::ChangedBranch, 400, 404, 409
        }
    }
    "/threads/{thread_id}/tags" {
        GET | HEAD list_tags = tags::list: Reader {
            coded, 200 wire::branches::Tags, 404, 422
        }
    }
    "/threads/{thread_id}/tags/{name}" {
        GET | HEAD get_tag = tags::get: Reader {
            coded, 200 wire::branches::Tag, 404, 422
        }
        PUT put_tag = tags::put: Writer {
            coded, optional body wire::branches::PutTag, 200 wire::branches::Tag, 201 wire::branches::Tag, 400, 404, 409
        }
        DELETE delete_tag = tags::delete: Writer {
            coded, 204, 404, 409, 422
        }
    }
    "/threads/{thread_id}/events" {
        GET | HEAD list_events = events::list: Reader {
            coded, query wire::events::ListQuery, 200 wire::events::EventPage, stream 200, 404, 422, takes "Last-Event-ID"
        }
    }
    "/threads/{thread_id}/head" {
        GET | HEAD get_head = tree_view::head: Reader {
            coded, query wire::events::HeadQuery, 200 wire::events::Head, 404, 422
        }
    }
    "/threads/{thread_id}/diff" {
        GET | HEAD diff_states = diff::diff: Reader {
            coded, query wire::events::DiffQuery, 200 wire::events::Difference, 400, 404, 409, 413, 422
        }
    }
    "/threads/{thread_id}/tree" {
        GET | HEAD get_tree = tree_view::tree: Reader {
            coded, query wire::events::TreeQuery, 200 wire::events::Tree, 404, 422
        }
    }
    "/admin/projections/rebuild" {
        POST rebuild_projections = events::rebuild: Admin {
            coded, optional body wire::events::Rebuild, 202 wire::events::Rebuilding, 404
        }
    }
    "/store/items" {
        GET | HEAD get_item = store::get: Anyone {
            query wire::store::GetQuery, 200 Option<wire::store::Item>, 400 wire::store::KeyError, 422
        }
        PUT put_item = store::put: Anyone {
            body wire::store::PutItem, 204, 400, 409
        }
        DELETE delete_item = store::delete: Anyone {
            body wire::store::DeleteItem, 204, 400
        }
    }
    "/store/items/search" {
        POST search_items = store::search: Anyone {
            body wire::store::SearchItems, 200 wire::store::FoundItems, 400
        }
    }
    "/store/namespaces" {
        POST list_namespaces = store::namespaces: Anyone {
            body wire::store::ListNamespaces, 200 wire::store::Namespaces, 400
        }
    }
    "/runs/crons" {
        POST create_cron = crons::create: Anyone {
            body wire::crons::CreateCron, 200 wire::crons::Cron, 400, 404, 409
        }
    }
    "/threads/{thread_id}/runs/crons" {
        POST create_thread_cron = crons::create_on_thread: Writer {
            body wire::crons::CreateCron, 200 wire::crons::Cron, 400, 404, 409
        }
    }
    "/runs/crons/search" {
        POST search_crons = crons::search: Anyone {
            body wire::crons::SearchCrons, 200 Vec<wire::Selected<wire::crons::Cron>>, returns 200 "X-Pagination-Total", returns 200 "X-Pagination-Next"
        }
    }
    "/runs/crons/count" {
        POST count_crons = crons::count: Anyone {
            body wire::crons::CountCrons, 200 u64
        }
    }
    "/runs/crons/{cron_id}" {
        GET | HEAD get_cron = crons::get: Anyone {
            200 wire::crons::Cron, 404, 422
        }
        PATCH patch_cron = crons::patch: Anyone {
            body wire::crons::PatchCron, 200 wire::crons::Cron, 400, 404, 409
        }
        DELETE delete_cron = crons::delete: Anyone {
            204, 404, 422
        }
    }
    "/runs" {
        POST create_stateless_run = runs::create_stateless: Anyone {
            body wire::runs::CreateStatelessRun, 200 wire::runs::Run, 400, 404, 409, returns 200 "Content-Location"
        }
    }
    "/runs/stream" {
        POST stream_stateless_run = runs::join::stream_stateless: Anyone {
            body wire::runs::CreateStatelessRun, stream 200, 400, 404, 409, returns 200 "Location", returns 200 "Content-Location"
        }
    }
    "/runs/batch" {
        POST create_run_batch = runs::create_batch: Anyone {
            body wire::runs::CreateBatch, 200 Vec<wire::runs::Run>, 400, 404, 409
        }
    }
    "/runs/cancel" {
        POST cancel_runs = runs::cancel_many: Writer {
            query wire::runs::CancelManyQuery, body wire::runs::CancelRuns, 204, 404, 409
        }
    }
    "/runs/{run_id}/stream" {
        GET join_stateless_run_stream = runs::by_id::stream: Reader {
            query wire::runs::JoinStreamQuery, stream 200, 404, 422, returns 200 "Location", returns 200 "Content-Location", takes "Last-Event-ID"
        }
    }
    "/runs/{run_id}/join" {
        GET join_stateless_run = runs::by_id::join: Reader {
            query wire::runs::JoinQuery, 200 wire::runs::Outcome, 404, 422, returns 200 "Location", returns 200 "Content-Location"
        }
    }
    "/runs/wait" {
        POST wait_stateless_run = runs::join::wait_stateless: Anyone {
            body wire::runs::CreateStatelessRun, 200 wire::runs::Outcome, 400, 404, 409, returns 200 "Location", returns 200 "Content-Location"
        }
    }
};

#[cfg(test)]
mod agent_server;
#[cfg(test)]
mod tests;
