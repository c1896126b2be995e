//! What each statement costs on a tree of some size and on one of four times the size: the same, while it
//! returns the same. A real server executes all of them for requests to both trees, so that the values that
//! they are bound to are those of rows; the database says what each execution took.

mod accidents;
mod acts;
mod claims;
mod exceptions;
mod lists;
mod operations;
mod requests;
mod rooms;
mod which;

use std::{collections::BTreeMap, fs};

use serde_json::Value as Json;
use test_support::{
    client::Client,
    place::block_on,
    postgres::{Cluster, Database},
    server::{Server, Setup},
};

use exceptions::{Exceptions, IN_POSTGRES, IN_SQLITE};
use requests::Tree;
use rooms::Rooms;
use which::{Test, of_postgres, of_sqlite};

use super::Statement;

/// Messages of the small tree; the large one has four times as many.
const SMALL: usize = 100;
const FACTOR: usize = 4;
/// How much more a statement may cost that returns as much, and one that grows with what it acts on.
const ALIKE: f64 = 1.5;
const LINEAR: f64 = 1.1;
/// What may be added by chance: another level of an index, a page that is cleaned up, a row beside it.
const SLACK_OF_POSTGRES: f64 = 8.0;
const SLACK_OF_SQLITE: f64 = 60.0;

/// What the execution of a statement took that took most: those on something small do not hide it.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    /// Pages that its steps have read, or instructions of SQLite.
    taken: f64,
    /// Rows that it returned.
    rows: f64,
}

impl Cost {
    /// Takes another execution into account.
    fn include(&mut self, taken: f64, rows: f64) {
        if taken > self.taken {
            *self = Self { taken, rows };
        }
    }
}

type Costs = BTreeMap<String, Cost>;

/// What a database says of the statements that it has executed.
trait Meter {
    /// The costs by the text of the statement, since this was last asked.
    fn read(&mut self) -> Costs;
    /// From the next start of the server on statements are measured, on a database from which what was
    /// overwritten has gone.
    fn arm(&self);
}

struct OfPostgres {
    cluster: Cluster,
    database: Database,
    read: usize,
}

impl OfPostgres {
    fn start() -> Self {
        let cluster = Cluster::start();
        let database = block_on(cluster.database());
        Self {
            cluster,
            database,
            read: 0,
        }
    }

    fn execute(&self, sql: &str) {
        block_on(async {
            let (client, connection) =
                tokio_postgres::connect(&self.database.url, tokio_postgres::NoTls)
                    .await
                    .unwrap();
            tokio::spawn(connection);
            client.batch_execute(sql).await.unwrap();
        });
    }
}

/// The sum over all steps: those that change rows beside the result are part of no other.
fn pages(plan: &Json) -> f64 {
    let number = |name: &str| plan[name].as_f64().unwrap_or_default();
    let below = plan["Plans"].as_array().into_iter().flatten().map(pages);
    // A step counts those below it, too.
    let inclusive: f64 = plan["Plans"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|child| {
            let number = |name: &str| child[name].as_f64().unwrap_or_default();
            number("Shared Hit Blocks") + number("Shared Read Blocks")
        })
        .sum();
    let own = number("Shared Hit Blocks") + number("Shared Read Blocks") - inclusive;
    own.max(0.0) + below.sum::<f64>()
}

impl Meter for OfPostgres {
    fn read(&mut self) -> Costs {
        let log = self.cluster.log();
        let mut costs = Costs::new();
        let mut lines = log[self.read..].lines().peekable();
        self.read = log.len();
        while let Some(line) = lines.next() {
            if !line.ends_with("plan:") {
                continue;
            }
            let mut text = String::new();
            while let Some(more) = lines.next_if(|line| line.starts_with('\t')) {
                text += more;
            }
            let explained: Json = serde_json::from_str(&text).unwrap();
            let query = explained["Query Text"].as_str().unwrap();
            let plan = &explained["Plan"];
            let cost = costs.entry(query.to_owned()).or_default();
            let rows = plan["Actual Rows"].as_f64().unwrap_or_default();
            cost.include(pages(plan), rows);
        }
        costs
    }

    fn arm(&self) {
        // The database analyses no table meanwhile: plans change only with the size of the tree.
        self.execute("ALTER SYSTEM SET autovacuum = off");
        self.execute("VACUUM");
        self.execute("ALTER SYSTEM SET session_preload_libraries = 'auto_explain'");
        self.execute("SELECT pg_reload_conf()");
        let name = self.database.url.rsplit('/').next().unwrap();
        let settings = [
            "log_min_duration = 0",
            "log_analyze = on",
            "log_buffers = on",
            "log_timing = off",
            "log_format = json",
        ];
        for setting in settings {
            self.execute(&format!(
                "ALTER DATABASE \"{name}\" SET auto_explain.{setting}"
            ));
        }
    }
}

