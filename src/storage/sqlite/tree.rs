//! Rows of conversation trees.

mod changes;
mod index;
mod lookup;
mod members;
mod outline;
mod paths;
mod session;

/// What a test plans.
#[cfg(test)]
pub(super) const PLANNED: &[&str] = &[
    changes::ACTIVATE,
    changes::DELETE,
    changes::DELETE_TAG,
    changes::MOVE_TAG,
    changes::PIN_RUN,
    changes::RENAME,
    changes::SET_CREATION,
    changes::SET_OUTCOME,
    changes::TOUCH,
    index::CHAIN,
    index::CHILDREN,
    index::NODE,
    index::OF_MESSAGE,
    index::SEGMENT,
    lookup::BRANCH,
    lookup::BRANCHES,
    lookup::OPEN_RUNS,
    lookup::RELATIVES,
    lookup::TAG,
    lookup::TAGS,
    lookup::THREAD,
    members::LEVEL,
    outline::OWN_POINTS,
    paths::IS_INTERRUPTED,
    paths::FORK_BASE,
    paths::ON_PATH,
    paths::PATH,
    paths::POINT,
];
/// What walks a tree on purpose, and under which name: no index leads to the messages of one
/// thread.
#[cfg(test)]
pub(super) const WALKING: &[(&str, &str)] = &[(outline::OWN_NODES, "message_nodes")];

pub(super) use members::level;
