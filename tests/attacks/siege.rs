//! What is watched while a server is attacked: its resident memory and how long another client waits.

use std::time::{Duration, Instant};

use serde_json::json;
use test_support::client::{Answer, Client};
pub use test_support::memory::{MIB, Memory};

/// How often each attack is repeated.
pub fn rounds() -> usize {
    let set = std::env::var("BACKSTITCH_ATTACKS").ok();
    set.map_or(1, |text| text.parse().unwrap())
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
        (0..requests).map(one).collect()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The time that 99 of 100 stayed below.
    pub fn p99(&self) -> Duration {
        self.0[(self.0.len() * 99 / 100).min(self.0.len() - 1)]
    }

    /// The longest one.
    pub fn longest(&self) -> Duration {
        self.0[self.0.len() - 1]
    }
}

impl FromIterator<Duration> for Waits {
    fn from_iter<T: IntoIterator<Item = Duration>>(all: T) -> Self {
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_unstable();
        Self(all)
    }
}
