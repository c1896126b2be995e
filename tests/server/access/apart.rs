//! The routes of a thread that the matrix leaves to tests of their own.

use test_support::place::Place;
use test_support::routes::{APART, Right, Route, all, is_apart, naming_threads, of_threads};

use super::streams;
use crate::protocol::rights;

/// A route by its method and path, and the test that checks who may call it.
type Checked = (&'static str, &'static str, fn(&Place));

const CHECKED: [Checked; 4] = [
    (
        "GET",
        "/threads/{thread_id}/stream",
        streams::the_stream_of_a_thread_shows_a_stranger_nothing,
    ),
    (
        "GET",
        "/threads/{thread_id}/stream/events",
        rights::a_socket_shows_a_stranger_nothing_and_ends_when_access_is_withdrawn,
    ),
    (
        "POST",
        "/threads/{thread_id}/stream/events",
        rights::commands_take_a_writer_and_events_a_reader,
    ),
    (
        "POST",
        "/threads/{thread_id}/commands",
        rights::commands_take_a_writer_and_events_a_reader,
    ),
];

#[test]
fn every_route_of_a_thread_is_in_the_matrix_or_has_a_test_of_its_own() {
    let is_of_thread = |route: &Route| (Right::Reader..=Right::Owner).contains(&route.right);
    let (apart, others): (Vec<_>, Vec<_>) =
        all().into_iter().filter(is_of_thread).partition(is_apart);
    assert_eq!(apart.len(), APART.len(), "{apart:?}");
    assert_eq!(CHECKED.map(|(method, path, _)| (method, path)), APART);
    let paths = |routes: Vec<Route>| -> Vec<_> {
        routes
            .iter()
            .map(|route| (route.method, route.path))
            .collect()
    };
    let others = paths(others);
    assert_eq!(paths(of_threads()), others);
    let naming = paths(naming_threads());
    for route in others {
        assert!(naming.contains(&route), "{route:?}");
    }
}
