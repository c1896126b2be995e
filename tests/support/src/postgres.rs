//! A database per test, on the server named by `TEST_DATABASE_URL` or on the tests' own cluster.

use std::fs::{self, File};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::programs;
use tokio_postgres::config::Host;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};

/// Serialises the making of templates among all test processes of a server.
const TEMPLATE_LOCK: i64 = 0x6261_636b_7374_6974;

/// Brings an empty database to the newest schema. The only place where the harness knows how.
fn migrate(url: &str) {
    let output = Command::new(programs::bundled())
        .arg("migrate")
        .env("DATABASE_URL", url)
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "backstitch migrate: {complaint}");
}

/// A database of one test, dropped with this value.
#[derive(Debug)]
pub struct Database {
    /// Where it is: `postgres://user:password@host:port/name`.
    pub url: String,
    server: Server,
    name: String,
}

/// A migrated database, copied from a template that is migrated once per schema.
pub async fn database() -> Database {
    let server = shared();
    let admin = server.connect().await;
    let template = template(&server, &admin).await;
    create(server, &admin, Some(&template)).await
}

/// A database without any table.
pub async fn empty_database() -> Database {
    let server = shared();
    let admin = server.connect().await;
    create(server, &admin, None).await
}

/// A cluster of its own, for tests that crash the database server.
#[derive(Debug)]
pub struct Cluster {
    folder: tempfile::TempDir,
    _in_use: File,
}

impl Cluster {
    /// Starts an empty cluster.
    pub fn start() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("backstitch-postgres-")
            .tempdir()
            .unwrap();
        let in_use = lock_users(folder.path());
        script("start", Some(folder.path()));
        Self {
            folder,
            _in_use: in_use,
        }
    }

    /// A migrated database in it.
    pub async fn database(&self) -> Database {
        let server = Server { url: self.url() };
        let admin = server.connect().await;
        let template = template(&server, &admin).await;
        create(server, &admin, Some(&template)).await
    }

    /// Kills every process of the server at once, as a power cut of the database host would.
    pub fn crash(&self) {
        script("crash", Some(self.folder.path()));
    }

    /// Starts a crashed server again, on the same port and data.
    pub fn recover(&self) {
        script("start", Some(self.folder.path()));
    }

    /// What the database server has logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("data/server.log")).unwrap()
    }

    fn url(&self) -> String {
        fs::read_to_string(self.folder.path().join("url"))
            .unwrap()
            .trim()
            .to_owned()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self._in_use.unlock().ok();
        Command::new("bash")
            .arg(script_path())
            .arg("stop")
            .arg(self.folder.path())
            .status()
            .ok();
    }
}

#[derive(Clone, Debug)]
struct Server {
    url: String,
}

impl Server {
    /// A connection to the database that the server's URL names.
    async fn connect(&self) -> Client {
        connect(&self.url).await.unwrap_or_else(|error| {
            panic!(
                "no connection to the tests' Postgres ({}): {error}",
                redact(&self.url)
            )
        })
    }

    fn database_url(&self, name: &str) -> String {
        let (head, query) = match self.url.split_once('?') {
            Some((head, query)) => (head, format!("?{query}")),
            None => (self.url.as_str(), String::new()),
        };
        let authority = head.find("://").map_or(0, |at| at + 3);
        let end = head[authority..]
            .find('/')
            .map_or(head.len(), |at| authority + at);
        format!("{}/{name}{query}", &head[..end])
    }
}

async fn connect(url: &str) -> Result<Client, tokio_postgres::Error> {
    let config: Config = url.parse()?;
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(async move {
        connection.await.ok();
    });
    Ok(client)
}

/// The server all test processes share; started by the first of them.
fn shared() -> Server {
    static SHARED: OnceLock<(Server, Option<File>)> = OnceLock::new();
    let (server, _in_use) = SHARED.get_or_init(|| match std::env::var("TEST_DATABASE_URL") {
        Ok(url) if !url.is_empty() => (Server { url }, None),
        _ => {
            let folder = shared_folder();
            // Taken before the server is looked for, so that it cannot be stopped in between.
            let in_use = lock_users(&folder);
            let url = running(&folder).unwrap_or_else(|| script("start", Some(&folder)));
            (Server { url }, Some(in_use))
        }
    });
    server.clone()
}

/// Where the cluster of this folder is reached, if it is there and nobody starts or stops it: most tests find it so, and
/// need not run the script, which starts a dozen programs.
fn running(folder: &Path) -> Option<String> {
    // Another user's folder is refused by the script.
    let own = fs::metadata("/proc/self").ok()?.uid();
    let is_own = fs::symlink_metadata(folder).ok()?.uid() == own;
    let changes = File::open(folder.join("lock")).ok().filter(|_| is_own)?;
    changes.try_lock_shared().ok()?;
    let url = fs::read_to_string(folder.join("url")).ok()?;
    let url = url.trim();
    let config: Config = url.parse().ok()?;
    let (Some(Host::Tcp(host)), Some(port)) =
        (config.get_hosts().first(), config.get_ports().first())
    else {
        return None;
    };
    TcpStream::connect((&**host, *port)).ok()?;
    Some(url.to_owned())
}

