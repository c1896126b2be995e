//! What a process counts. Labels are routes, methods and states: none holds the id of anything, or a path
//! as a client sent it.

use std::collections::BTreeMap;
#[cfg(feature = "server")]
use std::time::Duration;

use parking_lot::Mutex;

#[cfg(feature = "server")]
mod text;

/// A request by what is counted of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Served {
    /// The template of its route; empty without one.
    pub path: &'static str,
    /// Its method.
    pub method: &'static str,
    /// The status of its response.
    pub status: u16,
}

/// Something that is measured when it is read.
#[derive(Clone, Debug)]
pub struct Gauge {
    /// Its name.
    pub name: &'static str,
    /// What it says.
    pub help: &'static str,
    /// A label, if there are several of this name.
    pub label: Option<(&'static str, String)>,
    /// Its value.
    pub value: f64,
}

/// The counters of a process.
#[derive(Default)]
pub struct Metrics {
    #[cfg(feature = "server")]
    latencies: text::Latencies,
    served: Mutex<BTreeMap<Served, u64>>,
    ended: Mutex<BTreeMap<&'static str, u64>>,
    tries: Mutex<BTreeMap<&'static str, u64>>,
    firings: Mutex<BTreeMap<&'static str, u64>>,
}

impl Metrics {
    /// Counts a response.
    #[cfg(feature = "server")]
    pub fn count_response(&self, served: Served, took: Duration) {
        *self.served.lock().entry(served).or_default() += 1;
        self.latencies.observe(served, took);
    }

    /// Counts the end of a run.
    pub fn count_end(&self, status: &'static str) {
        *self.ended.lock().entry(status).or_default() += 1;
    }

    /// Counts a try to deliver a webhook.
    pub fn count_try(&self, result: &'static str) {
        *self.tries.lock().entry(result).or_default() += 1;
    }

    /// Counts what became of a due time of a cron.
    pub fn count_firing(&self, result: &'static str) {
        *self.firings.lock().entry(result).or_default() += 1;
    }

    /// The responses by route and status.
    pub fn responses(&self) -> Vec<(Served, u64)> {
        let served = self.served.lock();
        served.iter().map(|(key, count)| (*key, *count)).collect()
    }
}
