//! The operations of the storage traits, one line each, for both databases.
//!
//! A line names the function that each database has for an operation, what the operation takes
//! and what it returns; the name is that of the method and of the function:
//!
//! ```text
//! read checkpoints::load([&] query: Query) -> Option<Stored>;
//! ```
//!
//! becomes the method `load` of the trait, which calls `checkpoints::load(db, &query)` of the
//! database's own module `checkpoints`. `[&]` before an argument lends it to the function; others are copied, or
//! moved where an operation is never retried. The function of SQLite is
//! `fn(&Connection, ...) -> Result<T, checkpoint::Error>`, that of Postgres
//! `async fn(&Object, ...) -> Result<T, Failure>` (or `&mut Object`, for a transaction of its own).
//! It is retried when a failure is transient, so it must be idempotent.
//!
//! To add an operation: its method in the trait, its line here, its function in each database, and
//! names of types that are new here in [`types`]. To add a trait: a list like those below, and a
//! line in `sqlite.rs` and `postgres.rs` that expands it.
//!
//! The word before a line of a store is what it runs on: `read` (a reader), `write` (SQLite: the
//! writing thread; Postgres: the connections for everything but runs), `critical` and
//! `critical_read` (as `write` and `read`, on the connections that Postgres keeps for runs),
//! `log_read` (as `read`, in turn with others who read streams), `critical_turn` and `write_turn` (the same in turn with others who change the thread, the first
//! argument, so that they do not wait with a connection each), and `store` (as `write`, but the function of Postgres is `async fn(&Store, ...) -> Result<T, Error>`:
//! it chooses its connections, or remembers something from one attempt to the next). The macro
//! `run` of each database decides.
//!
//! What does not fit a line is written out where the list is expanded, in braces behind the store:
//! `commit` (its results are one per commit, and each database groups commits in its own way),
//! `create_run` and `create_runs` (a request is encoded before it waits for SQLite's writing thread), and the methods that
//! return a session.

/// The types that the lists name.
pub(super) mod types {
    pub(crate) use std::{sync::Arc, time::Duration};

    pub(crate) use crate::{
        assistants::{
            Change, Limits,
            request::{Columns, Filter, Search as AssistantSearch},
            store::{
                AssistantRow, ChangedAssistant, CreatedAssistant, NewAssistant, Subject,
                VersionQuery, VersionRow,
            },
        },
        checkpoint::{
            Blobs, Commit, Error, Flush, List, Page, PageScope, Query, Slot, Stored, Version,
            codec::Format,
        },
        crons::{
            CronRow,
            request::{Columns as CronColumns, Filter as CronFilter, Search as CronSearch},
            store::{CreatedCron, DueCron},
        },
        id::{
            AssistantId, BranchId, CheckpointId, CronId, NodeId, RunId, ThreadId, TreeId, WorkerId,
        },
        idempotency::{Claim, Claimed},
        runs::{
            ClaimedRun, ClaimedRuns, Created, CreatedBatch, EndedRun, Finish, Fired, Firing,
            NewRun, OpenPage, OpenRunState, OpenedRun, QueueClaim, Recover, Recovered, Run,
            RunsOfPrincipal, Status, Undo,
        },
        store::{
            Item, Namespace, Put,
            rank::Nearest,
            search::{Found, Listing, Search},
        },
        stream::log::{LogChunk, NewChunk, TemporaryRun},
        time::Timestamp,
        tree::{
            Copied, NewCopy, NewThread, Outcome, Thread, ThreadWithCheckpoint, ThreadWithLevel,
            members::{Access, Level, Members},
            projection::{
                ChannelKey, ChannelLimits, ChannelRows, Progress, Projection, ProjectionStep,
            },
            search::{Listed, ThreadFilter, ThreadPage},
            store::rows::{
                Branch, BranchEnd, ForkCursor, MessageNode, NewEvent, OpenRun, PathNode,
                PendingInterrupts, Point, Relative, Tag, ThreadEvent, ThreadRow,
            },
            store::tx::{InsertBranch, InsertFork, SharedInside},
            ttl::{Expiry, Ttl, TtlStrategy},
            usage::Usage,
        },
        value::{Map, Value},
        webhooks::outbox::{Delivery, Due, DueByHost, FailedTry, HostPage, Key},
    };
}

