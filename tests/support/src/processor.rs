//! Processor time, which is the same beside others on a busy machine where the time until a response is not.

use std::collections::BTreeMap;
use std::time::Duration;

use nix::time::ClockId;
use nix::unistd::Pid;

use crate::place::Place;
use crate::server::Server;
use crate::tables;

/// The processor time that a server has taken until now, and the sessions of its database, by their processes.
pub struct Taken(BTreeMap<i32, Duration>);

impl Taken {
    /// Reads the clocks of the server's process and, on Postgres, of the sessions of its database.
    pub fn by(place: &Place, server: &Server) -> Self {
        let mut processes = vec![i32::try_from(server.pid()).unwrap()];
        if place.is_postgres() {
            let sessions = "SELECT pid::text FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
            let sessions = tables::rows(place, server, sessions);
            let pids = sessions.iter().flatten().flatten();
            processes.extend(pids.map(|pid| pid.parse::<i32>().unwrap()));
        }
        // A session that has ended meanwhile has no clock any more.
        let clock = |process| Some((process, of(process)?));
        Self(processes.into_iter().filter_map(clock).collect())
    }

    /// How much more it is than it was.
    pub fn since(&self, before: &Self) -> Duration {
        let more = |(process, now): (&i32, &Duration)| {
            let before = before.0.get(process).copied().unwrap_or_default();
            now.saturating_sub(before)
        };
        self.0.iter().map(more).sum()
    }
}

/// The processor time of all threads that a process has had.
fn of(process: i32) -> Option<Duration> {
    let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(process)).ok()?;
    Some(clock.now().ok()?.into())
}
