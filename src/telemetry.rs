//! Logs: to stderr, for people or as JSON lines. Stdout belongs to the server's first line.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use crate::config::LogFormat;

/// Why logging could not begin.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The filter cannot be read.
    #[error(
        "log_level `{filter}`: {reason}; write error, warn, info, debug, trace, or filters as \
         `backstitch=debug,info`"
    )]
    Filter {
        /// The refused filter.
        filter: String,
        /// What is wrong with it.
        reason: String,
    },
    /// This process logs already.
    #[error("logging was set up before: {0}")]
    Taken(String),
}

/// Begins to log what passes the filter, for the whole process.
///
/// # Errors
/// When the filter cannot be read or a subscriber was set before.
pub fn init(filter: &str, format: LogFormat) -> Result<(), Error> {
    // Routine log lines of libraries are not for operators.
    let filter = quiet(parse(filter)?, filter);
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(format == LogFormat::Text && io::stderr().is_terminal());
    match format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    }
    .map_err(|error| Error::Taken(error.to_string()))
}

fn parse(filter: &str) -> Result<EnvFilter, Error> {
    // Python's name of the level, which LangGraph's server takes.
    let filter = if filter.eq_ignore_ascii_case("warning") {
        "warn"
    } else {
        filter
    };
    let wrong = |reason: String| Error::Filter {
        filter: filter.to_owned(),
        reason,
    };
    // A lone word that is no level would be taken for a module name and silence everything.
    let is_level = filter
        .parse::<tracing_subscriber::filter::LevelFilter>()
        .is_ok();
    if !is_level && !filter.contains('=') && !filter.contains(',') {
        return Err(wrong("not a level".into()));
    }
    EnvFilter::builder()
        .parse(filter)
        .map_err(|error| wrong(error.to_string()))
}

/// Adds to the filter that migrations log only warnings, unless the filter names them.
fn quiet(filter: EnvFilter, text: &str) -> EnvFilter {
    match "refinery_core=warn".parse() {
        Ok(directive) if !text.contains("refinery") => filter.add_directive(directive),
        _ => filter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_in_any_case_and_filters_are_understood() {
        for filter in [
            "info",
            "INFO",
            "warning",
            "WARN",
            "off",
            "backstitch=debug,info",
        ] {
            assert!(parse(filter).is_ok(), "{filter}");
        }
    }

    #[test]
    fn a_word_that_is_no_level_is_refused_with_what_would_do() {
        for filter in ["verbose", "backstitch=loud"] {
            let refusal = parse(filter).unwrap_err().to_string();
            assert!(
                refusal.contains(filter) && refusal.contains("debug"),
                "{refusal}"
            );
        }
    }
}
