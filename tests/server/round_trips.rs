//! How many statements and transactions a run costs the database. On a busy machine a run writes what it could
//! have written together as it comes, so that this has the machine for itself (.config/nextest.toml). What the
//! server asks for while nobody does anything is taken off.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::place::block_on;
use test_support::postgres::{Cluster, Database};
use test_support::server::Setup;
use test_support::talk::{background, until, with};

/// Runs that are measured together.
const RUNS: u64 = 20;

/// Batches of them.
const BATCHES: usize = 2;

/// A connection between the server and its database that counts statements.
struct Proxy {
    url: String,
    statements: Arc<AtomicU64>,
}

impl Proxy {
    fn before(database: &Database) -> Self {
        let (head, rest) = database.url.split_once('@').unwrap();
        let (address, path) = rest.split_once('/').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap();
        let statements = Arc::new(AtomicU64::new(0));
        let (count, address) = (statements.clone(), address.to_owned());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let server = TcpStream::connect(&address).unwrap();
                let (answers, asker) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let count = count.clone();
                std::thread::spawn(move || forward(answers, asker));
                std::thread::spawn(move || count_and_forward(client, server, &count));
            }
        });
        Self {
            url: format!("{head}@{own}/{path}"),
            statements,
        }
    }

    fn count(&self) -> u64 {
        self.statements.load(Ordering::Relaxed)
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// Forwards what the server sends, message by message, and counts those that execute something.
fn count_and_forward(mut from: TcpStream, mut to: TcpStream, count: &AtomicU64) {
    let mut starting = true;
    while let Some(message) = message(&mut from, starting) {
        match message[0] {
            b'E' | b'Q' if !starting => {
                count.fetch_add(1, Ordering::Relaxed);
            }
            // A message without a type: the request for encryption, or the start itself.
            _ if starting => starting = message[4..8] == 80_877_103_i32.to_be_bytes(),
            _ => {}
        }
        if to.write_all(&message).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// One message of Postgres's protocol; `None` when the connection is over.
fn message(from: &mut TcpStream, starting: bool) -> Option<Vec<u8>> {
    let mut message = vec![0; if starting { 4 } else { 5 }];
    from.read_exact(&mut message).ok()?;
    let head = message.len();
    let length: [u8; 4] = message[head - 4..].try_into().ok()?;
    let length = usize::try_from(i32::from_be_bytes(length)).ok()?;
    message.resize(head - 4 + length, 0);
    from.read_exact(&mut message[head..]).ok()?;
    Some(message)
}

/// Transactions of the cluster that wrote something, so far.
fn writes(cluster: &Database) -> u64 {
    block_on(async {
        let (client, connection) = tokio_postgres::connect(&cluster.url, tokio_postgres::NoTls)
            .await
            .unwrap();
        let connection = tokio::spawn(connection);
        let query = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text";
        let row = client.query_one(query, &[]).await.unwrap();
        connection.abort();
        row.get::<_, String>(0).parse().unwrap()
    })
}

/// Counts what a database does.
trait Meter {
    /// Statements and writing transactions so far.
    fn read(&self) -> (u64, u64);
}

struct OfPostgres {
    database: Database,
    proxy: Proxy,
}

impl Meter for OfPostgres {
    fn read(&self) -> (u64, u64) {
        (self.proxy.count(), writes(&self.database))
    }
}

/// The file in which a server on SQLite writes each statement that it has executed.
struct OfSqlite(PathBuf);

impl Meter for OfSqlite {
    fn read(&self) -> (u64, u64) {
        let executed = std::fs::read_to_string(&self.0).unwrap();
        let begins = |line: &&str| line.starts_with("[\"BEGIN IMMEDIATE\"");
        let statements = executed
            .lines()
            .filter(|line| !line.starts_with("[\"PRAGMA"));
        let writing = executed.lines().filter(begins);
        (statements.count() as u64, writing.count() as u64)
    }
}

/// Statements and writing transactions of a run, on average of the cheaper of two batches.
fn costs(meter: &dyn Meter, mut run: impl FnMut()) -> (f64, f64) {
    let all = (0..BATCHES).map(|_| batch(meter, &mut run));
    all.min_by(|a, b| (a.1, a.0).partial_cmp(&(b.1, b.0)).unwrap())
        .unwrap()
}

fn batch(meter: &dyn Meter, run: &mut impl FnMut()) -> (f64, f64) {
    run();
    let rest = Duration::from_secs(1);
    // What follows a run comes within this time, and an idle server asks for as much in it.
    std::thread::sleep(rest);
    let idle = meter.read();
    std::thread::sleep(rest);
    let before = meter.read();
    for _ in 0..RUNS {
        run();
    }
    std::thread::sleep(rest);
    let after = meter.read();
    let each = |after: u64, before: u64, idle: u64| {
        (after - before).saturating_sub(before - idle) as f64 / RUNS as f64
    };
    (
        each(after.0, before.0, idle.0),
        each(after.1, before.1, idle.1),
    )
}

/// What a run may cost on an existing thread: at most so many statements and writing transactions.
struct Bounds {
    run: (f64, f64),
    turn: (f64, f64),
    /// Of a run each superstep of which waits for the one before to be durable.
    sync: (f64, f64),
    /// Of a run that stores its last state alone, with the durability `exit`.
    exit: (f64, f64),
    /// Of a run whose thread comes and goes with it.
    stateless: (f64, f64),
    /// Of a run whose events are stored.
    resumable: (f64, f64),
}

/// Measures one kind of run.
fn costs_at_most(
    meter: &dyn Meter,
    what: &str,
    (most, most_commits): (f64, f64),
    run: impl FnMut(),
) {
    let (statements, commits) = costs(meter, run);
    println!("{what}: {statements:.1} statements, {commits:.1} commits");
    assert!(statements <= most, "{statements:.1} statements: {what}");
    assert!(
        commits.round() <= most_commits,
        "{commits:.1} commits: {what}"
    );
}

fn runs_cost_little(setup: Setup, meter: &dyn Meter, bounds: &Bounds) {
    let server = setup.start();
    let client = Client::of(&server);
    let thread = client.thread();
    let chain: Value = json!({"assistant_id": "seq10", "input": {"count": 0, "log": []}});
    costs_at_most(meter, "a run of 12 supersteps", bounds.run, || {
        let state = client.run(&thread, &chain);
        assert!(state["count"].as_i64().unwrap() >= 10, "{state}");
    });

    let chat = client.thread();
    let turn = json!({
        "assistant_id": "chat",
        "input": {"messages": [{"type": "human", "content": "hello"}]},
    });
    costs_at_most(meter, "a turn of a chat", bounds.turn, || {
        client.run(&chat, &turn);
    });

    // Its supersteps, the last of them with the end, besides its creation and what is derived from its events.
    let sync = with(chain.clone(), "durability", "sync");
    costs_at_most(meter, "a run in sync", bounds.sync, || {
        client.run(&thread, &sync);
    });

    let at_exit = with(chain.clone(), "durability", "exit");
    costs_at_most(
        meter,
        "a run that stores its last state alone",
        bounds.exit,
        || {
            client.run(&thread, &at_exit);
        },
    );
    let last = client.history(&thread)[0]["checkpoint"].clone();
    client.run(&thread, &at_exit);
    assert_eq!(client.history(&thread)[1]["checkpoint"], last);

    costs_at_most(meter, "a stateless run", bounds.stateless, || {
        let state = client.post("/runs/wait", &chain).json();
        assert_eq!(state["count"], 10, "{state}");
    });

    // Its last events are stored with its last supersteps and its end, those before about every 10 ms.
    let resumable = with(
        with(chain, "stream_resumable", true),
        "stream_mode",
        "updates",
    );
    costs_at_most(
        meter,
        "a run whose events are stored",
        bounds.resumable,
        || {
            let events = client.stream(&thread, &resumable);
            assert_eq!(events.len(), 1 + 10, "{events:?}");
        },
    );
}

/// The state of a thread whose last run ended here is one statement: the level of the client on it, its row,
/// that of the checkpoint and what is pending there. So is that of a checkpoint that was read before.
fn a_hot_state_is_one_statement(setup: Setup, meter: &dyn Meter, most: f64) {
    let server = setup.env("BACKSTITCH_API_KEYS", "ann=key-a").start();
    let client = Client::of(&server).with_key("key-a");
    let thread = client.thread();
    let turn = json!({
        "assistant_id": "chat",
        "input": {"messages": [{"type": "human", "content": "hello"}]},
    });
    client.run(&thread, &turn);
    client.run(&thread, &turn);
    let (now, _) = costs(meter, || {
        let state = client.state(&thread);
        assert_eq!(state["values"]["messages"].as_array().unwrap().len(), 4);
    });
    let long = client.thread();
    client.run(
        &long,
        &json!({"assistant_id": "loop", "input": {"count": 0, "target": 9}}),
    );
    let middle = client.history(&long)[4].clone();
    let id = middle["checkpoint"]["checkpoint_id"].as_str().unwrap();
    let path = format!("/threads/{long}/state/{id}");
    let (then, _) = costs(meter, || {
        let state = client.get(&path).json();
        assert_eq!(state["values"], middle["values"]);
    });
    println!("a hot state: {now:.2} statements, one by its id: {then:.2}");
    assert!(now <= most && then <= most, "{now:.2} and {then:.2}");
}

#[test]
fn a_hot_state_is_one_statement_of_postgres() {
    let cluster = Cluster::start();
    let database = block_on(cluster.database());
    let proxy = Proxy::before(&database);
    let setup = Setup::example("bench_server").env("DATABASE_URL", proxy.url.clone());
    a_hot_state_is_one_statement(setup, &OfPostgres { database, proxy }, 1.5);
}

#[test]
fn a_hot_state_is_one_snapshot_of_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("statements");
    let setup = Setup::example("bench_server").env("SQLITE_STATEMENTS", file.to_str().unwrap());
    // The thread, the level, the checkpoint, the size and the rows of what is pending there, with a beginning and
    // an end.
    a_hot_state_is_one_statement(setup, &OfSqlite(file), 7.5);
}

#[test]
fn a_warm_turn_reads_no_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("statements");
    let setup = Setup::example("bench_server").env("SQLITE_STATEMENTS", file.to_str().unwrap());
    let server = setup.start();
    let client = Client::of(&server);
    let thread = client.thread();
    let turn = json!({
        "assistant_id": "chat",
        "input": {"messages": [{"type": "human", "content": "hello"}]},
    });
    let reads = || {
        let executed = std::fs::read_to_string(&file).unwrap();
        let loads = |line: &&str| line.starts_with("[\"SELECT c.checkpoint_ns, c.checkpoint_id");
        executed.lines().filter(loads).count()
    };
    client.run(&thread, &turn);
    let before = reads();
    for _ in 0..RUNS {
        client.run(&thread, &turn);
    }
    let read = reads() - before;
    println!("{read} checkpoints were read in {RUNS} turns");
    // Tables are derived from the events meanwhile, which may read one in the middle of a run.
    assert!(read < 5, "{read} in {RUNS} turns");
}

/// Bounds what a second costs in which nobody asks for anything: statements and writing transactions. Leases are
/// renewed, and what nobody was notified of is looked for.
fn an_idle_server_costs_little(setup: Setup, meter: &dyn Meter, bounds: (f64, f64)) {
    const SECONDS: u32 = 10;
    let server = setup.start();
    let client = Client::of(&server);
    let thread = client.thread();
    client.run(
        &thread,
        &json!({"assistant_id": "seq10", "input": {"count": 0, "log": []}}),
    );
    std::thread::sleep(Duration::from_secs(2));
    let before = meter.read();
    std::thread::sleep(Duration::from_secs(u64::from(SECONDS)));
    let after = meter.read();
    let each = |after: u64, before: u64| (after - before) as f64 / f64::from(SECONDS);
    let (statements, commits) = (each(after.0, before.0), each(after.1, before.1));
    println!("an idle second: {statements:.1} statements, {commits:.1} commits");
    assert!(statements <= bounds.0, "{statements:.1} statements");
    assert!(commits <= bounds.1, "{commits:.1} commits");
}

#[test]
fn an_idle_server_asks_postgres_for_next_to_nothing() {
    let cluster = Cluster::start();
    let database = block_on(cluster.database());
    let proxy = Proxy::before(&database);
    let setup = Setup::example("bench_server").env("DATABASE_URL", proxy.url.clone());
    an_idle_server_costs_little(setup, &OfPostgres { database, proxy }, (8.0, 0.5));
}

#[test]
fn an_idle_server_asks_sqlite_for_next_to_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("statements");
    let setup = Setup::example("bench_server").env("SQLITE_STATEMENTS", file.to_str().unwrap());
    // Beginning and end of a transaction are statements too, and one that changes nothing writes nothing.
    an_idle_server_costs_little(setup, &OfSqlite(file), (20.0, 2.0));
}

