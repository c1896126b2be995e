//! A real server process on a free port of the loopback interface.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::{memory, postgres::Database, programs, sqlite};

/// How long a server may take to listen, and to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(30);

/// Settings a developer's shell may hold and a test must not see, besides all that begin with
/// `BACKSTITCH_` or `OTEL_`.
const FOREIGN: &[&str] = &[
    "DATABASE_URL",
    "LANGGRAPH_CONFIG",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "OPENAI_MODEL",
    "HOST",
    "LOG_LEVEL",
    "LOG_FORMAT",
    "FAILPOINTS",
];

/// Where servers have their folders: in memory where 4 GiB are free, since the files of many that wait for a disk at once
/// take it many times as long.
fn folders() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let free = rustix::fs::statvfs(memory).map_or(0, |of| of.f_bavail.saturating_mul(of.f_frsize));
    if std::env::var_os("TMPDIR").is_none() && free >= 4 << 30 {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    }
}

/// What to start, and on which data.
#[derive(Debug, Clone)]
pub struct Setup {
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// It starts with a database that is there, if it keeps its data in its folder.
    is_prepared: bool,
}

impl Setup {
    /// The bundled server.
    pub fn bundled() -> Self {
        Self::program(programs::bundled())
    }

    /// The server of `examples/<name>.rs`. `cargo test` and `cargo nextest run` build it, unless
    /// they were told to build one test alone.
    pub fn example(name: &str) -> Self {
        Self {
            is_prepared: true,
            ..Self::program(programs::example(name))
        }
    }

