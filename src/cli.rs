//! The command line of the server: its subcommands and their settings.

mod chat;
mod diff;
mod drawing;
mod new;
mod open_files;
mod people;
mod screen;
mod state;
mod tail;
mod threads;
mod tree;

use std::{
    collections::BTreeMap, ffi::OsString, io::Write, net::SocketAddr, path::Path, process::ExitCode,
};

pub use clap::Args as OwnFlags;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{
    config::{self, Flags, Settings},
    error::one_line,
    telemetry,
};

/// The subcommand of the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// Write a project.
    New(new::Options),
    /// Work with a server.
    People(people::Command),
}

/// What `--version` and `--help` show of the program, where its author says it.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Its name; else that of the file that was started.
    pub name: Option<String>,
    /// Its version; else that of this library.
    pub version: Option<String>,
    /// A sentence about it.
    pub about: Option<String>,
    /// Its values of settings, below all other sources.
    pub settings: BTreeMap<String, String>,
    /// Adds its own flags to the grammar.
    flags: Option<fn(clap::Command) -> clap::Command>,
}

/// For whom the server listens.
#[derive(Debug)]
pub enum Serving {
    /// For everybody: its address is the first line on stdout, and signals stop it.
    Program,
    /// For a command of this process.
    Inside {
        /// Gets its address.
        ready: oneshot::Sender<SocketAddr>,
        /// Stops it.
        stop: CancellationToken,
    },
}

/// A subcommand and its settings.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// The subcommand.
    pub command: Command,
    /// The settings; `None` for a subcommand that needs none.
    pub settings: Option<Settings>,
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
#[command(subcommand_help_heading = "Commands")]
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
    /// Write a project of your own: a graph, its test, a server, a Dockerfile
    New(new::Options),
    #[command(flatten)]
    People(people::Command),
}

#[derive(Subcommand, Debug)]
enum Config {
    /// Print what holds and where it came from, without secrets
    Show,
}

impl Program {
    /// The name and the version that it shows.
    fn identity(&self, file: Option<&Path>) -> (String, String) {
        let file = file.and_then(Path::file_stem).unwrap_or_default();
        let library = concat!("(backstitch ", env!("CARGO_PKG_VERSION"), ")");
        (
            (self.name.clone()).unwrap_or_else(|| file.to_string_lossy().into_owned()),
            (self.version.clone()).unwrap_or_else(|| library.to_owned()),
        )
    }

    /// Adds flags of its own, and reads them from this command line. The process ends when the line is not
    /// understood, or when a flag is one of the server's.
    pub fn own_flags<T: OwnFlags>(&mut self, line: impl IntoIterator<Item = OsString>) -> T {
        let own = T::augment_args(clap::Command::new("own"));
        if let Some(flag) = clash(&Line::command(), &own) {
            complain(&format!(
                "the program's flag {flag} is one of the server: rename it"
            ));
            std::process::exit(2);
        }
        self.flags = Some(T::augment_args);
        let line: Vec<OsString> = line.into_iter().collect();
        let grammar = self.grammar(line.first().map(Path::new));
        let matched = grammar.try_get_matches_from(line);
        let read = matched.and_then(|matched| T::from_arg_matches(&matched));
        read.unwrap_or_else(|error| error.exit())
    }

    /// The grammar of the command line of this program.
    fn grammar(&self, file: Option<&Path>) -> clap::Command {
        let (name, version) = self.identity(file);
        let about = self.about.clone().unwrap_or_else(|| {
            "Serves agent graphs over LangGraph's Agent Server protocol".to_owned()
        });
        let line = match self.flags {
            Some(augment) => augment(Line::command()),
            None => Line::command(),
        };
        line.name(name)
            .version(version)
            .about(about)
            .after_help("`--help` lists every setting.")
            .after_long_help(config::manual())
    }
}

