//! Lists of very many threads: a page costs what it returns, and what reads all of them has a limit.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_support::{
    client::Client,
    place::{Place, block_on, serve},
    processor::Taken,
    server::{Server, Setup},
    tables::{connect, file},
    talk::{background, ok, slow, until, with},
};

/// Adds threads with a branch each, changed one second after the other in the past: their own trees, or
/// forks in that of `of`.
fn add(place: &Place, server: &Server, count: usize, of: Option<&str>) {
    match place.url() {
        Some(url) => {
            let tree = of.map_or("n.id".to_owned(), |id| format!("'{id}'::uuid"));
            let sql = format!(
                "CREATE TEMP TABLE n AS SELECT i, gen_random_uuid() AS id, gen_random_uuid() AS branch FROM generate_series(1, {count}) i;
                 INSERT INTO trees (tree_id, owner) SELECT DISTINCT {tree}, 'local' FROM n ON CONFLICT DO NOTHING;
                 INSERT INTO threads (thread_id, tree_id, parent_thread_id, active_branch_id, owner, created_at, updated_at)
                 SELECT id, {tree}, NULLIF({tree}, id), branch, 'local', now() - interval '9 days' + i * interval '1 second',
                        now() - interval '9 days' + i * interval '1 second' FROM n;
                 INSERT INTO branches (tree_id, branch_id, thread_id, name, origin, updated_at)
                 SELECT {tree}, branch, id, 'main', 'root', now() - interval '9 days' + i * interval '1 second' FROM n"
            );
            block_on(async { connect(url).await.batch_execute(&sql).await }).unwrap();
        }
        None => {
            let tree = of.map_or("id".to_owned(), |id| format!("x'{}'", id.replace('-', "")));
            let at = "unixepoch() * 1000000 - 777600000000 + i * 1000000";
            let db = rusqlite::Connection::open(file(server)).unwrap();
            db.execute_batch(&format!(
                "BEGIN; CREATE TEMP TABLE n AS WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < {count})
                   SELECT i, randomblob(16) AS id, randomblob(16) AS branch FROM c;
                 INSERT OR IGNORE INTO trees (tree_id, owner, created_at) SELECT DISTINCT {tree}, 'local', 0 FROM n;
                 INSERT INTO threads (thread_id, tree_id, parent_thread_id, active_branch_id, owner, created_at, updated_at)
                 SELECT id, {tree}, nullif({tree}, id), branch, 'local', {at}, {at} FROM n;
                 INSERT INTO branches (tree_id, branch_id, thread_id, name, origin, created_at, updated_at)
                 SELECT {tree}, branch, id, 'main', 'root', {at}, {at} FROM n; COMMIT"
            ))
            .unwrap();
        }
    }
}

/// Lets so many threads that changed before all others wait.
fn wait(place: &Place, server: &Server, count: usize) {
    let sql = format!(
        "UPDATE branches SET outcome = 'interrupted' WHERE branch_id IN
           (SELECT active_branch_id FROM threads ORDER BY updated_at LIMIT {count})"
    );
    match place.url() {
        Some(url) => block_on(async { connect(url).await.batch_execute(&sql).await }).unwrap(),
        None => {
            let db = rusqlite::Connection::open(file(server)).unwrap();
            db.execute_batch(&sql).unwrap();
        }
    }
}

fn search(client: &Client, body: &Value) -> Vec<Value> {
    let answer = client.post("/threads/search", body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json().as_array().unwrap().clone()
}

/// How often a request is sent to each of two servers before one of them is said to work too much.
const TRIES: usize = 60;

/// A server whose work is compared.
type Compared<'a> = (&'a Place, &'a Server, &'a Client);

