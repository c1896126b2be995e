//! Why an assistant was not found.

/// Why an assistant was not found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No registered graph has this name.
    #[error("there is no graph `{name}`")]
    UnknownGraph {
        /// The name in the request.
        name: String,
        /// The names of the registered graphs.
        known: Vec<String>,
    },
    /// No assistant has this id.
    #[error("there is no such assistant")]
    NoAssistant,
}
