//! The table of routes is whole, and every row of it is reachable.

use std::collections::BTreeMap;

use hyper::Method;

use super::TABLE;
use crate::http::{
    openapi,
    server::router::{Found, Route, Routes},
};

#[test]
fn every_route_of_the_table_is_reachable() {
    let routes = Routes::new(TABLE);
    for Route { path, method, .. } in TABLE {
        let example = path.replace(['{', '}'], "");
        let found = routes.find(method, &example);
        assert!(
            matches!(found, Found::Route(route, _) if route.path == *path && route.method == *method),
            "{method} {path}"
        );
    }
}

/// The tests that run servers take the routes from this file, so that they miss none.
#[test]
fn tests_know_every_route_and_who_may_call_it() {
    let document = openapi::describe(TABLE, true);
    let mut listed = String::new();
    for route in TABLE {
        let method = route.method.as_str().to_ascii_lowercase();
        let operation = &document["paths"][route.path][method];
        let body = if operation["requestBody"].is_object() {
            " body"
        } else {
            ""
        };
        listed.push_str(&format!(
            "{} {} {:?}{body}\n",
            route.method, route.path, route.right
        ));
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/routes.txt");
    if std::env::var_os("UPDATE_ROUTES").is_some() {
        std::fs::write(file, &listed).unwrap();
    }
    let known = std::fs::read_to_string(file).unwrap_or_default();
    assert!(
        known == listed,
        "run this test with UPDATE_ROUTES=1 and read the difference"
    );
}

#[test]
fn unusual_paths_match_nothing() {
    let routes = Routes::new(TABLE);
    for path in [
        "/nope",
        "/threads/",
        "//threads",
        "/threads/a/../b/x",
        "/threads/a/state/",
    ] {
        assert!(
            matches!(routes.find(&Method::GET, path), Found::Nothing),
            "{path}"
        );
    }
    let Found::OtherMethods(allow) = routes.find(&Method::PUT, "/threads") else {
        panic!("PUT is not for threads");
    };
    assert_eq!(allow, "GET, HEAD, POST");
}

#[test]
fn every_route_has_an_operation_id_of_its_own() {
    let mut paths: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for route in TABLE.iter().filter(|route| route.method != Method::HEAD) {
        let id = route.operation;
        let is_name = |text: &str| {
            text.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        };
        assert!(
            !id.is_empty() && is_name(id),
            "{} {}: `{id}`",
            route.method,
            route.path
        );
        let path = format!("{} {}", route.method, route.path);
        paths.entry(id).or_default().push(path);
    }
    paths.retain(|_, paths| paths.len() > 1);
    assert!(
        paths.is_empty(),
        "operation ids of several routes: {paths:#?}"
    );
}

#[test]
fn head_has_the_operation_of_get() {
    for head in TABLE.iter().filter(|route| route.method == Method::HEAD) {
        let is_get = |route: &&Route| route.path == head.path && route.method == Method::GET;
        let get = TABLE.iter().find(is_get);
        assert_eq!(
            get.map(|get| get.operation),
            Some(head.operation),
            "{}",
            head.path
        );
    }
}
