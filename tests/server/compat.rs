//! The transcripts recorded from the official server, scenario by scenario (tests/compat/README.md).

use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::Setup;

on_both_storages!(
    every_scenario_goes_as_with_the_official_server_when_runs_queue_for_one_slot,
    every_scenario_goes_as_with_the_official_server_with_three_slots,
);

/// One scenario at a time: a second one would wait for the slot that the first one's runs have.
fn every_scenario_goes_as_with_the_official_server_when_runs_queue_for_one_slot(place: &Place) {
    compare(place, "1", "1");
}

fn every_scenario_goes_as_with_the_official_server_with_three_slots(place: &Place) {
    compare(place, "3", "3");
}

fn compare(place: &Place, slots: &str, jobs: &str) {
    let Some(python) = test_support::python::python() else {
        return;
    };
    let server = place.start(
        Setup::example("reference_server")
            .env("BACKSTITCH_SLOTS", slots)
            .env("BACKSTITCH_CORS_ORIGINS", "*")
            .env("BACKSTITCH_WEBHOOK_ALLOW_LOOPBACK", "true"),
    );
    let script = "../compat/compat.py";
    let arguments = [
        "--base-url",
        server.base_url(),
        "--jobs",
        jobs,
        "--failures",
    ];
    let report = python.run(script, &arguments);
    assert!(report.trim().ends_with(" passed, 0 failed"), "{report}");
}