/// Implements a trait from its list: each method is one call of the macro `$run`, which gets the
/// receiver, the path of the function, and the arguments.
macro_rules! implement {
    // A session, whose methods change its connection.
    (mut $run:ident for $session:ty: $Trait:path {
        $($module:ident::$name:ident($($([$by:tt])? $arg:ident: $arg_type:ty),*) -> $output:ty;)*
    } $({ $($more:tt)* })?) => {
        const _: () = {
            #[allow(unused_imports, clippy::wildcard_imports, reason = "what the list names")]
            use $crate::storage::operations::types::*;

            #[async_trait::async_trait]
            impl $Trait for $session {
                $(async fn $name(&mut self, $($arg: $arg_type),*) -> Result<$output, Error> {
                    $run!(self, $module::$name, $($([$by])? $arg),*)
                })*
                $($($more)*)?
            }
        };
    };
    // A store, which chooses a connection for each call.
    ($run:ident for $store:ty: $Trait:path {
        $($kind:ident $module:ident::$name:ident($($([$by:tt])? $arg:ident: $arg_type:ty),*) -> $output:ty;)*
    } $({ $($more:tt)* })?) => {
        const _: () = {
            #[allow(unused_imports, clippy::wildcard_imports, reason = "what the list names")]
            use $crate::storage::operations::types::*;

            #[async_trait::async_trait]
            impl $Trait for $store {
                $(async fn $name(&self, $($arg: $arg_type),*) -> Result<$output, Error> {
                    $run!($kind self, $module::$name, $($([$by])? $arg),*)
                })*
                $($($more)*)?
            }
        };
    };
}

/// [`tree::Read`](crate::tree::Read): rows of a tree.
macro_rules! tree_reads {
    ($run:ident for $session:ty) => {
        implement! { mut $run for $session: $crate::tree::Read {
            lookup::thread_row(id: ThreadId) -> Option<ThreadRow>;
            lookup::thread_rows([&] ids: Vec<ThreadId>) -> Vec<ThreadRow>;
            family::relatives(tree: TreeId, after: ForkCursor, limit: usize) -> Vec<Relative>;
            family::relative_sizes(tree: TreeId, after: ForkCursor, limit: usize) -> Vec<u64>;
            family::forks(tree: TreeId, thread: ThreadId, limit: usize) -> Vec<ThreadRow>;
            family::ends(tree: TreeId, [&] threads: Vec<ThreadId>) -> Vec<BranchEnd>;
            lookup::branches(tree: TreeId, thread: ThreadId) -> Vec<Branch>;
            lookup::branch(tree: TreeId, id: BranchId) -> Option<Branch>;
            lookup::tags(tree: TreeId, thread: ThreadId) -> Vec<Tag>;
            lookup::tag(tree: TreeId, thread: ThreadId, [&] name: Arc<str>) -> Option<Tag>;
            lookup::open_runs(tree: TreeId, thread: ThreadId) -> Vec<OpenRun>;

            paths::point(tree: TreeId, id: CheckpointId) -> Option<Point>;
            paths::path(tree: TreeId, start: CheckpointId, limit: usize) -> Vec<Point>;
            paths::visible(tree: TreeId, thread: ThreadId, id: CheckpointId) -> bool;
            paths::on_path(tree: TreeId, start: CheckpointId, ancestor: CheckpointId) -> bool;
            paths::is_interrupted(tree: TreeId, branch: BranchId, at: CheckpointId) -> bool;

            index::node(tree: TreeId, id: NodeId) -> Option<MessageNode>;
            family::nodes(tree: TreeId, [&] ids: Vec<NodeId>) -> Vec<MessageNode>;
            family::paths_to(tree: TreeId, [&] ends: Vec<NodeId>, limit: usize) -> Vec<PathNode>;
            index::nodes_of(tree: TreeId, [&] ids: Vec<Arc<str>>) -> Vec<MessageNode>;
            index::nodes_of_trees([&] messages: Vec<(TreeId, Arc<str>)>) -> Vec<(TreeId, MessageNode)>;
            index::chain(tree: TreeId, start: NodeId, limit: usize) -> Vec<MessageNode>;
            index::children(tree: TreeId, parent: Option<NodeId>) -> Vec<MessageNode>;
            index::segment(tree: TreeId, end: NodeId, after: i32, limit: usize) -> Vec<MessageNode>;
            index::followers(tree: TreeId, [&] parents: Vec<NodeId>) -> Vec<MessageNode>;

            outline::own_points(tree: TreeId, thread: ThreadId, below: i32, limit: usize) -> Vec<Point>;
            outline::inherited_points(tree: TreeId, base: CheckpointId, below: i32, limit: usize) -> Vec<Point>;
            outline::own_nodes(tree: TreeId, thread: ThreadId, after: i32, limit: usize) -> Vec<MessageNode>;

            events::events(tree: TreeId, thread: ThreadId, after: i64, limit: usize) -> Vec<ThreadEvent>;
            events::events_of_threads([&] after: Vec<(TreeId, ThreadId, i64)>, limit: usize, most: u64) -> Vec<ThreadEvent>;
            events::event_weights(tree: TreeId, thread: ThreadId, after: i64, limit: usize) -> Vec<(i64, u64)>;
            events::naming_events(tree: TreeId, [&] branches: Vec<BranchId>) -> Vec<ThreadEvent>;

            members::members(tree: TreeId) -> Members;
            members::level(tree: TreeId, [&] principal: Arc<str>) -> Option<Level>;
        }}
    };
}

