//! The figures: each function measures some of them and adds them to the book.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    Book, Place, Plan, SUPERSTEPS, Storage,
    page::Goal,
    process::Server,
    sizes,
    usage::{Calls, Usage},
    workloads::{self, Chat, quantile},
};

/// Durable supersteps beside the ceilings of the same call.
pub async fn supersteps(book: &mut Book, plan: Plan, storage: &Storage) {
    let server = storage.server();
    workloads::seq10(&server.address, 4, Duration::from_millis(500)).await;
    let mut at_eight = f64::NAN;
    for clients in [1, 8, 64, 256] {
        let (mut shares, mut notes, mut loads) = (vec![], vec![], vec![]);
        for _ in 0..plan.rounds {
            let (ceiling, own) = storage.ceilings(clients.min(64), plan.span);
            let before = Usage::of(&server, storage);
            let load = workloads::seq10(&server.address, clients, plan.span).await;
            let usage = Usage::of(&server, storage).since(before, load.latencies.len());
            let steps = load.runs_per_second * SUPERSTEPS;
            shares.push(100.0 * steps / ceiling);
            notes.push((steps, ceiling, own));
            loads.push((load, usage));
        }
        let by_share = |a: &usize, b: &usize| shares[*a].total_cmp(&shares[*b]);
        let mut order: Vec<usize> = (0..shares.len()).collect();
        order.sort_by(by_share);
        let middle = order[order.len() / 2];
        let ((steps, ceiling, own), (load, usage)) = (notes[middle], &loads[middle]);
        let (name, postgres) = (storage.name(), matches!(storage.place, Place::Postgres(_)));
        let goal = match (clients, postgres) {
            (8, true) => Goal::AtLeast(100.0),
            (64, true) => Goal::AtLeast(180.0),
            (8, false) => Goal::AtLeast(200.0),
            (64, false) => Goal::AtLeast(350.0),
            _ => Goal::None,
        };
        let mut note = format!("{steps:.0} supersteps/s, ceiling {ceiling:.0}");
        if postgres {
            note += &format!("; of the same rows as ours {:.0} %", 100.0 * steps / own);
        }
        book.add(
            format!("{name}: share of the ceiling, {clients} clients"),
            shares[middle],
            "%",
            goal,
            note,
        );
        let goal = match (clients, postgres) {
            (1, true) => Goal::AtMost(4.0),
            (1, false) => Goal::AtMost(2.0),
            _ => Goal::None,
        };
        let p50 = load.quantile(0.5);
        let p99 = load.quantile(0.99);
        book.add(
            format!("{name}: a run, median, {clients} clients"),
            p50,
            "ms",
            goal,
            format!("99th percentile {p99:.1} ms"),
        );
        let goal = match clients {
            8 => Goal::AtMost(1.0),
            64 => Goal::AtMost(0.6),
            _ => Goal::None,
        };
        book.add(
            format!("{name}: processor of the server a run, {clients} clients"),
            usage.server,
            "ms",
            goal,
            format!("database {:.2} ms", usage.database),
        );
        book.add(
            format!("{name}: context switches of the server a run, {clients} clients"),
            usage.switches,
            "",
            Goal::None,
            String::new(),
        );
        match clients {
            8 => at_eight = load.runs_per_second,
            256 => {
                let share = 100.0 * load.runs_per_second / at_eight;
                book.add(
                    format!("{name}: runs/s with 256 clients, of those with 8"),
                    share,
                    "%",
                    Goal::AtLeast(80.0),
                    String::new(),
                );
                book.add(
                    format!("{name}: a run, 99th percentile, 256 clients"),
                    p99,
                    "ms",
                    Goal::AtMost(600.0),
                    "the updates of every run are counted: none was lost".to_owned(),
                );
            }
            _ => {}
        }
    }
}

/// One load alone, of four times the usual time.
pub async fn load(book: &mut Book, plan: Plan, storage: &Storage, clients: usize) {
    let (server, name) = (storage.server(), storage.name());
    workloads::seq10(&server.address, clients, Duration::from_millis(500)).await;
    let before = Usage::of(&server, storage);
    let load = workloads::seq10(&server.address, clients, 4 * plan.span).await;
    let usage = Usage::of(&server, storage).since(before, load.latencies.len());
    let note = format!(
        "processor {:.2} and {:.2} ms a run, {:.1} context switches",
        usage.server, usage.database, usage.switches
    );
    book.add(
        format!("{name}: supersteps/s, {clients} clients"),
        load.runs_per_second * SUPERSTEPS,
        "",
        Goal::None,
        note,
    );
}

