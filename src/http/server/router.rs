//! The table of routes: which handler a path and a method belong to.

use hyper::Method;

use super::call::RequestHandler;
use crate::http::{
    assistants, branches, diff, events, forks, members, messages, parse::params::Path, runs, state,
    system, tags, threads, tree_view,
};

/// The table of routes.
pub struct Routes(matchit::Router<Vec<(Method, RequestHandler)>>);

/// What the table has for a request.
pub enum Found {
    /// Its handler and the parameters of its path.
    Route(RequestHandler, Path),
    /// The path exists, for these methods.
    OtherMethods(String),
    /// No such path.
    Nothing,
}

macro_rules! routes {
    ($($path:literal { $($method:ident $handler:path),* $(,)? })*) => {
        &[$(($path, &[$((Method::$method, (|call| Box::pin($handler(call))) as RequestHandler)),*])),*]
    };
}

type Table = &'static [(&'static str, &'static [(Method, RequestHandler)])];

const TABLE: Table = routes! {
    "/" { GET system::ok, HEAD system::ok }
    "/ok" { GET system::ok, HEAD system::ok }
    "/live" { GET system::live, HEAD system::live }
    "/ready" { GET system::ready, HEAD system::ready }
    "/info" { GET system::info, HEAD system::info }
    "/assistants/search" { POST assistants::search }
    "/assistants" { POST assistants::create }
    "/assistants/count" { POST assistants::count }
    "/assistants/{assistant_id}" {
        GET assistants::get, HEAD assistants::get,
        PATCH assistants::patch, DELETE assistants::delete
    }
    "/assistants/{assistant_id}/versions" { POST assistants::versions }
    "/assistants/{assistant_id}/latest" { POST assistants::latest }
    "/assistants/{assistant_id}/subgraphs" {
        GET assistants::subgraphs, HEAD assistants::subgraphs
    }
    "/assistants/{assistant_id}/subgraphs/{namespace}" {
        GET assistants::subgraphs, HEAD assistants::subgraphs
    }
    "/assistants/{assistant_id}/graph" { GET assistants::graph, HEAD assistants::graph }
    "/assistants/{assistant_id}/schemas" { GET assistants::schemas, HEAD assistants::schemas }
    "/threads" { GET threads::search::list, HEAD threads::search::list, POST threads::create }
    "/threads/search" { POST threads::search::search }
    "/threads/count" { POST threads::search::count }
    "/threads/prune" { POST threads::prune }
    "/commands/create-thread" { POST forks::create_thread }
    "/commands/fork-thread" { POST forks::fork_thread }
    "/threads/{thread_id}/fork" { POST forks::fork }
    "/threads/{thread_id}/forks" { GET forks::list, HEAD forks::list }
    "/threads/{thread_id}/members" { GET members::list, HEAD members::list }
    "/threads/{thread_id}/members/{principal}" { PUT members::put, DELETE members::delete }
    "/threads/{thread_id}/copy" { POST threads::copy }
    "/threads/{thread_id}/stream" { GET threads::stream::watch }
    "/threads/{thread_id}" {
        GET threads::get, HEAD threads::get, PATCH threads::patch, DELETE threads::delete
    }
    "/threads/{thread_id}/state" { GET state::latest, HEAD state::latest, POST state::edit }
    "/threads/{thread_id}/state/checkpoint" { POST state::by_object }
    "/threads/{thread_id}/state/{checkpoint_id}" { GET state::by_id, HEAD state::by_id }
    "/threads/{thread_id}/history" {
        GET state::history_by_query, HEAD state::history_by_query, POST state::history_by_body
    }
    "/threads/{thread_id}/messages" {
        GET messages::list, HEAD messages::list, POST messages::post
    }
    "/commands/send-message" { POST messages::send }
    "/threads/{thread_id}/runs" { GET runs::list, HEAD runs::list, POST runs::create }
    "/threads/{thread_id}/runs/stream" { POST runs::join::stream }
    "/threads/{thread_id}/runs/wait" { POST runs::join::wait }
    "/threads/{thread_id}/runs/{run_id}" { GET runs::get, HEAD runs::get, DELETE runs::delete }
    "/threads/{thread_id}/runs/{run_id}/join" { GET runs::join::join }
    "/threads/{thread_id}/runs/{run_id}/stream" { GET runs::join::join_stream }
    "/threads/{thread_id}/runs/{run_id}/cancel" { POST runs::cancel }
    "/threads/{thread_id}/branches" {
        GET branches::list, HEAD branches::list, POST branches::create
    }
    "/threads/{thread_id}/branches/{name}" {
        PATCH branches::rename, DELETE branches::delete
    }
    "/threads/{thread_id}/branches/{name}/activate" { POST branches::activate }
    "/threads/{thread_id}/rewind" { POST branches::rewind }
    "/threads/{thread_id}/btw" { POST branches::btw }
    "/threads/{thread_id}/restore" { POST branches::restore }
    "/threads/{thread_id}/tags" { GET tags::list, HEAD tags::list }
    "/threads/{thread_id}/tags/{name}" {
        GET tags::get, HEAD tags::get, PUT tags::put, DELETE tags::delete
    }
    "/threads/{thread_id}/events" { GET events::list, HEAD events::list }
    "/threads/{thread_id}/head" { GET tree_view::head, HEAD tree_view::head }
    "/threads/{thread_id}/diff" { GET diff::diff, HEAD diff::diff }
    "/threads/{thread_id}/tree" { GET tree_view::tree, HEAD tree_view::tree }
    "/admin/projections/rebuild" { POST events::rebuild }
    "/runs" { POST runs::create_stateless }
    "/runs/stream" { POST runs::join::stream_stateless }
    "/runs/batch" { POST runs::create_batch }
    "/runs/cancel" { POST runs::cancel_many }
    "/runs/wait" { POST runs::join::wait_stateless }
};