/// [`tree::Tx`](crate::tree::Tx) and [`runs::Tx`](crate::runs::Tx): changes in a transaction.
macro_rules! tree_changes {
    ($run:ident for $session:ty) => {
        implement! { mut $run for $session: $crate::tree::Tx {
            lookup::lock_branch(tree: TreeId, id: BranchId) -> Option<Branch>;

            changes::insert_branch([&] new: InsertBranch) -> ();
            changes::copy_writes(tree: TreeId, base: CheckpointId, from: BranchId, to: BranchId) -> ();
            changes::inside(tree: TreeId, base: CheckpointId, from: BranchId) -> Option<SharedInside>;
            changes::share_inside(tree: TreeId, to: BranchId, shared: SharedInside) -> ();
            changes::rename_branch(tree: TreeId, id: BranchId, [&] name: Arc<str>) -> ();
            changes::delete_branch(tree: TreeId, id: BranchId) -> ();
            changes::activate(thread: ThreadId, branch: BranchId) -> ();
            changes::set_outcome(tree: TreeId, branch: BranchId, outcome: Outcome) -> ();
            changes::put_tag(tree: TreeId, thread: ThreadId, [&] tag: Tag) -> bool;
            changes::delete_tag(tree: TreeId, thread: ThreadId, [&] name: Arc<str>) -> bool;
            changes::cancel_runs(thread: ThreadId, [&] runs: Vec<RunId>) -> ();
            changes::pin_runs([&] runs: Vec<RunId>, branch: BranchId) -> ();
            changes::insert_fork([&] new: InsertFork) -> ();
            changes::put([&] commit: Commit) -> i32;
            changes::append(tree: TreeId, thread: ThreadId, [&] events: Vec<NewEvent>) -> i64;

            members::put_member(tree: TreeId, [&] principal: Arc<str>, level: Option<Level>) -> ();
            members::set_owner(tree: TreeId, [&] principal: Arc<str>) -> ();

            lifecycle::patch_thread(thread: ThreadId, [&] metadata: Map) -> ();
            lifecycle::set_ttl(thread: ThreadId, ttl: Ttl) -> ();
            lifecycle::expired(tree: TreeId, thread: ThreadId) -> Option<TtlStrategy>;
            lifecycle::delete_thread(tree: TreeId, thread: ThreadId) -> ();
            lifecycle::delete_tree(tree: TreeId) -> Vec<ThreadId>;
            lifecycle::prune_thread(tree: TreeId, thread: ThreadId) -> usize;
        } {
            async fn commit(self: Box<Self>) -> Result<(), Error> {
                self.0.commit().await
            }
        }}

        implement! { mut $run for $session: $crate::runs::Tx {
            changes::create_run(new: NewRun) -> Created;
            lifecycle::end_run(thread: ThreadId, run: RunId, [&] error: Value) -> bool;
            lifecycle::request_cancel(run: RunId, [&] reason: Value) -> bool;
            lifecycle::remove_run([&] what: Undo) -> Option<Status>;
            members::executed_for(tree: TreeId, [&] principal: Arc<str>) -> RunsOfPrincipal;
        }}
    };
}

