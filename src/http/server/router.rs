//! Finds the route that a method and a path belong to.

use hyper::Method;

use super::{access::Right, call::RequestHandler};
use crate::http::{openapi::operation::Operation, parse::params::Path};

/// The routes by their paths.
pub struct Routes(matchit::Router<Vec<&'static Route>>);

/// What the table has for a request.
pub enum Found {
    /// Its route and the parameters of its path.
    Route(&'static Route, Path),
    /// The path exists, for these methods.
    OtherMethods(String),
    /// No such path.
    Nothing,
}

/// A method of a path.
pub struct Route {
    /// The template of its path, which also labels its metrics.
    pub path: &'static str,
    pub method: Method,
    /// The id of the operation in the OpenAPI document. `HEAD` has that of its `GET`.
    pub operation: &'static str,
    /// What answers it.
    pub handler: RequestHandler,
    /// Who may call it.
    pub right: Right,
    /// Puts down what the document says of it.
    pub describe: fn(&mut Operation<'_>),
}

/// The routes of a table.
macro_rules! routes {
    ($($path:literal { $(
        $($method:ident)|+ $operation:ident = $handler:path: $right:ident $described:tt
    )* })*) => {
        &[$($($($crate::http::server::router::Route {
            path: $path,
            method: hyper::Method::$method,
            operation: stringify!($operation),
            handler: |call| $crate::http::server::router::boxed!($handler(call), $described),
            right: $crate::http::server::access::Right::$right,
            describe: |operation| $crate::http::openapi::operation::describe!(operation $described),
        },)+)*)*]
    };
}
pub(in crate::http) use routes;

/// The future of a handler, as it is or with a code on each error.
macro_rules! boxed {
    ($handled:expr, { coded $($described:tt)* }) => {
        Box::pin($crate::http::parse::address::coded(Box::pin($handled)))
    };
    ($handled:expr, $described:tt) => {
        Box::pin($handled)
    };
}
pub(in crate::http) use boxed;

impl Routes {
    /// The rows of a path follow each other in the table.
    pub fn new(table: &'static [Route]) -> Self {
        let mut router = matchit::Router::new();
        for of_path in table.chunk_by(|one, next| one.path == next.path) {
            let inserted = router.insert(of_path[0].path, of_path.iter().collect());
            debug_assert!(inserted.is_ok(), "{}: {inserted:?}", of_path[0].path);
        }
        Self(router)
    }

    /// The template of a path, whatever the method; empty without one.
    pub fn template(&self, path: &str) -> &'static str {
        let matched = self.0.at(path).ok();
        let route = matched.and_then(|matched| matched.value.first());
        route.map_or("", |route| route.path)
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
        Found::Route(route, Path(params.collect()))
    }
}
