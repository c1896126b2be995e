//! The chain of messages on a path, walked from its end towards the first message.

use super::store::{Branch, MessageNode, Point, Read};
use crate::{
    checkpoint::Error,
    id::{NodeId, TreeId},
};

/// Nodes of the first page that is read; each further page is twice as long.
const FIRST_PAGE: usize = 64;
/// Most nodes of a page.
const MAX_PAGE: usize = 512;

/// The nodes from `start` on, newest first, up to the first one that `included` refuses.
///
/// # Errors
/// The storage failed.
pub async fn take_while(
    read: &mut dyn Read,
    tree: TreeId,
    start: Option<NodeId>,
    included: impl Fn(&MessageNode) -> bool,
) -> Result<Vec<MessageNode>, Error> {
    let mut chain = Chain::new(tree, start);
    let mut found = vec![];
    loop {
        let page = chain.page(read).await?;
        if page.is_empty() {
            return Ok(found);
        }
        for node in page {
            if !included(&node) {
                return Ok(found);
            }
            found.push(node);
        }
    }
}

/// The newest node from `start` on that `matches` accepts.
///
/// # Errors
/// The storage failed.
pub async fn find(
    read: &mut dyn Read,
    tree: TreeId,
    start: Option<NodeId>,
    matches: impl Fn(&MessageNode) -> bool,
) -> Result<Option<MessageNode>, Error> {
    let mut chain = Chain::new(tree, start);
    loop {
        let page = chain.page(read).await?;
        if page.is_empty() {
            return Ok(None);
        }
        if let Some(node) = page.into_iter().find(|node| matches(node)) {
            return Ok(Some(node));
        }
    }
}

/// The checkpoint at the head of a branch; `None` for an empty branch.
///
/// # Errors
/// The storage failed.
pub async fn head(read: &mut dyn Read, branch: &Branch) -> Result<Option<Point>, Error> {
    match branch.head {
        Some(head) => read.point(branch.tree, head).await,
        None => Ok(None),
    }
}

/// The last message on the path of a branch.
///
/// # Errors
/// The storage failed.
pub async fn last_node(read: &mut dyn Read, branch: &Branch) -> Result<Option<NodeId>, Error> {
    Ok(head(read, branch).await?.and_then(|point| point.last_node))
}

/// A walk along a chain, page by page.
struct Chain {
    tree: TreeId,
    next: Option<NodeId>,
    limit: usize,
}

impl Chain {
    fn new(tree: TreeId, start: Option<NodeId>) -> Self {
        Self {
            tree,
            next: start,
            limit: FIRST_PAGE,
        }
    }

    /// The next nodes; none behind the first message.
    async fn page(&mut self, read: &mut dyn Read) -> Result<Vec<MessageNode>, Error> {
        let Some(start) = self.next.take() else {
            return Ok(vec![]);
        };
        let page = read.chain(self.tree, start, self.limit).await?;
        if page.len() == self.limit {
            self.next = page.last().and_then(|node| node.parent);
        }
        self.limit = MAX_PAGE.min(2 * self.limit);
        Ok(page)
    }
}