/// [`Saver`](crate::checkpoint::Saver): checkpoints.
macro_rules! checkpoint_operations {
    ($run:ident for $store:ty { $($more:tt)* }) => {
        implement! { $run for $store: $crate::checkpoint::Saver {
            read checkpoints::load([&] query: Query) -> Option<Stored>;
            read checkpoints::list([&] list: List) -> Vec<Stored>;
            read checkpoints::page([&] list: List, scope: PageScope) -> Page;
            read checkpoints::page_of(tree: TreeId, [&] ns: Arc<str>, [&] ids: Vec<CheckpointId>, scope: PageScope) -> Page;
            read checkpoints::blobs(tree: TreeId, [&] ns: Arc<str>, [&] wanted: Vec<(Arc<str>, Version)>, most: u64) -> Blobs;
            store checkpoints::flush([&] flush: Flush) -> ();
        } { $($more)* }}
    };
}

/// [`runs::Store`](crate::runs::Store): runs and the leases of workers.
macro_rules! run_operations {
    ($run:ident for $store:ty { $($more:tt)* }) => {
        implement! { $run for $store: $crate::runs::Store {
            critical runs::claim([&] claim: QueueClaim) -> ClaimedRuns;
            read runs::run(thread: ThreadId, run: RunId) -> Option<Run>;
            read runs::run_weight(thread: ThreadId, run: RunId) -> Option<u64>;
            read runs::run_without_request(thread: ThreadId, run: RunId) -> Option<Run>;
            read runs::run_with_metadata(thread: ThreadId, run: RunId) -> Option<Run>;
            read runs::runs(thread: ThreadId, status: Option<Status>, limit: usize, offset: usize) -> Vec<Run>;
            read runs::runs_without_requests(thread: ThreadId, status: Option<Status>, limit: usize, offset: usize) -> Vec<Run>;
            read runs::runs_with_metadata(thread: ThreadId, status: Option<Status>, limit: usize, offset: usize) -> Vec<Run>;
            read runs::run_weights(thread: ThreadId, status: Option<Status>, limit: usize, offset: usize) -> Vec<(RunId, u64)>;
            read runs::metadata_weights(thread: ThreadId, status: Option<Status>, limit: usize, offset: usize) -> Vec<(RunId, u64)>;
            read runs::ended_run(tree: TreeId, run: RunId) -> Option<EndedRun>;
            read runs::open_states(limit: usize) -> Vec<OpenRunState>;
            read runs::open([&] page: OpenPage) -> Vec<OpenedRun>;
            read runs::is_open(thread: ThreadId, [&] runs: Vec<RunId>) -> Vec<(RunId, bool)>;
            store runs::renew(worker: WorkerId, lease: Duration) -> ();
            store runs::retire(worker: WorkerId) -> ();
            critical runs::recover([&] by: Recover) -> Recovered;
            critical runs::reclaim(worker: WorkerId, run: RunId) -> Option<ClaimedRun>;
            critical_read runs::running(worker: WorkerId) -> Vec<(RunId, Option<Value>)>;
            read runs::thread_of_run(run: RunId) -> Option<ThreadId>;
            critical runs::await_end(run: RunId) -> bool;
            store runs::fire([&] firing: Firing) -> Fired;
        } { $($more)* }}
    };
}

