//! `new`: a project of one's own, with a graph, its test, a server and a Dockerfile.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use clap::Args;

use super::screen::Screen;

/// The checkout that this library was built from.
const CHECKOUT: &str = env!("CARGO_MANIFEST_DIR");

/// The files of a project by their paths in it. `{name}`, `{dependency}`, `{checkout}` and `{build}` stand
/// for what differs.
const FILES: &[(&str, &str)] = &[
    ("Cargo.toml", include_str!("new/Cargo.toml.template")),
    ("src/main.rs", include_str!("new/main.rs.template")),
    ("src/graph.rs", include_str!("new/graph.rs.template")),
    ("Dockerfile", include_str!("new/Dockerfile.template")),
    ("README.md", include_str!("new/README.md.template")),
    (".gitignore", "/target\n/.backstitch\n"),
    (".dockerignore", "/target\n/.backstitch\n"),
];

/// Words that no package can be named by: those of the language, and crates that every program has.
const RESERVED: &[&str] = &[
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "backstitch",
    "become",
    "box",
    "break",
    "build",
    "const",
    "continue",
    "core",
    "crate",
    "deps",
    "do",
    "dyn",
    "else",
    "enum",
    "examples",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "graph",
    "if",
    "impl",
    "in",
    "incremental",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc-macro",
    "pub",
    "ref",
    "return",
    "self",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "tokio",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
    "yield",
];

/// Where, and on which library.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Folder of the project, whose last part is its name
    folder: PathBuf,
    /// Take the library from this git repository instead of the checkout on this machine
    #[arg(long, value_name = "URL")]
    git: Option<String>,
}

/// Writes the project, whole or not at all, and says what to do with it.
pub(super) fn run(options: &Options, screen: &mut Screen) -> anyhow::Result<()> {
    let folder = std::path::absolute(&options.folder)
        .with_context(|| format!("`{}` is no path", options.folder.display()))?;
    let name = folder.file_name().and_then(|name| name.to_str());
    let name = name.with_context(|| {
        format!(
            "`{}` has no name at its end; write a folder such as my-agent",
            options.folder.display()
        )
    })?;
    check_name(name)?;
    let dependency = match &options.git {
        Some(url) => format!("git = {}", toml::Value::from(url.as_str())),
        None if Path::new(CHECKOUT).join("Cargo.toml").is_file() => {
            format!("path = {}", toml::Value::from(CHECKOUT))
        }
        None => bail!(
            "the checkout that this program was built from, {CHECKOUT}, is gone; name a git \
             repository of it with --git URL"
        ),
    };
    if folder.symlink_metadata().is_ok() {
        bail!("{} exists already; choose another name", folder.display());
    }
    let (checkout, build) = if options.git.is_some() {
        (String::new(), "docker build -t {name} .".to_owned())
    } else {
        (
            format!(
                "# The library, from the build context of that name.\nCOPY --from=backstitch . {CHECKOUT}\n"
            ),
            format!("docker build -t {{name}} --build-context backstitch={CHECKOUT} ."),
        )
    };
    let fill = |text: &str| {
        text.replace("{dependency}", &dependency)
            .replace("{checkout}", &checkout)
            .replace("{build}", &build)
            .replace("{name}", name)
    };
    // The versions that the library is tested with. Cargo takes out what the project does not need.
    let lock = Path::new(CHECKOUT).join("Cargo.lock");
    let lock = Some(lock).filter(|lock| options.git.is_none() && lock.is_file());
    write(&folder, lock.as_deref(), fill)
        .with_context(|| format!("cannot write the project {}", folder.display()))?;
    screen.line(&format!(
        "made {}; next:\n  cd {}\n  cargo test\n  cargo run\n  cargo run -- chat",
        folder.display(),
        options.folder.display()
    ))?;
    Ok(())
}

/// Writes all files beside the folder and then moves them there at once.
fn write(folder: &Path, lock: Option<&Path>, fill: impl Fn(&str) -> String) -> io::Result<()> {
    let parent = folder.parent().unwrap_or(Path::new("/"));
    let draft = tempfile::Builder::new()
        .prefix(".backstitch-new-")
        .tempdir_in(parent)?;
    let project = draft.path().join("project");
    for (path, text) in FILES {
        let file = project.join(path);
        if let Some(inside) = file.parent() {
            fs::create_dir_all(inside)?;
        }
        fs::write(file, fill(text))?;
    }
    if let Some(lock) = lock {
        fs::copy(lock, project.join("Cargo.lock"))?;
    }
    fs::rename(project, folder)
}

/// A name that Cargo takes for a package.
fn check_name(name: &str) -> anyhow::Result<()> {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic());
    if !begins || !name.chars().all(is_legal) || name.len() > 64 {
        bail!(
            "`{name}` cannot be the name of a package: begin with a letter, go on with letters, \
             digits, `-` and `_`, at most 64"
        );
    }
    if RESERVED.contains(&name) {
        bail!("`{name}` cannot be the name of a package: it is a word of Rust or Cargo");
    }
    Ok(())
}
