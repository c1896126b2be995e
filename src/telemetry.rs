//! Logs: to stderr, for people or as JSON lines. Stdout belongs to the server's first line. With the
//! feature `otel` also traces, to the collector that the environment names.

use std::io::{self, IsTerminal};

use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, Targets},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

use crate::{config::LogFormat, trace};

#[cfg(feature = "otel")]
mod otel;

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
    /// The variables of the environment about traces cannot be followed.
    #[cfg(feature = "otel")]
    #[error("traces: {0}")]
    Traces(String),
    /// This process logs already.
    #[error("logging was set up before: {0}")]
    Taken(String),
}

/// Begins to log what passes the filter, for the whole process, and to collect spans if the environment
/// says so. To be called on the runtime of the server.
///
/// # Errors
/// When the filter or the environment cannot be read, or a subscriber was set before.
pub fn init(filter: &str, format: LogFormat) -> Result<(), Error> {
    // Spans of traces are no part of log lines.
    let filter = parse(filter)?.with_target(trace::TARGET, LevelFilter::OFF);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(format == LogFormat::Text && io::stderr().is_terminal());
    let lines = match format {
        LogFormat::Text => lines.with_filter(filter).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_filter(filter).boxed(),
    };
    let subscriber = tracing_subscriber::registry().with(lines);
    #[cfg(feature = "otel")]
    let subscriber = subscriber.with(otel::layer()?);
    subscriber
        .try_init()
        .map_err(|error| Error::Taken(error.to_string()))
}

/// Sends the spans that have not been sent: the process is about to end.
pub async fn flush() {
    #[cfg(feature = "otel")]
    otel::flush().await;
}

fn parse(filter: &str) -> Result<Targets, Error> {
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
    let is_level = filter.parse::<LevelFilter>().is_ok();
    if !is_level && !filter.contains('=') && !filter.contains(',') {
        return Err(wrong("not a level".into()));
    }
    if filter.contains('[') {
        return Err(wrong("filters by span are not supported".into()));
    }
    // An empty part, and a module name without a level, would be taken for the level `error`.
    let parts = filter.split(',').map(str::trim);
    let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
    if parts.is_empty() {
        return Err(wrong("not a level".into()));
    }
    let has_no_level = |part: &&&str| part.trim_end().ends_with('=');
    if let Some(part) = parts.iter().find(has_no_level) {
        return Err(wrong(format!("no level in `{part}`")));
    }
    let targets = parts.join(",").parse::<Targets>();
    targets.map_err(|error| wrong(error.to_string()))
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
    fn empty_parts_change_nothing() {
        for filter in ["info,", "info,,hyper=warn", " info , hyper=warn", ",info"] {
            let filter = parse(filter).expect("a filter");
            assert!(filter.would_enable("backstitch", &tracing::Level::INFO));
            assert!(!filter.would_enable("backstitch", &tracing::Level::DEBUG));
        }
        for (filter, reason) in [
            ("backstitch=", "no level in `backstitch=`"),
            ("info,backstitch= ", "no level in `backstitch=`"),
            (",", "not a level"),
            ("[run]=info", "filters by span are not supported"),
            ("backstitch[run{id=1}]=debug,info", "by span"),
        ] {
            let refusal = parse(filter).expect_err("a refusal").to_string();
            assert!(refusal.contains(reason), "{refusal}");
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