/// [`tree::Store`](crate::tree::Store): whole threads, and the slots of their active branches.
macro_rules! thread_operations {
    ($run:ident for $store:ty { $($more:tt)* }) => {
        implement! { $run for $store: $crate::tree::Store {
            store threads::create_thread([&] new: NewThread) -> Option<Thread>;
            read threads::thread(id: ThreadId) -> Option<Thread>;
            read threads::thread_with_level(id: ThreadId, [&] principal: Option<Arc<str>>) -> Option<ThreadWithLevel>;
            read threads::thread_with_checkpoint(id: ThreadId, [&] principal: Option<Arc<str>>, at: Option<CheckpointId>) -> Option<ThreadWithCheckpoint>;
            write_turn threads::patch_thread(id: ThreadId, [&] metadata: Map) -> Option<Thread>;
            store threads::delete_thread(id: ThreadId) -> bool;
            store threads::delete_tree(id: ThreadId) -> Vec<ThreadId>;
            store threads::copy_thread(from: ThreadId, [&] copy: NewCopy) -> Copied;
            store threads::prune_thread(id: ThreadId) -> Option<usize>;
            critical threads::take_slot(id: ThreadId) -> Option<Slot>;
            critical_read threads::slot(id: ThreadId) -> Option<Slot>;
            critical threads::record_outcome(slot: Slot, outcome: Outcome, [&] error: Option<Value>) -> ();
            read tree::withdrawn([&] threads: Vec<ThreadId>, [&] principals: Vec<Arc<str>>) -> Vec<usize>;
            read tree::level_on_thread(id: ThreadId, [&] principal: Arc<str>) -> Option<Level>;
            read threads::pending_interrupts(tree: TreeId, branch: BranchId, at: CheckpointId, most: u64) -> PendingInterrupts;
            read threads::search([&] page: ThreadPage) -> Vec<Listed>;
            read threads::count([&] filter: ThreadFilter) -> u64;
            read threads::expiry(id: ThreadId) -> Option<Expiry>;
            write threads::take_expired(limit: usize) -> Vec<(TreeId, ThreadId)>;
            read usage::usage(tree: TreeId, thread: ThreadId) -> Usage;
        } { $($more)* }}
    };
}

/// [`idempotency::Store`](crate::idempotency::Store): idempotency keys.
macro_rules! idempotency_operations {
    ($run:ident for $store:ty) => {
        implement! { $run for $store: $crate::idempotency::Store {
            write idempotency::claim_key([&] claim: Claim) -> Claimed;
            write idempotency::store_response([&] claim: Claim, [&] response: Vec<u8>) -> ();
            write idempotency::release_key([&] claim: Claim) -> ();
            write idempotency::abandon_key([&] claim: Claim) -> ();
            write idempotency::expire_keys(limit: usize) -> u64;
        }}
    };
}

/// [`store::Store`](crate::store::Store): items of long-term memory.
macro_rules! item_operations {
    ($run:ident for $store:ty { $($more:tt)* }) => {
        implement! { $run for $store: $crate::store::Store {
            read items::item([&] owner: Arc<str>, [&] namespace: Namespace, [&] key: String) -> Option<Item>;
            read items::item_weight([&] owner: Arc<str>, [&] namespace: Namespace, [&] key: String) -> Option<u64>;
            write items::put_item([&] put: Put, most: usize) -> bool;
            write items::delete_item([&] owner: Arc<str>, [&] namespace: Namespace, [&] key: String) -> bool;
            read items::search_items([&] search: Search) -> Found;
            read vectors::nearest_items([&] search: Nearest) -> Found;
            read items::item_namespaces([&] listing: Listing) -> Option<Vec<Namespace>>;
            write items::refresh_items([&] names: Vec<(Arc<str>, Namespace, String)>) -> ();
            write items::sweep_items(limit: usize) -> u64;
        } { $($more)* }}
    };
}

/// [`assistants::Store`](crate::assistants::Store): assistants and their versions.
macro_rules! assistant_operations {
    ($run:ident for $store:ty) => {
        implement! { $run for $store: $crate::assistants::Store {
            write assistants::put_system([&] all: Vec<NewAssistant>) -> ();
            write assistants::create_assistant([&] new: NewAssistant, most: usize) -> CreatedAssistant;
            read assistants::assistant([&] subject: Subject) -> Option<AssistantRow>;
            write assistants::change_assistant([&] subject: Subject, [&] change: Change, limits: Limits) -> ChangedAssistant;
            write assistants::activate_version([&] subject: Subject, version: i64) -> ChangedAssistant;
            write assistants::delete_assistant([&] subject: Subject) -> ChangedAssistant;
            read assistants::assistant_versions([&] subject: Subject, [&] query: VersionQuery) -> Option<Vec<(i32, u64)>>;
            read assistants::versions([&] subject: Subject, [&] versions: Vec<i32>) -> Vec<VersionRow>;
            read assistants::search_assistants([&] search: AssistantSearch, columns: Columns) -> Vec<(AssistantId, u64)>;
            read assistants::assistants([&] ids: Vec<AssistantId>, [&] viewer: Option<Arc<str>>, [&] graphs: Arc<[Arc<str>]>, columns: Columns) -> Vec<AssistantRow>;
            read assistants::count_assistants([&] filter: Filter) -> u64;
        }}
    };
}