#[test]
fn a_run_takes_few_statements_and_fewer_commits() {
    let cluster = Cluster::start();
    let database = block_on(cluster.database());
    let proxy = Proxy::before(&database);
    let setup = Setup::example("bench_server").env("DATABASE_URL", proxy.url.clone());
    let bounds = Bounds {
        run: (25.0, 5.0),
        turn: (20.0, 3.0),
        sync: (45.0, 17.0),
        exit: (15.0, 3.0),
        stateless: (25.0, 4.0),
        resumable: (30.0, 8.0),
    };
    runs_cost_little(setup, &OfPostgres { database, proxy }, &bounds);
}

#[test]
fn a_run_on_sqlite_takes_few_commits() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("statements");
    let setup = Setup::example("bench_server").env("SQLITE_STATEMENTS", file.to_str().unwrap());
    // A statement is no round trip there: each row is one.
    let bounds = Bounds {
        run: (110.0, 3.0),
        turn: (80.0, 3.0),
        sync: (120.0, 13.0),
        exit: (50.0, 2.0),
        stateless: (110.0, 2.0),
        resumable: (150.0, 6.0),
    };
    runs_cost_little(setup, &OfSqlite(file), &bounds);
}

/// Runs that others end while they wait, and of which their process has retained nothing, cost later runs nothing.
#[test]
fn runs_that_others_ended_are_looked_for_no_longer() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("statements");
    let server = Setup::example("bench_server")
        .env("SQLITE_STATEMENTS", file.to_str().unwrap())
        .env("BACKSTITCH_KNOWN_WAITING", "0")
        .start();
    let client = Client::of(&server);
    let thread = client.thread();
    let run = json!({"assistant_id": "seq10", "input": {"count": 0, "log": []}});
    // Each claim looks first for a principal with runs that wait.
    let claims = || {
        let executed = std::fs::read_to_string(&file).unwrap();
        let looks = |line: &&str| line.starts_with("[\"SELECT coalesce(principal, '') FROM runs");
        executed.lines().filter(looks).count()
    };
    let begun = Instant::now();
    let claims_of_runs = || {
        let (before, begin) = (claims(), Instant::now());
        for _ in 0..RUNS {
            client.run(&thread, &run);
        }
        // Beside those of the runs there is one every half second.
        let polls = begin.elapsed().as_millis() as usize / 500 + 2;
        (claims() - before).saturating_sub(polls)
    };
    assert_eq!(claims_of_runs(), 0);
    let gone = client.thread();
    for _ in 0..3 {
        let later = with(run.clone(), "after_seconds", 3600);
        background(&client, &gone, &later);
    }
    assert!(
        claims_of_runs() >= RUNS as usize,
        "those that wait are looked for"
    );
    let deleted = client.delete(&format!("/threads/{gone}"));
    assert_eq!(deleted.status, 204, "{}", deleted.text());
    until("they are forgotten", || claims_of_runs() == 0);
    println!("after {:?}", begun.elapsed());
}
