//! The official Python clients, in a virtual environment that is made once and reused.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::programs::{self, step};

/// Its `python` and where the scripts of the tests are.
#[derive(Debug, Clone)]
pub struct Python {
    interpreter: PathBuf,
}

/// The environment with everything of `tests/python/requirements.txt`.
///
/// Where it cannot be made this is `None` and the reason is printed: the caller ends its test.
/// Under `CI=true` that is a failure of the test instead.
pub fn python() -> Option<Python> {
    let interpreter = programs::required("Python environment", prepare())?;
    Some(Python { interpreter })
}

impl Python {
    /// A command that runs a script, named by its path from `tests/python`.
    pub fn script(&self, name: &str) -> Command {
        let mut command = Command::new(&self.interpreter);
        command
            .arg(tests_folder().join(name))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            // The servers of the tests speak plain HTTP: a folder without certificates spares each client to read all that
            // this machine trusts.
            .env_remove("SSL_CERT_FILE")
            .env("SSL_CERT_DIR", tests_folder());
        command
    }

    /// Runs a script, named by its path from `tests/python`, and fails the test, with its output, if the script fails.
    pub fn run(&self, name: &str, arguments: &[&str]) -> String {
        programs::succeed(name, self.script(name).args(arguments))
    }
}

fn tests_folder() -> PathBuf {
    programs::repository().join("tests/python")
}

fn prepare() -> Result<PathBuf, String> {
    let requirements = tests_folder().join("requirements.txt");
    let wanted = fs::read_to_string(&requirements).map_err(|error| error.to_string())?;
    let (home, _lock) = programs::home("python")?;

    let environment = home.join("environment");
    let interpreter = environment.join("bin/python");
    let installed = environment.join("installed.txt");
    if fs::read_to_string(&installed).is_ok_and(|installed| installed == wanted)
        && interpreter.exists()
    {
        return Ok(interpreter);
    }
    fs::remove_dir_all(&environment).ok();
    step(
        Command::new("python3")
            .args(["-m", "venv"])
            .arg(&environment),
    )?;
    step(
        Command::new(&interpreter)
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "-r",
            ])
            .arg(&requirements),
    )?;
    fs::write(&installed, wanted).map_err(|error| error.to_string())?;
    Ok(interpreter)
}
