//! How far a run is ahead of a database that takes nothing any more, by each of the settings.

use std::{
    sync::Arc,
    thread::sleep,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use serde_json::{Value, json};
use test_support::{
    client::Client,
    on_both_storages,
    place::Place,
    server::{Server, Setup},
    tables::{connect, file},
    talk::until,
};
use tokio::runtime::{Builder, Runtime};

use super::{stored, supersteps};

on_both_storages!(
    a_run_is_as_many_supersteps_ahead_as_the_setting_says,
    a_run_is_as_many_bytes_ahead_as_the_setting_says,
    a_run_goes_on_ahead_for_as_long_as_the_setting_says,
);

/// More than a run does in a test.
const MANY: usize = 9_000;

/// A run whose commits wait.
struct Stuck {
    place: Place,
    server: Server,
    /// When its client saw each superstep.
    seen: Arc<Mutex<Vec<Instant>>>,
    /// Until it is dropped nobody else writes checkpoints.
    _lock: Lock,
}

/// A transaction of another program that has locked what it does not change.
enum Lock {
    Postgres {
        _client: tokio_postgres::Client,
        _runtime: Runtime,
    },
    Sqlite {
        _file: rusqlite::Connection,
    },
}

impl Lock {
    fn of(place: &Place, server: &Server) -> Self {
        let Some(url) = place.url() else {
            let file = rusqlite::Connection::open(file(server)).unwrap();
            file.execute_batch("BEGIN IMMEDIATE").unwrap();
            return Self::Sqlite { _file: file };
        };
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let client = connect(url).await;
            let lock = "BEGIN; LOCK TABLE checkpoints IN EXCLUSIVE MODE";
            client.batch_execute(lock).await.unwrap();
            client
        });
        Self::Postgres {
            _client: client,
            _runtime: runtime,
        }
    }
}

impl Stuck {
    /// Starts a server with these of the three settings, the others of which allow whatever a test does, and has the
    /// commits of a run wait.
    fn start(place: &Place, settings: &[(&str, usize)], input: Value) -> Self {
        // The run is the only one of its database.
        let place = place.another();
        let mut setup = Setup::example("faulty_server");
        for (name, loose) in [("", 1000), ("_BYTES", 1 << 30), ("_AGE", 60_000)] {
            let set = settings.iter().find(|(setting, _)| *setting == name);
            let value = set.map_or(loose, |(_, value)| *value);
            setup = setup.env(&format!("BACKSTITCH_RUN_AHEAD{name}"), value.to_string());
        }
        // Its statements wait for the lock as long as it takes.
        let setup = match place.url() {
            Some(url) => {
                let mark = if url.contains('?') { '&' } else { '?' };
                let patient = "options=-c%20lock_timeout%3D0%20-c%20statement_timeout%3D0";
                setup.env("DATABASE_URL", format!("{url}{mark}{patient}"))
            }
            None => setup,
        };
        let server = setup.start();
        let client = Client::of(&server);
        let mut open = client.open_stream(&client.thread(), &supersteps(MANY, input));
        let seen = Arc::new(Mutex::new(vec![]));
        let moments = seen.clone();
        std::thread::spawn(move || {
            while let Ok(Some(event)) = open.event_or_break() {
                if event.name == "updates" {
                    moments.lock().push(Instant::now());
                }
            }
        });
        // The checkpoint with the input is stored too: one that waits counts as ahead, and is no superstep.
        until("the run is under way", || {
            seen.lock().len() > 4 && stored(&place, &server) > 0
        });
        Self {
            _lock: Lock::of(&place, &server),
            place,
            server,
            seen,
        }
    }

    /// How many supersteps were seen and are not stored.
    fn ahead(&self) -> usize {
        let seen = self.seen.lock().len();
        seen.saturating_sub(stored(&self.place, &self.server))
    }

    /// Fails unless the run comes to be so many supersteps ahead and stays there.
    fn waits_at(&self, expected: usize) {
        until("the run is as far ahead as it may be", || {
            self.ahead() == expected
        });
        sleep(Duration::from_millis(300));
        assert_eq!(self.ahead(), expected);
    }
}

fn a_run_is_as_many_supersteps_ahead_as_the_setting_says(place: &Place) {
    for most in [1, 4, 5, 6] {
        let stuck = Stuck::start(place, &[("", most)], json!({}));
        stuck.waits_at(most);
    }
}

fn a_run_is_as_many_bytes_ahead_as_the_setting_says(place: &Place) {
    // A superstep has its text twice, as a result and as a value, and besides them less than four kilobytes.
    let (most, around) = (1_000_000, 4_000);
    let text = |bytes: usize| bytes / 2;
    for (text, fit) in [
        (text(most / 3 - around), 3),
        (text(most / 3) + 1, 2),
        (text(most / 2 - around), 2),
        (text(most / 2) + 1, 1),
        // What is larger goes alone.
        (text(most) + 1, 1),
    ] {
        let stuck = Stuck::start(place, &[("_BYTES", most)], json!({"size": text}));
        stuck.waits_at(fit);
    }
}

fn a_run_goes_on_ahead_for_as_long_as_the_setting_says(place: &Place) {
    for age in [500, 2000] {
        let pause = json!({"pause": 20});
        let stuck = Stuck::start(place, &[("_AGE", age)], pause);
        let age = Duration::from_millis(age as u64);
        sleep(age);
        let last = || *stuck.seen.lock().last().unwrap();
        until("the run waits", || {
            last().elapsed() > Duration::from_millis(800)
        });
        // How long it went on depends on the oldest superstep that is not stored, which may have ended before the lock
        // was there: the longer the commit before it took, the sooner.
        let oldest = stored(&stuck.place, &stuck.server);
        let went_on = last() - stuck.seen.lock()[oldest];
        println!(
            "{age:?}: the last superstep was seen {went_on:?} after the oldest that is not stored"
        );
        assert!(went_on > age / 2, "{went_on:?}");
        assert!(went_on < age + Duration::from_secs(3), "{went_on:?}");
        assert!(stuck.ahead() > 2);
    }
}
