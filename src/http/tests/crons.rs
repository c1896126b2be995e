//! Crons at a clock that the test moves.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use futures::TryStreamExt;

use super::{super::Options, *};
use crate::{
    crons::{Change, Clock, service::NewCron},
    id::{AssistantId, CronId, ThreadId},
    time::Timestamp,
    tree::members::Access,
    value,
    value::Map,
};

/// The thread of the cron that shows how far the server is.
const BEACON: &str = "01a1faf4-ed9b-77dc-8ed1-cc6eef11d8ff";
const MINUTE: i64 = 60_000_000;

struct World {
    running: Running,
    clock: Arc<AtomicI64>,
    beacon: CronId,
}

impl World {
    async fn at(start: &str) -> Self {
        let clock = Arc::new(AtomicI64::new(Timestamp::read(start).unwrap().0));
        let options = Options::default();
        let running = Running::start_at(options, Clock::moved_by(clock.clone())).await;
        running.thread(BEACON.parse().unwrap(), value!({})).await;
        let mut world = Self {
            running,
            clock,
            beacon: CronId::mint(),
        };
        world.beacon = world.cron(BEACON, "* * * * *", value!({})).await;
        world
    }

    /// A cron on a thread, with more fields.
    async fn cron(&self, thread: &str, schedule: &str, more: Value) -> CronId {
        let text = |name: &str| more.get(name).and_then(Value::as_str).map(str::to_owned);
        let end = text("end_time").map(|text| Timestamp::read(&text).unwrap());
        let new = NewCron {
            id_of_key: None,
            owner: "local".into(),
            access: Access::unrestricted(),
            assistant: AssistantId::of_graph("counter"),
            thread: Some(thread.parse().unwrap()),
            content: Change {
                schedule: Some(schedule.to_owned()),
                timezone: Some(text("timezone")),
                end_time: Some(end),
                payload: Map::from([("input", value!({"count": 1}))]),
                ..Change::default()
            },
        };
        let made = self.running.services.crons().create(new).await.unwrap();
        made["cron_id"].as_str().unwrap().parse().unwrap()
    }

    async fn change(&self, cron: CronId, change: Change) -> Value {
        let crons = self.running.services.crons();
        let check = async |_: crate::crons::CronRow, _: bool| Ok::<(), crate::crons::Error>(());
        crons.change(None, cron, &change, check).await.unwrap()
    }

    async fn next(&self, cron: CronId) -> Option<String> {
        let shown = self.running.services.crons().get(None, cron).await.unwrap();
        shown["next_run_date"]
            .as_str()
            .map(|text| text[..16].to_owned())
    }

