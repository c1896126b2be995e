//! Connections: one pool each for runs, for reading and for trees, and retries of what fails.

use std::{fmt, str::FromStr, time::Duration};

use deadpool::{
    Runtime,
    managed::{self, Hook, HookError, PoolError, QueueMode, TimeoutType},
};
use deadpool_postgres::{Manager, ManagerConfig, RecyclingMethod};
use futures::future::BoxFuture;
use tokio_postgres::{
    Config, NoTls, Statement,
    config::{Host, SslMode},
};

use super::error::Error;
use crate::{
    abandon,
    checkpoint::{self, codec::Format},
    contention::{
        Patience,
        shares::{Percent, Share, Shares},
        unlimited::has_limit,
    },
};

mod client;
mod failure;
pub(crate) mod hot;
pub(crate) mod streams;
pub(crate) mod transaction;

use client::Connections;
pub(crate) use client::Object;
use failure::describe;
pub(crate) use failure::{Failure, Result};

/// How to reach the database.
#[derive(Clone)]
pub struct Options {
    /// `postgres://user:password@host:port/database?...` or a `key=value` connection string.
    pub url: String,
    /// Connections reserved for claims, commits and the ends of runs. The lease has one of its own.
    pub critical: usize,
    /// Connections for everything else. They never starve the critical ones.
    pub reads: usize,
    /// How long a search or another read may take in the database.
    pub read_limit: Duration,
    /// Connections for operations on trees, which need theirs for several round trips; further
    /// ones wait for their turn.
    pub trees: usize,
    /// How long a request may wait for the share that its principal has of the connections, and a reader of a stored
    /// stream for its turn.
    pub request_wait: Duration,
    /// How much of the connections of each kind one principal may have at a time.
    pub share: Percent,
    /// How many may wait for one thread or tree, and for how long.
    pub patience: Patience,
    /// In which form values are written; they are read in every form.
    pub format: Format,
    /// Whether processes let each other know by LISTEN and NOTIFY what they did, on one connection more.
    pub notifications: bool,
}

impl Options {
    /// The usual pool sizes: 8, 8 and 4.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            critical: 8,
            reads: 8,
            read_limit: Duration::from_secs(5),
            trees: 4,
            request_wait: Duration::from_secs(10),
            share: Percent::default(),
            patience: Patience::default(),
            format: Format::default(),
            notifications: true,
        }
    }

    /// The same with so many connections in all, besides the one of the lease.
    #[must_use]
    pub fn with_connections(self, connections: usize) -> Self {
        let trees = (connections / 5).max(1);
        let reads = ((connections - trees) / 2).max(1);
        Self {
            critical: connections.saturating_sub(trees + reads).max(1),
            reads,
            trees,
            ..self
        }
    }
}

/// Without the URL, which may contain a password.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("critical", &self.critical)
            .field("reads", &self.reads)
            .field("trees", &self.trees)
            .finish_non_exhaustive()
    }
}

/// How long to wait for a free connection before the caller gets an error, unless its waits have no limit.
const ACQUIRE: Duration = Duration::from_secs(1);
/// How long opening one connection may take, unless the URL sets another limit.
const CONNECT: Duration = Duration::from_secs(3);
/// How long a connection is used: plans are made once per connection, and tables grow.
const PLAN_AGE: Duration = Duration::from_secs(300);
/// Pauses before further tries of a statement; together well below two seconds.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(600),
];
/// Limits of a statement, and two choices of the planner: statements are few, fixed and look rows
/// up by key, so planning each execution anew for its parameters costs more than it finds, and a
/// plan made while a table was empty must not scan it for the rest of the connection's life. A page of
/// a list is read in the order of its index: a bitmap would fetch all rows first. Transactions see what was committed
/// when they got a lock, whatever the database says: what somebody had when they began to wait may be withdrawn since.
pub(super) const SESSION: &str = "-c statement_timeout=5000 -c lock_timeout=1000 \
    -c default_transaction_isolation=read\\ committed \
    -c idle_in_transaction_session_timeout=10000 -c plan_cache_mode=force_generic_plan \
    -c enable_seqscan=off -c enable_bitmapscan=off -c jit=off";

/// Operations on one tree wait for each other; a commit never waits for all of that.
pub(super) const PATIENT: &str = "-c statement_timeout=15000 -c lock_timeout=10000";

/// The statements of runs join a few rows they bring along with rows they name by key: any other
/// join than by looking each up would read whole tables.
pub(super) const KEYED: &str = "-c enable_hashjoin=off -c enable_mergejoin=off";

/// Some of the connections; one principal has at most its share of them at a time.
#[derive(Clone)]
pub(crate) struct Pool {
    connections: managed::Pool<Connections>,
    shares: Shares,
    /// How long a principal may wait for its share.
    wait: Duration,
    /// Whether commits use it: their time limit is about the disk and locks, not about how much is read.
    is_for_commits: bool,
}

