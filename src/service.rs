//! What a program needs that serves graphs in its own way: its authentication, routes and layers, and the
//! server as a service of its own HTTP server.
//!
//! ```no_run
//! use backstitch::{Server, service::{Principal, Refused}};
//!
//! async fn who(head: http::request::Parts) -> Result<Principal, Refused> {
//!     match head.headers.get("authorization").and_then(|value| value.to_str().ok()) {
//!         Some("Bearer ann-s-token") => Ok(Principal::new("ann")),
//!         _ => Err(Refused::unknown("Send a token: Authorization: Bearer ...")),
//!     }
//! }
//!
//! # async fn start() -> anyhow::Result<()> {
//! let (service, handle) = Server::new().authenticate(who).embed().await?;
//! // `service` is a service of `tower`: axum takes it as `Router::new().fallback_service(service)`.
//! # drop(service);
//! handle.drain().await?;
//! # Ok(())
//! # }
//! ```

pub use crate::assistants::GraphConfig;
pub use crate::http::{
    BoxError, Embedded, Next, Peer, Principal, Refused, RequestBody, ResponseBody,
};
pub use crate::server::Handle;
