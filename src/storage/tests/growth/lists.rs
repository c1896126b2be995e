//! What pages of lists of threads cost with some threads of one owner and with four times as many: the same, in
//! every order that an index has. Nobody has gathered statistics of the tables.

use std::time::Duration;

use serde_json::json;
use test_support::{
    client::Client,
    place::block_on,
    server::{Server, Setup},
    tables,
};

use super::{
    Exceptions, FACTOR, Measured, Meter, OfPostgres, OfSqlite, SLACK_OF_POSTGRES, SLACK_OF_SQLITE,
    assert_twice, complaints, open_postgres, open_sqlite,
    rooms::ann,
    which::{Test, of_postgres, of_sqlite},
};

use crate::tree::{
    self,
    search::{SortBy, ThreadFilter, ThreadPage},
};

/// Threads of one owner at first.
const FEW: usize = 400;

const ANOTHER_ORDER: &str = "an order that no index has: all are read, as README says";

/// What reads all threads, by what names contain.
const GROWS_IN_POSTGRES: Exceptions = &[
    (
        ANOTHER_ORDER,
        &[
            "postgres::threads::search::SORTED[0]",
            "postgres::threads::search::SORTED[1]",
            "postgres::threads::search::SORTED[2]",
            "postgres::threads::search::SORTED[3]",
        ],
    ),
    (
        "all are counted, as README says",
        &[
            "postgres::threads::search::COUNT[0]",
            "postgres::threads::search::COUNT[1]",
        ],
    ),
];
const GROWS_IN_SQLITE: Exceptions =
    &[(ANOTHER_ORDER, &["all threads/search.rs: *ORDER BY CASE ?4"])];

/// Pages of every order that an index has, and of threads that few others are like.
fn pages(client: &Client) {
    for sort_by in ["updated_at", "created_at", "thread_id"] {
        for sort_order in ["asc", "desc"] {
            let body = json!({"limit": 9, "sort_by": sort_by, "sort_order": sort_order});
            let found = client.post("/threads/search", &body);
            assert_eq!(found.json().as_array().unwrap().len(), 9);
        }
        let rare = json!({"limit": 9, "sort_by": sort_by, "metadata": {"user": "rare"}});
        let found = client.post("/threads/search", &rare);
        assert_eq!(found.json().as_array().unwrap().len(), 9);
    }
    for metadata in [json!({}), json!({"user": "rare"})] {
        let count = client.post("/threads/count", &json!({"metadata": metadata}));
        assert!(count.json().as_u64().unwrap() > 9);
    }
}

/// Pages of an order that no index has, also of some threads. Where 2,000 threads decide about it, no request reads all.
async fn sorted<S: tree::Store>(store: &S) {
    for principal in [None, Some(ann())] {
        let page = |ids, ascending| ThreadPage {
            filter: ThreadFilter {
                ids,
                principal: principal.clone(),
                ..ThreadFilter::default()
            },
            sort_by: SortBy::StateUpdatedAt,
            ascending,
            limit: 9,
            ..ThreadPage::default()
        };
        for ascending in [false, true] {
            let found = store.search(page(None, ascending)).await.unwrap();
            let ids: Vec<_> = found.iter().map(|one| one.thread.id).collect();
            let some = store.search(page(Some(ids), ascending)).await.unwrap();
            assert_eq!((found.len(), some.len()), (9, 9));
        }
    }
}

