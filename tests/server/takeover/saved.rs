//! What a server on SQLite has on the disk, put aside so that many crashes begin with it.

use std::{fs, path::Path};

/// A copy of a folder.
pub struct Saved(tempfile::TempDir);

impl Saved {
    /// Copies the folder of a server, which must not run meanwhile.
    pub fn of(folder: &Path) -> Self {
        let saved = tempfile::tempdir_in(folder.parent().unwrap()).unwrap();
        copy(folder, saved.path());
        Self(saved)
    }

    /// Makes the folder of a server that does not run what it was.
    pub fn put_back(&self, folder: &Path) {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                fs::remove_dir_all(entry.path()).unwrap();
            } else {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        copy(self.0.path(), folder);
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
