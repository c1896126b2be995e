//! What a run takes of the machine: processor time, context switches and system calls.

use std::{
    fs,
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::{Storage, process::Server};

/// What a server and its database have used until now.
#[derive(Clone, Copy)]
pub struct Usage {
    server: Duration,
    database: Duration,
    switches: u64,
}

/// What one run took of it.
pub struct OfRun {
    /// Milliseconds of the server's processor time.
    pub server: f64,
    /// Milliseconds of the database's; nothing where the server is the database.
    pub database: f64,
    /// How often a thread of the server gave its processor away.
    pub switches: f64,
}

impl Usage {
    /// Reads it.
    pub fn of(server: &Server, storage: &Storage) -> Self {
        Self {
            server: server.cpu(),
            database: storage.database_cpu(),
            switches: switches(server.id()),
        }
    }

    /// What was used since `before`, for each of so many runs.
    pub fn since(self, before: Self, runs: usize) -> OfRun {
        let each = |time: Duration| time.as_secs_f64() * 1000.0 / runs as f64;
        OfRun {
            server: each(self.server - before.server),
            database: each(self.database - before.database),
            switches: self.switches.saturating_sub(before.switches) as f64 / runs as f64,
        }
    }
}

/// Context switches of the threads that a process has now.
fn switches(pid: u32) -> u64 {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return 0;
    };
    let of_thread = |thread: fs::DirEntry| {
        let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        let lines = status
            .lines()
            .filter_map(|line| line.split_once("ctxt_switches:"));
        lines
            .filter_map(|(_, number)| number.trim().parse::<u64>().ok())
            .sum::<u64>()
    };
    threads.flatten().map(of_thread).sum()
}

/// Counts the system calls of a process, by `perf`.
pub struct Calls(Child);

/// What it counted.
pub struct Counted {
    /// System calls of every kind.
    pub all: f64,
    /// Those of them that wait for the disk.
    pub syncs: f64,
}

const ALL: &str = "raw_syscalls:sys_enter";
const SYNCS: [&str; 2] = ["syscalls:sys_enter_fsync", "syscalls:sys_enter_fdatasync"];

impl Calls {
    /// Begins to count those of the threads that the process has now; nothing where `perf` is not there.
    pub fn begin(pid: u32) -> Option<Self> {
        let events = [ALL, SYNCS[0], SYNCS[1]].join(",");
        let child = Command::new("perf")
            .args(["stat", "-x", ",", "-e", &events, "-p"])
            .arg(pid.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        // It takes a moment to attach to every thread.
        std::thread::sleep(Duration::from_millis(500));
        child.ok().map(Self)
    }

    /// Ends, and returns how many there were; nothing where `perf` may not count them.
    pub fn end(self) -> Option<Counted> {
        let interrupted = Command::new("kill")
            .args(["-INT", &self.0.id().to_string()])
            .status();
        interrupted.ok()?;
        let output = self.0.wait_with_output().ok()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let number = |event: &str| -> Option<f64> {
            let line = text.lines().find(|line| line.contains(event))?;
            line.split(',').next()?.parse().ok()
        };
        Some(Counted {
            all: number(ALL)?,
            syncs: number(SYNCS[0])? + number(SYNCS[1])?,
        })
    }
}