/// Adds so many threads of Ann and twice as many of Bob, of which ten are shared with Ann.
/// Twelve of the first ones have a label.
fn threads(numbers: &str, at: &str, [id, json]: [&str; 2], is_first: bool) -> String {
    let labelled = if is_first { 36 } else { 0 };
    format!(
        "CREATE TEMP TABLE n AS SELECT i, CASE WHEN i % 3 = 0 THEN 'ann' ELSE 'bob' END AS owner, {at} AS at, {id} AS id, {id} AS branch
           FROM ({numbers}) c;
         INSERT INTO trees (tree_id, owner, created_at) SELECT id, owner, at FROM n;
         INSERT INTO tree_members (tree_id, principal, level) SELECT id, 'ann', 'reader' FROM n WHERE i IN (1, 2, 4, 5, 7);
         INSERT INTO threads (thread_id, tree_id, active_branch_id, owner, metadata, created_at, updated_at)
         SELECT id, id, branch, owner, CASE WHEN owner = 'ann' AND i <= {labelled} THEN '{{\"user\":\"rare\"}}' ELSE '{{\"user\":\"other\"}}' END{json}, at, at FROM n;
         INSERT INTO branches (tree_id, branch_id, thread_id, name, origin, created_at, updated_at)
         SELECT id, branch, id, 'main', 'root', at, at FROM n"
    )
}

/// What pages cost with keys and without, first with few threads and then with many; `add` adds so many.
fn measure<S: tree::Store, M: Meter>(
    setup: Setup,
    meter: &mut M,
    open: impl AsyncFn(&M, &Server) -> S,
    add: impl Fn(&M, &Server, (usize, bool)),
) -> Measured {
    let keys = "BACKSTITCH_API_KEYS";
    let mut server = setup.env(keys, "ann=key-a,bob=key-b").start();
    add(meter, &server, (3 * FEW, true));
    server.kill();
    meter.arm();
    server.restart();
    meter.read();
    let both = |server: &mut Server, meter: &mut M| {
        meter.read();
        server.restart_with(keys, "ann=key-a,bob=key-b");
        pages(&Client::of(server).with_key("key-a"));
        server.restart_with(keys, "");
        pages(&Client::of(server));
        server.kill();
        block_on(async { sorted(&open(meter, server).await).await });
        meter.read()
    };
    let small = both(&mut server, meter);
    add(meter, &server, (3 * FEW * (FACTOR - 1), false));
    let large = both(&mut server, meter);
    Measured { small, large }
}

#[test]
fn pages_of_lists_of_postgres_cost_the_same_among_four_times_as_many_threads() {
    let statements = of_postgres(Test::Lists);
    assert_twice(|| {
        let mut meter = OfPostgres::start();
        let setup = Setup::example("reference_server").postgres(&meter.database);
        let costs = measure(
            setup,
            &mut meter,
            open_postgres,
            |meter, _, (count, is_first)| {
                let numbers = format!("SELECT i FROM generate_series(1, {count}) i");
                let at = "now() - interval '9 days' + i * interval '1 second'";
                meter.execute(&threads(
                    &numbers,
                    at,
                    ["gen_random_uuid()", "::jsonb"],
                    is_first,
                ));
            },
        );
        let exceptions: (_, Exceptions) = (GROWS_IN_POSTGRES, &[]);
        complaints(&statements, &costs, SLACK_OF_POSTGRES, exceptions)
    });
}

#[test]
fn pages_of_lists_of_sqlite_cost_the_same_among_four_times_as_many_threads() {
    let statements = of_sqlite(Test::Lists);
    assert_twice(|| {
        let folder = tempfile::tempdir().unwrap();
        let mut meter = OfSqlite { folder, read: 0 };
        let file = meter.file().display().to_string();
        let setup = Setup::example("reference_server").env("SQLITE_STATEMENTS", file);
        let costs = measure(
            setup,
            &mut meter,
            open_sqlite,
            |_, server, (count, is_first)| {
                let numbers = format!(
                    "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < {count}) SELECT i FROM c"
                );
                let at = "unixepoch() * 1000000 - 777600000000 + i * 1000000";
                let db = rusqlite::Connection::open(tables::file(server)).unwrap();
                db.busy_timeout(Duration::from_secs(60)).unwrap();
                let sql = threads(&numbers, at, ["randomblob(16)", ""], is_first);
                db.execute_batch(&format!("BEGIN; {sql}; COMMIT")).unwrap();
            },
        );
        let exceptions: (_, Exceptions) = (GROWS_IN_SQLITE, &[]);
        complaints(&statements, &costs, SLACK_OF_SQLITE, exceptions)
    });
}
