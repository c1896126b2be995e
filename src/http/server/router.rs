//! The table of routes: which handler a path and a method belong to, and who may call it.

use hyper::Method;

use super::{access::Right, call::RequestHandler};
use crate::http::{
    assistants, branches, diff, events, forks, members, messages, parse::params::Path, runs, state,
    store, system, tags, threads, tree_view,
};

/// The table of routes.
pub struct Routes(matchit::Router<Vec<Route>>);

/// What the table has for a request.
pub enum Found {
    /// Its route and the parameters of its path.
    Route(Route, Path),
    /// The path exists, for these methods.
    OtherMethods(String),
    /// No such path.
    Nothing,
}

/// A method of a path.
#[derive(Clone)]
pub struct Route {
    method: Method,
    /// What answers it.
    pub handler: RequestHandler,
    /// Who may call it.
    pub right: Right,
}

macro_rules! routes {
    ($($path:literal { $($method:ident $handler:path: $right:ident),* $(,)? })*) => {
        &[$(($path, &[$(Route {
            method: Method::$method,
            handler: |call| Box::pin($handler(call)),
            right: Right::$right,
        }),*])),*]
    };
}

type Table = &'static [(&'static str, &'static [Route])];

const TABLE: Table = routes! {
    "/" { GET system::ok: Public, HEAD system::ok: Public }
    "/ok" { GET system::ok: Public, HEAD system::ok: Public }
    "/live" { GET system::live: Public, HEAD system::live: Public }
    "/ready" { GET system::ready: Public, HEAD system::ready: Public }
    "/info" { GET system::info: Anyone, HEAD system::info: Anyone }
    "/assistants/search" { POST assistants::search: Anyone }
    "/assistants" { POST assistants::create: Anyone }
    "/assistants/count" { POST assistants::count: Anyone }
    "/assistants/{assistant_id}" {
        GET assistants::get: Anyone, HEAD assistants::get: Anyone,
        PATCH assistants::patch: Anyone, DELETE assistants::delete: Anyone
    }
    "/assistants/{assistant_id}/versions" { POST assistants::versions: Anyone }
    "/assistants/{assistant_id}/latest" { POST assistants::latest: Anyone }
    "/assistants/{assistant_id}/subgraphs" {
        GET assistants::subgraphs: Anyone, HEAD assistants::subgraphs: Anyone
    }
    "/assistants/{assistant_id}/subgraphs/{namespace}" {
        GET assistants::subgraphs: Anyone, HEAD assistants::subgraphs: Anyone
    }
    "/assistants/{assistant_id}/graph" { GET assistants::graph: Anyone, HEAD assistants::graph: Anyone }
    "/assistants/{assistant_id}/schemas" { GET assistants::schemas: Anyone, HEAD assistants::schemas: Anyone }
    "/threads" { GET threads::search::list: Anyone, HEAD threads::search::list: Anyone, POST threads::create: Anyone }
    "/threads/search" { POST threads::search::search: Anyone }
    "/threads/count" { POST threads::search::count: Anyone }
    "/threads/prune" { POST threads::prune: Writer }
    "/commands/create-thread" { POST forks::create_thread: Anyone }
    "/commands/fork-thread" { POST forks::fork_thread: Writer }
    "/threads/{thread_id}/fork" { POST forks::fork: Writer }
    "/threads/{thread_id}/forks" { GET forks::list: Reader, HEAD forks::list: Reader }
    "/threads/{thread_id}/members" { GET members::list: Reader, HEAD members::list: Reader }
    "/threads/{thread_id}/members/{principal}" { PUT members::put: Manager, DELETE members::delete: Manager }
    "/threads/{thread_id}/copy" { POST threads::copy: Reader }
    "/threads/{thread_id}/stream" { GET threads::stream::watch: Reader }
    "/threads/{thread_id}" {
        GET threads::get: Reader, HEAD threads::get: Reader, PATCH threads::patch: Writer, DELETE threads::delete: Owner
    }
    "/threads/{thread_id}/state" { GET state::latest: Reader, HEAD state::latest: Reader, POST state::edit: Writer }
    "/threads/{thread_id}/state/checkpoint" { POST state::by_object: Reader }
    "/threads/{thread_id}/state/{checkpoint_id}" { GET state::by_id: Reader, HEAD state::by_id: Reader }
    "/threads/{thread_id}/history" {
        GET state::history_by_query: Reader, HEAD state::history_by_query: Reader, POST state::history_by_body: Reader
    }
    "/threads/{thread_id}/messages" {
        GET messages::list: Reader, HEAD messages::list: Reader, POST messages::post: Writer
    }
    "/commands/send-message" { POST messages::send: Writer }
    "/threads/{thread_id}/runs" { GET runs::list: Reader, HEAD runs::list: Reader, POST runs::create: Writer }
    "/threads/{thread_id}/runs/stream" { POST runs::join::stream: Writer }
    "/threads/{thread_id}/runs/wait" { POST runs::join::wait: Writer }
    "/threads/{thread_id}/runs/{run_id}" { GET runs::get: Reader, HEAD runs::get: Reader, DELETE runs::delete: Writer }
    "/threads/{thread_id}/runs/{run_id}/join" { GET runs::join::join: Reader }
    "/threads/{thread_id}/runs/{run_id}/stream" { GET runs::join::join_stream: Reader }
    "/threads/{thread_id}/runs/{run_id}/cancel" { POST runs::cancel: Writer }
    "/threads/{thread_id}/branches" {
        GET branches::list: Reader, HEAD branches::list: Reader, POST branches::create: Writer
    }
    "/threads/{thread_id}/branches/{name}" {
        PATCH branches::rename: Writer, DELETE branches::delete: Writer
    }
    "/threads/{thread_id}/branches/{name}/activate" { POST branches::activate: Writer }
    "/threads/{thread_id}/rewind" { POST branches::rewind: Writer }
    "/threads/{thread_id}/btw" { POST branches::btw: Writer }
    "/threads/{thread_id}/restore" { POST branches::restore: Writer }
    "/threads/{thread_id}/tags" { GET tags::list: Reader, HEAD tags::list: Reader }
    "/threads/{thread_id}/tags/{name}" {
        GET tags::get: Reader, HEAD tags::get: Reader, PUT tags::put: Writer, DELETE tags::delete: Writer
    }
    "/threads/{thread_id}/events" { GET events::list: Reader, HEAD events::list: Reader }
    "/threads/{thread_id}/head" { GET tree_view::head: Reader, HEAD tree_view::head: Reader }
    "/threads/{thread_id}/diff" { GET diff::diff: Reader, HEAD diff::diff: Reader }
    "/threads/{thread_id}/tree" { GET tree_view::tree: Reader, HEAD tree_view::tree: Reader }
    "/admin/projections/rebuild" { POST events::rebuild: Admin }
    "/store/items" {
        GET store::get: Anyone, HEAD store::get: Anyone,
        PUT store::put: Anyone, DELETE store::delete: Anyone
    }
    "/store/items/search" { POST store::search: Anyone }
    "/store/namespaces" { POST store::namespaces: Anyone }
    "/runs" { POST runs::create_stateless: Anyone }
    "/runs/stream" { POST runs::join::stream_stateless: Anyone }
    "/runs/batch" { POST runs::create_batch: Anyone }
    "/runs/cancel" { POST runs::cancel_many: Writer }
    "/runs/wait" { POST runs::join::wait_stateless: Anyone }
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
        let Some(route) = methods.iter().find(|route| route.method == *method) else {
            let names: Vec<_> = methods.iter().map(|route| route.method.as_str()).collect();
            return Found::OtherMethods(names.join(", "));
        };
        let params = matched.params.iter();
        let params = params.map(|(key, value)| (key.to_owned(), value.to_owned()));
        Found::Route(route.clone(), Path(params.collect()))
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
            for Route { method, .. } in *methods {
                assert!(
                    matches!(routes.find(method, &example), Found::Route(..)),
                    "{method} {path}"
                );
            }
        }
    }

    /// The tests that run servers take the routes from this file, so that they miss none.
    #[test]
    fn tests_know_every_route_and_who_may_call_it() {
        let mut listed = String::new();
        for (path, methods) in TABLE {
            for Route { method, right, .. } in *methods {
                listed.push_str(&format!("{method} {path} {right:?}\n"));
            }
        }
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/routes.txt");
        if std::env::var_os("UPDATE_ROUTES").is_some() {
            std::fs::write(file, &listed).unwrap();
        }
        let known = std::fs::read_to_string(file).unwrap_or_default();
        assert!(
            known == listed,
            "run this test with UPDATE_ROUTES=1 and read the difference"
        );
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
