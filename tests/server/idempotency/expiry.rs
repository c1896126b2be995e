//! Keys older than a day are deleted, however many there are.

use super::*;

on_both_storages!(all_expired_keys_are_deleted_and_others_stay);

/// More than one statement deletes.
const OLD: usize = 250;

fn all_expired_keys_are_deleted_and_others_stay(place: &Place) {
    let (mut server, client) = serve(place);
    let body = json!({});
    let first = post(&client, "/threads", "kept", &body).json();
    let (series, age) = if place.is_postgres() {
        (
            format!("generate_series(1, {OLD}) AS n(i)"),
            "created_at - interval '25 hours'",
        )
    } else {
        (
            format!(
                "(WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < {OLD}) SELECT i FROM c) n"
            ),
            "created_at - 90000000000",
        )
    };
    let columns = "principal, key, request_hash, claim_id, first_id, worker_id, response";
    let from = columns.replace(" key,", " 'old' || n.i,");
    let copies = format!(
        "INSERT INTO idempotency_keys ({columns}, created_at) SELECT {from}, {age} FROM idempotency_keys, {series}"
    );
    tables::execute(place, &server, &copies).unwrap();
    let keys = |server: &Server| {
        let count = "SELECT CAST(count(*) AS text) FROM idempotency_keys";
        let rows = tables::rows(place, server, count);
        rows[0][0].as_ref().unwrap().parse::<usize>().unwrap()
    };
    assert_eq!(keys(&server), OLD + 1);
    // A process looks for them when it starts, and then every hour.
    server.restart();
    until("the old ones are deleted", || keys(&server) == 1);
    let client = Client::of(&server);
    assert_eq!(post(&client, "/threads", "kept", &body).json(), first);
}
