//! The registered graphs: which graph a name means, for the config of a run.

use std::{
    collections::{BTreeMap, VecDeque},
    mem::discriminant,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::OnceCell, time::Instant};

use super::factory::{Factory, GraphConfig};
use crate::{engine::topology::Topology, graph::Compiled, id::RunId};

/// As many graphs that were made are retained; the one that was used longest ago goes first.
const RETAINED: usize = 64;
/// Of as many runs the keys of their graphs are remembered, so that reads of their threads need not read their
/// requests.
const REMEMBERED: usize = 1024;

/// As many failures are remembered.
const FAILURES: usize = 64;
/// Reads within this time of a failure fail with it: a list of threads must not wait for each of them.
const FAILS_FOR: Duration = Duration::from_secs(10);

/// Most calls of functions that fail while one list is read.
const FAILED_CALLS: usize = 8;

/// The calls of functions that failed while one list was read. Each of them may take as long as a graph may
/// take to be made, and each item of a list may have a config of its own: behind the last of them the list
/// shows its items with the graphs that are there.
pub struct Tries {
    began: Instant,
    failed: AtomicUsize,
}

impl Default for Tries {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            failed: AtomicUsize::new(0),
        }
    }
}

/// What a graph is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To execute this run.
    Run(RunId),
    /// To show or to edit what this run left.
    Thread(RunId),
    /// To show an assistant.
    Assistant,
}

/// A graph with its name.
pub struct Registered {
    /// The name clients use.
    pub name: Arc<str>,
    /// The graph.
    pub graph: Arc<Compiled>,
    /// Its topology, worked out once.
    pub topology: Arc<Topology>,
}

impl Registered {
    fn new(name: Arc<str>, graph: Arc<Compiled>) -> Arc<Self> {
        Arc::new(Self {
            name,
            topology: Arc::new(Topology::new(graph.clone())),
            graph,
        })
    }
}

/// Where the graph of a name comes from.
#[derive(Clone)]
pub struct Source {
    /// The graph; of a factory that for the default config.
    pub graph: Arc<Compiled>,
    /// Makes others for other configs.
    pub factory: Option<Factory>,
}

impl From<Arc<Compiled>> for Source {
    fn from(graph: Arc<Compiled>) -> Self {
        Self {
            graph,
            factory: None,
        }
    }
}

struct Entry {
    /// For the default config.
    registered: Arc<Registered>,
    factory: Option<Factory>,
}

/// A graph that was made, or is being made.
struct Made {
    name: Arc<str>,
    key: Arc<str>,
    cell: Arc<OnceCell<Arc<Registered>>>,
}

/// A graph that could not be made.
struct Failure {
    name: Arc<str>,
    key: Arc<str>,
    reason: String,
    at: Instant,
}

/// All graphs of this server.
pub(super) struct Graphs {
    entries: BTreeMap<Arc<str>, Entry>,
    limit: Duration,
    /// The one that was used last comes last.
    made: Mutex<VecDeque<Made>>,
    keys_of_runs: Mutex<VecDeque<(RunId, Arc<str>)>>,
    failures: Mutex<VecDeque<Failure>>,
}

impl Graphs {
    /// Making one takes at most `limit`.
    pub(super) fn new<G: Into<Source>>(
        graphs: impl IntoIterator<Item = (Arc<str>, G)>,
        limit: Duration,
    ) -> Self {
        let entries = graphs.into_iter().map(|(name, source)| {
            let Source { graph, factory } = source.into();
            let registered = Registered::new(name.clone(), graph);
            (
                name,
                Entry {
                    registered,
                    factory,
                },
            )
        });
        Self {
            entries: entries.collect(),
            limit,
            made: Mutex::default(),
            keys_of_runs: Mutex::default(),
            failures: Mutex::default(),
        }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.entries.keys()
    }

