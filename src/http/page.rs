//! Pages of lists: how long they are, in which order, and the headers that say whether more follow.

use hyper::{
    Response, StatusCode,
    header::{HeaderName, HeaderValue},
};

use super::server::body::{self, Body};
use crate::value::Value;

/// Largest page of any list.
pub(super) const LIST_MAX: i64 = 1000;
/// Length of a page whose request does not name one.
pub(super) const LIST_DEFAULT: i64 = 10;

/// The number of items up to the end of the page, plus one if more follow.
pub(super) const TOTAL: HeaderName = HeaderName::from_static("x-pagination-total");
/// The offset of the next page.
pub(super) const NEXT: HeaderName = HeaderName::from_static("x-pagination-next");

/// Words for the direction of a list; true is ascending.
pub(super) const ORDERS: &[(&str, bool)] = &[("asc", true), ("desc", false)];

/// The response with a page. `items` has one more than `limit` when more follow, which the headers
/// then show. The total is not a count of all items, but what LangGraph's server sends.
pub(super) fn respond(mut items: Vec<Value>, limit: usize, offset: usize) -> Response<Body> {
    let more = items.len() > limit;
    items.truncate(limit);
    let next = offset.saturating_add(items.len());
    let mut response = body::json(StatusCode::OK, &Value::list(items));
    mark(&mut response, more, next);
    response
}

/// Adds the headers of a page that ends before the item `next`.
pub(super) fn mark(response: &mut Response<Body>, more: bool, next: usize) {
    let total = if more { next.saturating_add(1) } else { next };
    let headers = response.headers_mut();
    headers.insert(TOTAL, HeaderValue::from(total));
    if more {
        headers.insert(NEXT, HeaderValue::from(next));
    }
}
