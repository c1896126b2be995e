//! Errors with the class names clients of LangGraph know.

/// An error that a node raises with a class of its own, shown to clients as
/// `{"error": class, "message": message}`.
///
/// ```
/// use backstitch::prelude::Raised;
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

/// An error and its causes on one line. A cause with which the text before it
/// ends is not repeated: many errors have their cause in their own text.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
    let mut line = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if !line.ends_with(&cause) {
            line.push_str(": ");
            line.push_str(&cause);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer: {source}")]
    struct Outer {
        source: Raised,
    }

    #[test]
    fn a_cause_is_told_once_and_what_is_new_is_told() {
        let source = Raised::new("ValueError", "inner");
        let error = anyhow::Error::new(Outer { source });
        assert_eq!(one_line(&error), "outer: inner");
        let error = Err::<(), _>(error).context("more").unwrap_err();
        assert_eq!(one_line(&error), "more: outer: inner");
    }
}