impl Routes {
    pub fn new() -> Self {
        let mut router = matchit::Router::new();
        for (path, methods) in TABLE {
            let inserted = router.insert(*path, methods.to_vec());
            debug_assert!(inserted.is_ok(), "{path}: {inserted:?}");
        }
        Self(router)
    }

    /// Matches the path as it is on the wire, so that an encoded slash never separates segments.
    pub fn find(&self, method: &Method, path: &str) -> Found {
        let Ok(matched) = self.0.at(path) else {
            return Found::Nothing;
        };
        let methods = matched.value;
        let Some((_, handler)) = methods.iter().find(|(name, _)| name == method) else {
            let names: Vec<_> = methods.iter().map(|(name, _)| name.as_str()).collect();
            return Found::OtherMethods(names.join(", "));
        };
        let params = matched.params.iter();
        let params = params.map(|(key, value)| (key.to_owned(), value.to_owned()));
        Found::Route(*handler, Path(params.collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_of_the_table_is_reachable() {
        let routes = Routes::new();
        for (path, methods) in TABLE {
            let example = path.replace(['{', '}'], "");
            for (method, _) in *methods {
                assert!(
                    matches!(routes.find(method, &example), Found::Route(..)),
                    "{method} {path}"
                );
            }
        }
    }

    #[test]
    fn unusual_paths_match_nothing() {
        let routes = Routes::new();
        for path in [
            "/nope",
            "/threads/",
            "//threads",
            "/threads/a/../b/x",
            "/threads/a/state/",
        ] {
            assert!(
                matches!(routes.find(&Method::GET, path), Found::Nothing),
                "{path}"
            );
        }
        let Found::OtherMethods(allow) = routes.find(&Method::PUT, "/threads") else {
            panic!("PUT is not for threads");
        };
        assert_eq!(allow, "GET, HEAD, POST");
    }
}
