//! What grows with its tree on purpose, and what the requests do not execute: reasons, and names of statements as
//! `which` reads them.

/// Reasons, each with names of statements.
pub(super) type Exceptions = &'static [(&'static str, &'static [&'static str])];

/// What grows with the tree in Postgres.
pub(super) const GROWS_IN_POSTGRES: Exceptions = &[
    (
        "a state is read with all its values",
        &["postgres::checkpoints::page::PAGE"],
    ),
    (
        "the ids of a path are walked from its end",
        &[
            "postgres::tree::index::SEGMENT",
            "postgres::tree::outline::INHERITED_POINTS",
        ],
    ),
    (
        "what is stored of a thread is summed",
        &["postgres::usage::USAGE"],
    ),
    (
        "a pruned tree is swept as a whole",
        &["postgres::threads::blobs::DROP_MADE"],
    ),
];

/// What these requests do not execute in Postgres.
pub(super) const NOT_EXECUTED_IN_POSTGRES: Exceptions = &[
    (
        "a copy takes the whole thread",
        &["all postgres::threads::copy::"],
    ),
    (
        "a deleted tree goes as a whole",
        &[
            "postgres::threads::delete::WIPE",
            "postgres::threads::delete::WIPE_CONTENT",
            "postgres::threads::delete::WIPE_THREADS",
        ],
    ),
    (
        "a derived table is built anew",
        &["all postgres::projections::"],
    ),
    (
        "other requests and accidents; the plans are checked",
        &[
            "postgres::checkpoints::commit::HEAD",
            "postgres::checkpoints::list::LIST",
            "postgres::checkpoints::list::LIST_ALL",
            "postgres::checkpoints::load::BY_BRANCH",
            "postgres::checkpoints::load::BY_THREAD",
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
    ("a copy takes the whole thread", &["all threads/copy.rs: "]),
    (
        "a deleted tree goes as a whole",
        &["all threads/delete.rs: "],
    ),
    ("a derived table is built anew", &["all projections.rs: "]),
    ("at the start of a process", &["all migrate.rs: "]),
    (
        "other requests and accidents; the plans are checked",
        &[
            "checkpoints/commit.rs: SELECT head_depth FROM branches WHERE tree_id = ?1 AND br",
            "checkpoints/list.rs: SELECT*WHERE tree_id = ?1 AND thread_id = ?2 AND checkpoint_id < ?3",
            "checkpoints/load.rs: SELECT 1 FROM checkpoints WHERE tree_id = ?1 AND checkpoint",
            "checkpoints/load.rs: SELECT*:branch AS owner",
            "checkpoints/load.rs: SELECT*FROM branches b JOIN",
            "checkpoints/load.rs: SELECT*FROM threads t JOIN branches b ON",
            "checkpoints/load.rs: SELECT*INDEXED BY checkpoints_thread WHERE c.tree_id = ?1 AND c.thread_id = ?2 AND c.checkpoint_ns = ?3",
            "checkpoints/load.rs: WITH RECURSIVE path AS ( SELECT parent_checkpoint_id, branc",
            "runs.rs: DELETE FROM workers WHERE worker_id = ?1",
            "runs.rs: SELECT o.run_id, o.tree_id, o.thread_id, NULL, o.assistant_id, o.status",
            "runs.rs: SELECT*status NOT IN ('pending', 'running')",
            "runs.rs: SELECT thread_id FROM runs WHERE run_id = ?1",
            "runs/cancel.rs: UPDATE branches SET error = ?3 WHERE tree_id = ?1 AND branch_id = (SELECT",
            "runs/claim.rs: UPDATE runs SET behind = 1 WHERE run_id = ?1 AND status = 'pendin",
            "runs/create.rs: SELECT 1 FROM threads WHERE thread_id = ?1 AND last_event_number = ?2",
            "runs/open_runs.rs: SELECT CASE WHEN status = 'pending' THEN run_at END FROM runs",
            "runs/open_runs.rs: SELECT r.seq, r.thread_id, r.run_id FROM runs r INDEXED BY ru",
            "runs/open_runs.rs: SELECT run_id, status IN ('pending', 'running') FROM runs WHE",
            "runs/reclaim.rs: SELECT r.run_id, r.tree_id, r.thread_id, r.branch_id, r.assista",
            "runs/recover.rs: UPDATE branches SET writer_epoch = writer_epoch + 1, outcome =",
            "runs/recover.rs: UPDATE runs SET status = ?2, error = ?3, updated_at = ?4, last_",
            "runs/undo.rs: DELETE FROM checkpoint_writes WHERE tree_id = ?1 AND branch_id = ?2 AND checkpoint_ns = '' AND checkpoint_id = ?3.",
            "runs/undo.rs: UPDATE branches SET error = NULL, updated_at = ?3, outcome = CASE",
            "runs/undo.rs: UPDATE runs SET branch_id = NULL WHERE tree_id = ?1 AND branch_id",
            "runs/undo.rs: UPDATE threads SET active_branch_id = ?1, updated_at = ?4 WHERE th",
            "threads.rs: UPDATE threads SET metadata = ?1, updated_at = ?2 WHERE thread_id =",
            "threads/blobs.rs: DELETE FROM checkpoint_writes WHERE tree_id = ?1 AND checkpoin",
            "threads/create.rs: INSERT INTO branches (tree_id, branch_id, thread_id, name, or",
            "threads/create.rs: INSERT INTO threads (thread_id, tree_id, active_branch_id, me",
            "threads/create.rs: INSERT INTO trees (tree_id, owner, created_at) VALUES (?1, ?2",
            "threads/event_facts.rs: INSERT OR IGNORE INTO event_facts (tree_id, thread_id, e",
            "threads/event_facts.rs: SELECT parent_checkpoint_id, source, step FROM checkpoin",
            "threads/event_facts.rs: WITH RECURSIVE c AS (SELECT last_node_id, run_id FROM ch",
            "threads/event_facts.rs: WITH RECURSIVE up AS (SELECT parent_node_id, NULL AS que",
            "threads/expiry.rs: SELECT t.ttl_minutes, t.ttl_strategy, max(t.updated_at, b.upd",
            "threads/expiry.rs: UPDATE threads SET expires_at = ?2 WHERE thread_id = ?1",
            "threads/prune.rs: DELETE FROM run_events WHERE run_id IN ( SELECT r.run_id FROM",
            "threads/prune.rs: UPDATE checkpoints SET parent_checkpoint_id = ?3 WHERE tree_id",
            "threads/rows.rs: SELECT tree_id FROM threads WHERE thread_id = ?1 AND deleted_at",
            "threads/slots.rs: SELECT head_checkpoint_id IS ?3 FROM branches WHERE tree_id =",
            "tree/changes.rs: INSERT INTO tags (tree_id, thread_id, name, checkpoint_id, dept",
            "tree/changes.rs: UPDATE branches SET creation_id = ?3 WHERE tree_id = ?1 AND bra",
            "tree/changes.rs: UPDATE runs SET branch_id = ?2, updated_at = ?3 WHERE run_id =",
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
                "postgres::assistants::ALL[4]",
                "postgres::assistants::ALL[5]",
                "postgres::assistants::ALL[6]",
                "postgres::assistants::ALL[7]",
                "postgres::assistants::ALL[8]",
                "postgres::assistants::ALL[9]",
                "all postgres::assistants::OWNED[",
                "postgres::crons::lists::ALL[2]",
                "postgres::crons::lists::ALL[3]",
                "postgres::crons::lists::ALL[4]",
                "postgres::crons::lists::ALL[5]",
                "postgres::crons::lists::ALL[8]",
                "postgres::crons::lists::ALL[9]",
                "postgres::crons::lists::ALL[10]",
                "postgres::crons::lists::ALL[11]",
                "postgres::crons::lists::ALL[12]",
                "postgres::crons::lists::ALL[13]",
                "postgres::crons::lists::OWNED[0]",
                "postgres::crons::lists::OWNED[1]",
                "postgres::crons::lists::OWNED[2]",
                "postgres::crons::lists::OWNED[3]",
                "postgres::crons::lists::OWNED[4]",
                "postgres::crons::lists::OWNED[5]",
                "postgres::crons::lists::OWNED[8]",
                "postgres::crons::lists::OWNED[9]",
                "postgres::crons::lists::OWNED[10]",
                "postgres::crons::lists::OWNED[11]",
                "postgres::crons::lists::OWNED[12]",
                "postgres::crons::lists::OWNED[13]",
            ],
        ),
        (
            COUNTED,
            &[
                "all postgres::assistants::COUNT_",
                "postgres::crons::lists::COUNTS[0]",
                "postgres::crons::lists::COUNTS[1]",
            ],
        ),
    ],
    &[
        ("reads no table", &["postgres::crons::CLOCK"]),
        (
            "is TRUNCATE, which has no plan",
            &["postgres::probe::EMPTY"],
        ),
        (
            CRONS_END,
            &[
                "postgres::runs::fire::DISABLE",
                "postgres::runs::fire::FORGET",
            ],
        ),
    ],
);

/// The same in SQLite.
pub(super) const OF_ROOMS_IN_SQLITE: (Exceptions, Exceptions) = (
    &[(
        ANOTHER_ORDER,
        &[
            "all assistants.rs: *FROM assistants WHERE ?1 IS NULL ORDER BY graph_id",
            "all assistants.rs: *FROM assistants WHERE ?1 IS NULL ORDER BY name",
            "all assistants.rs: *FROM assistants WHERE ?1 IS NULL ORDER BY updated_at",
            "all assistants.rs: *FROM assistants WHERE owner IN (?1, '') ORDER BY",
            "all crons/lists.rs: *WHERE owner = ?1*ORDER BY assistant_id",
            "all crons/lists.rs: *WHERE owner = ?1*ORDER BY cron_id",
            "all crons/lists.rs: *WHERE ?1 IS NULL AND*ORDER BY end_time",
            "all crons/lists.rs: *WHERE owner = ?1*ORDER BY end_time",
            "all crons/lists.rs: *WHERE ?1 IS NULL AND*ORDER BY next_run_at",
            "all crons/lists.rs: *WHERE owner = ?1*ORDER BY next_run_at",
            "all crons/lists.rs: *WHERE ?1 IS NULL AND*ORDER BY thread_id",
            "all crons/lists.rs: *WHERE owner = ?1*ORDER BY thread_id",
            "all crons/lists.rs: *WHERE ?1 IS NULL AND*ORDER BY updated_at",
            "all crons/lists.rs: *WHERE owner = ?1*ORDER BY updated_at",
        ],
    )],
    &[(
        CRONS_END,
        &[
            "runs/fire.rs: DELETE FROM crons",
            "runs/fire.rs: UPDATE crons SET enabled = 0",
        ],
    )],
);
