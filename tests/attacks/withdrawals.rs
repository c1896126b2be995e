//! Rights that are withdrawn while a write waits for the lock that a change of rights takes: whatever was allowed when
//! its request came is refused when its turn comes.
//!
//! On Postgres alone: SQLite has one writer, in whose transaction the level is read, so that no write can come between
//! that and what it writes.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::scope;

use serde_json::json;
use test_support::access::{SECRET, furnished, grant, keyed, people, revoke};
use test_support::client::{Answer, Client};
use test_support::place::Place;
use test_support::server::Server;
use test_support::tables::{rows_at, settled};
use test_support::talk::{get, until};

use self::writes::{Prepared, Write, all};
use crate::locks::{locked, patient, waiting, waiting_statements};
use crate::siege::{MIB, Watch};

mod writes;

/// What the owner of the threads does with the level that the writer has on each of them.
#[derive(Clone, Copy, PartialEq)]
enum Change {
    Withdrawn,
    /// The writer may read from then on.
    Lowered,
}

impl Change {
    /// What the change of rights does on Postgres, to all threads at once: it locks the rows of the trees, then it
    /// changes the levels.
    fn statements(self) -> String {
        let change = match self {
            Self::Withdrawn => "DELETE FROM tree_members",
            Self::Lowered => "UPDATE tree_members SET level = 'reader'",
        };
        format!("SELECT 1 FROM trees ORDER BY tree_id FOR UPDATE; {change} WHERE principal = 'bob'")
    }
}

/// Every table in which a thread has rows. What is derived of them, and the leases of processes, change by themselves.
const TABLES: [&str; 11] = [
    "trees",
    "threads",
    "branches",
    "tags",
    "checkpoints",
    "checkpoint_blobs",
    "checkpoint_writes",
    "message_nodes",
    "events",
    "runs",
    "crons",
];

/// A server whose statements wait for locks as long as it takes, and which lets one principal have every connection:
/// each write waits with one of its own. The database's transactions see what there was when they began, unless
/// somebody says otherwise.
fn serve(place: &Place) -> Server {
    let isolated = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = %L', \
                    current_database(), 'repeatable read'); END $$";
    locked(place.url().unwrap(), isolated).commit();
    keyed()
        .env("DATABASE_URL", patient(place))
        .env("BACKSTITCH_CONNECTIONS", "300")
        .env("BACKSTITCH_SHARE", "100")
        .start()
}

/// What writes may take that wait, each of them with a connection of its own.
const MOST: u64 = 64 * MIB;

/// Rows as texts, by the names of their tables.
type Stored = BTreeMap<&'static str, Vec<String>>;

/// What threads consist of, and who has which level on them but the writer.
fn stored(place: &Place) -> Stored {
    const MEMBERS: &str = "tree_members";
    let texts = |name| {
        let sql = format!("SELECT t::text FROM {name} t ORDER BY 1");
        let rows = rows_at(place.url().unwrap(), &sql);
        (name, rows.into_iter().flatten().flatten().collect())
    };
    let mut all: Stored = TABLES.into_iter().chain([MEMBERS]).map(texts).collect();
    let members = all.get_mut(MEMBERS).unwrap();
    members.retain(|row| !row.contains(",bob,"));
    all
}

/// The rows that only one of both has.
fn differences(before: &Stored, after: &Stored) -> Vec<String> {
    let mut found = vec![];
    for (sign, ours, theirs) in [("-", before, after), ("+", after, before)] {
        for (table, rows) in ours {
            let theirs: HashSet<&String> = theirs[table].iter().collect();
            let gone = rows.iter().filter(|row| !theirs.contains(row));
            found.extend(gone.map(|row| format!("{sign} {table} {row}")));
        }
    }
    found
}

/// The writes that wait for the lock of a tree. Whoever derives tables from events may wait for it too.
fn waiting_writes(place: &Place) -> usize {
    let mut statements = waiting_statements(place);
    statements.retain(|text| !text.contains("FROM trees WHERE tree_id = ANY"));
    statements.len()
}

/// What is wrong with the response to a write of somebody who had the level when the request came and has it no more.
fn complaint(write: &Write, answer: &Answer, change: Change) -> Option<String> {
    let expected = write.refusal(change == Change::Lowered);
    let is_refused = answer.status == expected.status
        && (expected.word.is_empty() || answer.text().contains(expected.word));
    (!is_refused).then(|| format!("{write}: {} {}", answer.status, answer.text()))
}

