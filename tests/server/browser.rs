//! Pages with the official React hooks, used in a real browser, from another origin than the server's.

use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::Setup;

on_both_storages!(
    a_page_with_the_hook_of_the_sdk_streams_resumes_edits_stops_and_reloads,
    a_page_with_the_hook_of_the_event_streaming_protocol_does_the_same,
    a_page_that_speaks_the_protocol_over_a_websocket_does_the_same,
);

fn a_page_with_the_hook_of_the_sdk_streams_resumes_edits_stops_and_reloads(place: &Place) {
    drive(place, &["classic"]);
}

fn a_page_with_the_hook_of_the_event_streaming_protocol_does_the_same(place: &Place) {
    drive(place, &["protocol"]);
}

fn a_page_that_speaks_the_protocol_over_a_websocket_does_the_same(place: &Place) {
    drive(place, &["protocol", "websocket"]);
}

/// `page` is its name, and its transport if it has several.
fn drive(place: &Place, page: &[&str]) {
    let Some(node) = test_support::node::node("browser") else {
        return;
    };
    let Some(browser) = test_support::node::chromium() else {
        return;
    };
    let setup = Setup::example("reference_server")
        .env("WORD_PAUSE_MS", "40")
        .env("BACKSTITCH_LEASE", "2");
    let mut server = place.start(setup);
    let url = server.base_url().to_owned();
    let arguments = [&[&*url, browser.to_str().unwrap()], page].concat();
    node.converse("drive.js", &arguments, |line| {
        let restarts = line == "restart";
        if restarts {
            // As after a crash, on the port that the page knows.
            server.restart_with("PORT", url.rsplit(':').next().unwrap());
        }
        restarts
    });
}
