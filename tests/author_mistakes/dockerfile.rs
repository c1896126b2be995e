//! The Dockerfile of a new project, carried out in folders: what it copies, builds and starts.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// What an image starts.
pub struct Image {
    /// The file of its command.
    pub program: PathBuf,
    /// Its variables.
    pub settings: Vec<(String, String)>,
}

/// Carries out the Dockerfile of a project. `cargo` makes the program of a folder, as
/// `cargo build --release` does.
pub fn build(project: &Path, image: &Path, cargo: impl Fn(&Path, &Path)) -> Image {
    let text = fs::read_to_string(project.join("Dockerfile")).unwrap();
    let stages = text.matches("FROM ").count();
    assert_eq!(stages, 2, "one builds, the other one runs");
    let mut work = image.join("build");
    let mut settings = vec![];
    let mut program = None;
    let mut stage = 0;
    for line in text.lines() {
        let Some((instruction, rest)) = line.split_once(' ') else {
            continue;
        };
        let words: Vec<&str> = rest.split(' ').collect();
        match (instruction, &*words) {
            ("FROM", _) => {
                stage += 1;
                work = image.join(stage.to_string());
            }
            ("WORKDIR", [path]) => work = within(image, stage, path),
            ("COPY", [".", "."]) => copy(project, &work, &ignored(project)),
            ("COPY", [from, source, path]) if *from == "--from=build" => {
                let target = within(image, stage, path);
                fs::create_dir_all(target.parent().unwrap()).unwrap();
                fs::copy(within(image, 1, source), target).unwrap();
            }
            // The checkout: the program is compiled against the library of the test.
            ("COPY", ["--from=backstitch", ".", path]) => {
                assert!(Path::new(path).is_absolute(), "{line}");
            }
            ("RUN", ["cargo", "build", "--release", "--features", feature]) => {
                assert!(features(&work).contains_key(*feature), "{line}");
                let folder = work.join("target/release");
                let made = image.join("made");
                cargo(&work, &made);
                fs::create_dir_all(&folder).unwrap();
                fs::rename(made, folder.join(package(&work))).unwrap();
            }
            // It changes the image's system.
            ("RUN", ["apt-get", "update", ..]) => {}
            ("ENV", pairs) => settings.extend(pairs.iter().map(|pair| {
                let (name, value) = pair.split_once('=').unwrap();
                (name.to_owned(), value.to_owned())
            })),
            ("VOLUME" | "EXPOSE" | "#", _) => {}
            ("CMD", [command]) => {
                let command: Vec<String> = serde_json::from_str(command).unwrap();
                assert_eq!(command.len(), 1, "{line}");
                let found = ["/usr/local/bin", "/usr/bin"]
                    .map(|folder| within(image, stage, folder).join(&command[0]));
                program = found.into_iter().find(|path| path.is_file());
            }
            _ => panic!("not carried out: {line}"),
        }
    }
    Image {
        program: program.expect("the command is a program of the image"),
        settings,
    }
}

fn within(image: &Path, stage: usize, path: &str) -> PathBuf {
    let path = path.strip_prefix('/').expect("a path from the root");
    image.join(stage.to_string()).join(path)
}

fn manifest(folder: &Path) -> toml::Table {
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    manifest.parse().unwrap()
}

fn package(folder: &Path) -> String {
    let manifest = manifest(folder);
    manifest["package"]["name"].as_str().unwrap().to_owned()
}

fn features(folder: &Path) -> toml::Table {
    manifest(folder)["features"].as_table().unwrap().clone()
}

/// What .dockerignore leaves out, each a file or a folder of the project.
fn ignored(project: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(project.join(".dockerignore")).unwrap();
    let names = text.lines().map(|line| line.trim_start_matches('/'));
    names.map(|name| project.join(name)).collect()
}

fn copy(from: &Path, to: &Path, ignored: &[PathBuf]) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if ignored.contains(&path) {
            continue;
        }
        if path.is_dir() {
            copy(&path, &target, ignored);
        } else {
            fs::copy(&path, target).unwrap();
        }
    }
}