    /// Any program that announces its address as the bundled server does.
    pub fn program(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            is_prepared: false,
        }
    }

    /// Adds one argument.
    pub fn arg(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Sets a variable of its environment.
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// Keeps its data in a Postgres database instead of a folder of its own.
    pub fn postgres(self, database: &Database) -> Self {
        self.env("DATABASE_URL", &database.url)
    }

    /// Starts it where it cannot work, and gives how it ended and what it wrote on stderr.
    pub fn refused(self) -> (ExitStatus, String) {
        let folder = tempfile::tempdir().unwrap();
        let mut child = self.command(folder.path()).spawn().unwrap();
        let log = Log::default();
        let reader = log.follow(child.stderr.take().unwrap(), None);
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = child.try_wait().unwrap() {
                // What it wrote last may still be on its way.
                reader.join().unwrap();
                return (status, log.text());
            }
            // The standard library waits for a process for ever or not at all.
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill().ok();
        child.wait().ok();
        panic!("the server runs where it should not:\n{}", log.text());
    }

    fn command(&self, folder: &Path) -> Command {
        let mut command = Command::new(&self.program);
        for name in FOREIGN {
            command.env_remove(name);
        }
        for (name, _) in std::env::vars_os() {
            let bytes = name.as_encoded_bytes();
            if bytes.starts_with(b"BACKSTITCH_") || bytes.starts_with(b"OTEL_") {
                command.env_remove(name);
            }
        }
        command
            .args(&self.arguments)
            .env("PORT", "0")
            .env("BACKSTITCH_DATA", folder.join("data"))
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Starts it in a folder of its own and waits until it listens.
    pub fn start(self) -> Server {
        let folder = tempfile::Builder::new()
            .prefix("backstitch-server-")
            .tempdir_in(folders())
            .unwrap();
        let is_elsewhere =
            |(name, _): &(String, String)| ["DATABASE_URL", "BACKSTITCH_DATA"].contains(&&**name);
        if self.is_prepared && !self.environment.iter().any(is_elsewhere) {
            sqlite::copy_into(&folder.path().join("data"));
        }
        let mut server = Server {
            setup: self,
            folder: Arc::new(folder),
            log: Log::default(),
            readers: Vec::new(),
            child: None,
            base_url: String::new(),
            listening_with: None,
        };
        server.launch();
        server
    }
}

/// A running server; killed with this value. If the test fails, its output is printed.
#[derive(Debug)]
pub struct Server {
    setup: Setup,
    folder: Arc<tempfile::TempDir>,
    log: Log,
    /// Those that read what the process writes, until it has ended and all of it is read.
    readers: Vec<JoinHandle<()>>,
    child: Option<Child>,
    base_url: String,
    /// The memory that the process had when it began to listen, if the system says that.
    listening_with: Option<u64>,
}

impl Server {
    /// `http://127.0.0.1:<port>`, without a slash at the end; another one after a restart.
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// The folder it was started in, which holds its data unless these are in Postgres.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Processor time it has used, in ticks of the kernel's clock (as a rule of 10 ms).
    pub fn ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        // The name of the program is in brackets and may hold anything.
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let fields: Vec<&str> = fields.split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }

    /// Bytes that it has read out of files.
    pub fn read_bytes(&self) -> u64 {
        let counts = std::fs::read_to_string(format!("/proc/{}/io", self.pid())).unwrap();
        let read = counts.lines().find_map(|line| line.strip_prefix("rchar: "));
        read.unwrap().parse().unwrap()
    }

    /// The bytes of resident memory that it had when it began to listen, if the system says that; others after a restart.
    pub fn listening_with(&self) -> Option<u64> {
        self.listening_with
    }

    /// Everything it wrote so far, of all its lives.
    pub fn output(&self) -> String {
        self.log.text()
    }

    /// A second server on the same data (a replica, on Postgres), with settings of its own.
    pub fn replica(&self) -> Self {
        let mut replica = Self {
            setup: self.setup.clone(),
            folder: Arc::clone(&self.folder),
            log: Log::default(),
            readers: Vec::new(),
            child: None,
            base_url: String::new(),
            listening_with: None,
        };
        replica.launch();
        replica
    }

    /// Ends it as a crash would (SIGKILL).
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the server runs").id()
    }

    /// Asks it to end (SIGTERM) and waits for that.
    pub fn terminate(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.wait()
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> bool {
        let child = self.child.as_mut().expect("the server was started");
        child.try_wait().unwrap().is_none()
    }

    /// Waits until it ended by itself and everything that it wrote can be seen in [`Server::output`].
    pub fn wait(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("the server runs");
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = child.try_wait().unwrap() {
                // What it wrote last may still be on its way.
                for reader in self.readers.drain(..) {
                    reader.join().unwrap();
                }
                return status;
            }
            // The standard library waits for a process for ever or not at all.
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill().ok();
        child.wait().ok();
        panic!("the server did not end within {PATIENCE:?}");
    }

    /// Sends a signal by its name without `SIG`: `STOP` and `CONT` freeze and thaw it.
    pub fn signal(&self, name: &str) {
        let child = self.child.as_ref().expect("the server runs");
        let mut kill = Command::new("kill");
        kill.arg(format!("-{name}")).arg(child.id().to_string());
        let status = kill.status().expect("`kill` sends signals");
        assert!(status.success(), "kill -{name} {} failed", child.id());
    }

    /// Starts it again on the same data, after killing it if it still runs.
    pub fn restart(&mut self) {
        self.kill();
        self.launch();
    }

    /// As [`Server::restart`], with one variable of its environment changed.
    pub fn restart_with(&mut self, name: &str, value: &str) {
        self.set(name, value);
        self.restart();
    }

    /// As [`Server::restart_with`], where it may die before it listens: whether it listens.
    pub fn starts_with(&mut self, name: &str, value: &str) -> bool {
        self.set(name, value);
        self.kill();
        self.listens()
    }

    /// As [`Server::restart_with`], where it dies, maybe before it listens; waits for that.
    pub fn dies_with(&mut self, name: &str, value: &str) -> ExitStatus {
        self.set(name, value);
        self.kill();
        drop(self.spawn());
        self.wait()
    }

    /// Starts the process; answers where its first line comes.
    fn spawn(&mut self) -> mpsc::Receiver<String> {
        let mut command = self.setup.command(self.folder.path());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{:?} does not start: {error}", self.setup.program));
        let (sender, first_line) = mpsc::channel();
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        self.readers = vec![
            self.log.follow(stdout, Some(sender)),
            self.log.follow(stderr, None),
        ];
        self.child = Some(child);
        first_line
    }

    /// Changes a variable of the environment of those processes that are started from now on.
    fn set(&mut self, name: &str, value: &str) {
        let environment = &mut self.setup.environment;
        environment.retain(|(known, _)| known != name);
        environment.push((name.to_owned(), value.to_owned()));
    }

    fn launch(&mut self) {
        let listens = self.listens();
        assert!(
            listens,
            "the server did not say first on stdout where it listens"
        );
    }

    /// Starts the process: whether it says where it listens.
    fn listens(&mut self) -> bool {
        let first_line = self.spawn();
        // An ended server closes its output, which drops the sender.
        let line = first_line.recv_timeout(PATIENCE).unwrap_or_default();
        let Some(url) = line.strip_prefix("listening on ") else {
            return false;
        };
        self.base_url = url.trim_end_matches('/').to_owned();
        self.listening_with = memory::resident(self.pid());
        true
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().ok();
        }
        if std::thread::panicking() {
            eprintln!(
                "--- output of the server {} ---\n{}",
                self.base_url,
                self.log.text()
            );
        }
    }
}

/// What a server wrote on both its outputs.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Log {
    fn text(&self) -> String {
        self.0.lock().clone()
    }

    fn follow(
        &self,
        output: impl Read + Send + 'static,
        first: Option<mpsc::Sender<String>>,
    ) -> JoinHandle<()> {
        let log = Arc::clone(&self.0);
        std::thread::spawn(move || {
            let mut first = first;
            let mut lines = BufReader::new(output);
            let mut line = Vec::new();
            while lines
                .read_until(b'\n', &mut line)
                .is_ok_and(|read| read > 0)
            {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                log.lock().push_str(&format!("{text}\n"));
                if let Some(first) = first.take() {
                    first.send(text).ok();
                }
                line.clear();
            }
        })
    }
}
