//! An MCP server in a child process: how it starts, what it may write, how it ends.

use std::{
    io,
    pin::Pin,
    process::Stdio,
    sync::{Arc, OnceLock, Weak},
    task::{Context, Poll, ready},
    time::Duration,
};

use parking_lot::Mutex;
use process_wrap::tokio::{ChildWrapper, CommandWrap, KillOnDrop, ProcessGroup};
use tokio::{
    io::{AsyncRead, AsyncReadExt, ReadBuf},
    process::{ChildStderr, ChildStdin, ChildStdout, Command},
};

/// How long a process may take to end after its input was closed.
const GRACE: Duration = Duration::from_secs(2);

/// What to start.
#[derive(Clone)]
pub(super) struct Program {
    pub(super) path: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
}

impl Program {
    pub(super) fn new(path: String) -> Self {
        Self {
            path,
            args: Vec::new(),
            env: Vec::new(),
        }
    }

    /// Starts it. Its output ends with an error at the first line of more than `most_bytes`.
    pub(super) fn start(&self, most_bytes: usize) -> io::Result<Started> {
        let mut command = Command::new(&self.path);
        command
            .args(&self.args)
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = CommandWrap::from(command)
            .wrap(ProcessGroup::leader())
            .wrap(KillOnDrop)
            .spawn()?;
        let missing = || io::Error::other("the process has no standard streams");
        let input = child.stdin().take().ok_or_else(missing)?;
        let output = child.stdout().take().ok_or_else(missing)?;
        if let Some(stderr) = child.stderr().take() {
            tokio::spawn(log(self.path.clone(), stderr));
        }
        let too_long = Arc::default();
        Ok(Started {
            process: Process::new(child),
            input,
            output: Lines::new(output, most_bytes, Arc::clone(&too_long)),
            too_long,
        })
    }
}

/// A process that runs, and its two ends.
pub(super) struct Started {
    pub(super) process: Process,
    pub(super) input: ChildStdin,
    pub(super) output: Lines<ChildStdout>,
    /// Set once its output ended because of a line that was too long.
    pub(super) too_long: Arc<OnceLock<()>>,
}

/// Reads the standard error of the process piece by piece and logs it. It is read also where nothing
/// is logged: a process stops when its standard error is full.
async fn log(program: String, mut stderr: ChildStderr) {
    let mut piece = [0; 4096];
    while let Ok(read @ 1..) = stderr.read(&mut piece).await {
        let text = String::from_utf8_lossy(&piece[..read]);
        tracing::debug!(program, "MCP server: {}", text.trim_end());
    }
}

type Group = Mutex<Option<Box<dyn ChildWrapper>>>;

/// The processes that run, for a program that ends without dropping what it owns.
static RUNNING: Mutex<Vec<Weak<Group>>> = Mutex::new(Vec::new());

/// Kills every child process, before this one ends at once.
pub(crate) fn end_all() {
    for process in RUNNING.lock().drain(..) {
        if let Some(process) = process.upgrade() {
            kill(&process);
        }
    }
}

/// A child process with those that it started; dropping it kills them.
pub(super) struct Process(Arc<Group>);

impl Process {
    fn new(child: Box<dyn ChildWrapper>) -> Self {
        let process = Arc::new(Mutex::new(Some(child)));
        let mut running = RUNNING.lock();
        running.retain(|process| process.strong_count() > 0);
        running.push(Arc::downgrade(&process));
        Self(process)
    }

    /// Waits a little for its end, then kills what is left; how it ended, if it did by itself.
    pub(super) async fn end(self) -> Option<String> {
        let wait = async {
            loop {
                let ended = match self.0.lock().as_mut() {
                    Some(child) => child.inner_mut().try_wait(),
                    None => return None,
                };
                match ended {
                    Ok(Some(status)) => return Some(status.to_string()),
                    Ok(None) => tokio::time::sleep(Duration::from_millis(10)).await,
                    Err(error) => return Some(error.to_string()),
                }
            }
        };
        tokio::time::timeout(GRACE, wait).await.ok().flatten()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        kill(&self.0);
    }
}

fn kill(process: &Group) {
    if let Some(mut child) = process.lock().take() {
        // It fails where no process of the group is left.
        let _ = child.start_kill();
    }
}

/// The output of a process, one message a line, which fails at a line that is too long.
pub(super) struct Lines<R> {
    inner: R,
    length: usize,
    most: usize,
    too_long: Arc<OnceLock<()>>,
}

impl<R> Lines<R> {
    pub(super) fn new(inner: R, most: usize, too_long: Arc<OnceLock<()>>) -> Self {
        Self {
            inner,
            length: 0,
            most,
            too_long,
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Lines<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
        let read = &buffer.filled()[before..];
        let mut lines = read.split(|byte| *byte == b'\n');
        // There is always a first piece: it goes on with the line that was begun.
        let mut longest = self.length + lines.next().map_or(0, <[u8]>::len);
        self.length = longest;
        for line in lines {
            self.length = line.len();
            longest = longest.max(line.len());
        }
        if longest > self.most {
            // What was read of it counts as not read, as with every error.
            buffer.set_filled(before);
            let _ = self.too_long.set(());
            return Poll::Ready(Err(io::Error::from(io::ErrorKind::InvalidData)));
        }
        Poll::Ready(Ok(()))
    }
}
