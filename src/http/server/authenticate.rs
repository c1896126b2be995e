//! The author's own authentication: called with the head of a request, within a time, and failing
//! alone.

use std::{fmt, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use hyper::http::request::Parts;
use tokio::{sync::Semaphore, time::timeout};

use super::{
    error::Error,
    panics::panic_text,
    principal::{Principal, Refused},
};

/// How long it may take to find out who sends a request, waiting included.
const LIMIT: Duration = Duration::from_secs(10);
/// Requests whose senders are being found out at once; more wait.
const AT_ONCE: usize = 512;

type Find = dyn Fn(Parts) -> BoxFuture<'static, Result<Principal, Refused>> + Send + Sync;

/// Finds out who sends a request.
#[derive(Clone)]
pub struct Authentication {
    find: Arc<Find>,
    permits: Arc<Semaphore>,
}

impl Authentication {
    /// By this function of the head of a request.
    pub fn new<F, Fut>(find: F) -> Self
    where
        F: Fn(Parts) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Principal, Refused>> + Send + 'static,
    {
        Self {
            find: Arc::new(move |head| find(head).boxed()),
            permits: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// Who sends the request.
    ///
    /// # Errors
    /// What the author refuses with; 503 when it takes too long; 500 when it panics, fails or names
    /// nobody who can be.
    pub(in crate::http) async fn principal(&self, head: Parts) -> Result<Principal, Error> {
        let find = self.find.clone();
        let found = async {
            // The semaphore is never closed.
            let _permit = self.permits.acquire().await.ok();
            AssertUnwindSafe(async move { find(head).await })
                .catch_unwind()
                .await
        };
        let Ok(found) = timeout(LIMIT, found).await else {
            tracing::error!("the program's authentication took longer than {LIMIT:?}");
            let detail =
                "It could not be found out in time who sends this request. Try again later.";
            return Err(Error::unavailable(detail));
        };
        let principal = match found {
            Ok(found) => found.map_err(Refused::into_error)?,
            Err(panic) => {
                let panic = panic_text(panic.as_ref());
                tracing::error!(panic, "the program's authentication panicked");
                return Err(Error::internal(&"the program's authentication panicked"));
            }
        };
        match principal.problem() {
            Some(problem) => Err(Error::internal(&problem)),
            None => Ok(principal),
        }
    }
}

impl fmt::Debug for Authentication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authentication").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    async fn status(authentication: Authentication) -> u16 {
        let (head, ()) = Request::new(()).into_parts();
        let found = authentication.principal(head).await;
        found.unwrap_err().status.as_u16()
    }

    #[tokio::test(start_paused = true)]
    async fn an_authentication_that_hangs_panics_or_names_nobody_fails_its_request_alone() {
        let hangs = Authentication::new(|_| std::future::pending());
        assert_eq!(status(hangs).await, 503);
        let panics = Authentication::new(|_| async { panic!("on purpose") });
        assert_eq!(status(panics).await, 500);
        fn at_once(_: Parts) -> std::future::Ready<Result<Principal, Refused>> {
            panic!("before there is a future")
        }
        assert_eq!(status(Authentication::new(at_once)).await, 500);
        let fails = Authentication::new(|_| async { Err(std::io::Error::other("secret").into()) });
        assert_eq!(status(fails).await, 500);
        for name in ["", "a\nb", &"x".repeat(256)] {
            let principal = Principal::new(name);
            let odd = Authentication::new(move |_| std::future::ready(Ok(principal.clone())));
            assert_eq!(status(odd).await, 500, "{name}");
        }
        let refuses = Authentication::new(|_| async { Err(Refused::unknown("who?")) });
        assert_eq!(status(refuses).await, 401);
    }
}
