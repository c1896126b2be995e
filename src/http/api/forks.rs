//! What the handlers ask: forks, members, and the life of threads beyond one run.

/// Forks, members, and the life of threads beyond one run.
#[async_trait::async_trait]
pub trait Forks: Send + Sync + 'static {}