/// System calls of a run, where `perf` is there to count them.
pub async fn calls(book: &mut Book, storage: &Storage) {
    let (server, name) = (storage.server(), storage.name());
    for clients in [1, 8, 64] {
        workloads::seq10(&server.address, clients, Duration::from_millis(500)).await;
        let calls = Calls::begin(server.id());
        let load = workloads::seq10(&server.address, clients, Duration::from_secs(1)).await;
        let Some(calls) = calls.and_then(Calls::end) else {
            println!(
                "System calls were not counted: that takes `perf`, and the right to watch the kernel"
            );
            return;
        };
        let runs = load.latencies.len() as f64;
        let note = match storage.place {
            Place::Sqlite(_) => format!("{:.2} of them wait for the disk", calls.syncs / runs),
            Place::Postgres(_) => String::new(),
        };
        book.add(
            format!("{name}: system calls of the server a run, {clients} clients"),
            calls.all / runs,
            "",
            Goal::None,
            note,
        );
    }
}

/// Tokens, and a superstep of many tasks.
pub async fn streams(book: &mut Book, plan: Plan, name: &str, server: &Server) {
    for (graph, mode, least, most) in [
        ("tokens_custom", "custom", 500_000.0, 1.5),
        ("tokens_msg", "messages-tuple", 250_000.0, 4.0),
    ] {
        let before = server.cpu();
        let (events, time) = workloads::tokens(&server.address, graph, mode, plan.span).await;
        let cpu = (server.cpu() - before).as_secs_f64() * 1e6 / events as f64;
        let rate = events as f64 / time.as_secs_f64();
        book.add(
            format!("{name}: {mode} events/s, 16 streams"),
            rate,
            "",
            Goal::AtLeast(least),
            String::new(),
        );
        book.add(
            format!("{name}: processor of the server, a {mode} event"),
            cpu,
            "µs",
            Goal::AtMost(most),
            String::new(),
        );
    }
    let times = workloads::fan_out(&server.address, plan.reads.min(100)).await;
    book.add(
        format!("{name}: a superstep of 100 tasks, median"),
        quantile(&times, 0.5),
        "ms",
        Goal::AtMost(8.0),
        String::new(),
    );
}

/// Reads of a thread with 501 checkpoints.
pub async fn reads(book: &mut Book, plan: Plan, name: &str, address: &str) {
    let medians = workloads::history(address, plan.reads).await;
    let goals = [
        ("the newest state", 0.5),
        ("one checkpoint", 0.5),
        ("10 of its history", 1.0),
        ("100 of its history", 4.0),
    ];
    for (median, (what, goal)) in medians.into_iter().zip(goals) {
        book.add(
            format!("{name}: {what} of 501 checkpoints, median"),
            median,
            "ms",
            Goal::AtMost(goal),
            String::new(),
        );
    }
}

/// What a conversation takes on disk, and how long its turns take.
pub async fn chats(book: &mut Book, plan: Plan, storage: &Storage) {
    let (server, name) = (storage.server(), storage.name());
    let mut ratio = |what: String, value: f64, most: f64, note: String| {
        book.add(
            format!("{name}: {what}"),
            value,
            "",
            Goal::AtMost(most),
            note,
        );
    };
    let mut chat = Chat::begin(&server.address).await;
    let mut before = 0.0;
    for (turns, goals) in [(200, Some((6.0, 10.0))), (400, None)] {
        chat.continue_to(turns).await;
        let sizes = sizes::of(storage).await;
        let (state, whole) = (sizes.state as f64, sizes.whole as f64);
        let text = (turns * 400) as f64;
        if let Some((of_state, of_whole)) = goals {
            let what = "checkpoints, values and results of 200 turns, per byte of text";
            ratio(what.to_owned(), state / text, of_state, String::new());
            let what = "all tables after 200 turns, per byte of text";
            ratio(what.to_owned(), whole / text, of_whole, String::new());
        } else {
            let what = "bytes of 400 turns, of those of 200";
            ratio(what.to_owned(), whole / before, 2.1, String::new());
        }
        before = whole;
    }
    for (turns, is_last) in [(plan.turns / 2, false), (plan.turns, true)] {
        let short = chat.continue_beside_short_ones(turns).await;
        let messages = 2 * turns;
        let first = middle_of(&short);
        let last = middle_of(&chat.turns[turns - short.len()..]);
        ratio(
            format!("a turn at {messages} messages, of one at 20"),
            last / first,
            1.2,
            format!("{first:.2} ms at 20 messages, {last:.2} ms at {messages}, in turn"),
        );
        let whole = sizes::of(storage).await.whole as f64;
        if is_last {
            let first = middle_of(&chat.turns[..5]);
            let last = middle_of(&chat.turns[turns - 5..]);
            ratio(
                format!("the last five of {turns} turns, of the first five"),
                last / first,
                1.2,
                format!("medians {first:.2} and {last:.2} ms"),
            );
            let what = format!("bytes of {turns} turns, of those of {}", turns / 2);
            ratio(what, whole / before, 2.1, String::new());
        }
        before = whole;
    }
}

/// The median of values in any order.
fn middle_of(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    quantile(&values, 0.5)
}

