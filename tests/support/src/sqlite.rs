//! A database of SQLite with the newest schema, made once and copied for every server.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::programs;

/// Puts an empty database into the folder of a server's data, which is about to start for the first time.
pub(crate) fn copy_into(data: &Path) {
    let (home, name) = (
        programs::scratch().join("sqlite"),
        programs::schema("sqlite"),
    );
    let template = home.join(format!("{name:016x}.db"));
    if !template.exists() {
        make(&home, &template);
    }
    fs::create_dir_all(data).unwrap();
    fs::copy(template, data.join("backstitch.db")).unwrap();
}

/// Several tests may do so at the same moment: each has a folder for it, and what is renamed is complete.
fn make(home: &Path, template: &Path) {
    fs::create_dir_all(home).unwrap();
    let folder = tempfile::tempdir_in(home).unwrap();
    let output = Command::new(programs::bundled())
        .arg("migrate")
        .env_remove("DATABASE_URL")
        .env("BACKSTITCH_DATA", folder.path())
        .current_dir(folder.path())
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "backstitch migrate: {complaint}");
    fs::rename(folder.path().join("backstitch.db"), template).unwrap();
}