    /// The graph of a name for the default config.
    pub(super) fn named(&self, name: &str) -> Option<&Arc<Registered>> {
        self.entries.get(name).map(|entry| &entry.registered)
    }

    /// All graphs, each for its default config.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Registered>> {
        self.entries.values().map(|entry| &entry.registered)
    }

    /// Whether configs have graphs of their own.
    pub(super) fn has_factory(&self, name: &str) -> bool {
        let entry = self.entries.get(name);
        entry.is_some_and(|entry| entry.factory.is_some())
    }

    /// The graph of a name for a config; `None` without a graph of this name.
    ///
    /// # Errors
    /// It cannot be made: the reason.
    pub(super) async fn of(
        &self,
        name: &str,
        config: GraphConfig,
        purpose: Purpose,
        tries: Option<&Tries>,
    ) -> Result<Option<Arc<Registered>>, String> {
        let Some((name, entry)) = self.entries.get_key_value(name) else {
            return Ok(None);
        };
        let Some(factory) = &entry.factory else {
            return Ok(Some(entry.registered.clone()));
        };
        let key = factory.key(&config)?;
        let failed = match purpose {
            Purpose::Thread(_) => self.failure(name, &key, tries),
            Purpose::Run(_) | Purpose::Assistant => None,
        };
        if let Some(reason) = failed {
            return Err(reason);
        }
        let cell = self.cell(name, &key);
        let began = Instant::now();
        // Several that want it at once wait for one that makes it, and fail with it.
        let made = cell.get_or_try_init(async || {
            if let Some(reason) = self.failure_since(began, name, &key) {
                return Err(reason);
            }
            if tries.is_some_and(|tries| tries.failed.load(Ordering::Relaxed) >= FAILED_CALLS) {
                return Err("too many graphs of this list could not be made".to_owned());
            }
            let made = async {
                let graph = factory.make(config, self.limit).await?;
                check(&graph, &entry.registered.graph)?;
                Ok(Registered::new(name.clone(), graph))
            };
            made.await.inspect_err(|reason: &String| {
                self.remember_failure(name.clone(), key.clone(), reason.clone());
                if let Some(tries) = tries {
                    tries.failed.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        let made = made.await?.clone();
        if let Purpose::Run(run) | Purpose::Thread(run) = purpose {
            self.remember(run, key);
        }
        Ok(Some(made))
    }

    /// Why a graph could not be made a moment ago, or for an earlier item of the same list.
    fn failure(&self, name: &str, key: &str, tries: Option<&Tries>) -> Option<String> {
        let moment = Instant::now().checked_sub(FAILS_FOR)?;
        let since = tries.map_or(moment, |tries| tries.began.min(moment));
        self.failure_since(since, name, key)
    }

    /// Why a graph could not be made since then.
    fn failure_since(&self, since: Instant, name: &str, key: &str) -> Option<String> {
        let failures = self.failures.lock();
        let known = failures
            .iter()
            .rev()
            .find(|one| &*one.name == name && &*one.key == key)?;
        (known.at > since).then(|| known.reason.clone())
    }

    fn remember_failure(&self, name: Arc<str>, key: Arc<str>, reason: String) {
        let mut failures = self.failures.lock();
        failures.retain(|one| !(one.name == name && one.key == key));
        if failures.len() >= FAILURES {
            failures.pop_front();
        }
        failures.push_back(Failure {
            name,
            key,
            reason,
            at: Instant::now(),
        });
    }

    /// The graph that a run had, if it is still there.
    pub(super) fn of_run(&self, name: &str, run: RunId) -> Option<Arc<Registered>> {
        let key = {
            let keys = self.keys_of_runs.lock();
            let (_, key) = keys.iter().rev().find(|(known, _)| *known == run)?;
            key.clone()
        };
        let mut made = self.made.lock();
        let at = made
            .iter()
            .position(|one| &*one.name == name && one.key == key)?;
        let found = made.remove(at)?;
        let registered = found.cell.get().cloned();
        made.push_back(found);
        registered
    }

    fn cell(&self, name: &Arc<str>, key: &Arc<str>) -> Arc<OnceCell<Arc<Registered>>> {
        let mut made = self.made.lock();
        let at = made
            .iter()
            .position(|one| one.name == *name && one.key == *key);
        let one = at.and_then(|at| made.remove(at)).unwrap_or_else(|| Made {
            name: name.clone(),
            key: key.clone(),
            cell: Arc::default(),
        });
        let cell = one.cell.clone();
        if made.len() >= RETAINED {
            made.pop_front();
        }
        made.push_back(one);
        cell
    }

    fn remember(&self, run: RunId, key: Arc<str>) {
        let mut keys = self.keys_of_runs.lock();
        if keys.iter().rev().any(|(known, _)| *known == run) {
            return;
        }
        if keys.len() >= REMEMBERED {
            keys.pop_front();
        }
        keys.push_back((run, key));
    }
}

/// What is stored of a thread must mean the same to every graph that a factory makes: the channels of all are
/// those of the default one.
fn check(made: &Compiled, default: &Compiled) -> Result<(), String> {
    let has_the_channels = made.channels.len() == default.channels.len()
        && made.channels.iter().all(|channel| {
            let named = default.channels.iter().find(|one| one.name == channel.name);
            named.is_some_and(|one| discriminant(&one.kind) == discriminant(&channel.kind))
        });
    if has_the_channels && made.messages == default.messages {
        Ok(())
    } else {
        let names = |graph: &Compiled| {
            let names: Vec<&str> = graph.channels.iter().map(|one| &*one.name).collect();
            names.join(", ")
        };
        Err(format!(
            "it has the channels {}, and for the default config it has {}: the graphs of one function \
             have the same state",
            names(made),
            names(default)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        channel::Kind,
        graph::{Graph, Output, START},
        value::{Map, Value},
    };

    fn graph(channel: &str) -> Arc<Compiled> {
        let graph = Graph::untyped()
            .channel(channel, Kind::Last)
            .node("only", |_| async { Ok(Output::default()) })
            .edge(START, "only");
        graph.build().unwrap()
    }

    /// What it does is the text `way` of the context, which is also the key.
    fn graphs(count: &Arc<AtomicUsize>) -> Graphs {
        let count = count.clone();
        let key = |config: &GraphConfig| {
            let way = config.text("way").unwrap_or_default();
            assert_ne!(way, "no key");
            way.to_owned()
        };
        let make = move |config: GraphConfig| {
            count.fetch_add(1, Ordering::SeqCst);
            async move {
                match config.text("way") {
                    Some("fails") => anyhow::bail!("on purpose"),
                    Some("panics") => panic!("on purpose"),
                    Some("hangs") => std::future::pending().await,
                    Some("other") => Ok(graph("other")),
                    _ => Ok(graph("text")),
                }
            }
        };
        let source = Source {
            graph: graph("text"),
            factory: Some(Factory::new(key, make)),
        };
        Graphs::new([("g".into(), source)], Duration::from_secs(10))
    }

    fn way(way: &str) -> GraphConfig {
        GraphConfig {
            context: Map::from([("way", Value::str(way))]),
            ..GraphConfig::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_function_that_fails_panics_hangs_or_changes_the_state_is_an_error_with_the_reason() {
        let graphs = graphs(&Arc::default());
        for (how, reason) in [
            ("fails", "on purpose"),
            ("panics", "panicked"),
            ("hangs", "longer than 10 s (BACKSTITCH_GRAPH_TIMEOUT)"),
            ("other", "same state"),
            ("no key", "panicked"),
        ] {
            let error = graphs
                .of("g", way(how), Purpose::Assistant, None)
                .await
                .err()
                .unwrap();
            assert!(error.contains(reason), "{how}: {error}");
        }
        assert!(
            graphs
                .of("nothing", way("x"), Purpose::Assistant, None)
                .await
                .unwrap()
                .is_none()
        );
        assert!(
            graphs
                .of("g", way("x"), Purpose::Assistant, None)
                .await
                .unwrap()
                .is_some()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn reads_do_not_wait_for_a_failure_that_is_known_and_runs_try_it() {
        let count = Arc::default();
        let graphs = graphs(&count);
        let run = RunId::mint();
        let tries = async |purpose, most| {
            graphs
                .of("g", way("hangs"), purpose, None)
                .await
                .err()
                .unwrap();
            assert_eq!(count.load(Ordering::SeqCst), most, "{purpose:?}");
        };
        tries(Purpose::Run(run), 1).await;
        tries(Purpose::Thread(run), 1).await;
        tries(Purpose::Run(run), 2).await;
        tokio::time::advance(FAILS_FOR).await;
        tries(Purpose::Thread(run), 3).await;
        // Those who waited for one that failed fail with it.
        let begin = Instant::now();
        let all = (0..5).map(|_| graphs.of("g", way("hangs"), Purpose::Run(run), None));
        let all = futures::future::join_all(all).await;
        assert!(all.into_iter().all(|made| made.is_err()));
        assert_eq!(count.load(Ordering::SeqCst), 4);
        assert_eq!(begin.elapsed(), graphs.limit);
        for number in 0..2 * FAILURES {
            graphs.remember_failure("g".into(), number.to_string().into(), String::new());
        }
        assert_eq!(graphs.failures.lock().len(), FAILURES);
    }

    #[tokio::test]
    async fn graphs_are_made_once_by_their_keys_and_a_bounded_number_is_retained() {
        let count = Arc::default();
        let graphs = graphs(&count);
        let run = RunId::mint();
        let (one, other) = tokio::join!(
            graphs.of("g", way("a"), Purpose::Run(run), None),
            graphs.of("g", way("a"), Purpose::Assistant, None)
        );
        let one = one.unwrap().unwrap();
        assert!(Arc::ptr_eq(&one, &other.unwrap().unwrap()));
        assert_eq!(count.load(Ordering::SeqCst), 1);
        assert!(Arc::ptr_eq(&graphs.of_run("g", run).unwrap(), &one));
        for number in 0..RETAINED {
            graphs
                .of("g", way(&number.to_string()), Purpose::Assistant, None)
                .await
                .unwrap();
        }
        assert_eq!(graphs.made.lock().len(), RETAINED);
        assert!(graphs.of_run("g", run).is_none());
        for _ in 0..2 * REMEMBERED {
            graphs.remember(RunId::mint(), "a".into());
        }
        assert_eq!(graphs.keys_of_runs.lock().len(), REMEMBERED);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_calls_a_function_that_fails_once_for_each_key_and_a_few_times_in_all() {
        let count = Arc::default();
        let graphs = graphs(&count);
        let of = async |name: &str, tries: &Tries| {
            let purpose = Purpose::Thread(RunId::mint());
            graphs.of("g", way(name), purpose, Some(tries)).await
        };
        let tries = Tries::default();
        for _ in 0..3 {
            of("hangs", &tries).await.err().unwrap();
            // A list may take longer than a failure is remembered.
            tokio::time::advance(2 * FAILS_FOR).await;
        }
        assert_eq!(count.load(Ordering::SeqCst), 1);
        of("hangs", &Tries::default()).await.err().unwrap();
        assert_eq!(count.load(Ordering::SeqCst), 2);
        tries.failed.store(FAILED_CALLS, Ordering::Relaxed);
        let reason = of("a", &tries).await.err().unwrap();
        assert!(reason.contains("too many"), "{reason}");
        assert_eq!(count.load(Ordering::SeqCst), 2);
        // What is there already is shown.
        of("a", &Tries::default()).await.unwrap().unwrap();
        of("a", &tries).await.unwrap().unwrap();
    }
}
