//! Errors of converting between a [`Value`](super::Value), JSON and Rust types.

use std::fmt;

/// Why a JSON text is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The text is no JSON, or nested too deeply.
    #[error("invalid JSON: {message} at line {line} column {column}")]
    Syntax {
        /// What the parser expected or found.
        message: String,
        /// Line, from 1.
        line: usize,
        /// Column in bytes, from 1.
        column: usize,
    },
    /// A whole number does not fit 64 bits; it would silently lose digits as a float.
    #[error(
        "integer {digits} at line {line} column {column} does not fit 64 bits; send it as a string"
    )]
    IntegerTooLarge {
        /// The number, shortened when very long.
        digits: String,
        /// Line, from 1.
        line: usize,
        /// Column in bytes, from 1.
        column: usize,
    },
}

/// Why a Rust value has no [`Value`](super::Value) form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A map key is neither text, a number, a character nor a truth value.
    #[error("map keys must be text, numbers or booleans, not {0}")]
    Key(&'static str),
    /// A 128-bit integer does not fit 64 bits.
    #[error("integer {0} does not fit 64 bits; encode it as a string")]
    IntegerTooLarge(String),
    /// Nested more than [`MAX_DEPTH`](super::MAX_DEPTH) levels deep.
    #[error("nested more than {} levels deep", super::MAX_DEPTH)]
    TooDeep,
    /// Raised by a type's own `Serialize`.
    #[error("{0}")]
    Custom(String),
}

impl serde::ser::Error for EncodeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        EncodeError::Custom(message.to_string())
    }
}

/// Why a [`Value`](super::Value) is not what a Rust type expects, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    message: String,
    /// Path from the inside out, each part as it is shown: `.field` or `[3]`.
    path: Vec<String>,
}

impl DecodeError {
    pub(super) fn under_key(mut self, key: &str) -> Self {
        self.path.push(format!(".{key}"));
        self
    }

    pub(super) fn under_index(mut self, index: usize) -> Self {
        self.path.push(format!("[{index}]"));
        self
    }

    /// Where in the value the mismatch is: `messages[3].content`, empty for the value itself.
    pub fn path(&self) -> String {
        let path: String = self.path.iter().rev().map(String::as_str).collect();
        path.strip_prefix('.').map_or(path.clone(), str::to_owned)
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.path(), self.message)
        }
    }
}

impl std::error::Error for DecodeError {}

impl serde::de::Error for DecodeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        DecodeError {
            message: message.to_string(),
            path: Vec::new(),
        }
    }
}