/// Memory and the time to start.
pub async fn process_figures(book: &mut Book, storage: &Storage) {
    const JOINS: usize = 500;
    drop(storage.server());
    let (server, name) = (storage.server(), storage.name());
    let healthy = server.healthy();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let idle = server.resident() as f64;
    book.add(
        format!("{name}: memory of an idle server"),
        idle / 1e6,
        "MB",
        Goal::AtMost(25.0),
        String::new(),
    );
    book.add(
        format!("{name}: start to listening"),
        server.start.as_secs_f64() * 1000.0,
        "ms",
        Goal::AtMost(100.0),
        "a database that is there".to_owned(),
    );
    book.add(
        format!("{name}: start to healthy"),
        healthy.as_secs_f64() * 1000.0,
        "ms",
        Goal::AtMost(100.0),
        "`/ok` answers 200".to_owned(),
    );
    drop(workloads::joins(&server.address, 20).await);
    let before = server.resident() as f64;
    let open = workloads::joins(&server.address, JOINS).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let each = (server.resident() as f64 - before) / open.len() as f64;
    book.add(
        format!("{name}: memory of an open stream"),
        each / 1024.0,
        "KiB",
        Goal::AtMost(20.0),
        format!("{JOINS} of one run"),
    );
}

/// Transactions of runs, one after the other.
pub async fn commits(book: &mut Book, storage: &Storage) {
    let Place::Postgres(scratch) = &storage.place else {
        return;
    };
    let server = storage.server();
    let count = || {
        // What backends report arrives with a delay.
        std::thread::sleep(Duration::from_millis(1500));
        scratch
            .number("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")
    };
    workloads::seq10(&server.address, 1, Duration::from_secs(1)).await;
    let (begin, start) = (Instant::now(), count());
    let idle = (count() - start) / begin.elapsed().as_secs_f64();
    let (begin, start) = (Instant::now(), count());
    let load = workloads::seq10(&server.address, 1, Duration::from_secs(2)).await;
    let all = count() - start - idle * begin.elapsed().as_secs_f64();
    let each = all / load.latencies.len() as f64;
    book.add(
        "Postgres: transactions of a run of 12 supersteps on a new thread".to_owned(),
        each,
        "",
        Goal::None,
        "reads and the thread's creation among them".to_owned(),
    );
    book.add(
        "Postgres: transactions of a superstep".to_owned(),
        each / SUPERSTEPS,
        "",
        Goal::AtMost(1.0),
        "the same, of each of the twelve".to_owned(),
    );
    let (begin, start) = (Instant::now(), count());
    let runs = workloads::fan_out(&server.address, 100).await.len();
    let all = count() - start - idle * begin.elapsed().as_secs_f64();
    book.add(
        "Postgres: transactions of a run with a superstep of 100 tasks".to_owned(),
        all / runs as f64,
        "",
        Goal::None,
        "reads and the thread's creation among them: none is of a single task".to_owned(),
    );
}

/// Many threads with a run in flight each: what a run takes in memory, and how long others wait beside them.
pub async fn in_flight(book: &mut Book, plan: Plan, storage: &Storage) {
    let runs = plan.in_flight;
    let (server, name) = (storage.server_for(runs), storage.name());
    workloads::seq10(&server.address, 1, Duration::from_millis(500)).await;
    let alone = workloads::seq10(&server.address, 8, plan.span).await;
    let before = server.resident() as f64;
    let begin = Instant::now();
    workloads::sleepers(&server.address, runs, 300.0).await;
    let time = begin.elapsed().as_secs_f64();
    let each = (server.resident() as f64 - before) / runs as f64;
    book.add(
        format!("{name}: memory of a run in flight"),
        each / 1024.0,
        "KiB",
        Goal::None,
        format!("{runs} threads with one run each, begun in {time:.1} s"),
    );
    let beside = workloads::seq10(&server.address, 8, plan.span).await;
    book.add(
        format!("{name}: a run beside {runs} in flight, 99th percentile, 8 clients"),
        beside.quantile(0.99),
        "ms",
        Goal::None,
        format!("{:.1} ms without them", alone.quantile(0.99)),
    );
}

/// The same loads on somebody else's server.
pub async fn measure_peer(book: &mut Book, plan: Plan, name: &str, script: &str) {
    let server = Server::peer(script);
    workloads::seq10(&server.address, 1, Duration::from_secs(1)).await;
    for clients in [1, 8, 64] {
        let before = server.cpu();
        let load = workloads::seq10(&server.address, clients, plan.span).await;
        let cpu = (server.cpu() - before).as_secs_f64() * 1000.0 / load.latencies.len() as f64;
        let note = format!(
            "median {:.1} ms, processor {cpu:.1} ms a run",
            load.quantile(0.5)
        );
        book.add(
            format!("{name}: supersteps/s, {clients} clients"),
            load.runs_per_second * SUPERSTEPS,
            "",
            Goal::None,
            note,
        );
    }
    for (graph, mode) in [
        ("tokens_custom", "custom"),
        ("tokens_msg", "messages-tuple"),
    ] {
        let (events, time) = workloads::tokens(&server.address, graph, mode, plan.span).await;
        book.add(
            format!("{name}: {mode} events/s, 16 streams"),
            events as f64 / time.as_secs_f64(),
            "",
            Goal::None,
            String::new(),
        );
    }
}
