//! What is measured: each workload drives a server and returns what it saw. A result that is wrong ends the
//! program, so that nothing is fast because it is wrong.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::Client;

/// Runs of some clients over some time.
pub struct Load {
    /// Whole runs a second: a new thread and a run on it.
    pub runs_per_second: f64,
    /// Milliseconds from the request to the end of its stream, sorted.
    pub latencies: Vec<f64>,
}

impl Load {
    /// The latency below which this share of the runs lies.
    pub fn quantile(&self, share: f64) -> f64 {
        quantile(&self.latencies, share)
    }
}

/// A quantile of sorted values.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share) as usize;
    sorted
        .get(at.min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or(f64::NAN)
}

/// Chains of ten nodes, twelve supersteps each, one after the other on each client.
pub async fn seq10(address: &str, clients: usize, span: Duration) -> Load {
    let start = Instant::now();
    let one = |address: String| async move {
        let mut client = Client::connect(&address).await;
        let body = json!({"assistant_id": "seq10", "input": {"count": 0, "log": []}, "stream_mode": "updates"});
        let body = body.to_string();
        let mut latencies = vec![];
        while start.elapsed() < span {
            let thread = client.thread().await;
            let begin = Instant::now();
            let path = format!("/threads/{thread}/runs/stream");
            let events = client.count_events(&path, &body, "updates").await;
            assert_eq!(events, 10, "a run of ten nodes has ten updates");
            latencies.push(begin.elapsed().as_secs_f64() * 1000.0);
            if latencies.len() % 50 == 0 {
                let state = client
                    .json("GET", &format!("/threads/{thread}/state"), "")
                    .await;
                assert_eq!(state["values"]["count"], 10, "{state}");
            }
        }
        latencies
    };
    let clients: Vec<_> = (0..clients)
        .map(|_| tokio::spawn(one(address.to_owned())))
        .collect();
    let mut latencies = vec![];
    for client in clients {
        latencies.extend(client.await.unwrap());
    }
    let runs_per_second = latencies.len() as f64 / start.elapsed().as_secs_f64();
    latencies.sort_by(f64::total_cmp);
    Load {
        runs_per_second,
        latencies,
    }
}

/// Sixteen streams of a thousand events each, again and again; returns how many events came, and in which time.
pub async fn tokens(address: &str, graph: &str, mode: &str, span: Duration) -> (usize, Duration) {
    let start = Instant::now();
    let mut input = json!({"n": 1000});
    if mode != "custom" {
        input["messages"] = json!([{"type": "human", "content": "hi"}]);
    }
    let body = json!({"assistant_id": graph, "stream_mode": mode, "input": input}).to_string();
    let name = if mode == "custom" {
        "custom"
    } else {
        "messages"
    };
    let clients: Vec<_> = (0..16)
        .map(|_| {
            let (address, body) = (address.to_owned(), body.clone());
            tokio::spawn(async move {
                let mut client = Client::connect(&address).await;
                let mut count = 0;
                while start.elapsed() < span {
                    let events = client.count_events("/runs/stream", &body, name).await;
                    assert!((1000..=1002).contains(&events), "{events} events of 1,000");
                    count += events;
                }
                count
            })
        })
        .collect();
    let mut events = 0;
    for client in clients {
        events += client.await.unwrap();
    }
    (events, start.elapsed())
}

/// Milliseconds of runs of a hundred tasks in one superstep, sorted.
pub async fn fan_out(address: &str, runs: usize) -> Vec<f64> {
    let mut client = Client::connect(address).await;
    let body = json!({"assistant_id": "fanout", "input": {"n": 100}}).to_string();
    let mut latencies = vec![];
    for _ in 0..runs {
        let thread = client.thread().await;
        let begin = Instant::now();
        let path = format!("/threads/{thread}/runs/wait");
        let state = client.json("POST", &path, &body).await;
        latencies.push(begin.elapsed().as_secs_f64() * 1000.0);
        assert_eq!(state["total"], 9900, "{state}");
    }
    latencies.sort_by(f64::total_cmp);
    latencies
}

/// A conversation, with the time of each of its turns in milliseconds.
pub struct Chat {
    client: Client,
    thread: String,
    /// In the order of the turns.
    pub turns: Vec<f64>,
}

impl Chat {
    /// A new one, of a server and a connection that have begun before: runs of no thread leave no row behind.
    pub async fn begin(address: &str) -> Self {
        let mut client = Client::connect(address).await;
        let body = json!({
            "assistant_id": "chat", "stream_mode": "updates", "input": {"messages": [{"type": "human", "content": "hi"}]},
        });
        for _ in 0..20 {
            client
                .count_events("/runs/stream", &body.to_string(), "updates")
                .await;
        }
        let thread = client.thread().await;
        Self {
            client,
            thread,
            turns: vec![],
        }
    }

    /// One turn of 400 characters, the one with this number on its thread; returns its time in milliseconds.
    async fn turn(client: &mut Client, thread: &str, number: usize) -> f64 {
        let path = format!("/threads/{thread}/runs/stream");
        let question = format!("{:0200}", 1_000_000 + number);
        let body = json!({
            "assistant_id": "chat", "stream_mode": "updates",
            "input": {"messages": [{"type": "human", "content": question}]},
        });
        let begin = Instant::now();
        let events = client
            .count_events(&path, &body.to_string(), "updates")
            .await;
        assert_eq!(events, 1, "a turn has one update");
        begin.elapsed().as_secs_f64() * 1000.0
    }

