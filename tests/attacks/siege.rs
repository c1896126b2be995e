//! What is watched while a server is attacked: its resident memory and how long another client waits.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;
use test_support::client::{Answer, Client};
use test_support::server::Server;

/// A mebibyte.
pub const MIB: u64 = 1 << 20;
/// How much more memory than before a server may have a while after an attack.
const LEFT_OVER: u64 = 100 * MIB;

/// How often each attack is repeated.
pub fn rounds() -> usize {
    let set = std::env::var("BACKSTITCH_ATTACKS").ok();
    set.map_or(1, |text| text.parse().unwrap())
}

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

/// An answer, also when the server has to be asked again because it is busy.
pub fn patiently(mut request: impl FnMut() -> Answer) -> Answer {
    loop {
        let answer = request();
        if answer.status != 503 {
            assert_eq!(answer.status, 200, "{}", answer.text());
            return answer;
        }
        assert!(answer.header("retry-after").is_some());
    }
}

/// The times that a client waited, sorted.
pub struct Waits(Vec<Duration>);

impl Waits {
    /// Creates and reads threads one after another while the attack goes on.
    pub fn of(client: &Client, requests: usize) -> Self {
        let one = |_| {
            let begin = Instant::now();
            let row = patiently(|| client.post("/threads", &json!({})));
            let thread = row.json()["thread_id"].as_str().unwrap().to_owned();
            patiently(|| client.get(&format!("/threads/{thread}")));
            begin.elapsed()
        };
        let mut all: Vec<_> = (0..requests).map(one).collect();
        all.sort_unstable();
        Self(all)
    }

    /// The time that 99 of 100 stayed below.
    pub fn p99(&self) -> Duration {
        self.0[(self.0.len() * 99 / 100).min(self.0.len() - 1)]
    }
}
