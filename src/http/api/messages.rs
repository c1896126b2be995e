//! What the handlers ask: messages of threads.

/// Messages of threads.
#[async_trait::async_trait]
pub trait Messages: Send + Sync + 'static {}
