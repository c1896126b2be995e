//! The servers that are measured, as processes: what they use of processor and memory.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use tokio::time::Instant;

/// Clock ticks a second in `/proc`.
const TICKS: f64 = 100.0;

/// `bench_server`, which was built beside this program.
pub fn own_build() -> PathBuf {
    std::env::current_exe()
        .unwrap()
        .with_file_name("bench_server")
}

/// A server as a process of its own.
pub struct Server {
    child: Child,
    /// `host:port`.
    pub address: String,
    /// From the start of the process to the line with its address.
    pub start: Duration,
    begin: Instant,
}

impl Server {
    /// Starts a build of `bench_server`.
    pub fn bench(program: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .envs(environment.iter().copied())
            .env("PORT", "0")
            .env("LOG_LEVEL", "warn");
        Self::spawn(command)
    }

    /// Starts a program that prints its address as its first line and serves the same graphs.
    pub fn peer(script: &str) -> Self {
        Self::spawn(Command::new(script))
    }

    fn spawn(mut command: Command) -> Self {
        let begin = Instant::now();
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        let start = begin.elapsed();
        let address = line.trim().trim_end_matches('/');
        let address = address.rsplit_once('/').map_or(address, |(_, last)| last);
        Self {
            child,
            address: address.to_owned(),
            start,
            begin,
        }
    }

    /// From the start of the process to now, when `/ok` answers 200.
    pub fn healthy(&self) -> Duration {
        assert!(is_healthy(&self.address), "{} is not healthy", self.address);
        self.begin.elapsed()
    }

    /// Its number as a process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Processor time that the server and what it started used until now.
    pub fn cpu(&self) -> Duration {
        tree_cpu(self.child.id())
    }

    /// Bytes of memory in use.
    pub fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes: u64 = line
            .unwrap()
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .unwrap();
        kilobytes * 1024
    }

    /// Ends the process at once, without a word to its database.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether `/ok` answers 200.
fn is_healthy(address: &str) -> bool {
    let request = format!("GET /ok HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    let mut response = String::new();
    let answer = TcpStream::connect(address).and_then(|mut stream| {
        stream.write_all(request.as_bytes())?;
        stream.read_to_string(&mut response)
    });
    answer.is_ok() && response.starts_with("HTTP/1.1 200")
}

/// Processor time of a process, of those it waited for, and of its children.
pub fn tree_cpu(root: u32) -> Duration {
    let mut total = 0;
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        // The name of the program stands in parentheses and may hold anything.
        let Some((_, fields)) = stat.rsplit_once(')') else {
            continue;
        };
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let number = |at: usize| {
            fields
                .get(at)
                .and_then(|field| field.parse().ok())
                .unwrap_or(0)
        };
        let is_root = root == pid;
        if is_root || number(1) == u64::from(root) {
            // User and system time; of the root those of the children it waited for, too.
            total += number(11) + number(12);
            if is_root {
                total += number(13) + number(14);
            }
        }
    }
    Duration::from_secs_f64(total as f64 / TICKS)
}
