//! Pages of lists: how long they are, in which order, with which fields, and the headers that say
//! whether more follow.

use hyper::{
    Response,
    header::{HeaderName, HeaderValue},
};

use super::{
    parse::fields::Fields,
    server::{Body, Error},
};
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

/// The `limit` of a body, or else `default`, and its `offset`.
///
/// # Errors
/// 422: one of them is no whole number, or out of its range.
pub(super) fn range(fields: &Fields<'_>, default: i64) -> Result<(usize, usize), Error> {
    let limit = fields.integer("limit", 1, LIST_MAX)?.unwrap_or(default);
    let offset = fields.integer("offset", 0, i64::MAX)?.unwrap_or(0);
    let whole = |number| usize::try_from(number).unwrap_or(usize::MAX);
    Ok((whole(limit), whole(offset)))
}

/// The fields that a body selects, of those that items have. An empty list leaves the choice to the
/// server.
///
/// # Errors
/// 422: `select` is no list, or names something else.
pub(super) fn columns(
    fields: &Fields<'_>,
    all: &[&'static str],
) -> Result<Option<Vec<&'static str>>, Error> {
    let words: Vec<_> = all.iter().map(|name| (*name, *name)).collect();
    let select = fields.words("select", &words)?;
    Ok(select.filter(|columns| !columns.is_empty()))
}

/// Removes what is not selected.
pub(super) fn retain(items: &mut [Value], select: Option<&[&'static str]>) {
    let Some(columns) = select else { return };
    for map in items.iter_mut().filter_map(Value::make_map_mut) {
        map.retain(|key, _| columns.contains(&&**key));
    }
}

/// Adds the headers of a page that ends before the item `next`. The total is not a count of all items, but
/// what LangGraph's server sends.
pub(super) fn mark(response: &mut Response<Body>, more: bool, next: usize) {
    let total = if more { next.saturating_add(1) } else { next };
    let headers = response.headers_mut();
    headers.insert(TOTAL, HeaderValue::from(total));
    if more {
        headers.insert(NEXT, HeaderValue::from(next));
    }
}