    async fn go_on(&mut self) {
        let time = Self::turn(&mut self.client, &self.thread, self.turns.len()).await;
        self.turns.push(time);
    }

    /// Goes on until it has so many turns, the last twenty of which take turns with those of new conversations at some
    /// twenty messages: a machine that is slower at one time than at another slows down both. Returns the times of the
    /// short ones.
    pub async fn continue_beside_short_ones(&mut self, turns: usize) -> Vec<f64> {
        const ROUNDS: usize = 4;
        const EACH: usize = 5;
        const BEFORE: usize = 8;
        self.continue_to(turns - ROUNDS * EACH).await;
        let mut short = vec![];
        for _ in 0..ROUNDS {
            let thread = self.client.thread().await;
            for number in 0..BEFORE {
                Self::turn(&mut self.client, &thread, number).await;
            }
            for number in BEFORE..BEFORE + EACH {
                if number % 2 == 0 {
                    self.go_on().await;
                }
                short.push(Self::turn(&mut self.client, &thread, number).await);
                if number % 2 == 1 {
                    self.go_on().await;
                }
            }
        }
        self.continue_to(turns).await;
        short
    }

    /// Goes on until it has so many turns.
    pub async fn continue_to(&mut self, turns: usize) {
        while self.turns.len() < turns {
            self.go_on().await;
        }
        let state = self
            .client
            .json("GET", &format!("/threads/{}/state", self.thread), "")
            .await;
        let messages = state["values"]["messages"].as_array().map_or(0, Vec::len);
        assert_eq!(messages, 2 * turns, "each turn has two messages");
    }
}

/// Milliseconds of reads on a thread with 501 checkpoints: the newest state, one in the middle, ten and
/// a hundred of its history.
pub async fn history(address: &str, reads: usize) -> [f64; 4] {
    let mut client = Client::connect(address).await;
    let thread = client.thread().await;
    let body = json!({
        "assistant_id": "loop", "input": {"count": 0, "target": 499},
        "config": {"recursion_limit": 509},
    });
    let state = client
        .json(
            "POST",
            &format!("/threads/{thread}/runs/wait"),
            &body.to_string(),
        )
        .await;
    assert_eq!(state["count"], 499, "{state}");
    let path = format!("/threads/{thread}/history");
    let all = client.json("POST", &path, r#"{"limit": 1000}"#).await;
    let all = all.as_array().cloned().unwrap_or_default();
    assert_eq!(all.len(), 501, "one checkpoint for each superstep");
    let middle = all[250]["checkpoint"]["checkpoint_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let requests = [
        ("GET", format!("/threads/{thread}/state"), String::new()),
        (
            "GET",
            format!("/threads/{thread}/state/{middle}"),
            String::new(),
        ),
        ("POST", path.clone(), r#"{"limit": 10}"#.to_owned()),
        ("POST", path, r#"{"limit": 100}"#.to_owned()),
    ];
    let mut medians = [0.0; 4];
    for (median, (method, path, body)) in medians.iter_mut().zip(&requests) {
        let mut times = vec![];
        for _ in 0..reads {
            let begin = Instant::now();
            client.json(method, path, body).await;
            times.push(begin.elapsed().as_secs_f64() * 1000.0);
        }
        times.sort_by(f64::total_cmp);
        *median = quantile(&times, 0.5);
    }
    medians
}

/// Opens streams of one run that sleeps; they stay open as long as the clients live.
pub async fn joins(address: &str, count: usize) -> Vec<Client> {
    let mut client = Client::connect(address).await;
    let thread = client.thread().await;
    let body = json!({"assistant_id": "sleeper", "input": {"seconds": 120}}).to_string();
    let run = client
        .json("POST", &format!("/threads/{thread}/runs"), &body)
        .await;
    let path = format!(
        "/threads/{thread}/runs/{}/stream",
        run["run_id"].as_str().unwrap()
    );
    let mut open = vec![client];
    for _ in 0..count {
        let mut client = Client::connect(address).await;
        assert_eq!(client.open("GET", &path, "").await, 200);
        open.push(client);
    }
    open
}

/// Starts runs that sleep for so many seconds, each on a thread of its own, from sixteen clients; returns where their
/// states are read, once all of them are executed.
pub async fn sleepers(address: &str, count: usize, seconds: f64) -> Vec<String> {
    const CLIENTS: usize = 16;
    let body = json!({"assistant_id": "sleeper", "input": {"seconds": seconds}}).to_string();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|at| {
            let (address, body) = (address.to_owned(), body.clone());
            tokio::spawn(async move {
                let mut client = Client::connect(&address).await;
                let mut own = vec![];
                for _ in (at..count).step_by(CLIENTS) {
                    let thread = client.thread().await;
                    let path = format!("/threads/{thread}/runs");
                    let run = client.json("POST", &path, &body).await;
                    own.push(format!("{path}/{}", run["run_id"].as_str().unwrap()));
                }
                while let Some(last) = own.last()
                    && status(&mut client, last).await == "pending"
                {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                own
            })
        })
        .collect();
    let mut all = vec![];
    for client in clients {
        all.append(&mut client.await.unwrap());
    }
    all
}

/// The status of a run.
pub async fn status(client: &mut Client, run: &str) -> String {
    let run: Value = client.json("GET", run, "").await;
    run["status"].as_str().unwrap_or_default().to_owned()
}
