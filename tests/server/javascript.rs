//! The official JavaScript client drives a real server.

use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::Setup;

on_both_storages!(
    a_client_has_assistants_of_its_own,
    a_client_makes_edits_and_copies_threads,
    a_client_schedules_runs,
    a_client_stores_and_finds_items,
    a_client_waits_for_cancels_and_resumes_runs,
    every_stream_mode_reaches_the_client,
    a_client_whose_connection_is_cut_comes_back_by_itself,
);

fn drive(place: &Place, script: &str) {
    let Some(node) = test_support::node::node("javascript") else {
        return;
    };
    let server = place.start(Setup::example("reference_server"));
    node.run(script, &[server.base_url()]);
}

fn a_client_has_assistants_of_its_own(place: &Place) {
    drive(place, "assistants.js");
}

fn a_client_makes_edits_and_copies_threads(place: &Place) {
    drive(place, "threads.js");
}

fn a_client_schedules_runs(place: &Place) {
    drive(place, "crons.js");
}

fn a_client_stores_and_finds_items(place: &Place) {
    drive(place, "store.js");
}

fn a_client_waits_for_cancels_and_resumes_runs(place: &Place) {
    drive(place, "runs.js");
}

fn every_stream_mode_reaches_the_client(place: &Place) {
    drive(place, "streams.js");
}

fn a_client_whose_connection_is_cut_comes_back_by_itself(place: &Place) {
    drive(place, "comes_back.js");
}