/// [`outbox::Store`](crate::webhooks::outbox::Store): deliveries of webhooks.
macro_rules! outbox_operations {
    ($run:ident for $store:ty) => {
        implement! { $run for $store: $crate::webhooks::outbox::Store {
            read outbox::due_deliveries(limit: usize) -> Vec<Due>;
            read outbox::due_by_host([&] page: HostPage) -> DueByHost;
            write outbox::take_deliveries([&] keys: Vec<Key>, lease: Duration) -> Vec<Delivery>;
            write outbox::delivered(key: Key) -> ();
            write outbox::delivery_failed([&] failed: FailedTry) -> ();
            write outbox::release_deliveries([&] taken: Vec<(Key, i32)>) -> ();
            write outbox::sweep_deliveries(age: Duration, limit: usize) -> u64;
        }}
    };
}

/// [`Log`](crate::stream::log::Log): the log of streams that can be resumed.
macro_rules! log_operations {
    ($run:ident for $store:ty { $($more:tt)* }) => {
        implement! { $run for $store: $crate::stream::log::Log {
            critical log::append_chunks([&] chunks: Vec<NewChunk>) -> Vec<Option<i64>>;
            log_read log::chunks_of_run(run: RunId, after: i64) -> Vec<LogChunk>;
            log_read log::chunks_of_thread(thread: ThreadId, after: i64) -> Vec<LogChunk>;
            read log::ended_run(run: RunId) -> Option<TemporaryRun>;
            read log::end_of_run(run: RunId) -> i64;
            read log::thread_position(thread: ThreadId) -> i64;
            read log::thread_start(thread: ThreadId) -> i64;
            write log::trim_run(run: RunId, before: i64) -> ();
            write log::trim_principal([&] principal: Arc<str>, most: i64, limit: usize) -> u64;
            write log::sweep_log(age: Duration, limit: usize) -> u64;
        } { $($more)* }}
    };
}

/// [`crons::Store`](crate::crons::Store): crons.
macro_rules! cron_operations {
    ($run:ident for $store:ty) => {
        implement! { $run for $store: $crate::crons::Store {
            read crons::clock() -> Timestamp;
            store crons::create_cron([&] row: CronRow, [&] access: Access, most: usize) -> CreatedCron;
            read crons::cron(id: CronId, [&] viewer: Option<Arc<str>>) -> Option<CronRow>;
            write crons::replace_cron([&] old: CronRow, [&] new: CronRow) -> Option<CronRow>;
            write crons::delete_cron(id: CronId, [&] viewer: Option<Arc<str>>) -> bool;
            read crons::search_crons([&] search: CronSearch, columns: CronColumns) -> Vec<(CronId, u64)>;
            read crons::crons([&] ids: Vec<CronId>, [&] viewer: Option<Arc<str>>, columns: CronColumns) -> Vec<CronRow>;
            read crons::count_crons([&] filter: CronFilter) -> u64;
            read crons::due_crons(now: Timestamp, after: Option<(Timestamp, CronId)>, limit: usize) -> Vec<DueCron>;
        }}
    };
}

/// [`projection::Store`](crate::tree::projection::Store): tables derived from events.
macro_rules! projection_operations {
    ($run:ident for $store:ty) => {
        implement! { $run for $store: $crate::tree::projection::Store {
            read projections::behind(after: Option<ThreadId>, limit: usize) -> (Vec<ThreadId>, Option<ThreadId>);
            read projections::progress([&] threads: Vec<ThreadId>) -> Vec<Progress>;
            read checkpoints::channels([&] keys: Vec<ChannelKey>, most: ChannelLimits) -> Vec<ChannelRows>;
            store projections::apply([&] steps: Vec<ProjectionStep>) -> ();
            write projections::reset(projection: Option<Projection>, thread: Option<ThreadId>) -> ();
        }}
    };
}
