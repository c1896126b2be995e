//! Connections: one pool each for runs, for reading and for trees, and retries of what fails.

use std::{fmt, str::FromStr, time::Duration};

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use tokio_postgres::{
    Config, NoTls, Statement,
    config::{Host, SslMode},
};

use super::error::Error;
use crate::checkpoint;

mod failure;
pub(crate) mod transaction;

pub(crate) use failure::Failure;
use failure::describe;

/// How to reach the database.
#[derive(Clone)]
pub struct Options {
    /// `postgres://user:password@host:port/database?...` or a `key=value` connection string.
    pub url: String,
    /// Connections reserved for claims, commits, leases and the ends of runs.
    pub critical: usize,
    /// Connections for everything else. They never starve the critical ones.
    pub reads: usize,
    /// Connections for operations on trees, which need theirs for several round trips; further
    /// ones wait for their turn.
    pub trees: usize,
}

impl Options {
    /// The usual pool sizes: 8, 8 and 4.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            critical: 8,
            reads: 8,
            trees: 4,
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

/// How long to wait for a free connection before the caller gets an error.
const ACQUIRE: Duration = Duration::from_secs(1);
/// How long opening one connection may take, unless the URL sets another limit.
const CONNECT: Duration = Duration::from_secs(3);
/// Pauses before further tries of a statement; together well below two seconds.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(600),
];
/// Limits of a statement, and two choices of the planner: statements are few, fixed and look rows
/// up by key, so planning each execution anew for its parameters costs more than it finds, and a
/// plan made while a table was empty must not scan it for the rest of the connection's life.
const SESSION: &str = "-c statement_timeout=5000 -c lock_timeout=1000 \
    -c idle_in_transaction_session_timeout=10000 -c plan_cache_mode=force_generic_plan \
    -c enable_seqscan=off -c jit=off";

/// Operations on one tree wait for each other; a commit never waits for all of that.
const PATIENT: &str = "-c statement_timeout=15000 -c lock_timeout=10000";

/// The statements of runs join a few rows they bring along with rows they name by key: any other
/// join than by looking each up would read whole tables.
const KEYED: &str = "-c enable_hashjoin=off -c enable_mergejoin=off";

/// The connections of one process.
#[derive(Clone)]
pub(crate) struct Pools {
    /// For claims, commits, leases and the ends of runs.
    pub(crate) critical: Pool,
    /// For everything else.
    pub(crate) reads: Pool,
    /// For transactions on trees.
    pub(crate) trees: Pool,
}

impl Pools {
    pub(crate) async fn connect(options: &Options) -> Result<Self, Error> {
        let config = configure(&options.url, SESSION)?;
        let patient = configure(&options.url, &format!("{SESSION} {PATIENT}"))?;
        let pool = |size: usize, config: &Config| {
            let manager = Manager::from_config(
                config.clone(),
                NoTls,
                ManagerConfig {
                    recycling_method: RecyclingMethod::Fast,
                },
            );
            Pool::builder(manager)
                .max_size(size.max(1))
                .wait_timeout(Some(ACQUIRE))
                .create_timeout(Some(CONNECT))
                .recycle_timeout(Some(ACQUIRE))
                .runtime(Runtime::Tokio1)
                .build()
                .map_err(|error| unreachable_at(config, &error.to_string()))
        };
        let keyed = configure(&options.url, &format!("{SESSION} {KEYED}"))?;
        let pools = Self {
            critical: pool(options.critical, &keyed)?,
            reads: pool(options.reads, &config)?,
            trees: pool(options.trees, &patient)?,
        };
        match pools.critical.get().await {
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
fn reason(error: &deadpool_postgres::PoolError) -> String {
    match error {
        deadpool_postgres::PoolError::Backend(error) => describe(error),
        deadpool_postgres::PoolError::Timeout(deadpool_postgres::TimeoutType::Wait) => {
            "all connections are in use".to_owned()
        }
        deadpool_postgres::PoolError::Timeout(_) => "no answer in time".to_owned(),
        other => other.to_string(),
    }
}

/// A driver's failure of a first connection, in words.
pub(crate) fn connection_reason(error: &tokio_postgres::Error) -> String {
    describe(error)
}

/// A connection from the pool.
pub(crate) async fn acquire(pool: &Pool) -> Result<Object, Failure> {
    pool.get().await.map_err(|error| match error {
        deadpool_postgres::PoolError::Backend(error) => Failure::Database(error),
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
    let mut pauses = PAUSES.iter();
    loop {
        let result = match acquire(pool).await {
            Ok(client) => work(client).await,
            Err(failure) => Err(failure),
        };
        match result {
            Ok(value) => return Ok(value),
            Err(failure) if failure.is_transient() => match pauses.next() {
                Some(pause) => tokio::time::sleep(jitter(*pause)).await,
                None => return Err(failure.into_error()),
            },
            Err(failure) => return Err(failure.into_error()),
        }
    }
}

/// Runs `work` on a connection, without another try.
pub(crate) async fn once<T, F, W>(pool: &Pool, work: F) -> Result<T, checkpoint::Error>
where
    F: FnOnce(Object) -> W,
    W: Future<Output = Result<T, Failure>>,
{
    let client = acquire(pool).await.map_err(Failure::into_error)?;
    work(client).await.map_err(Failure::into_error)
}

/// Between half of the pause and all of it, so that those who lost a lock do not compete for the
/// next one at once.
fn jitter(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + 0.5 * rand::random::<f64>())
}

/// Prepared once per connection.
pub(crate) async fn prepare(client: &Object, text: &'static str) -> Result<Statement, Failure> {
    Ok(client.prepare_cached(text).await?)
}
