//! The query of a page of messages.

use std::sync::Arc;

use crate::{
    http::{
        parse::{address, params::Query},
        server::Error,
    },
    tree::{
        address::parse_name,
        messages::{
            PAGE_MAX,
            page::{PagePosition, PageRequest, PageView},
            path::PathSelector,
        },
    },
};

/// The query of a page of messages of at most so many bytes.
pub(in super::super) fn read(query: &Query, bytes: usize) -> Result<PageRequest, Error> {
    let text = |name: &str| query.get(name).map(Arc::<str>::from);
    let mut positions = vec![];
    if let Some(id) = text("leaf_id") {
        positions.push(PathSelector::Leaf(id));
    }
    if let Some(text) = query.get("branch") {
        positions.push(PathSelector::Branch(parse_name(text)?));
    }
    if let Some(text) = query.get("checkpoint_id") {
        let id = text.parse().map_err(|_| {
            Error::bad_request("Invalid checkpoint ID: must be a UUID").with_code("invalid_id")
        })?;
        positions.push(PathSelector::Checkpoint(id));
    }
    if query.word("leaf", &[("latest", ())])?.is_some() {
        positions.push(PathSelector::Latest);
    }
    if positions.len() > 1 {
        return Err(Error::invalid(
            "Give one of leaf_id, branch, checkpoint_id and leaf, not several",
        ));
    }
    address::refuse_others(query, &["branch", "checkpoint_id", "leaf_id", "leaf"])?;
    let mut cursors = vec![];
    if let Some(text) = text("after") {
        cursors.push(PagePosition::After(text));
    }
    if let Some(text) = text("before") {
        cursors.push(PagePosition::Before(text));
    }
    if query.flag("tail")? {
        cursors.push(PagePosition::Newest);
    }
    if cursors.len() > 1 {
        let detail = "Give one of after, before and tail, not several";
        return Err(Error::bad_request(detail).with_code("invalid_cursor"));
    }
    Ok(PageRequest {
        at: positions.pop().unwrap_or_default(),
        view: query.word("view", PageView::ALL)?.unwrap_or_default(),
        from: cursors.pop().unwrap_or_default(),
        limit: query.limit(PAGE_MAX, PAGE_MAX)?,
        bytes,
        siblings: query.flag("siblings")?,
    })
}

#[cfg(test)]
mod tests {
    use super::{super::tests::refused, *};

    #[test]
    fn a_page_is_asked_for_by_one_place_and_one_cursor() {
        let query = |text: &str| read(&Query::of(Some(text)), 1 << 20);
        let plain = query("").unwrap();
        assert_eq!(plain.at, PathSelector::Active);
        assert_eq!(plain.from, PagePosition::Oldest);
        assert_eq!(plain.limit, 1000);
        let tail = query("leaf=latest&tail=true&limit=5&view=state&siblings=true").unwrap();
        assert_eq!(tail.at, PathSelector::Latest);
        assert_eq!(tail.from, PagePosition::Newest);
        assert_eq!(
            (tail.limit, tail.view, tail.siblings),
            (5, PageView::State, true)
        );
        for (text, status, code) in [
            ("after=a&before=b", 400, Some("invalid_cursor")),
            ("after=a&tail=true", 400, Some("invalid_cursor")),
            ("checkpoint_id=x", 400, Some("invalid_id")),
            ("leaf_id=a&branch=main", 422, None),
            ("leaf=oldest", 422, None),
            ("branch=a//b", 422, Some("invalid_request")),
            ("limit=0", 422, None),
            ("limit=1001", 422, None),
            ("limit=x", 422, None),
            ("view=all", 422, None),
            ("tail=maybe", 422, None),
        ] {
            assert_eq!(refused(query(text)), (status, code), "{text}");
        }
        assert_eq!(
            query("tail=false&after=a").unwrap().from,
            PagePosition::After("a".into())
        );
    }
}
