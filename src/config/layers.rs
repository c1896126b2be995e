//! The sources of settings, one over the other, before their values are read.

use std::{
    collections::BTreeMap,
    fmt, fs, io,
    path::{Path, PathBuf},
};

use clap::Args;

use super::{Error, FILE, KEYS, Key, Shown};

/// The settings that the command line takes. Keys have no flag: command lines can be seen by
/// every user of a machine.
#[derive(Args, Clone, Debug, Default)]
pub struct Flags {
    /// Address to listen on (HOST)
    #[arg(long, global = true)]
    pub host: Option<String>,
    /// Port to listen on, 0 for a free one (PORT)
    #[arg(long, global = true)]
    pub port: Option<String>,
    /// Postgres to keep everything in (DATABASE_URL)
    #[arg(long, global = true, value_name = "URL")]
    pub database_url: Option<String>,
    /// Folder of the SQLite file, without a database URL (BACKSTITCH_DATA)
    #[arg(long, global = true, value_name = "FOLDER")]
    pub data: Option<String>,
    /// Keep nothing after the end (BACKSTITCH_MEMORY)
    #[arg(long, global = true)]
    pub memory: bool,
    /// What to log: error, warn, info, debug, trace, or filters (LOG_LEVEL)
    #[arg(long, global = true, value_name = "FILTER")]
    pub log_level: Option<String>,
    /// How to log: text or json (LOG_FORMAT)
    #[arg(long, global = true, value_name = "FORMAT")]
    pub log_format: Option<String>,
    /// File of settings (BACKSTITCH_CONFIG, else backstitch.toml)
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl Flags {
    fn get(&self, name: &str) -> Option<String> {
        match name {
            "host" => self.host.clone(),
            "port" => self.port.clone(),
            "database_url" => self.database_url.clone(),
            "data" => self.data.clone(),
            "memory" => self.memory.then(|| "true".to_owned()),
            "log_level" => self.log_level.clone(),
            "log_format" => self.log_format.clone(),
            _ => None,
        }
    }
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// No source sets it.
    Default,
    /// The program that serves sets it for where nobody else does.
    Program,
    /// This file.
    File(PathBuf),
    /// This environment variable.
    Environment(&'static str),
    /// The flag of this name, without its dashes and with `_` for `-`.
    Flag(&'static str),
}

impl Origin {
    /// The rank of the source: of two contradicting settings the one of greater weight wins.
    pub(super) fn weight(&self) -> u8 {
        match self {
            Self::Default => 0,
            Self::Program => 1,
            Self::File(_) => 2,
            Self::Environment(_) => 3,
            Self::Flag(_) => 4,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => formatter.write_str("default"),
            Self::Program => formatter.write_str("program"),
            Self::File(path) => write!(formatter, "file {}", path.display()),
            Self::Environment(variable) => write!(formatter, "environment {variable}"),
            Self::Flag(name) => write!(formatter, "flag --{}", name.replace('_', "-")),
        }
    }
}

/// An unparsed value and its source.
pub(super) struct Found {
    pub(super) text: String,
    pub(super) origin: Origin,
}

/// All sources.
pub(super) struct Layers {
    flags: Flags,
    environment: BTreeMap<&'static str, String>,
    file: BTreeMap<String, String>,
    program: BTreeMap<String, String>,
    path: PathBuf,
    /// What names the file, and whether it is there.
    path_origin: Origin,
    file_exists: bool,
}

impl Layers {
    pub(super) fn read(
        flags: Flags,
        variable: &dyn Fn(&str) -> Option<String>,
        program: &BTreeMap<String, String>,
    ) -> Result<Self, Error> {
        // A shell or a compose file unsets a variable by an empty value.
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let (path, path_origin) = if let Some(path) = &flags.config {
            (path.clone(), Origin::Flag("config"))
        } else if let Some(path) = variable("BACKSTITCH_CONFIG") {
            (path.into(), Origin::Environment("BACKSTITCH_CONFIG"))
        } else {
            (PathBuf::from(FILE), Origin::Default)
        };
        let (text, file_exists) = match fs::read_to_string(&path) {
            Ok(text) => (text, true),
            Err(error)
                if error.kind() == io::ErrorKind::NotFound && path_origin == Origin::Default =>
            {
                (String::new(), false)
            }
            Err(error) => {
                return Err(Error::File {
                    path,
                    reason: error.to_string(),
                });
            }
        };
        let environment = KEYS
            .iter()
            .filter_map(|key| variable(key.variable).map(|value| (key.variable, value)))
            .collect();
        Ok(Self {
            flags,
            environment,
            file: parse(&path, &text)?,
            program: program.clone(),
            path,
            path_origin,
            file_exists,
        })
    }

    /// The line of `config show` about the file itself.
    pub(super) fn shown_file(&self) -> Shown {
        let missing = if self.file_exists { "" } else { " (not there)" };
        Shown {
            name: "config",
            value: format!("{}{missing}", self.path.display()),
            origin: self.path_origin.clone(),
        }
    }

    /// The value in effect, by the order of the sources.
    pub(super) fn find(&self, key: &Key) -> Option<Found> {
        let found = |text: &str, origin| Found {
            text: text.to_owned(),
            origin,
        };
        if let Some(text) = self.flags.get(key.name) {
            return Some(found(&text, Origin::Flag(key.name)));
        }
        if let Some(text) = self.environment.get(key.variable) {
            return Some(found(text, Origin::Environment(key.variable)));
        }
        if let Some(text) = self.file.get(key.name) {
            return Some(found(text, Origin::File(self.path.clone())));
        }
        if let Some(text) = self.program.get(key.name) {
            return Some(found(text, Origin::Program));
        }
        key.default.map(|text| found(text, Origin::Default))
    }
}

/// The file's values as texts, in the form the environment has them.
fn parse(path: &Path, text: &str) -> Result<BTreeMap<String, String>, Error> {
    let wrong = |reason: String| Error::File {
        path: path.to_owned(),
        reason,
    };
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        // The error's own text quotes the line, which may contain a secret.
        let line = error
            .span()
            .map_or(1, |span| 1 + text[..span.start].matches('\n').count());
        wrong(format!("line {line}: {}", error.message()))
    })?;
    let mut values = BTreeMap::new();
    for (name, value) in table {
        if !KEYS.iter().any(|key| key.name == name) {
            let known: Vec<_> = KEYS.iter().map(|key| key.name).collect();
            return Err(wrong(format!(
                "unknown setting `{name}`; known are {}",
                known.join(", ")
            )));
        }
        let text = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Float(number) => number.to_string(),
            toml::Value::Boolean(switch) => switch.to_string(),
            toml::Value::Table(pairs) if name == "api_keys" => pairs
                .into_iter()
                .map(|(principal, key)| pair(&principal, &key).map_err(wrong))
                .collect::<Result<Vec<_>, _>>()?
                .join(","),
            other => {
                let kind = other.type_str();
                return Err(wrong(format!("`{name}` cannot be of type {kind}")));
            }
        };
        values.insert(name, text);
    }
    Ok(values)
}

/// A principal and its key as the list of the environment has them.
fn pair(principal: &str, key: &toml::Value) -> Result<String, String> {
    let toml::Value::String(key) = key else {
        return Err(format!("the key of `{principal}` must be a string"));
    };
    if principal.contains([',', '=']) {
        return Err(format!(
            "the principal `{principal}` has a comma or an equals sign in its name: name it without"
        ));
    }
    if key.contains(',') {
        return Err(format!(
            "the key of `{principal}` has a comma in it: choose one without"
        ));
    }
    Ok(format!("{principal}={key}"))
}