impl Pool {
    /// The error of the caller. A commit that ran into its time limit did so because of the disk or of others, which
    /// passes; a read would take as long once more.
    fn error(&self, failure: Failure) -> checkpoint::Error {
        match failure.into_error() {
            checkpoint::Error::TookTooLong if self.is_for_commits => {
                checkpoint::Error::Unavailable("a commit gave no answer in time".to_owned())
            }
            error => error,
        }
    }

    /// How many connections there are at most.
    pub(crate) fn max_size(&self) -> usize {
        self.connections.status().max_size
    }

    /// The shares that principals have of the connections.
    pub(crate) fn shares(&self) -> &Shares {
        &self.shares
    }

    /// A turn of the principal that this task works for, without which it must not take a
    /// connection.
    pub(crate) async fn share(&self) -> Result<Share, Failure> {
        let share = self.shares.wait(self.wait).await;
        share.map_err(|full| Failure::Final(full.into()))
    }
}

/// The connections of one process.
#[derive(Clone)]
pub(crate) struct Pools {
    /// For claims, commits and the ends of runs.
    pub(crate) critical: Pool,
    /// One connection, for the lease alone: whatever all others do, this process does not look dead.
    pub(crate) lease: Pool,
    /// For everything else.
    pub(crate) reads: Pool,
    /// For transactions on trees.
    pub(crate) trees: Pool,
}

impl Pools {
    /// How the pools stand.
    pub(crate) fn states(&self) -> Vec<crate::runs::PoolState> {
        let pools = [
            ("critical", &self.critical),
            ("lease", &self.lease),
            ("reads", &self.reads),
            ("trees", &self.trees),
        ];
        let state = |(name, pool): (&'static str, &Pool)| {
            let status = pool.connections.status();
            crate::runs::PoolState {
                name,
                max: status.max_size,
                open: status.size,
                free: status.available,
                waiting: status.waiting,
            }
        };
        pools.into_iter().map(state).collect()
    }

    pub(crate) async fn connect(options: &Options) -> Result<Self, Error> {
        let config = configure(&options.url, SESSION)?;
        let limit = options.read_limit.as_millis();
        let reading = format!("{SESSION} -c statement_timeout={limit}");
        let reading = configure(&options.url, &reading)?;
        let patient = configure(&options.url, &format!("{SESSION} {PATIENT}"))?;
        let pool = |size: usize, config: &Config, is_for_commits: bool| {
            let manager = Manager::from_config(
                config.clone(),
                NoTls,
                ManagerConfig {
                    recycling_method: RecyclingMethod::Fast,
                },
            );
            let connections = managed::Pool::<Connections>::builder(Connections {
                manager,
                format: options.format,
            })
            .max_size(size.max(1))
            .wait_timeout(Some(ACQUIRE))
            .create_timeout(Some(CONNECT))
            .recycle_timeout(Some(ACQUIRE))
            .runtime(Runtime::Tokio1)
            // The one that was used last has its plans and buffers; the others need none.
            .queue_mode(QueueMode::Lifo)
            .pre_recycle(Hook::sync_fn(|_, metrics| {
                if metrics.age() < PLAN_AGE {
                    Ok(())
                } else {
                    Err(HookError::message("its plans are old"))
                }
            }))
            .build()
            .map_err(|error| unreachable_at(config, &error.to_string()))?;
            client::sweep(&connections, PLAN_AGE);
            Ok(Pool {
                connections,
                shares: Shares::of_each(options.share.of(size)),
                wait: options.request_wait,
                is_for_commits,
            })
        };
        let keyed = configure(&options.url, &format!("{SESSION} {KEYED}"))?;
        let pools = Self {
            critical: pool(options.critical, &keyed, true)?,
            lease: pool(1, &keyed, true)?,
            reads: pool(options.reads, &reading, false)?,
            trees: pool(options.trees, &patient, false)?,
        };
        match pools.critical.connections.get().await {
            Ok(_) => Ok(pools),
            Err(error) => Err(unreachable_at(&config, &reason(&error))),
        }
    }
}

/// Reads the URL and adds what every connection needs.
pub(crate) fn configure(url: &str, session: &str) -> Result<Config, Error> {
    for mode in ["verify-ca", "verify-full"] {
        if url.contains(&format!("sslmode={mode}")) {
            return Err(Error::Tls(mode));
        }
    }
    let mut config = Config::from_str(url).map_err(|error| Error::Url(describe(&error)))?;
    if config.get_ssl_mode() == SslMode::Require {
        return Err(Error::Tls("require"));
    }
    config
        .ssl_mode(SslMode::Disable)
        .keepalives(true)
        .keepalives_idle(Duration::from_secs(10))
        .keepalives_interval(Duration::from_secs(3))
        .keepalives_retries(3)
        .tcp_user_timeout(Duration::from_secs(15));
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT);
    }
    if config.get_application_name().is_none() {
        config.application_name("backstitch");
    }
    // What the URL sets comes last and so takes precedence.
    let options = match config.get_options() {
        Some(own) => format!("{session} {own}"),
        None => session.to_owned(),
    };
    config.options(options);
    Ok(config)
}