struct OfSqlite {
    folder: tempfile::TempDir,
    read: usize,
}

impl OfSqlite {
    fn file(&self) -> std::path::PathBuf {
        self.folder.path().join("steps")
    }
}

impl Meter for OfSqlite {
    fn read(&mut self) -> Costs {
        let log = fs::read_to_string(self.file()).unwrap();
        let mut costs = Costs::new();
        for line in log[self.read..].lines() {
            let execution: Json = serde_json::from_str(line).unwrap();
            let cost = costs
                .entry(execution[0].as_str().unwrap().to_owned())
                .or_default();
            cost.include(
                execution[1].as_f64().unwrap(),
                execution[2].as_f64().unwrap(),
            );
        }
        self.read = log.len();
        costs
    }

    fn arm(&self) {}
}

/// What is wrong, by the name of the statement; so is an exception that is none.
fn complaints(
    statements: &[Statement],
    costs: &Measured,
    slack: f64,
    exceptions: (Exceptions, Exceptions),
) -> BTreeMap<String, String> {
    let mut complaints: BTreeMap<_, _> = [exceptions.0, exceptions.1]
        .iter()
        .flat_map(|exceptions| which::unfit(exceptions, statements))
        .collect();
    complaints.extend(growing(statements, costs, slack, exceptions));
    complaints
}

/// What costs more on the large tree while it returns the same, or is not executed for both trees, unless it is an
/// exception. What grows on purpose grows with the tree, and no more.
fn growing(
    statements: &[Statement],
    costs: &Measured,
    slack: f64,
    (grows, unmeasured): (Exceptions, Exceptions),
) -> BTreeMap<String, String> {
    let mut complaints = BTreeMap::new();
    let mut measured = 0;
    for Statement { name, text } in statements {
        let (Some(few), Some(many)) = (costs.small.get(*text), costs.large.get(*text)) else {
            if !which::is_among(unmeasured, name) {
                let executed = "is not executed for a small tree and for a large one";
                complaints.insert(name.clone(), executed.to_owned());
            }
            continue;
        };
        measured += 1;
        let rows = (many.rows / few.rows.max(1.0)).max(1.0);
        let times = if which::is_among(grows, name) {
            println!("{name}: {:.1}, then {:.1}", few.taken, many.taken);
            LINEAR * rows.max(FACTOR as f64)
        } else {
            ALIKE * rows
        };
        // Each row may lie on a page of its own.
        let most = few.taken * times + slack + many.rows;
        if many.taken > most {
            let costs = format!(
                "grows: {:.1} with {:.1} rows, then {:.1} with {:.1} rows",
                few.taken, few.rows, many.taken, many.rows
            );
            complaints.insert(name.clone(), costs);
        }
    }
    println!(
        "{measured} of {} statements were measured",
        statements.len()
    );
    complaints
}

/// Fails when two measurements complain of the same statement. What grows does so each time; an accident, such
/// as a connection that was opened just then and read the catalog, does not happen twice to one statement.
fn assert_twice(mut complaints: impl FnMut() -> BTreeMap<String, String>) {
    let first = complaints();
    if first.is_empty() {
        return;
    }
    println!("measured once more because of {first:#?}");
    let second = complaints();
    let both: Vec<_> = (first.iter().filter(|(name, _)| second.contains_key(*name))).collect();
    assert!(both.is_empty(), "{both:#?}");
}

/// What statements cost for a small tree, and for a large one.
#[derive(Default)]
struct Measured {
    small: Costs,
    large: Costs,
}

/// Copies that are made of the larger tree, and of a short thread of it, before it is measured.
const COPIES: usize = 4;
const SHORT_COPIES: usize = 40;

/// What statements cost for two trees.
struct OfTrees {
    /// Of what most requests are made to, and what happens without any.
    tree: Measured,
    /// Of threads that are the same in both.
    short: Measured,
    /// Of threads that are as large as their trees.
    long: Measured,
}

