//! What is watched while a server is attacked: its resident memory and how long another client waits.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;
use test_support::client::{Answer, Client};
pub use test_support::memory::{MIB, Memory};
use test_support::server::Server;
use test_support::talk::{put, until};

/// How often each attack is repeated.
pub fn rounds() -> usize {
    let set = std::env::var("BACKSTITCH_ATTACKS").ok();
    set.map_or(1, |text| text.parse().unwrap())
}

/// How long clients pause that would take the processors as fast as they can; only in the short form, beside others.
pub fn pause(short: Duration) -> Duration {
    if rounds() == 1 { short } else { Duration::ZERO }
}

/// An answer, also when the server has to be asked again because it is busy.
pub fn patiently(mut request: impl FnMut() -> Answer) -> Answer {
    loop {
        let answer = request();
        if answer.status != 503 {
            assert!(answer.status < 300, "{}", answer.text());
            return answer;
        }
        assert!(answer.header("retry-after").is_some());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until a server hardly takes processor time any more.
pub fn until_idle(server: &Server) {
    until("the server is idle", || {
        let before = server.ticks();
        std::thread::sleep(Duration::from_millis(200));
        server.ticks() - before <= 4
    });
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

    /// The time that so many of 100 stayed below.
    fn of_hundred(&self, share: usize) -> Duration {
        self.0[(self.0.len() * share / 100).min(self.0.len() - 1)]
    }

    /// The time that 99 of 100 stayed below.
    pub fn p99(&self) -> Duration {
        self.of_hundred(99)
    }

    /// The longest one.
    pub fn longest(&self) -> Duration {
        self.0[self.0.len() - 1]
    }

    /// Fails unless 99 of 100 stayed below this. In the short form, which runs beside others, nine of ten: the longest of
    /// some dozen waits is that in which another process had the processors, and may take what is no wait for a turn.
    pub fn held(&self, attack: &str, most: Duration) {
        let (p99, count) = (self.p99(), self.count());
        let share = if rounds() == 1 { 90 } else { 99 };
        let usual = self.of_hundred(share);
        println!(
            "{attack}: of {count} waits of another client {share} of 100 took less than {usual:?}, 99 less than {p99:?}"
        );
        assert!(usual < most, "{attack}: another client waited {usual:?}");
        let longest = most.max(TURN);
        assert!(p99 < longest, "{attack}: another client waited {p99:?}");
    }
}

impl FromIterator<Duration> for Waits {
    fn from_iter<T: IntoIterator<Item = Duration>>(all: T) -> Self {
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_unstable();
        Self(all)
    }
}

/// A request that waits for its turn, for a place or for a locked row is refused after 10 seconds: whoever waited for
/// less than this was not refused.
pub const TURN: Duration = Duration::from_secs(9);

/// How long another client may wait while a server is attacked: attacks run beside other tests.
const LONGEST: Duration = Duration::from_secs(5);
/// How often the other client begins to change and read something, unless it still waits: its first times, so that
/// short attacks have enough of them, and later.
fn usual_pauses() -> [Duration; 2] {
    // In the short form the other clients of several attacks share the machine.
    let first = if rounds() == 1 { 50 } else { 25 };
    [first, 500].map(Duration::from_millis)
}

/// How many times are the first ones, in the same second in both forms.
fn first_times() -> usize {
    if rounds() == 1 { 20 } else { 40 }
}

/// A server since before an attack: its memory, and how long another client waits.
pub struct Watch {
    pub memory: Memory,
    end: End,
    other: JoinHandle<Waits>,
}

/// Lets the other client end when this is dropped.
struct End(Arc<AtomicBool>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Watch {
    /// Begins to watch a server without keys, where the other client has another address.
    pub fn of(server: &Server) -> Self {
        let address = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
        Self::beside(server, &Client::of(server).at(address))
    }

    /// The same with this other client, which changes and reads an item of its own again and again.
    pub fn beside(server: &Server, other: &Client) -> Self {
        Self::changing(usual_pauses(), server, other)
    }

    /// The same, and how often it does that from beginning to end.
    pub fn every(pause: Duration, server: &Server, other: &Client) -> Self {
        Self::changing([pause; 2], server, other)
    }

    fn changing(pauses: [Duration; 2], server: &Server, other: &Client) -> Self {
        let other = other.clone();
        Self::asking(pauses, server, move |number| {
            changed_and_read(&other, number)
        })
    }

    /// The same of a server that serves nobody else: whoever asks whether it lives is answered.
    pub fn probing(server: &Server) -> Self {
        let client = Client::of(server);
        Self::asking(usual_pauses(), server, move |_| {
            let begin = Instant::now();
            assert_eq!(client.get("/ok").status, 200);
            begin.elapsed()
        })
    }

    /// The same with requests that say how long they took, at first and later after such pauses.
    fn asking(
        [first, later]: [Duration; 2],
        server: &Server,
        request: impl Fn(usize) -> Duration + Send + 'static,
    ) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let end = End(Arc::clone(&is_over));
        Self {
            memory: Memory::of(server),
            end,
            other: std::thread::spawn(move || {
                let mut waits = vec![];
                while waits.is_empty() || !is_over.load(Ordering::Relaxed) {
                    let waited = request(waits.len());
                    waits.push(waited);
                    let pause = if waits.len() < first_times() {
                        first
                    } else {
                        later
                    };
                    std::thread::sleep(pause.saturating_sub(waited));
                }
                waits.into_iter().collect()
            }),
        }
    }

    /// Ends the attack: fails if the server ever had so much more memory than before or does not return to about what it
    /// had, or if the other client waited too long.
    pub fn held(self, attack: &str, most: u64) -> Waits {
        self.held_within(attack, most, LONGEST)
    }

    /// The same where the other client may wait for so long.
    pub fn held_within(self, attack: &str, most: u64, longest: Duration) -> Waits {
        drop(self.end);
        let waits = self.other.join().unwrap();
        waits.held(attack, longest);
        self.memory.held(attack, most);
        waits
    }
}

/// How long a client waits until an item is stored and read again.
fn changed_and_read(client: &Client, number: usize) -> Duration {
    let begin = Instant::now();
    let value = json!({"namespace": ["watch"], "key": "one", "value": {"number": number}});
    patiently(|| put(client, "/store/items", &value));
    let item = patiently(|| client.get("/store/items?namespace=watch&key=one"));
    let waited = begin.elapsed();
    assert_eq!(item.json()["value"]["number"], number);
    waited
}
