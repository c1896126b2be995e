//! The resident memory of a server, watched while it works.

use std::fs;
use std::time::{Duration, Instant};

use crate::server::Server;

/// A mebibyte.
pub const MIB: u64 = 1 << 20;
/// How many bytes more than when it began to listen a server may have a while after its work.
const LEFT_OVER: u64 = 100_000_000;

/// The memory of one server, since before an attack.
pub struct Memory {
    pid: u32,
    /// What it had before the attack, with the data that this needs.
    start: u64,
    /// What it had when it began to listen.
    listening: u64,
}

impl Memory {
    /// Begins to watch; the peak counts from here.
    pub fn of(server: &Server) -> Self {
        let pid = server.pid();
        // 5 resets the peak of the resident memory.
        fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
        Self {
            pid,
            start: resident(pid).unwrap(),
            listening: server.listening_with().unwrap(),
        }
    }

    /// How many bytes it has had at most, more than at the start.
    pub fn peak(&self) -> u64 {
        field(self.pid, "VmHWM").unwrap().saturating_sub(self.start)
    }

    /// How many bytes it has now, more than at the start.
    pub fn now(&self) -> u64 {
        resident(self.pid).unwrap().saturating_sub(self.start)
    }

    fn left_over(&self) -> u64 {
        resident(self.pid).unwrap().saturating_sub(self.listening)
    }

    /// Fails if it ever had so much more than before the attack, or does not return to about what it had when it began to
    /// listen.
    pub fn held(&self, attack: &str, most: u64) {
        let peak = self.peak();
        let begin = Instant::now();
        // Allocators return memory after a while.
        while self.left_over() > LEFT_OVER && begin.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(50));
        }
        let (left, time) = (self.left_over(), begin.elapsed());
        println!(
            "{attack}: peak {} MiB, {left} bytes are left over after {time:?}",
            peak / MIB
        );
        assert!(
            peak <= most,
            "{attack} took {} MiB of at most {}",
            peak / MIB,
            most / MIB
        );
        assert!(
            left <= LEFT_OVER,
            "{left} bytes are left over from {attack}"
        );
    }
}

/// How many bytes of memory a process has, if it runs and the system says so.
pub(crate) fn resident(pid: u32) -> Option<u64> {
    field(pid, "VmRSS")
}

fn field(pid: u32, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let text = status.lines().find_map(|line| line.strip_prefix(name))?;
    let text = text.trim_start_matches(':').trim();
    Some(text.trim_end_matches(" kB").parse::<u64>().unwrap() << 10)
}
