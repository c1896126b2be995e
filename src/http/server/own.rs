//! What the program that serves adds: routes, layers around all routes, and its authentication.

use std::{fmt, sync::Arc};

use super::{authenticate::Authentication, foreign::Foreign};

type Wrap = dyn Fn(Foreign) -> Foreign + Send + Sync;

/// What the program that serves adds to the server.
#[derive(Clone, Default)]
pub struct Own {
    /// Finds out who sends a request.
    pub authentication: Option<Authentication>,
    routes: Vec<OwnRoutes>,
    layers: Vec<Arc<Wrap>>,
}

/// Routes of the program.
#[derive(Clone, Debug)]
pub struct OwnRoutes {
    /// All of them are this path or below it.
    prefix: String,
    /// What answers them.
    pub(in crate::http) service: Foreign,
    /// Everybody may call them.
    pub(in crate::http) is_public: bool,
}

impl Own {
    /// Adds routes; `paths` are those of the server.
    ///
    /// # Errors
    /// A prefix that is no path, or that has routes already.
    pub fn add_routes(
        &mut self,
        prefix: &str,
        service: Foreign,
        is_public: bool,
        mut paths: impl Iterator<Item = &'static str>,
    ) -> Result<(), String> {
        let is_part = |part: &str| {
            let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
            !part.is_empty() && part != "." && part != ".." && part.bytes().all(is_legal)
        };
        let is_path = |path: &str| path.split('/').all(is_part);
        if !prefix.strip_prefix('/').is_some_and(is_path) {
            return Err(format!(
                "`{prefix}` is no prefix of paths; write one such as `/app`, of letters, digits, `-`, `.`, \
                 `_` and `~`, without a slash at its end"
            ));
        }
        if let Some(path) = paths.find(|path| overlap(prefix, path)) {
            return Err(format!(
                "`{prefix}` would hide the route `{path}` of the server; choose another prefix"
            ));
        }
        let taken = self.routes.iter().find(|one| overlap(prefix, &one.prefix));
        if let Some(taken) = taken {
            return Err(format!(
                "`{prefix}` and `{}` are routes of the program twice over; choose prefixes of which none is \
                 above the other",
                taken.prefix
            ));
        }
        self.routes.push(OwnRoutes {
            prefix: prefix.to_owned(),
            service,
            is_public,
        });
        Ok(())
    }

    /// Adds a layer around everything that is there and around those that were added before.
    pub fn add_layer(&mut self, wrap: impl Fn(Foreign) -> Foreign + Send + Sync + 'static) {
        self.layers.push(Arc::new(wrap));
    }

    /// The service within all layers; `None` without a layer.
    pub(in crate::http) fn layered(&self, service: impl FnOnce() -> Foreign) -> Option<Foreign> {
        if self.layers.is_empty() {
            return None;
        }
        let layers = self.layers.iter();
        Some(layers.fold(service(), |service, wrap| wrap(service)))
    }

    /// The program's routes that a path is of.
    pub(in crate::http) fn routes_of(&self, path: &str) -> Option<&OwnRoutes> {
        self.routes.iter().find(|routes| {
            let rest = path.strip_prefix(&*routes.prefix);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Own")
            .field("routes", &self.routes)
            .finish_non_exhaustive()
    }
}

/// Whether some path is of both: one is above the other, where a parameter may be anything.
fn overlap(prefix: &str, path: &str) -> bool {
    // Nothing is below the start page.
    path != "/"
        && prefix
            .split('/')
            .zip(path.split('/'))
            .all(|(own, known)| own == known || known.starts_with('{'))
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::http::{routes::TABLE, server::body};

    fn add(own: &mut Own, prefix: &str) -> Result<(), String> {
        let nothing = |_| async { body::empty(hyper::StatusCode::OK) }.boxed();
        own.add_routes(
            prefix,
            Foreign::of(nothing),
            false,
            TABLE.iter().map(|route| route.path),
        )
    }

    #[test]
    fn prefixes_that_hide_routes_or_are_no_paths_are_refused() {
        for wrong in [
            "", "/", "app", "/app/", "/a//b", "/a/../b", "/{a}", "/a b", "/%61",
        ] {
            let error = add(&mut Own::default(), wrong).unwrap_err();
            assert!(error.contains("no prefix"), "{wrong}: {error}");
        }
        for known in [
            "/threads",
            "/ok",
            "/runs/mine",
            "/threads/mine/state",
            "/a2a",
            "/.well-known",
        ] {
            let error = add(&mut Own::default(), known).unwrap_err();
            assert!(error.contains("would hide"), "{known}: {error}");
        }
        let mut own = Own::default();
        add(&mut own, "/app/one").unwrap();
        add(&mut own, "/app/two").unwrap();
        add(&mut own, "/threadsafe").unwrap();
        for taken in ["/app", "/app/one", "/app/one/more"] {
            let error = add(&mut own, taken).unwrap_err();
            assert!(error.contains("twice"), "{taken}: {error}");
        }
    }

    #[test]
    fn routes_are_found_by_whole_parts_of_a_path() {
        let mut own = Own::default();
        add(&mut own, "/app").unwrap();
        assert!(own.routes_of("/app").is_some() && own.routes_of("/app/x").is_some());
        assert!(own.routes_of("/apple").is_none() && own.routes_of("/").is_none());
    }
}