/// Executes the statements for a small tree, and then for a large one among many others. `open` opens the database of
/// a server that is not there.
fn measure<S: Rooms, M: Meter>(
    setup: Setup,
    meter: &mut M,
    open: impl AsyncFn(&M, &Server) -> S,
) -> OfTrees {
    let setup = setup.env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b");
    let mut server = setup.env("BACKSTITCH_LEASE", "2").start();
    let client = Client::of(&server).with_key("key-a");
    let trees = [SMALL, SMALL * FACTOR].map(|messages| requests::tree(&client, messages));
    trees.iter().for_each(|tree| requests::quiet(&client, tree));
    server.kill();
    meter.arm();
    let of_tree = |meter: &mut M, server: &mut Server, tree: &Tree| {
        server.restart();
        meter.read();
        requests::make(server, tree);
        server.kill();
        block_on(async {
            let store = open(meter, server).await;
            accidents::happen(&store, tree).await;
            let mut all = meter.read();
            acts::on_short(&store, tree).await;
            let short = meter.read();
            accidents::tables_go(&store).await;
            let anew = meter.read();
            accidents::tables_are_made_anew(&store).await;
            add(&mut all, &short);
            add(&mut all, &anew);
            (all, short)
        })
    };
    let [small, large] = &trees;
    let of_small = of_tree(meter, &mut server, small);
    block_on(async {
        let store = open(meter, &server).await;
        for number in 0..COPIES + SHORT_COPIES {
            let from = if number < COPIES {
                &large.thread
            } else {
                &large.short[0]
            };
            let owner = if number % 2 == 0 { "ann" } else { "bob" };
            acts::copy(&store, acts::thread_of(from), owner).await;
        }
        accidents::tables_are_made_anew(&store).await;
    });
    let of_large = of_tree(meter, &mut server, large);
    let [small, large] = block_on(async {
        let store = open(meter, &server).await;
        meter.read();
        acts::on_long(&store, small).await;
        let few = meter.read();
        acts::on_long(&store, large).await;
        [few, meter.read()]
    });
    let measured = |small, large| Measured { small, large };
    OfTrees {
        tree: measured(of_small.0, of_large.0),
        short: measured(of_small.1, of_large.1),
        long: measured(small, large),
    }
}

/// Adds what more executions took.
fn add(costs: &mut Costs, more: &Costs) {
    for (text, one) in more {
        let cost = costs.entry(text.clone()).or_default();
        cost.include(one.taken, one.rows);
    }
}

/// Which statements of trees are measured otherwise than among four times as much.
struct Kinds {
    /// They cost as much as the thread that they act on.
    whole: Exceptions,
    /// They grow with their tree, as README says, or with all rows of a table.
    grows: Exceptions,
    /// They are not measured.
    unmeasured: Exceptions,
}

/// What is wrong in any of the three measurements.
fn of_trees(
    statements: &[Statement],
    costs: &OfTrees,
    slack: f64,
    kinds: &Kinds,
) -> BTreeMap<String, String> {
    let is_whole = |one: &Statement| which::is_among(kinds.whole, &one.name);
    let (whole, others): (Vec<_>, Vec<_>) = statements.iter().cloned().partition(is_whole);
    let mut found: BTreeMap<_, _> = [kinds.whole, kinds.grows, kinds.unmeasured]
        .iter()
        .flat_map(|exceptions| which::unfit(exceptions, statements))
        .collect();
    let exceptions = (kinds.grows, kinds.unmeasured);
    let mut check = |what: &str, statements: &[Statement], measured, exceptions| {
        let complaints = growing(statements, measured, slack, exceptions);
        let named = |(name, complaint)| (format!("{what}: {name}"), complaint);
        found.extend(complaints.into_iter().map(named));
    };
    check("of trees", &others, &costs.tree, exceptions);
    check("of short threads", &whole, &costs.short, (kinds.grows, &[]));
    check("of long threads", &whole, &costs.long, (kinds.whole, &[]));
    found
}

async fn open_postgres(meter: &OfPostgres, _: &Server) -> crate::storage::postgres::Store {
    let options = crate::storage::postgres::Options::new(meter.database.url.clone());
    let store = crate::storage::postgres::Store::connect(options);
    store.await.unwrap()
}

/// The database of a server that is not there. The measures of this process go where those of the server are.
async fn open_sqlite(meter: &OfSqlite, server: &Server) -> crate::storage::sqlite::Store {
    let path = server.folder().join("data");
    // Their folders may be on two file systems. The link is there already, if it was opened before.
    std::os::unix::fs::symlink(meter.file(), path.join("steps")).ok();
    let options = crate::storage::sqlite::Options {
        path,
        synchronous_off: true,
    };
    crate::storage::sqlite::Store::open(options).unwrap()
}

#[test]
fn statements_of_postgres_cost_the_same_on_a_tree_of_four_times_the_size() {
    let statements = of_postgres(Test::Trees);
    assert_twice(|| {
        let mut meter = OfPostgres::start();
        let setup = Setup::example("reference_server").postgres(&meter.database);
        let costs = measure(setup, &mut meter, open_postgres);
        of_trees(&statements, &costs, SLACK_OF_POSTGRES, &IN_POSTGRES)
    });
}

#[test]
fn statements_of_sqlite_cost_the_same_on_a_tree_of_four_times_the_size() {
    let statements = of_sqlite(Test::Trees);
    assert_twice(|| {
        let folder = tempfile::tempdir().unwrap();
        let mut meter = OfSqlite { folder, read: 0 };
        let file = meter.file().display().to_string();
        let setup = Setup::example("reference_server").env("SQLITE_STATEMENTS", file);
        let costs = measure(setup, &mut meter, open_sqlite);
        of_trees(&statements, &costs, SLACK_OF_SQLITE, &IN_SQLITE)
    });
}