fn send(client: &Client, write: &Write, on: &Prepared) -> Answer {
    let (path, body) = write.request(on);
    test_support::access::send(client, write.route.method, &path, &body)
}

/// How many writes wait at once: on a busy machine all of them have to wait before the first has waited for as long as a
/// request may.
const AT_ONCE: usize = 24;

/// Sends every write while its rights change in a transaction that is not over: each waits for it, is refused when it
/// is over, and leaves nothing.
fn each_write_waits_and_is_refused(change: Change) {
    let place = Place::postgres();
    let server = serve(&place);
    let watch = Watch::probing(&server);
    let mut writes = all();
    // Who may read may copy.
    writes.retain(|write| change == Change::Withdrawn || !write.takes_reading());
    let parts = writes.chunks(AT_ONCE);
    let wrong: Vec<String> = parts
        .flat_map(|some| wrong_responses(&place, &server, some, change))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    watch.held("writes that wait for a change of rights", MOST);
}

/// What is wrong with the responses to some writes and with what they leave.
fn wrong_responses(
    place: &Place,
    server: &Server,
    writes: &[Write],
    change: Change,
) -> Vec<String> {
    let [ann, bob, _] = people(server);
    let prepared: Vec<_> = scope(|scope| {
        let (ann, bob) = (&ann, &bob);
        let all = writes.iter();
        let all = all.map(|write| scope.spawn(move || write.prepare(ann, bob)));
        let all: Vec<_> = all.collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    // Whoever derives tables from events has the turn at a tree while it waits for its lock, and a write behind it would
    // wait in the server, where nobody sees it.
    settled(place, server);
    let before = stored(place);
    let changing = locked(place.url().unwrap(), &change.statements());
    let answered = AtomicUsize::new(0);
    let (early, answers) = scope(|scope| {
        let requests = writes.iter().zip(&prepared).map(|(write, on)| {
            let (bob, answered) = (&bob, &answered);
            scope.spawn(move || {
                let answer = send(bob, write, on);
                (answered.fetch_add(1, Ordering::Relaxed), answer)
            })
        });
        let requests: Vec<_> = requests.collect();
        // A write that takes no lock does not wait.
        until("every write waits or has its response", || {
            answered.load(Ordering::Relaxed) + waiting_writes(place) >= writes.len()
        });
        let early = answered.load(Ordering::Relaxed);
        changing.commit();
        let answers = requests.into_iter().map(|one| one.join().unwrap());
        (early, answers.collect::<Vec<_>>())
    });
    let mut wrong = vec![];
    for (write, (number, answer)) in writes.iter().zip(&answers) {
        if *number < early {
            wrong.push(format!("{write} did not wait: {}", answer.status));
        }
        wrong.extend(complaint(write, answer, change));
    }
    wrong.extend(differences(&before, &stored(place)));
    wrong
}

#[test]
fn writes_that_wait_while_access_is_withdrawn_are_refused_and_leave_nothing() {
    each_write_waits_and_is_refused(Change::Withdrawn);
}

#[test]
fn writes_that_wait_while_a_level_is_lowered_are_refused_and_leave_nothing() {
    each_write_waits_and_is_refused(Change::Lowered);
}

/// The other side of the same lock: what writes has it until its transaction is over.
#[test]
fn changes_of_rights_wait_for_writes_under_way() {
    let place = Place::postgres();
    let server = serve(&place);
    let watch = Watch::probing(&server);
    let [ann, ..] = people(&server);
    let thread = furnished(&ann, SECRET).thread;
    let changes: [fn(&Client, &str); 3] = [
        |ann, thread| grant(ann, thread, "bob", "writer"),
        |ann, thread| grant(ann, thread, "bob", "reader"),
        |ann, thread| revoke(ann, thread, "bob"),
    ];
    for change in changes {
        let before = get(&ann, &thread, "members");
        let row = format!("SELECT 1 FROM trees WHERE tree_id = '{thread}' FOR SHARE");
        let write = locked(place.url().unwrap(), &row);
        scope(|scope| {
            let changed = scope.spawn(|| change(&ann, &thread));
            until("the change waits", || waiting(&place) == 1);
            assert_eq!(get(&ann, &thread, "members"), before);
            drop(write);
            changed.join().unwrap();
        });
        assert_ne!(get(&ann, &thread, "members"), before);
    }
    assert_eq!(
        get(&ann, &thread, "members")["members"],
        json!([{"principal": "ann", "level": "owner"}])
    );
    watch.held("changes of rights that wait for writes", MOST);
}
