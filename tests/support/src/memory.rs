//! The resident memory of a server, watched while it works.

use std::fs;
use std::time::{Duration, Instant};

use crate::server::Server;

/// A mebibyte.
pub const MIB: u64 = 1 << 20;
/// How much more memory than before a server may have a while after its work.
const LEFT_OVER: u64 = 100 * MIB;

/// The memory of one server, since before an attack.
pub struct Memory {
    pid: u32,
    start: u64,
}

impl Memory {
    /// Begins to watch; the peak counts from here.
    pub fn of(server: &Server) -> Self {
        let pid = server.pid();
        // 5 resets the peak of the resident memory.
        fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
        let start = field(pid, "VmRSS");
        Self { pid, start }
    }

    /// How many bytes it has had at most, more than at the start.
    pub fn peak(&self) -> u64 {
        field(self.pid, "VmHWM").saturating_sub(self.start)
    }

    /// How many bytes it has now, more than at the start.
    pub fn now(&self) -> u64 {
        field(self.pid, "VmRSS").saturating_sub(self.start)
    }

    /// Fails if it ever had more than this, or does not return to about what it was.
    pub fn held(&self, attack: &str, most: u64) {
        let peak = self.peak();
        let begin = Instant::now();
        // Allocators return memory after a while.
        while self.now() > LEFT_OVER && begin.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(50));
        }
        let (now, time) = (self.now(), begin.elapsed());
        println!(
            "{attack}: peak {} MiB, {} MiB after {time:?}",
            peak / MIB,
            now / MIB
        );
        assert!(
            peak <= most,
            "{attack} took {} MiB of at most {}",
            peak / MIB,
            most / MIB
        );
        assert!(
            now <= LEFT_OVER,
            "{} MiB are left over from {attack}",
            now / MIB
        );
    }
}

fn field(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let text = line.unwrap().trim_start_matches(':').trim();
    text.trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}