    /// Waits until the server has moved the beacon past the present time.
    async fn beacon(&self) {
        let now = Timestamp(self.clock.load(Ordering::SeqCst)).to_string();
        let moved = async {
            while self.next(self.beacon).await.unwrap().as_str() <= &now[..16] {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(20), moved)
            .await
            .expect("the server serves what is due");
    }

    /// Moves the clock. All that was due then is served when this returns: it was read before what
    /// is due a minute later.
    async fn go(&self, to: &str) {
        self.clock
            .store(Timestamp::read(to).unwrap().0, Ordering::SeqCst);
        self.beacon().await;
        self.clock.fetch_add(MINUTE, Ordering::SeqCst);
        self.beacon().await;
    }

    /// The due times of the runs of [`THREAD`], without the year and seconds.
    async fn dues(&self) -> Vec<String> {
        let thread: ThreadId = THREAD.parse().unwrap();
        let runs = self.running.services.runs();
        let runs = runs
            .list(
                &Access::unrestricted(),
                thread,
                None,
                (100, 0),
                crate::runs::service::RequestPart::Nothing,
            )
            .await;
        let runs: Vec<_> = runs.unwrap().items.try_collect().await.unwrap();
        let due = |run: &crate::runs::Run| {
            let (seconds, _) = run.id.0.get_timestamp().unwrap().to_unix();
            let time = Timestamp(i64::try_from(seconds).unwrap() * 1_000_000);
            time.to_string()[5..16].to_owned()
        };
        let mut dues: Vec<_> = runs.iter().map(due).collect();
        dues.reverse();
        dues
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cron_of_a_zone_is_due_once_a_day_over_both_changes_of_its_clock() {
    let world = World::at("2026-03-28T00:00:00Z").await;
    let berlin = value!({"timezone": "Europe/Berlin"});
    let cron = world.cron(THREAD, "30 2 * * *", berlin).await;
    world.go("2026-03-28T01:28:00Z").await;
    assert!(world.dues().await.is_empty());
    world.go("2026-03-28T01:30:00Z").await;
    assert_eq!(world.dues().await, ["03-28T01:30"]);
    // 02:30 does not exist on the 29th: 03:00 of summer time is 01:00 UTC.
    world.go("2026-03-29T00:58:00Z").await;
    assert_eq!(world.dues().await.len(), 1);
    for time in [
        "2026-03-29T01:00:00Z",
        "2026-03-29T01:30:00Z",
        "2026-03-30T00:30:00Z",
    ] {
        world.go(time).await;
    }
    assert_eq!(
        world.dues().await,
        ["03-28T01:30", "03-29T01:00", "03-30T00:30"]
    );
    // What was missed over the summer is made up for once.
    world.go("2026-10-24T12:00:00Z").await;
    assert_eq!(world.dues().await.len(), 4);
    assert_eq!(world.next(cron).await.unwrap(), "2026-10-25T00:30");
    // 02:30 comes twice on the 25th.
    for time in [
        "2026-10-25T00:30:00Z",
        "2026-10-25T01:30:00Z",
        "2026-10-25T12:00:00Z",
    ] {
        world.go(time).await;
    }
    assert_eq!(world.dues().await[4..], ["10-25T00:30"]);
    assert_eq!(world.next(cron).await.unwrap(), "2026-10-26T01:30");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missed_times_are_made_up_for_once() {
    let world = World::at("2026-11-20T10:30:00Z").await;
    let cron = world.cron(THREAD, "*/10 * * * *", value!({})).await;
    world.go("2026-11-20T15:55:30Z").await;
    assert_eq!(world.dues().await, ["11-20T10:40"]);
    assert_eq!(world.next(cron).await.unwrap(), "2026-11-20T16:00");
    world.go("2026-11-20T16:00:00Z").await;
    assert_eq!(world.dues().await, ["11-20T10:40", "11-20T16:00"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_its_end_a_cron_is_never_due() {
    let world = World::at("2026-11-20T10:30:00Z").await;
    let end = value!({"end_time": "2026-11-20T12:30:00Z"});
    let cron = world.cron(THREAD, "0 * * * *", end).await;
    for time in [
        "2026-11-20T11:00:00Z",
        "2026-11-20T12:00:00Z",
        "2026-11-20T14:00:00Z",
    ] {
        world.go(time).await;
    }
    assert_eq!(world.dues().await, ["11-20T11:00", "11-20T12:00"]);
    assert_eq!(world.next(cron).await, None);
    // Without the end it goes on, from now.
    let change = Change {
        end_time: Some(None),
        ..Change::default()
    };
    world.change(cron, change).await;
    assert_eq!(world.next(cron).await.unwrap(), "2026-11-20T15:00");
    world.go("2026-11-20T15:00:00Z").await;
    assert_eq!(world.dues().await.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_due_before_its_end_and_not_served_by_then_makes_no_run() {
    let world = World::at("2026-11-20T10:30:00Z").await;
    let end = value!({"end_time": "2026-11-20T11:00:00Z"});
    let served = world.cron(THREAD, "0 * * * *", end.clone()).await;
    world.go("2026-11-20T11:00:30Z").await;
    assert_eq!(
        world.dues().await,
        ["11-20T11:00"],
        "at its end it still is"
    );
    assert_eq!(world.next(served).await, None);
    let end = value!({"end_time": "2026-11-20T12:30:00Z"});
    let late = world.cron(THREAD, "0 * * * *", end).await;
    world.go("2026-11-20T14:00:00Z").await;
    assert_eq!(world.dues().await, ["11-20T11:00"]);
    assert_eq!(world.next(late).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disabled_cron_misses_its_times_and_goes_on_when_it_is_enabled() {
    let world = World::at("2026-11-20T10:30:00Z").await;
    let cron = world.cron(THREAD, "0 * * * *", value!({})).await;
    let set = |enabled| Change {
        enabled: Some(enabled),
        ..Change::default()
    };
    let shown = world.change(cron, set(false)).await;
    assert_eq!(shown["next_run_date"], "2026-11-20T11:00:00+00:00");
    world.go("2026-11-20T13:10:00Z").await;
    assert!(world.dues().await.is_empty());
    assert_eq!(world.next(cron).await.unwrap(), "2026-11-20T11:00");
    let shown = world.change(cron, set(true)).await;
    assert_eq!(shown["next_run_date"], "2026-11-20T14:00:00+00:00");
    world.go("2026-11-20T13:30:00Z").await;
    assert!(world.dues().await.is_empty());
    world.go("2026-11-20T14:00:00Z").await;
    assert_eq!(world.dues().await, ["11-20T14:00"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_schedule_counts_from_now() {
    let world = World::at("2026-11-20T10:30:00Z").await;
    let cron = world.cron(THREAD, "0 * * * *", value!({})).await;
    let change = Change {
        schedule: Some("45 * * * *".to_owned()),
        timezone: Some(Some("Asia/Kolkata".to_owned())),
        ..Change::default()
    };
    // Half an hour apart from UTC.
    let shown = world.change(cron, change).await;
    assert_eq!(shown["next_run_date"], "2026-11-20T11:15:00+00:00");
    world.go("2026-11-20T11:01:00Z").await;
    assert!(world.dues().await.is_empty());
    world.go("2026-11-20T11:15:00Z").await;
    assert_eq!(world.dues().await, ["11-20T11:15"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_served_between_the_list_of_due_ones_and_its_reading_is_not_served_again() {
    let world = World::at("2026-11-20T10:30:00Z").await;
    let cron = world.cron(THREAD, "0 * * * *", value!({})).await;
    let listed = Timestamp::read("2026-11-20T11:00:00Z").unwrap();
    world.go("2026-11-20T11:00:00Z").await;
    assert_eq!(world.dues().await, ["11-20T11:00"]);
    // This is what another process reads that had found the cron due at eleven.
    let services = &world.running.services;
    let row = services.crons().row_of(cron).await.unwrap().unwrap();
    assert!(row.next_run.unwrap() > listed);
    let request = crate::http::crons::request_of(&row);
    assert!(!services.runs().fire(&row, listed, request).await.unwrap());
    assert_eq!(world.dues().await, ["11-20T11:00"]);
    assert_eq!(world.next(cron).await.unwrap(), "2026-11-20T12:00");
}
