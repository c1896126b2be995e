//! What grows with its tree on purpose, and what the requests do not execute: reasons, and what the names of
//! the statements begin with.

/// Reasons, each with names of statements.
pub(super) type Exceptions = &'static [(&'static str, &'static [&'static str])];

/// What grows with the tree in Postgres.
pub(super) const GROWS_IN_POSTGRES: Exceptions = &[
    (
        "a state is read with all its values",
        &["checkpoints::load::BY_THREAD", "checkpoints::page::PAGE"],
    ),
    (
        "the ids of a path are walked from its end",
        &["tree::index::SEGMENT", "tree::outline::INHERITED_POINTS"],
    ),
    ("what is stored of a thread is summed", &["usage::USAGE"]),
    (
        "a pruned tree is swept as a whole",
        &["threads::blobs::DROP_MADE"],
    ),
];

/// What these requests do not execute in Postgres.
pub(super) const NOT_EXECUTED_IN_POSTGRES: Exceptions = &[
    (
        "no rows of trees: have their test among others like them",
        &[
            "postgres::assistants::",
            "postgres::crons::",
            "postgres::items::",
            "postgres::idempotency::",
            "postgres::vectors::",
            "postgres::outbox::",
            "postgres::probe::",
            "postgres::runs::fire::",
            "postgres::counts::",
        ],
    ),
    (
        "lists of threads, of which there are others without keys",
        &["postgres::threads::search::", "postgres::threads::narrow::"],
    ),
    (
        "a copy takes the whole thread",
        &["postgres::threads::copy::"],
    ),
    (
        "a deleted tree goes as a whole",
        &["postgres::threads::delete::WIPE"],
    ),
    (
        "a derived table is built anew",
        &["postgres::projections::"],
    ),
    ("have their test among other logs", &["postgres::log::"]),
    (
        "other requests and accidents; the plans are checked",
        &[
            "postgres::checkpoints::commit::HEAD",
            "postgres::checkpoints::list::LIST",
            "postgres::checkpoints::list::LIST_ALL",
            "postgres::checkpoints::load::BY_BRANCH",
            "postgres::checkpoints::load::NEWEST",
            "postgres::checkpoints::load::SUBGRAPH",
            "postgres::runs::ENDED",
            "postgres::runs::RETIRE",
            "postgres::runs::THREAD",
            "postgres::runs::cancel::REQUEST_CANCEL",
            "postgres::runs::cancel::UNCHANGED",
            "postgres::runs::claim::PUT_BACK",
            "postgres::runs::create::EXISTING",
            "postgres::runs::finish::AWAIT",
            "postgres::runs::finish::LEAVE",
            "postgres::runs::open_runs::AMONG",
            "postgres::runs::open_runs::EVERYWHERE",
            "postgres::runs::open_runs::STATES",
            "postgres::runs::reclaim::OWN",
            "postgres::runs::recover::END",
            "postgres::runs::undo::CLEAN_CLOSED",
            "postgres::runs::undo::CLOSE_BRANCH",
            "postgres::runs::undo::RECOMPUTE_OUTCOME",
            "postgres::threads::PATCH",
            "postgres::threads::RECORD_OUTCOME",
            "postgres::threads::SLOT",
            "postgres::threads::TAKE",
            "postgres::threads::blobs::DROP_BLOBS",
            "postgres::threads::blobs::FORGET",
            "postgres::threads::blobs::ORPHANS",
            "postgres::threads::create::MAKE_ROOM",
            "postgres::threads::expiry::EXPIRY",
            "postgres::threads::expiry::LOCK_BRANCHES",
            "postgres::threads::expiry::NEXT_CHECK",
            "postgres::threads::prune::DROP_LOGS",
            "postgres::threads::rows::TREE_OF",
            "postgres::tree::changes::LOCK_BRANCH",
            "postgres::tree::changes::PIN_RUNS",
            "postgres::tree::changes::SET_CREATION",
            "postgres::tree::index::FIRST",
            "postgres::tree::index::FOLLOWERS",
            "postgres::tree::members::SET_OWNER",
            "postgres::tree::paths::ON_PATH",
        ],
    ),
];

/// What grows with the tree in SQLite.
pub(super) const GROWS_IN_SQLITE: Exceptions = &[
    (
        "the ids of a path are walked from its end",
        &[
            "tree/index.rs: WITH RECURSIVE up AS",
            "tree/outline.rs: WITH RECURSIVE up AS",
        ],
    ),
    (
        "a pruned tree is swept as a whole",
        &["threads/blobs.rs: SELECT w.checkpoint_ns, w.type, w.writes"],
    ),
];

