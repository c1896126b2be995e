//! Connections of the database that one principal's unfinished responses take.

use serde_json::json;
use test_support::client::{Client, Open};
use test_support::place::{Place, block_on};
use test_support::server::Setup;
use test_support::tables::{connect, rows};
use test_support::talk::{ok, until};

use crate::lists::thread_of_texts;

/// Reads whose statement waits for a lock, in this database and for a client.
const WAITING: &str = "
SELECT count(DISTINCT l.pid)::text FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE NOT l.granted AND a.datname = current_database() AND a.backend_type = 'client backend'";

/// Lists whose rows are still being read have their share of the connections and no more. What
/// reads a table that somebody has locked takes for ever.
#[test]
fn lists_of_one_principal_take_half_of_the_connections_and_others_are_answered() {
    let place = Place::postgres();
    let url = place.url().unwrap();
    let mark = if url.contains('?') { '&' } else { '?' };
    let patient = "options=-c%20lock_timeout%3D0%20-c%20statement_timeout%3D0";
    // Four of them are for reads.
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_CONNECTIONS", "10")
        .env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b");
    let patient_url = format!("{url}{mark}{patient}");
    let server = setup.env("DATABASE_URL", patient_url).start();
    let ann = Client::of(&server).with_key("key-a");
    let bob = Client::of(&server).with_key("key-b");
    let thread = thread_of_texts(&ann, 40, 1 << 19);
    let path = format!("/threads/{thread}/history");
    let open = || ann.open("POST", &path, &[], b"{\"limit\": 1000}");
    let lists: Vec<Open> = (0..6).map(|_| open()).collect();
    assert!(lists.iter().all(|list| list.status == 200));
    let waiting = || rows(&place, &server, WAITING)[0][0].clone().unwrap();
    std::thread::scope(|scope| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let locked = runtime.block_on(async {
            let client = connect(url).await;
            let lock = "BEGIN; LOCK TABLE checkpoint_blobs IN ACCESS EXCLUSIVE MODE";
            client.batch_execute(lock).await.unwrap();
            client
        });
        let read: Vec<_> = lists
            .into_iter()
            .map(|mut list| scope.spawn(move || while list.chunk_or_break().is_some() {}))
            .collect();
        until("the share is taken", || waiting() == "2");
        let refused = scope.spawn(|| ann.post("/threads/count", &json!({})));
        while !refused.is_finished() {
            ok(bob.post("/threads/count", &json!({})), 200);
            assert_eq!(waiting(), "2", "more than the share is taken");
        }
        let refused = refused.join().unwrap();
        assert_eq!(refused.header("retry-after"), Some("1"));
        assert!(refused.refused(429).contains("send fewer at once"));
        block_on(async { locked.batch_execute("COMMIT").await }).unwrap();
        let _entered = runtime.enter();
        drop(locked);
        for list in read {
            // Those that had no connection for too long broke off.
            list.join().unwrap();
        }
    });
    ok(ann.post("/threads/count", &json!({})), 200);
}
