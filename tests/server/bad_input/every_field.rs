//! Every field of every body and every id of every path, wrong in every way that the OpenAPI document names.

use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::python;
use test_support::tables::contents;

on_both_storages!(
    a_request_with_one_wrong_field_or_id_is_refused_and_changes_nothing,
    fields_that_are_far_too_large_are_stood,
);

fn a_request_with_one_wrong_field_or_id_is_refused_and_changes_nothing(place: &Place) {
    let Some(python) = python::python() else {
        return;
    };
    let (server, _) = serve(place);
    let good = server.folder().join("good.json");
    let arguments = |mode| [server.base_url(), mode, good.to_str().unwrap()];
    python.run("wrong_requests.py", &arguments("make"));
    // What the server writes by itself, whatever is requested: its lease, its probe of the disk, and
    // what it derives of events a while later. The events themselves are compared.
    let of_itself = [
        "workers",
        "disk_probe",
        "projection_offsets",
        "thread_heads",
    ];
    let stored = || {
        let mut stored = contents(place, &server);
        stored.retain(|table, _| !of_itself.contains(&table.as_str()));
        stored
    };
    let before = stored();
    python.run("wrong_requests.py", &arguments("refused"));
    for (table, rows) in stored() {
        assert!(
            rows == before[&table],
            "{table} had {:?} and has {rows:?}",
            before[&table]
        );
    }
}

fn fields_that_are_far_too_large_are_stood(place: &Place) {
    let Some(python) = python::python() else {
        return;
    };
    let (server, client) = serve(place);
    let good = server.folder().join("good.json");
    let arguments = |mode| [server.base_url(), mode, good.to_str().unwrap()];
    python.run("wrong_requests.py", &arguments("make"));
    python.run("wrong_requests.py", &arguments("large"));
    assert_eq!(client.get("/ok").status, 200);
}