/// What these requests do not execute in SQLite.
pub(super) const NOT_EXECUTED_IN_SQLITE: Exceptions = &[
    (
        "no rows of trees: have their test among others like them",
        &[
            "assistants.rs: ",
            "crons.rs: ",
            "items.rs: ",
            "idempotency.rs: ",
            "vectors.rs: ",
            "outbox.rs: ",
            "probe.rs: ",
            "runs/fire.rs: ",
            "counts.rs: ",
            "crons/",
        ],
    ),
    (
        "lists of threads, of which there are others without keys",
        &["threads/search.rs: ", "threads/narrow.rs: "],
    ),
    ("a copy takes the whole thread", &["threads/copy.rs: "]),
    ("a deleted tree goes as a whole", &["threads/delete.rs: "]),
    ("a derived table is built anew", &["projections.rs: "]),
    ("have their test among other logs", &["log.rs: "]),
    ("at the start of a process", &["migrate.rs: "]),
    (
        "other requests and accidents; the plans are checked",
        &[
            "checkpoints/commit.rs: SELECT head_depth FROM branches WHERE tree_id = ?1 AND branch_id = ?2",
            "checkpoints/list.rs: SELECT c.checkpoint_ns, c.checkpoint_id, c.parent_checkpoint_id, c.roo",
            "checkpoints/load.rs: SELECT 1 FROM checkpoints WHERE tree_id = ?1 AND checkpoint_ns = ?2",
            "checkpoints/load.rs: SELECT c.checkpoint_ns, c.checkpoint_id, c.parent_checkpoint_id, c.roo",
            "checkpoints/load.rs: WITH RECURSIVE path AS ( SELECT parent_checkpoint_id, branch_id, 1 AS ",
            "events.rs: SELECT event_number, kind, payload, branch_id, checkpoint_id, run_id, ",
            "runs.rs: DELETE FROM workers WHERE worker_id = ?1",
            "runs.rs: SELECT o.run_id, o.tree_id, o.thread_id, NULL, o.assistant_id, o.statu",
            "runs.rs: SELECT r.run_id, r.tree_id, r.thread_id, r.branch_id, r.assistant_id, ",
            "runs.rs: SELECT thread_id FROM runs WHERE run_id = ?1",
            "runs/cancel.rs: UPDATE branches SET error = ?3 WHERE tree_id = ?1 AND branch_id = (SEL",
            "runs/claim.rs: UPDATE runs SET behind = 1 WHERE run_id = ?1 AND status = 'pending'",
            "runs/create.rs: SELECT 1 FROM threads WHERE thread_id = ?1 AND last_event_number = ?2",
            "runs/open_runs.rs: SELECT CASE WHEN status = 'pending' THEN run_at END FROM runs INDEXED ",
            "runs/open_runs.rs: SELECT r.seq, r.thread_id, r.run_id FROM runs r INDEXED BY runs_open W",
            "runs/open_runs.rs: SELECT run_id, status IN ('pending', 'running') FROM runs WHERE run_id",
            "runs/reclaim.rs: SELECT r.run_id, r.tree_id, r.thread_id, r.branch_id, r.assistant_id, ",
            "runs/recover.rs: UPDATE branches SET writer_epoch = writer_epoch + 1, outcome = 'error'",
            "runs/recover.rs: UPDATE runs SET status = ?2, error = ?3, updated_at = ?4, last_checkpo",
            "runs/undo.rs: DELETE FROM checkpoint_writes WHERE tree_id = ?1 AND branch_id = ?2 AN",
            "runs/undo.rs: UPDATE branches SET error = NULL, updated_at = ?3, outcome = CASE WHEN",
            "runs/undo.rs: UPDATE runs SET branch_id = NULL WHERE tree_id = ?1 AND branch_id = ?2",
            "runs/undo.rs: UPDATE threads SET active_branch_id = ?1, updated_at = ?4 WHERE thread",
            "threads.rs: UPDATE threads SET metadata = ?1, updated_at = ?2 WHERE thread_id = ?3",
            "threads/blobs.rs: DELETE FROM checkpoint_writes WHERE tree_id = ?1 AND checkpoint_ns = '",
            "threads/create.rs: INSERT INTO branches (tree_id, branch_id, thread_id, name, origin, cre",
            "threads/create.rs: INSERT INTO threads (thread_id, tree_id, active_branch_id, metadata, c",
            "threads/create.rs: INSERT INTO trees (tree_id, owner, created_at) VALUES (?1, ?2, ?3)",
            "threads/event_facts.rs: INSERT OR IGNORE INTO event_facts (tree_id, thread_id, event_number, f",
            "threads/event_facts.rs: SELECT parent_checkpoint_id, source, step FROM checkpoints WHERE tree_",
            "threads/event_facts.rs: SELECT c.thread_id, coalesce(p.event_number, 0) FROM checkpoints c LEF",
            "threads/event_facts.rs: SELECT event_number, kind, checkpoint_id, message_id FROM events WHERE",
            "threads/event_facts.rs: WITH RECURSIVE c AS (SELECT last_node_id, run_id FROM checkpoints WHER",
            "threads/event_facts.rs: WITH RECURSIVE up AS (SELECT parent_node_id, NULL AS question FROM mes",
            "threads/expiry.rs: SELECT t.ttl_minutes, t.ttl_strategy, max(t.updated_at, b.updated_at),",
            "threads/expiry.rs: UPDATE threads SET expires_at = ?2 WHERE thread_id = ?1",
            "threads/prune.rs: DELETE FROM run_events WHERE run_id IN ( SELECT r.run_id FROM runs r W",
            "threads/prune.rs: UPDATE checkpoints SET parent_checkpoint_id = ?3 WHERE tree_id = ?1 AN",
            "threads/rows.rs: SELECT tree_id FROM threads WHERE thread_id = ?1 AND deleted_at IS NUL",
            "threads/slots.rs: SELECT head_checkpoint_id IS ?3 FROM branches WHERE tree_id = ?1 AND b",
            "tree/changes.rs: INSERT INTO tags (tree_id, thread_id, name, checkpoint_id, depth, mess",
            "tree/changes.rs: UPDATE branches SET creation_id = ?3 WHERE tree_id = ?1 AND branch_id ",
            "tree/changes.rs: UPDATE runs SET branch_id = ?2, updated_at = ?3 WHERE run_id = ?1 AND ",
            "tree/members.rs: UPDATE threads SET owner = ?2 WHERE tree_id = ?1",
            "tree/members.rs: UPDATE trees SET owner = ?2 WHERE tree_id = ?1",
        ],
    ),
];

