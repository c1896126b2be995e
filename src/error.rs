//! Errors with the class names clients of LangGraph know.

/// An error that a node raises with a class of its own, shown to clients as
/// `{"error": class, "message": message}`.
///
/// ```
/// use backstitch::error::Raised;
///
/// async fn node() -> anyhow::Result<()> {
///     Err(Raised::new("ValueError", "the amount is negative").into())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Raised {
    /// Class name, for example `ValueError`.
    pub class: String,
    /// What happened.
    pub message: String,
}

impl Raised {
    /// An error of `class`.
    pub fn new(class: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            class: class.into(),
            message: message.into(),
        }
    }
}
