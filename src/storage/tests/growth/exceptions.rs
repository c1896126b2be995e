//! What costs as much as it acts on, what grows with all there is, and what is not measured: reasons, and names of
//! statements as `which` reads them.

use super::Kinds;

/// Reasons, each with names of statements.
pub(super) type Exceptions = &'static [(&'static str, &'static [&'static str])];

const WHOLE_STATE: &str = "a state is read with all its values";
const SORTED: &str = "the states of all namespaces of a thread are sorted";
const PATH: &str = "the ids of a path are walked from its end";
const SUMMED: &str = "what is stored of a thread is summed";
const COPIED: &str = "a copy takes the whole thread";
const DELETED: &str = "a deleted tree goes as a whole";
const PRUNED: &str = "what the whole tree names is kept when a thread is pruned, as README says";
const ANEW: &str = "a derived table is made anew";

/// The statements on trees of Postgres.
pub(super) const IN_POSTGRES: Kinds = Kinds {
    whole: &[
        (
            WHOLE_STATE,
            &[
                "postgres::checkpoints::channels::CHANNELS",
                "postgres::checkpoints::list::LIST",
                "postgres::checkpoints::page::PAGE",
                "postgres::checkpoints::page::PAGE_OF",
                "postgres::threads::made_values::DROP_MADE",
            ],
        ),
        (SORTED, &["postgres::checkpoints::list::LIST_ALL"]),
        (
            PATH,
            &[
                "postgres::tree::index::SEGMENT",
                "postgres::tree::outline::INHERITED_POINTS",
                "postgres::tree::paths::ON_PATH",
            ],
        ),
        (SUMMED, &["postgres::usage::USAGE"]),
        (COPIED, &["all postgres::threads::copy::"]),
        (DELETED, &["postgres::threads::delete::WIPE"]),
        (
            PRUNED,
            &[
                "postgres::threads::blobs::DROP_BLOBS",
                "postgres::threads::blobs::ORPHANS",
            ],
        ),
    ],
    grows: &[
        (
            PRUNED,
            &[
                "postgres::threads::blobs::DROP_BLOBS",
                "postgres::threads::blobs::ORPHANS",
            ],
        ),
        (
            ANEW,
            &[
                "postgres::projections::DELETE_ALL[0]",
                "postgres::projections::DELETE_OFFSETS",
            ],
        ),
    ],
    unmeasured: &[(
        "is LOCK TABLE, which has no plan",
        &["postgres::projections::LOCK"],
    )],
};

/// The statements on trees of SQLite.
pub(super) const IN_SQLITE: Kinds = Kinds {
    whole: &[
        (
            SORTED,
            &["checkpoints/list.rs: SELECT*FROM (SELECT checkpoint_ns, checkpoint_id"],
        ),
        (
            PATH,
            &[
                "tree/index.rs: WITH RECURSIVE up AS",
                "tree/outline.rs: WITH RECURSIVE up AS",
            ],
        ),
        (COPIED, &["all threads/copy.rs: "]),
        (
            PRUNED,
            &["threads/blobs.rs: SELECT w.checkpoint_ns, w.type, w.writes"],
        ),
    ],
    grows: &[(
        PRUNED,
        &["threads/blobs.rs: SELECT w.checkpoint_ns, w.type, w.writes"],
    )],
    unmeasured: &[(
        "of the migrations that a database has, when it is opened",
        &["all migrate.rs: "],
    )],
};

const ANOTHER_ORDER: &str =
    "an order that no index has: what the principal may have is read, as README says";
const COUNTED: &str = "all that match are counted, as README says";

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
    &[(
        "is TRUNCATE, which has no plan",
        &["postgres::probe::EMPTY"],
    )],
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
    &[],
);