const ANOTHER_ORDER: &str =
    "an order that no index has: what the principal may have is read, as README says";
const COUNTED: &str = "all that match are counted, as README says";
const CRONS_END: &str = "a cron ends with its thread or with what its principal may: by its id";

/// What of rows that are no part of trees grows, and what is not executed for them, in Postgres.
pub(super) const OF_ROOMS_IN_POSTGRES: (Exceptions, Exceptions) = (
    &[
        (
            ANOTHER_ORDER,
            &[
                "assistants::ALL[4]",
                "assistants::ALL[5]",
                "assistants::ALL[6]",
                "assistants::ALL[7]",
                "assistants::ALL[8]",
                "assistants::ALL[9]",
                "assistants::OWNED[",
                "crons::lists::ALL[2]",
                "crons::lists::ALL[3]",
                "crons::lists::ALL[4]",
                "crons::lists::ALL[5]",
                "crons::lists::ALL[8]",
                "crons::lists::ALL[9]",
                "crons::lists::ALL[10]",
                "crons::lists::ALL[11]",
                "crons::lists::ALL[12]",
                "crons::lists::ALL[13]",
                // Without statistics the few of an owner are read and sorted.
                "crons::lists::OWNED[",
            ],
        ),
        (COUNTED, &["assistants::COUNT_", "crons::lists::COUNTS["]),
    ],
    &[
        ("reads no table", &["crons::CLOCK"]),
        ("is TRUNCATE, which has no plan", &["probe::EMPTY"]),
        ("is executed for members, on trees", &["crons::SHARE_TREE"]),
        (CRONS_END, &["runs::fire::DISABLE", "runs::fire::FORGET"]),
    ],
);

/// The same in SQLite.
pub(super) const OF_ROOMS_IN_SQLITE: (Exceptions, Exceptions) = (
    &[(
        ANOTHER_ORDER,
        &[
            "FROM assistants WHERE ?1 IS NULL ORDER BY graph_id",
            "FROM assistants WHERE ?1 IS NULL ORDER BY name",
            "FROM assistants WHERE ?1 IS NULL ORDER BY updated_at",
            "FROM assistants WHERE owner IN (?1, '') ORDER BY",
            "(?4 IS NULL OR enabled = ?4) ORDER BY assistant_id",
            "(?4 IS NULL OR enabled = ?4) ORDER BY cron_id",
            "(?4 IS NULL OR enabled = ?4) ORDER BY end_time",
            "(?4 IS NULL OR enabled = ?4) ORDER BY next_run_at",
            "(?4 IS NULL OR enabled = ?4) ORDER BY thread_id",
            "(?4 IS NULL OR enabled = ?4) ORDER BY updated_at",
        ],
    )],
    &[
        (
            "is executed for runs, on trees",
            &[
                "log.rs: SELECT 1 FROM runs",
                "log.rs: UPDATE run_events SET superseded",
            ],
        ),
        (
            CRONS_END,
            &[
                "runs/fire.rs: DELETE FROM crons",
                "runs/fire.rs: UPDATE crons SET enabled = 0",
            ],
        ),
    ],
);
