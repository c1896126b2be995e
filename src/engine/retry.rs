//! When a failed node gets another attempt.

use std::time::Duration;

use super::error::{Error, Mistake};
use crate::graph::Retry;

/// Classes that LangGraph's default predicate does not retry: mistakes of the program, with the
/// subclasses Python's runtime raises.
const FINAL: [&str; 29] = [
    "GraphRecursionError",
    "RecursionError",
    "NotImplementedError",
    "UnicodeError",
    "UnicodeDecodeError",
    "UnicodeEncodeError",
    "JSONDecodeError",
    "ZeroDivisionError",
    "OverflowError",
    "ModuleNotFoundError",
    "UnboundLocalError",
    "FileNotFoundError",
    "FileExistsError",
    "PermissionError",
    "TimeoutError",
    "ValueError",
    "TypeError",
    "ArithmeticError",
    "ImportError",
    "LookupError",
    "KeyError",
    "IndexError",
    "NameError",
    "SyntaxError",
    "RuntimeError",
    "ReferenceError",
    "StopIteration",
    "StopAsyncIteration",
    "OSError",
];

/// How long to wait before the next attempt; `None` when there is none.
pub fn wait(policies: &[Retry], error: &Error, attempt: usize) -> Option<Duration> {
    let hopeless = matches!(
        error,
        Error::ParentCommand(_) | Error::Cancelled | Error::Storage(_)
    );
    if hopeless || matches!(error.kind(), Some(Mistake::Goto | Mistake::ResumeShape)) {
        return None;
    }
    let policy = policies.iter().find(|policy| matches(policy, error))?;
    if attempt >= policy.max_attempts as usize {
        return None;
    }
    let exponent = i32::try_from(attempt - 1).unwrap_or(i32::MAX);
    let seconds = policy.initial.as_secs_f64() * policy.factor.powi(exponent);
    let mut seconds = seconds.min(policy.max_interval.as_secs_f64());
    if policy.jitter {
        seconds += rand::random::<f64>();
    }
    Duration::try_from_secs_f64(seconds)
        .ok()
        .or(Some(policy.max_interval))
}

fn matches(policy: &Retry, error: &Error) -> bool {
    match &policy.retry_on {
        Some(predicate) => {
            let raised = crate::error::Raised::new(error.class(), error.message());
            predicate(&anyhow::Error::new(raised))
        }
        None => !FINAL.contains(&error.class()),
    }
}
