//! The official Python client drives a real server.

use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::Setup;

on_both_storages!(
    every_stream_mode_reaches_the_client,
    a_client_travels_in_time,
    a_client_answers_questions_and_meets_other_runs,
    a_client_edits_the_state,
    a_client_stores_and_finds_items,
    a_client_has_assistants_of_its_own,
    a_client_runs_in_batches_and_cancels_many,
    a_client_schedules_runs,
    a_client_streams_threads,
);

fn drive(place: &Place, script: &str) {
    let Some(python) = test_support::python::python() else {
        return;
    };
    let server = place.start(Setup::example("reference_server"));
    python.run(script, &[server.base_url()]);
}

fn every_stream_mode_reaches_the_client(place: &Place) {
    drive(place, "streams.py");
}

fn a_client_travels_in_time(place: &Place) {
    drive(place, "time_travel.py");
}

fn a_client_answers_questions_and_meets_other_runs(place: &Place) {
    drive(place, "interrupts.py");
}

fn a_client_edits_the_state(place: &Place) {
    drive(place, "edits.py");
}

fn a_client_stores_and_finds_items(place: &Place) {
    drive(place, "store.py");
}

fn a_client_has_assistants_of_its_own(place: &Place) {
    drive(place, "assistants.py");
}

fn a_client_runs_in_batches_and_cancels_many(place: &Place) {
    drive(place, "runs.py");
}

fn a_client_schedules_runs(place: &Place) {
    drive(place, "crons.py");
}

fn a_client_streams_threads(place: &Place) {
    drive(place, "protocol.py");
}
