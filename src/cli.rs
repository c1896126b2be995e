//! The command line of the server: its subcommands and their settings.

mod open_files;

use std::{ffi::OsString, io::Write, process::ExitCode};

use clap::{Parser, Subcommand};

use crate::{
    config::{self, Flags, Settings},
    error::one_line,
    telemetry,
};

/// The subcommand of the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Command {
    /// Serve requests until SIGTERM or SIGINT.
    #[default]
    Serve,
    /// Print the settings and where each came from.
    ConfigShow,
    /// Bring the database to the newest schema, then end.
    Migrate,
    /// Print the version.
    Version,
}

/// A subcommand and its settings.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// The subcommand.
    pub command: Command,
    /// The settings.
    pub settings: Settings,
}

/// Why a command line was not understood.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not a command line of this program, or a call for help: the text is for the user.
    #[error(transparent)]
    Usage(#[from] clap::Error),
    /// The settings are not valid.
    #[error(transparent)]
    Settings(#[from] config::Error),
}

#[derive(Parser, Debug)]
#[command(version, about, subcommand_help_heading = "Commands")]
struct Line {
    #[command(subcommand)]
    command: Option<Words>,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Subcommand, Debug)]
enum Words {
    /// Serve requests until SIGTERM or SIGINT (the default)
    Serve,
    /// Look at the settings
    #[command(subcommand)]
    Config(Config),
    /// Bring the database to the newest schema, then end
    Migrate,
    /// Print the version
    Version,
}

#[derive(Subcommand, Debug)]
enum Config {
    /// Print what holds and where it came from, without secrets
    Show,
}

/// Reads a command line (its first word is the program's name) and the settings under it.
///
/// # Errors
/// The line is not understood or requests help, or the settings are not valid.
pub fn parse<I, T>(line: I) -> Result<Invocation, Error>
where
    I: IntoIterator<Item = T>,
    T: Into<OsString> + Clone,
{
    let Line { command, flags } = Line::try_parse_from(line)?;
    let command = match command {
        None | Some(Words::Serve) => Command::Serve,
        Some(Words::Config(Config::Show)) => Command::ConfigShow,
        Some(Words::Migrate) => Command::Migrate,
        Some(Words::Version) => Command::Version,
    };
    Ok(Invocation {
        command,
        settings: Settings::load(flags)?,
    })
}

/// Runs the subcommand of this process's command line; `serve` and `migrate` do the two commands
/// that need more than settings, after logging was set up. The code is 0 on success, 2 for a
/// command line or settings that were not understood, 1 for anything else; the reason is on stderr.
pub async fn run<S, M>(serve: S, migrate: M) -> ExitCode
where
    S: AsyncFnOnce(Settings) -> anyhow::Result<()>,
    M: AsyncFnOnce(Settings) -> anyhow::Result<()>,
{
    let Invocation { command, settings } = match parse(std::env::args_os()) {
        Ok(invocation) => invocation,
        Err(Error::Usage(usage)) => {
            usage.print().ok();
            return ExitCode::from(u8::try_from(usage.exit_code()).unwrap_or(2));
        }
        Err(Error::Settings(error)) => return refuse(&error),
    };
    let done = match command {
        Command::ConfigShow => print(&settings.to_string()),
        Command::Version => print(concat!("backstitch ", env!("CARGO_PKG_VERSION"), "\n")),
        Command::Serve | Command::Migrate => {
            if let Err(error) = telemetry::init(&settings.log_level, settings.log_format) {
                return refuse(&error);
            }
            #[cfg(feature = "failpoints")]
            if let Err(error) = crate::failpoint::load() {
                return refuse(&error);
            }
            let done = match command {
                Command::Migrate => migrate(settings).await,
                _ => {
                    open_files::raise_limit();
                    serve(settings).await
                }
            };
            telemetry::flush().await;
            done
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&one_line(&error));
            ExitCode::FAILURE
        }
    }
}

fn refuse(error: &dyn std::error::Error) -> ExitCode {
    complain(&error.to_string());
    ExitCode::from(2)
}

/// Unlike `eprintln!`, does not panic when stderr is closed.
fn complain(text: &str) {
    writeln!(std::io::stderr(), "error: {text}").ok();
}

fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        // The reader closed the pipe, as `head` does.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_grammar_is_sound() {
        Line::command().debug_assert();
    }

    #[test]
    fn help_says_what_the_program_is_and_names_variables_beside_flags() {
        let help = parse(["b", "--help"]).unwrap_err().to_string();
        for expected in [env!("CARGO_PKG_DESCRIPTION"), "config", "--port", "(PORT)"] {
            assert!(help.contains(expected), "{expected} is not in:\n{help}");
        }
    }

    #[test]
    fn without_a_word_the_server_is_meant_and_flags_stand_on_either_side() {
        assert_eq!(parse(["b"]).unwrap().command, Command::Serve);
        for line in [
            vec!["b", "--port", "0", "serve"],
            vec!["b", "serve", "--port", "0"],
        ] {
            let invocation = parse(line).unwrap();
            assert_eq!(
                (invocation.command, invocation.settings.port),
                (Command::Serve, 0)
            );
        }
        assert_eq!(
            parse(["b", "config", "show"]).unwrap().command,
            Command::ConfigShow
        );
        assert_eq!(parse(["b", "migrate"]).unwrap().command, Command::Migrate);
        assert_eq!(parse(["b", "version"]).unwrap().command, Command::Version);
    }

    #[test]
    fn an_unknown_word_is_refused_under_the_name_that_was_typed() {
        let Err(Error::Usage(usage)) = parse(["/opt/my-agent", "dance"]) else {
            panic!("`dance` is no command")
        };
        assert_eq!(usage.exit_code(), 2);
        assert!(usage.to_string().contains("my-agent"), "{usage}");
    }
}
