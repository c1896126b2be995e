//! Several builds of `bench_server` in turn: what changes brought, on a machine whose speed is not the same all the time.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    Book, Place, Plan, SUPERSTEPS, Storage, measures,
    page::{Figure, Goal},
    process, workloads,
};

const PLAN: Plan = Plan {
    span: Duration::from_secs(2),
    rounds: 3,
    turns: 1000,
    reads: 100,
    in_flight: 0,
};

/// Prints what the builds at `others` and this one measure: medians of rounds in which each has its turn.
pub async fn builds(only: &str, others: &[PathBuf]) {
    let mut programs = others.to_vec();
    programs.push(process::own_build());
    let names: Vec<_> = others
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    println!(
        "| figure | {} | this one | of the first |",
        names.join(" | ")
    );
    println!("|---|{}", "---|".repeat(programs.len() + 1));
    if only != "postgres" {
        rows(&programs, Storage::sqlite).await;
    }
    if only != "sqlite" {
        match std::env::var("TEST_DATABASE_URL") {
            Ok(url) => rows(&programs, |program| Storage::postgres(&url, program)).await,
            Err(_) => println!("Postgres was not measured: set TEST_DATABASE_URL"),
        }
    }
}

/// The rows of one storage.
async fn rows(programs: &[PathBuf], storage: impl Fn(&Path) -> Storage) {
    let mut books: Vec<Vec<Book>> = programs.iter().map(|_| vec![]).collect();
    for round in 0..PLAN.rounds {
        for turn in 0..programs.len() {
            // Every round begins with another one.
            let at = (round + turn) % programs.len();
            let book = figures(round == 0, || storage(&programs[at])).await;
            books[at].push(book);
        }
    }
    for (at, figure) in books[0][0].figures.iter().enumerate() {
        let medians: Vec<f64> = books.iter().map(|of_build| median(of_build, at)).collect();
        let shown: Vec<_> = medians
            .iter()
            .map(|value| measured(figure, *value))
            .collect();
        let share = 100.0 * medians[medians.len() - 1] / medians[0];
        println!("| {} | {} | {share:.0} % |", figure.name, shown.join(" | "));
    }
}

/// What one build does. What does not depend on the machine's speed is counted once.
async fn figures(is_first: bool, storage: impl Fn() -> Storage) -> Book {
    let mut book = Book {
        is_silent: true,
        ..Book::default()
    };
    let fresh = storage();
    loads(&mut book, &fresh).await;
    let (name, server) = (fresh.name(), fresh.server());
    measures::streams(&mut book, PLAN, name, &server).await;
    measures::reads(&mut book, PLAN, name, &server.address).await;
    drop(server);
    measures::chats(&mut book, PLAN, &storage()).await;
    let fresh = storage();
    if is_first && matches!(fresh.place, Place::Postgres(_)) {
        measures::commits(&mut book, &fresh).await;
    }
    book
}

/// Runs of twelve supersteps from several numbers of clients, and the processor time that each takes.
async fn loads(book: &mut Book, storage: &Storage) {
    let (server, name) = (storage.server(), storage.name());
    workloads::seq10(&server.address, 4, Duration::from_millis(500)).await;
    for clients in [1, 8, 64] {
        let (cpu, database) = (server.cpu(), storage.database_cpu());
        let load = workloads::seq10(&server.address, clients, PLAN.span).await;
        let runs = load.latencies.len() as f64;
        let each = |time: Duration| time.as_secs_f64() * 1000.0 / runs;
        let (cpu, database) = (
            each(server.cpu() - cpu),
            each(storage.database_cpu() - database),
        );
        let mut add = |what: &str, value, unit| {
            let name = format!("{name}: {what}, {clients} clients");
            book.add(name, value, unit, Goal::None, String::new());
        };
        add("supersteps/s", load.runs_per_second * SUPERSTEPS, "");
        add("a run, median", load.quantile(0.5), "ms");
        add("a run, 99th percentile", load.quantile(0.99), "ms");
        add("processor of the server a run", cpu, "ms");
        if matches!(storage.place, Place::Postgres(_)) {
            add("processor of the database a run", database, "ms");
        }
    }
}

/// The median of what the books have at one place; those that do not have it are left out.
fn median(books: &[Book], at: usize) -> f64 {
    let figures = books.iter().filter_map(|book| book.figures.get(at));
    let mut values: Vec<f64> = figures.map(|figure| figure.value).collect();
    values.sort_by(f64::total_cmp);
    workloads::quantile(&values, 0.5)
}

/// Another value of a figure, with its unit.
fn measured(figure: &Figure, value: f64) -> String {
    let other = Figure {
        name: String::new(),
        value,
        unit: figure.unit,
        goal: Goal::None,
        note: String::new(),
    };
    other.measured()
}
