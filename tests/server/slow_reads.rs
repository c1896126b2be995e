//! A run whose reads take longer than `BACKSTITCH_READ_LIMIT`: it is attempted again after pauses, and cancelled at once.

use std::time::Duration;

use test_support::{
    client::Client,
    place::Place,
    server::{Server, Setup},
    tables::connect,
    talk::{background, ok, say, turn, until},
};
use tokio::runtime::{Builder, Runtime};

/// What the log has for each read that took too long.
const SLOW: &str = "a read of the run took longer than it may";

/// A transaction in which nobody else can read the values of states.
struct Unreadable {
    _client: tokio_postgres::Client,
    _runtime: Runtime,
}

impl Unreadable {
    fn values(place: &Place) -> Self {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let client = connect(place.url().unwrap()).await;
            let lock = "BEGIN; LOCK TABLE checkpoint_blobs IN ACCESS EXCLUSIVE MODE";
            client.batch_execute(lock).await.unwrap();
            client
        });
        Self {
            _client: client,
            _runtime: runtime,
        }
    }
}

/// A server whose statements wait for locks as long as a read may take, and has nothing of a thread in memory.
fn with_a_thread(place: &Place) -> (Server, Client, String) {
    let url = place.url().unwrap();
    let mark = if url.contains('?') { '&' } else { '?' };
    let mut server = Setup::example("reference_server")
        .env(
            "DATABASE_URL",
            format!("{url}{mark}options=-c%20lock_timeout%3D0"),
        )
        .env("BACKSTITCH_READ_LIMIT", "1")
        .start();
    let client = Client::of(&server);
    let thread = client.thread();
    say(&client, &thread, "hello");
    server.restart();
    let client = Client::of(&server);
    (server, client, thread)
}

/// How many reads took too long.
fn slow_reads(server: &Server) -> usize {
    server.output().matches(SLOW).count()
}

#[test]
fn a_run_whose_read_takes_too_long_is_attempted_again_after_a_pause_and_goes_on() {
    let place = Place::postgres();
    let (server, client, thread) = with_a_thread(&place);
    let locked = Unreadable::values(&place);
    let run = background(&client, &thread, &turn("again"));
    until("a read has taken too long", || slow_reads(&server) > 0);
    // The pause is longer than this.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(slow_reads(&server), 1, "{}", server.output());
    let row = client.get(&format!("/threads/{thread}/runs/{run}")).json();
    assert_eq!(row["status"], "running");
    drop(locked);
    assert_eq!(client.end_of(&thread, &run), "success");
    let messages = client.state(&thread)["values"]["messages"].clone();
    assert_eq!(messages.as_array().unwrap().len(), 4, "{messages}");
}

#[test]
fn a_run_that_is_cancelled_while_its_reads_take_too_long_ends_at_once() {
    let place = Place::postgres();
    let (server, client, thread) = with_a_thread(&place);
    let locked = Unreadable::values(&place);
    let run = background(&client, &thread, &turn("again"));
    // The second pause is of ten seconds, the third of twenty.
    until("reads have taken too long", || slow_reads(&server) > 2);
    let path = format!("/threads/{thread}/runs/{run}");
    let cancelled = client.post(&format!("{path}/cancel"), &serde_json::json!({}));
    assert!(cancelled.status < 300, "{}", cancelled.text());
    let begin = std::time::Instant::now();
    until("the run has ended", || {
        ok(client.get(&path), 200)["status"] == "interrupted"
    });
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_eq!(slow_reads(&server), 3, "{}", server.output());
    drop(locked);
    // What was said before is there, and the thread takes the next run.
    say(&client, &thread, "once more");
    let messages = client.state(&thread)["values"]["messages"].clone();
    let messages = messages.as_array().unwrap();
    assert_eq!(messages[0]["content"], "hello");
}