fn shared_folder() -> PathBuf {
    script("folder", None).into()
}

fn lock_users(folder: &Path) -> File {
    fs::create_dir_all(folder).unwrap();
    let users = File::options()
        .create(true)
        .append(true)
        .open(folder.join("users"))
        .unwrap();
    users.lock_shared().unwrap();
    users
}

fn script_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("postgres.sh")
}

/// Runs the cluster's script and gives what it printed.
fn script(action: &str, folder: Option<&Path>) -> String {
    let output = Command::new("bash")
        .arg(script_path())
        .arg(action)
        .args(folder)
        .output()
        .expect("bash runs tests/support/postgres.sh");
    assert!(
        output.status.success(),
        "tests/support/postgres.sh {action}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Makes the template of the present schema, once per server, and gives its name.
async fn template(server: &Server, admin: &Client) -> String {
    let name = format!("backstitch_template_{:016x}", programs::schema("postgres"));
    if exists(admin, &name).await {
        return name;
    }
    admin
        .execute("SELECT pg_advisory_lock($1)", &[&TEMPLATE_LOCK])
        .await
        .unwrap();
    if !exists(admin, &name).await {
        // Renamed when complete: a template that somebody died over is never used.
        let draft = format!("{name}_draft");
        execute(
            admin,
            &format!("DROP DATABASE IF EXISTS \"{draft}\" WITH (FORCE)"),
        )
        .await;
        execute(admin, &format!("CREATE DATABASE \"{draft}\"")).await;
        migrate(&server.database_url(&draft));
        disconnect_all(admin, &draft).await;
        execute(
            admin,
            &format!("ALTER DATABASE \"{draft}\" RENAME TO \"{name}\""),
        )
        .await;
    }
    admin
        .execute("SELECT pg_advisory_unlock($1)", &[&TEMPLATE_LOCK])
        .await
        .unwrap();
    name
}

async fn exists(admin: &Client, name: &str) -> bool {
    let query = "SELECT 1 FROM pg_database WHERE datname = $1";
    admin.query_opt(query, &[&name]).await.unwrap().is_some()
}

async fn create(server: Server, admin: &Client, template: Option<&str>) -> Database {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!(
        "backstitch_test_{}_{}_{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed),
        &uuid::Uuid::new_v4().simple().to_string()[..8],
    );
    match template {
        Some(template) => {
            // The other strategy writes every page of it to the log of changes too.
            let strategy = if knows_strategies(admin).await {
                " STRATEGY FILE_COPY"
            } else {
                ""
            };
            let copy = format!("CREATE DATABASE \"{name}\" TEMPLATE \"{template}\"{strategy}");
            execute(admin, &copy).await;
        }
        None => execute(admin, &format!("CREATE DATABASE \"{name}\"")).await,
    }
    Database {
        url: server.database_url(&name),
        server,
        name,
    }
}

/// Whether the server is one of those to which one says how a database is copied; older ones copy files.
async fn knows_strategies(admin: &Client) -> bool {
    let query = "SELECT current_setting('server_version_num')::int >= 150000";
    admin.query_one(query, &[]).await.unwrap().get(0)
}

/// Runs a statement about databases again while another session is still leaving the source.
async fn execute(admin: &Client, statement: &str) {
    for _ in 0..100 {
        match admin.batch_execute(statement).await {
            Err(error) if error.code() == Some(&SqlState::OBJECT_IN_USE) => {
                // Nobody is told when a session of the database ends.
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            result => return result.unwrap_or_else(|error| panic!("{statement}: {error:?}")),
        }
    }
    panic!("{statement}: the database stays in use");
}

async fn disconnect_all(admin: &Client, name: &str) {
    admin
        .execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1",
            &[&name],
        )
        .await
        .unwrap();
}

fn redact(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) => format!("{}***{}", &url[..scheme + 3], &url[at..]),
        _ => url.to_owned(),
    }
}

impl Drop for Database {
    /// Best effort: a name never comes twice, and the tests' own cluster is thrown away whole.
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), std::mem::take(&mut self.name));
        let drop = async move {
            if let Ok(admin) = connect(&server.url).await {
                admin
                    .batch_execute(&format!("DROP DATABASE IF EXISTS \"{name}\" WITH (FORCE)"))
                    .await
                    .ok();
            }
        };
        // The test's own runtime may have a paused clock, or be ending.
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.map(|runtime| runtime.block_on(drop)).ok();
        });
        thread.join().ok();
    }
}
