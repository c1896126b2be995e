//! Gates at fail points: requests wait there until the test lets them go on.

use tempfile::TempDir;

use crate::server::Server;

/// A file: while it exists, whatever reaches the fail point waits.
pub struct Gate(TempDir);

/// A closed gate, until it is dropped.
pub struct Closed {
    _folder: TempDir,
}

impl Gate {
    /// An open one.
    #[expect(clippy::new_without_default, reason = "a gate makes a folder")]
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// The entry of `FAILPOINTS` that makes this the gate of a point.
    pub fn at(&self, point: &str) -> String {
        format!("{point}=while({})", self.0.path().join("closed").display())
    }

    /// Closes it: whatever reaches the fail point from now on waits.
    pub fn close(self) -> Closed {
        std::fs::write(self.0.path().join("closed"), "").unwrap();
        Closed { _folder: self.0 }
    }
}

/// How many times a server has waited at a fail point.
pub fn reached(server: &Server) -> usize {
    server.output().matches("a fail point was reached").count()
}