/// A flag of `own` that this command or one of its subcommands has too.
fn clash(command: &clap::Command, own: &clap::Command) -> Option<String> {
    let mut names = own.get_arguments();
    let found = names.find_map(|flag| {
        let (id, long, short) = (flag.get_id(), flag.get_long(), flag.get_short());
        let is_reserved =
            matches!(long, Some("help" | "version")) || matches!(short, Some('h' | 'V'));
        let is_equal = |other: &clap::Arg| {
            other.get_id() == id
                || (long.is_some() && other.get_long() == long)
                || (short.is_some() && other.get_short() == short)
        };
        (is_reserved || command.get_arguments().any(is_equal)).then(|| format!("`{id}`"))
    });
    let mut commands = command.get_subcommands();
    found.or_else(|| commands.find_map(|command| clash(command, own)))
}

/// The settings under a command line that may have flags of the program's own; `None` when they cannot
/// be read.
pub fn settings_of(line: impl IntoIterator<Item = OsString>) -> Option<Settings> {
    let grammar = Program::default().grammar(None).ignore_errors(true);
    let matched = grammar.try_get_matches_from(line).ok()?;
    let Line { flags, .. } = Line::from_arg_matches(&matched).ok()?;
    Settings::load(flags, &BTreeMap::new()).ok()
}

/// Reads a command line (its first word is the program's name) and the settings under it.
///
/// # Errors
/// The line is not understood or requests help, or the settings are not valid.
pub fn parse<I, T>(program: &Program, line: I) -> Result<Invocation, Error>
where
    I: IntoIterator<Item = T>,
    T: Into<OsString>,
{
    let line: Vec<OsString> = line.into_iter().map(Into::into).collect();
    let grammar = program.grammar(line.first().map(Path::new));
    let Line { command, flags } = Line::from_arg_matches(&grammar.try_get_matches_from(line)?)?;
    let command = match command {
        None | Some(Words::Serve) => Command::Serve,
        Some(Words::Config(Config::Show)) => Command::ConfigShow,
        Some(Words::Migrate) => Command::Migrate,
        Some(Words::Version) => Command::Version,
        Some(Words::New(options)) => Command::New(options),
        Some(Words::People(command)) => Command::People(command),
    };
    // Whoever asks for these may have settings that are wrong.
    let needs_none = matches!(command, Command::Version | Command::New(_));
    let load = || Settings::load(flags, &program.settings);
    let settings = (!needs_none).then(load).transpose()?;
    Ok(Invocation { command, settings })
}

/// Runs the subcommand of this process's command line; `serve` and `migrate` do the two commands
/// that need more than settings, after logging was set up. The code is 0 on success, 2 for a
/// command line or settings that were not understood, 1 for anything else; the reason is on stderr.
pub async fn run<S, M>(program: Program, serve: S, migrate: M) -> ExitCode
where
    S: AsyncFnOnce(Settings, Serving) -> anyhow::Result<()>,
    M: AsyncFnOnce(Settings) -> anyhow::Result<()>,
{
    let Invocation { command, settings } = match parse(&program, std::env::args_os()) {
        Ok(invocation) => invocation,
        Err(Error::Usage(usage)) => {
            usage.print().ok();
            return ExitCode::from(u8::try_from(usage.exit_code()).unwrap_or(2));
        }
        Err(Error::Settings(error)) => return refuse(&error),
    };
    let done = match (command, settings) {
        (Command::Version, _) => {
            let file = std::env::args_os().next();
            let (name, version) = program.identity(file.as_deref().map(Path::new));
            print(&format!("{name} {version}\n"))
        }
        (Command::New(options), _) => new::run(&options, &mut screen::Screen::stdout()),
        // All others have settings.
        (_, None) => Ok(()),
        (Command::ConfigShow, Some(settings)) => print(&settings.to_string()),
        (Command::People(command), Some(settings)) => {
            // A server for a chat logs what is wrong, unless the settings want more.
            let level = settings.chosen_log_level().unwrap_or("warn");
            if let Err(error) = telemetry::init(level, settings.log_format) {
                return refuse(&error);
            }
            open_files::raise_limit();
            people::run(command, settings, serve).await
        }
        (command @ (Command::Serve | Command::Migrate), Some(settings)) => {
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
                    serve(settings, Serving::Program).await
                }
            };
            telemetry::flush().await;
            done
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the output has enough, as `head` does.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&one_line(&error));
            ExitCode::FAILURE
        }
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
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
mod tests;