/// The request takes at most `times` as much of a processor on the second server as on the first, each by the least of
/// several tries that alternate: servers do other things too. The time until the response is not compared: on a busy
/// machine a long request is interrupted more often than a short one.
fn compare(what: &str, servers: [Compared; 2], times: u32, request: impl Fn(&Client)) {
    let mut least = [Duration::MAX; 2];
    for tries in 1..=TRIES {
        for ((place, server, client), least) in servers.iter().zip(&mut least) {
            let before = Taken::by(place, server);
            request(client);
            *least = Taken::by(place, server).since(&before).min(*least);
        }
        if tries >= 5 && least[1] <= least[0] * times {
            println!("{what}: {least:?}");
            return;
        }
    }
    panic!("{what}: {least:?}, more than {times} times as much");
}

/// A server with so many threads, and two that are newer than these.
struct Listed {
    server: Server,
    client: Client,
    newest: String,
    before: String,
}

impl Listed {
    fn new(place: &Place, threads: usize) -> Self {
        let (server, client) = serve(place);
        add(place, &server, threads, None);
        let newest = client.thread();
        let before = client.thread();
        Self {
            server,
            client,
            newest,
            before,
        }
    }
}

fn pages_of_many_threads_cost_what_they_return(place: &Place) {
    let less = place.another();
    let few = Listed::new(&less, 5_000);
    let many = Listed::new(place, 50_000);
    // A run that goes on makes its thread the newest with every superstep.
    let [_, run] = [&few, &many].map(|on| background(&on.client, &on.newest, &slow(200, 2)));
    let client = many.client;
    let same = |what: &str, request: &dyn Fn(&Client)| {
        let servers = [
            (&less, &few.server, &few.client),
            (place, &many.server, &client),
        ];
        compare(what, servers, 3, request);
    };
    for (sort_by, sort_order) in [
        ("updated_at", "desc"),
        ("updated_at", "asc"),
        ("created_at", "desc"),
        ("created_at", "asc"),
        ("thread_id", "asc"),
    ] {
        let body = json!({"limit": 1, "sort_by": sort_by, "sort_order": sort_order});
        same(&format!("{sort_by} {sort_order}"), &|client| {
            assert_eq!(search(client, &body).len(), 1);
        });
    }
    for status in ["busy", "interrupted", "error"] {
        let body = json!({"limit": 10, "status": status});
        same(&format!("threads that are {status}"), &|client| {
            assert!(search(client, &body).len() <= 1);
        });
        same(&format!("how many are {status}"), &|client| {
            ok(client.post("/threads/count", &body), 200);
        });
    }
    assert_eq!(client.end_of(&many.newest, &run), "success");
    let oldest = json!({"limit": 1, "sort_by": "state_updated_at", "sort_order": "asc"});
    same("the oldest state", &|client| {
        assert_eq!(search(client, &oldest).len(), 1);
    });
    // More than a thousand wait, and all of them changed before the others did.
    wait(&less, &few.server, 1_500);
    wait(place, &many.server, 1_500);
    for (by, order) in [("updated_at", "desc"), ("status", "desc")] {
        let waiting =
            json!({"limit": 10, "status": "interrupted", "sort_by": by, "sort_order": order});
        same(&format!("of many that wait by {by}"), &|client| {
            assert_eq!(search(client, &waiting).len(), 10);
        });
    }
    let by_status = json!({"limit": 10, "sort_by": "status", "sort_order": "desc"});
    same("those that wait before the others", &|client| {
        let found = search(client, &by_status);
        assert_eq!(found.len(), 10);
        assert!(found.iter().all(|thread| thread["status"] == "interrupted"));
    });
    let first = search(
        &client,
        &json!({"limit": 3, "sort_by": "updated_at", "sort_order": "desc"}),
    );
    let ids: Vec<&str> = first
        .iter()
        .map(|row| row["thread_id"].as_str().unwrap())
        .collect();
    assert_eq!(ids[..2], [&*many.newest, &*many.before]);
    // Pages follow each other, and the last is where the first of the other order is.
    let page = |offset: usize, order: &str| {
        let body =
            json!({"limit": 2, "offset": offset, "sort_by": "updated_at", "sort_order": order});
        let rows = search(&client, &body);
        rows.iter()
            .map(|row| row["thread_id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(page(1, "desc")[1], ids[2]);
    let mut last = page(50_000, "desc");
    last.reverse();
    assert_eq!(page(0, "asc"), last);
}

#[test]
fn pages_of_many_threads_cost_what_they_return_on_sqlite() {
    pages_of_many_threads_cost_what_they_return(&Place::sqlite());
}

#[test]
fn pages_of_many_threads_cost_what_they_return_on_postgres() {
    pages_of_many_threads_cost_what_they_return(&Place::postgres());
}

fn the_newest_of_many_forks_is_found_at_once(place: &Place) {
    let less = place.another();
    let [(few_server, few, ..), (server, client, root, alone)] =
        [(&less, 600), (place, 6000)].map(|(place, forks)| {
            let (server, client) = serve(place);
            let root = client.thread();
            add(place, &server, forks, Some(&root));
            let alone = client.thread();
            (server, client, root, alone)
        });
    let body =
        json!({"limit": 10, "mode": "latest-fork", "sort_by": "updated_at", "sort_order": "desc"});
    let newest_of = |client: &Client, body: &Value| -> Vec<String> {
        let rows = search(client, body);
        rows.iter()
            .map(|row| row["thread_id"].as_str().unwrap().to_owned())
            .collect()
    };
    let newest = |body: &Value| newest_of(&client, body);
    assert_eq!(newest(&body), [alone.clone(), root]);
    // Ten times the forks may take ten times as long: with each of them compared with each it was a hundred times.
    let servers = [(&less, &few_server, &few), (place, &server, &client)];
    compare("the newest of all forks", servers, 12, |client| {
        assert_eq!(newest_of(client, &body).len(), 2);
    });
    // A run makes its thread the newest of its family while it goes on.
    let forks = search(
        &client,
        &json!({"limit": 1, "sort_by": "updated_at", "sort_order": "asc"}),
    );
    let oldest = forks[0]["thread_id"].as_str().unwrap();
    let run = background(&client, oldest, &slow(300, 3));
    until("the run's thread is the newest of its family", || {
        newest(&body).contains(&oldest.to_owned())
    });
    assert_eq!(client.end_of(oldest, &run), "success");
    assert_eq!(newest(&body), [oldest.to_owned(), alone]);
}

#[test]
fn the_newest_of_many_forks_is_found_at_once_on_sqlite() {
    the_newest_of_many_forks_is_found_at_once(&Place::sqlite());
}

#[test]
fn the_newest_of_many_forks_is_found_at_once_on_postgres() {
    the_newest_of_many_forks_is_found_at_once(&Place::postgres());
}

#[test]
fn a_search_that_takes_too_long_is_ended_once() {
    let place = Place::postgres();
    let server = place.start(Setup::example("reference_server").env("BACKSTITCH_READ_LIMIT", "3"));
    let client = Client::of(&server);
    client.thread();
    // Every thread takes its time.
    let takes = |seconds: f64| {
        let sql = format!(
            "ALTER TABLE threads RENAME TO real_threads;
             CREATE VIEW threads AS SELECT r.* FROM real_threads r, LATERAL (SELECT pg_sleep({seconds}) IS NULL AND r.thread_id IS NULL AS no OFFSET 0) s WHERE NOT s.no"
        );
        block_on(async {
            connect(place.url().unwrap())
                .await
                .batch_execute(&sql)
                .await
        })
        .unwrap();
    };
    takes(0.05);
    let search = json!({"limit": 1, "sort_by": "status"});
    let rows = ok(client.post("/threads/search", &search), 200);
    assert_eq!(rows.as_array().unwrap().len(), 1);
    let drop = "DROP VIEW threads; ALTER TABLE real_threads RENAME TO threads";
    block_on(async {
        connect(place.url().unwrap())
            .await
            .batch_execute(drop)
            .await
    })
    .unwrap();
    takes(27.0);
    let begin = Instant::now();
    client.post("/threads/search", &search).refused(503);
    let took = begin.elapsed().as_millis();
    assert!(
        (2_900..8_700).contains(&took),
        "{took} ms: it was not ended, or tried again"
    );
}

#[test]
fn a_search_that_reads_one_state_after_another_is_ended_too() {
    let place = Place::postgres();
    let setup = Setup::example("reference_server").env("BACKSTITCH_SEARCH_LIMIT", "3");
    let server = place.start(setup);
    let client = Client::of(&server);
    for _ in 0..12 {
        let thread = client.thread();
        let edit = json!({"values": {"request": "r"}, "as_node": "__start__"});
        let approve = json!({"assistant_id": "approve", "input": {"request": "r"}});
        client.run(&thread, &approve);
        ok(client.post(&format!("/threads/{thread}/state"), &edit), 200);
    }
    let body = json!({"values": {"request": "r"}, "limit": 100});
    let found = ok(client.post("/threads/search", &body), 200);
    assert_eq!(found.as_array().unwrap().len(), 12);
    // Every checkpoint takes its time, and nobody has it in memory.
    let sql = "ALTER TABLE checkpoints RENAME TO real_checkpoints;
         CREATE VIEW checkpoints AS SELECT r.* FROM real_checkpoints r, LATERAL (SELECT pg_sleep(1) IS NULL AND r.thread_id IS NULL AS no OFFSET 0) s WHERE NOT s.no";
    block_on(async { connect(place.url().unwrap()).await.batch_execute(sql).await }).unwrap();
    let begin = Instant::now();
    let detail = client.post("/threads/search", &body).refused(503);
    assert!(detail.contains("ask for less at once"), "{detail}");
    let detail = client.post("/threads/count", &body).refused(503);
    assert!(detail.contains("ask for less at once"), "{detail}");
    let took = begin.elapsed().as_millis();
    assert!(
        (5_900..20_000).contains(&took),
        "{took} ms for two searches"
    );
}

fn threads_of_a_status_that_few_have_are_those_of_the_whole_list(place: &Place) {
    let (_server, client) = serve(place);
    for _ in 0..20 {
        client.thread();
    }
    let mut open = vec![];
    for _ in 0..3 {
        let thread = client.thread();
        let approve = json!({"assistant_id": "approve", "input": {"request": "r"}});
        client.run(&thread, &approve);
        let thread = client.thread();
        let fails = background(
            &client,
            &thread,
            &json!({"assistant_id": "failing", "input": {"fail": true}}),
        );
        assert_eq!(client.end_of(&thread, &fails), "error");
        let thread = client.thread();
        open.push(client.open_stream(&thread, &slow(100, 6000)));
        // A thread waits while another branch of it does not.
        let later = with(slow(1, 1), "after_seconds", 3600);
        background(&client, &client.thread(), &later);
    }
    let search = |body: Value| search(&client, &with(body, "limit", 100));
    for sort in [
        "thread_id",
        "status",
        "created_at",
        "updated_at",
        "state_updated_at",
    ] {
        for order in ["asc", "desc"] {
            let sorted = json!({"sort_by": sort, "sort_order": order});
            let ids = |threads: &[Value]| -> Vec<Value> {
                threads
                    .iter()
                    .map(|thread| thread["thread_id"].clone())
                    .collect()
            };
            for status in ["interrupted", "error", "busy", "idle"] {
                let all = search(sorted.clone());
                let has = |thread: &&Value| thread["status"] == status;
                let expected: Vec<_> = all.iter().filter(has).cloned().collect();
                assert!(expected.len() >= 3, "{status}");
                let filtered = with(sorted.clone(), "status", status);
                let found = search(filtered.clone());
                // The times of threads that are executed move on.
                let stands = status != "busy" || !sort.ends_with("updated_at");
                if stands {
                    assert_eq!(ids(&found), ids(&expected), "{sort} {order} {status}");
                }
                assert_eq!(found.len(), expected.len());
                if stands {
                    let second = search(with(filtered, "offset", 1));
                    assert_eq!(ids(&second), ids(&expected)[1..]);
                }
                let count = client.post("/threads/count", &json!({"status": status}));
                assert_eq!(ok(count, 200), expected.len());
            }
        }
    }
}

#[test]
fn threads_of_a_status_that_few_have_are_those_of_the_whole_list_on_sqlite() {
    threads_of_a_status_that_few_have_are_those_of_the_whole_list(&Place::sqlite());
}

#[test]
fn threads_of_a_status_that_few_have_are_those_of_the_whole_list_on_postgres() {
    threads_of_a_status_that_few_have_are_those_of_the_whole_list(&Place::postgres());
}

/// What SQLite counts in a part of a second, and in minutes.
const FEW: u64 = 1_000;
const MANY: u64 = 1 << 32;

/// The same on SQLite, where nothing waits: every read of assistants counts to so many first.
#[test]
fn a_read_of_sqlite_that_takes_too_long_is_ended() {
    let setup = Setup::example("reference_server").env("BACKSTITCH_READ_LIMIT", "3");
    let place = Place::sqlite();
    let server = place.start(setup);
    let client = Client::of(&server);
    let db = rusqlite::Connection::open(file(&server)).unwrap();
    let rename = "PRAGMA legacy_alter_table = ON; ALTER TABLE assistants RENAME TO real_assistants";
    db.execute_batch(rename).unwrap();
    let counts = |most: u64| {
        let sql = format!(
            "DROP VIEW IF EXISTS assistants;
             CREATE VIEW assistants AS SELECT * FROM real_assistants WHERE (WITH RECURSIVE c (i) AS
               (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < {most}) SELECT count(*) FROM c) > 0"
        );
        db.execute_batch(&sql).unwrap();
    };
    let search = json!({"graph_id": "agent"});
    counts(FEW);
    let rows = ok(client.post("/assistants/search", &search), 200);
    assert_eq!(rows.as_array().unwrap().len(), 1);
    counts(MANY);
    let begin = Instant::now();
    let refused = client.post("/assistants/search", &search).refused(503);
    let took = begin.elapsed().as_millis();
    assert!(
        refused.contains("longer than this server allows"),
        "{refused}"
    );
    assert!(
        (3_000..8_700).contains(&took),
        "{took} ms: it was not ended, or tried again"
    );
}

/// The same on SQLite, where each read of checkpoints waits.
#[test]
fn a_search_of_sqlite_that_reads_one_state_after_another_is_ended_too() {
    let setup = Setup::example("reference_server").env("BACKSTITCH_SEARCH_LIMIT", "3");
    let mut server = Place::sqlite().start(setup);
    let client = Client::of(&server);
    for _ in 0..12 {
        let approve = json!({"assistant_id": "approve", "input": {"request": "r"}});
        client.run(&client.thread(), &approve);
    }
    let body = json!({"values": {"request": "r"}, "limit": 100});
    for (milliseconds, ends) in [(0, true), (1_000, false)] {
        let wait = format!("checkpoints::page=sleep({milliseconds})");
        server.restart_with("FAILPOINTS", &wait);
        let client = Client::of(&server);
        for path in ["/threads/search", "/threads/count"] {
            let begin = Instant::now();
            let answer = client.post(path, &body);
            if ends {
                ok(answer, 200);
            } else {
                let detail = answer.refused(503);
                assert!(detail.contains("ask for less at once"), "{detail}");
                let took = begin.elapsed().as_millis();
                assert!((3_000..10_500).contains(&took), "{took} ms");
            }
        }
    }
}
