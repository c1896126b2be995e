//! Bodies over HTTP/2 that nobody reads, since their requests wait for their turn: what is in the windows of their
//! connections takes memory of the budget. How requests come to wait has nothing to do with the storage.

use bytes::Bytes;
use futures::FutureExt;
use futures::future::join_all;
use http::Request;
use serde_json::json;
use test_support::client::Client;
use test_support::place::Place;
use test_support::server::{Server, Setup};
use test_support::talk::{ok, until};
use tokio::runtime::Builder;

use crate::http2::Connection;
use crate::locks::{Locked, locked, patient, waiting};
use crate::requests::PATIENT;
use crate::siege::{MIB, Watch};

/// What waits for the lock of [`stuck`].
const COUNT: &str = "/assistants/count";

/// A server at which every count of assistants waits until the lock is dropped.
fn stuck(place: &Place, setup: Setup) -> (Server, Locked) {
    let setup = setup.env("BACKSTITCH_READ_LIMIT", "60");
    let server = setup.env("DATABASE_URL", patient(place)).start();
    let lock = "LOCK TABLE assistants IN ACCESS EXCLUSIVE MODE";
    let locked = locked(place.url().unwrap(), lock);
    (server, locked)
}

/// Connections, each with two bodies of half its window.
const CONNECTIONS: usize = 600;

#[test]
fn bodies_that_wait_for_their_turn_take_memory_of_the_budget() {
    let place = Place::postgres();
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_MEMORY_BUDGET", "192")
        .env("BACKSTITCH_REQUESTS", "2")
        .env(PATIENT.0, PATIENT.1);
    let (server, locked) = stuck(&place, setup);
    let client = Client::of(&server);
    std::thread::scope(|scope| {
        let counts = [(); 2].map(|()| scope.spawn(|| client.post(COUNT, &json!({}))));
        until("no more are worked on", || waiting(&place) == 2);
        // Nobody else is served while all slots are taken.
        let watch = Watch::probing(&server);
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (mut open, mut refused) = (vec![], 0);
        runtime.block_on(async {
            for _ in 0..CONNECTIONS {
                let mut connection = Connection::open(&server, 65_535).await;
                let mut streams = vec![];
                for _ in 0..2 {
                    let uri = format!("{}/threads", server.base_url());
                    let request = Request::post(uri).body(()).unwrap();
                    let mut ready = connection.send.clone().ready().await.unwrap();
                    let (response, mut body) = ready.send_request(request, false).unwrap();
                    // It fails where the request was refused already.
                    body.send_data(Bytes::from(vec![b' '; 128 << 10]), false)
                        .ok();
                    streams.push((response, body));
                }
                connection.is_read().await;
                open.push((connection, streams));
            }
            for (_, streams) in &mut open {
                for (response, _) in streams {
                    if let Some(response) = response.now_or_never() {
                        assert_eq!(response.unwrap().status(), 503);
                        refused += 1;
                    }
                }
            }
        });
        watch.held("bodies that wait for their turn", 110 * MIB);
        let waits = 2 * CONNECTIONS - refused;
        println!("{waits} bodies wait");
        assert!(waits >= 100, "{waits} wait: their memory is there");
        open.truncate(1);
        drop(locked);
        for count in counts {
            ok(count.join().unwrap(), 200);
        }
        // Those that were not refused are carried out once their bodies are whole.
        runtime.block_on(async {
            let (_, streams) = &mut open[0];
            let ends = streams.iter_mut().map(|(response, body)| {
                body.send_data(Bytes::from_static(b"{}"), true).unwrap();
                response
            });
            for response in join_all(ends).await {
                assert_eq!(response.unwrap().status(), 200);
            }
        });
    });
}