/// Names host and database, never the password.
pub(crate) fn unreachable_at(config: &Config, reason: &str) -> Error {
    let ports = config.get_ports();
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .enumerate()
        .map(|(index, host)| {
            let name = match host {
                Host::Tcp(name) => name.clone(),
                #[cfg(unix)]
                Host::Unix(path) => path.display().to_string(),
            };
            let port = ports.get(index).or(ports.first()).unwrap_or(&5432);
            format!("{name}:{port}")
        })
        .collect();
    Error::Unreachable {
        host: if hosts.is_empty() {
            "an unnamed host".to_owned()
        } else {
            hosts.join(", ")
        },
        database: config
            .get_dbname()
            .or(config.get_user())
            .unwrap_or_default()
            .to_owned(),
        reason: reason.to_owned(),
    }
}

/// Why the pool has no connection.
fn reason(error: &PoolError<tokio_postgres::Error>) -> String {
    match error {
        PoolError::Backend(error) => describe(error),
        PoolError::Timeout(TimeoutType::Wait) => "all connections are in use".to_owned(),
        PoolError::Timeout(_) => "no answer in time".to_owned(),
        other => other.to_string(),
    }
}

/// A driver's failure of a first connection, in words.
pub(crate) fn connection_reason(error: &tokio_postgres::Error) -> String {
    describe(error)
}

/// A connection from the pool.
pub(crate) async fn acquire(pool: &Pool) -> Result<Object, Failure> {
    let pool = &pool.connections;
    let mut limits = pool.timeouts();
    if !has_limit() {
        limits.wait = None;
    }
    let connection = pool.timeout_get(&limits).await;
    connection.map_err(|error| match error {
        PoolError::Backend(error) => Failure::Database(error),
        other => Failure::Final(checkpoint::Error::Unavailable(reason(&other))),
    })
}

/// Runs `work` on a connection, and retries it a few times when a failure is transient.
///
/// `work` must be idempotent: the reply of an attempt that took effect may have been lost.
pub(crate) async fn retry<T, F, W>(pool: &Pool, work: F) -> Result<T, checkpoint::Error>
where
    F: Fn(Object) -> W,
    W: Future<Output = Result<T, Failure>>,
{
    let _share = pool.share().await.map_err(Failure::into_error)?;
    retry_in_share(pool, work).await
}

/// As [`retry`], for who has its share already.
pub(crate) async fn retry_in_share<T, F, W>(pool: &Pool, work: F) -> Result<T, checkpoint::Error>
where
    F: Fn(Object) -> W,
    W: Future<Output = Result<T, Failure>>,
{
    let mut pauses = PAUSES.iter();
    loop {
        let result = match acquire(pool).await {
            Ok(client) => abandon::statement(work(client)).await,
            Err(failure) => Err(failure),
        };
        match result {
            Ok(value) => return Ok(value),
            Err(failure) if failure.may_be_retried() => match pauses.next() {
                Some(pause) => tokio::time::sleep(jitter(*pause)).await,
                None => return Err(pool.error(failure)),
            },
            Err(failure) => return Err(pool.error(failure)),
        }
    }
}

/// Runs `work` on a connection for at most `limit`. A connection that takes longer is closed, and the
/// next call opens another one.
pub(crate) async fn within<T>(
    pool: &Pool,
    limit: Duration,
    work: impl for<'a> FnOnce(&'a Object) -> BoxFuture<'a, Result<T, Failure>>,
) -> Result<T, checkpoint::Error> {
    let client = acquire(pool).await.map_err(Failure::into_error)?;
    match tokio::time::timeout(limit, work(&client)).await {
        Ok(result) => result.map_err(|failure| pool.error(failure)),
        Err(_) => {
            drop(Object::take(client));
            let reason = "a connection gave no answer in time";
            Err(checkpoint::Error::Unavailable(reason.to_owned()))
        }
    }
}

/// Runs `work` on a connection, without another try.
pub(crate) async fn once<T, F, W>(pool: &Pool, work: F) -> Result<T, checkpoint::Error>
where
    F: FnOnce(Object) -> W,
    W: Future<Output = Result<T, Failure>>,
{
    let _share = pool.share().await.map_err(Failure::into_error)?;
    let client = acquire(pool).await.map_err(Failure::into_error)?;
    work(client).await.map_err(|failure| pool.error(failure))
}

/// Between half of the pause and all of it, so that those who lost a lock do not compete for the
/// next one at once.
fn jitter(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + 0.5 * rand::random::<f64>())
}

/// Prepared once per connection.
pub(crate) async fn prepare(client: &Object, text: &'static str) -> Result<Statement, Failure> {
    let statement = client.prepare_cached(text).await?;
    abandon::end_unless_wanted().await;
    Ok(statement)
}

statements!(; transaction);
