//! A disk that is full for a while under a server with runs.

use std::process::Command;

use crate::run_ahead::{is_complete, supersteps};
use serde_json::{Value, json};
use test_support::{
    client::Client,
    place::{Place, block_on},
    programs,
    server::{Server, Setup},
    tables::connect,
    talk::{background, until},
};

/// Whether the disk takes anything more.
trait Disk {
    fn fill(&self, server: &Server);
    fn free(&self, server: &Server);
}

/// No file of the server may grow beyond what the first page of a database needs.
struct FileLimit;

impl FileLimit {
    fn set(server: &Server, limit: &str) {
        let pid = format!("--pid={}", server.pid());
        // The hard limit stays, so that the soft one can be raised again.
        let limit = format!("--fsize={limit}:");
        // `prlimit` comes with util-linux.
        let status = Command::new("prlimit").args([pid, limit]).status();
        let status = status.unwrap();
        assert!(status.success());
    }
}

impl Disk for FileLimit {
    fn fill(&self, server: &Server) {
        Self::set(server, "4096");
    }

    fn free(&self, server: &Server) {
        Self::set(server, "unlimited");
    }
}

/// Postgres answers every write as it does when its disk is full.
struct Refusal<'a>(&'a str);

impl Refusal<'_> {
    fn execute(&self, sql: &str) {
        block_on(async { connect(self.0).await.batch_execute(sql).await }).unwrap();
    }
}

impl Disk for Refusal<'_> {
    fn fill(&self, _: &Server) {
        let refuse = |table: &str| {
            format!(
                "CREATE TRIGGER disk_is_full BEFORE INSERT OR UPDATE ON {table} \
                 FOR EACH STATEMENT EXECUTE FUNCTION refuse();"
            )
        };
        let tables = [
            "branches",
            "checkpoint_blobs",
            "checkpoint_writes",
            "checkpoints",
            "disk_probe",
            "events",
            "runs",
            "threads",
        ];
        self.execute(&format!(
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; \
             END $$; {}",
            tables.map(refuse).join(" ")
        ));
    }

    fn free(&self, _: &Server) {
        self.execute("DROP FUNCTION refuse() CASCADE");
    }
}

fn slow(ms: u64, durability: &str) -> Value {
    json!({
        "assistant_id": "slow",
        "input": {"ms": ms, "ticks": 3},
        "stream_mode": ["values", "custom"],
        "durability": durability,
    })
}

/// A server without the wrapper would be ended by the signal of the limit.
fn setup(example: &str) -> Setup {
    let program = programs::example(example);
    Setup::program("/bin/sh")
        .arg("-c")
        .arg("trap '' XFSZ; exec \"$0\"")
        .arg(program.to_str().unwrap())
}

fn a_full_disk_ends_no_run(place: &Place, disk: &dyn Disk) {
    let server = place.start(setup("reference_server"));
    let client = Client::of(&server);
    let ready = || client.get("/ready").status;
    assert_eq!(ready(), 200);
    let threads: Vec<String> = (0..4).map(|_| client.thread()).collect();
    let mut open = client.open_stream(&threads[0], &slow(1500, "sync"));
    open.event_named("custom");
    let mut runs = vec![open.run()];
    for (thread, durability) in threads[1..].iter().zip(["async", "exit", "async"]) {
        runs.push(background(&client, thread, &slow(1500, durability)));
    }
    // One more waits behind a run.
    let behind = background(&client, &threads[3], &slow(1, "async"));

    disk.fill(&server);
    until("the server is not ready", || ready() == 503);
    let full = client.get("/ready");
    assert!(full.refused(503).contains("database") && full.header("retry-after").is_some());
    for answer in [
        client.post("/threads", &json!({})),
        client.post(&format!("/threads/{}/runs", threads[0]), &slow(1, "sync")),
    ] {
        answer.refused(503);
    }
    // The nodes are through, and nothing of what they do can be stored.
    until("runs meet the full disk", || {
        let lost = server.output();
        lost.matches("the storage was lost").count() + lost.matches("could not be stored").count()
            >= 4
    });
    for (thread, run) in threads.iter().zip(&runs) {
        let row = client.get(&format!("/threads/{thread}/runs/{run}")).json();
        assert_eq!(row["status"], "running", "{row}");
    }
    assert_eq!(ready(), 503);

    disk.free(&server);
    until("the server is ready again", || ready() == 200);
    for (thread, run) in threads.iter().zip(&runs) {
        assert_eq!(client.end_of(thread, run), "success");
    }
    assert_eq!(client.end_of(&threads[3], &behind), "success");
    for thread in &threads[..3] {
        let seen = client.state(thread)["values"]["seen"].clone();
        assert_eq!(seen, json!(["work", "rest"]));
    }
    // Who waited all the time is shown the end, and no failure.
    let rest = String::from_utf8(open.rest()).unwrap();
    assert!(!rest.contains("event: error"), "{rest}");
}

#[test]
fn a_full_disk_ends_no_run_on_sqlite() {
    a_full_disk_ends_no_run(&Place::sqlite(), &FileLimit);
}

#[test]
fn a_full_disk_ends_no_run_on_postgres() {
    let place = Place::postgres();
    let url = place.url().unwrap().to_owned();
    a_full_disk_ends_no_run(&place, &Refusal(&url));
}

/// More supersteps than one transaction may have wait when it fills.
fn a_disk_that_fills_between_two_transactions_of_a_run_loses_no_superstep(
    place: &Place,
    disk: &dyn Disk,
) {
    let server = place.start(setup("faulty_server").env("BACKSTITCH_LEASE", "2"));
    let client = Client::of(&server);
    let thread = client.thread();
    let mut open = client.open_stream(&thread, &supersteps(1000, json!({"pause": 3})));
    let run = open.run();
    for _ in 0..50 {
        open.event_named("updates");
    }
    disk.fill(&server);
    until("the run meets the full disk", || {
        let output = server.output();
        output.contains("the storage was lost") || output.contains("could not be stored")
    });
    let row = client.get(&format!("/threads/{thread}/runs/{run}")).json();
    assert_eq!(row["status"], "running", "{row}");
    disk.free(&server);
    // With its limit of supersteps.
    let patience = std::time::Duration::from_secs(60);
    assert_eq!(client.end_within(&thread, &run, patience), "error");
    is_complete(place, &server, 1000);
}

#[test]
fn a_disk_that_fills_between_two_transactions_of_a_run_loses_no_superstep_on_sqlite() {
    let place = Place::sqlite();
    a_disk_that_fills_between_two_transactions_of_a_run_loses_no_superstep(&place, &FileLimit);
}

#[test]
fn a_disk_that_fills_between_two_transactions_of_a_run_loses_no_superstep_on_postgres() {
    let place = Place::postgres();
    let url = place.url().unwrap().to_owned();
    let disk = Refusal(&url);
    a_disk_that_fills_between_two_transactions_of_a_run_loses_no_superstep(&place, &disk);
}
