//! Final rows of runs that a database refuses.

use serde_json::json;
use test_support::client::Client;
use test_support::place::Place;
use test_support::server::Setup;
use test_support::tables;
use test_support::talk::{background, slow, until};

/// Lets the database refuse that a run ends with any of the words.
fn refuse(place: &Place, server: &test_support::server::Server, words: &str) {
    let sql = if place.is_postgres() {
        format!("ALTER TABLE runs ADD CONSTRAINT refuses CHECK (status NOT IN ({words}))")
    } else {
        format!(
            "CREATE TRIGGER refuses BEFORE UPDATE ON runs WHEN new.status IN ({words}) \
             BEGIN SELECT RAISE(ABORT, 'refused'); END"
        )
    };
    tables::execute(place, server, &sql).unwrap();
}

fn accept(place: &Place, server: &test_support::server::Server) {
    let sql = if place.is_postgres() {
        "ALTER TABLE runs DROP CONSTRAINT refuses"
    } else {
        "DROP TRIGGER refuses"
    };
    tables::execute(place, server, sql).unwrap();
}

#[test]
fn a_run_whose_end_is_refused_for_good_ends_once_with_an_error() {
    for place in [Place::sqlite(), Place::postgres()] {
        let server = place.start(Setup::example("reference_server").env("BACKSTITCH_LEASE", "2"));
        let client = Client::of(&server);
        let thread = client.thread();
        refuse(&place, &server, "'success'");
        let run = background(&client, &thread, &slow(1, 1));
        assert_eq!(client.end_of(&thread, &run), "error");
        let row = client.get(&format!("/threads/{thread}")).json();
        assert_eq!(row["status"], "error");
        assert_eq!(row["error"]["error"], "InternalError");
        let attempts = tables::rows(&place, &server, "SELECT CAST(attempt AS text) FROM runs");
        assert_eq!(attempts, [[Some("1".to_owned())]]);
        // What it did is there, and the thread goes on.
        accept(&place, &server);
        let seen = client.run(&thread, &slow(1, 1))["seen"].clone();
        assert_eq!(seen, json!(["work", "rest", "work", "rest"]));
    }
}

#[test]
fn a_run_whose_every_end_is_refused_ends_as_soon_as_one_is_accepted() {
    for place in [Place::sqlite(), Place::postgres()] {
        let server = place.start(Setup::example("reference_server").env("BACKSTITCH_LEASE", "1"));
        let client = Client::of(&server);
        let thread = client.thread();
        refuse(&place, &server, "'success', 'error'");
        let run = background(&client, &thread, &slow(1, 1));
        // Both ends are tried for longer than a lease.
        let refusals = || server.output().matches("could not be stored").count();
        until("the end was refused again and again", || refusals() > 9);
        accept(&place, &server);
        assert_eq!(client.end_of(&thread, &run), "error");
        let attempts = tables::rows(&place, &server, "SELECT CAST(attempt AS text) FROM runs");
        assert_eq!(attempts, [[Some("1".to_owned())]]);
    }
}
