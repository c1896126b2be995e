//! Crons, and the runs that are created when they are due.

use std::sync::Arc;

use backstitch::{
    assistants::{Content, store::NewAssistant, store::Subject},
    crons::{
        CronRow,
        request::{Filter, OnRunCompleted},
        store::CreatedCron,
    },
    id::{AssistantId, CronId, RunId, ThreadId},
    runs::{Created, Fired, Firing, NewRun, Strategy},
    time::Timestamp,
    tree::members::{Access, Level},
    value,
    value::Map,
};

use super::backend::*;

/// 2026-11-20T22:00:00Z.
pub(super) const DUE: Timestamp = Timestamp(1_795_212_000_000_000);
const HOUR: i64 = 3_600_000_000;

/// An assistant of the owner of the crons.
pub(super) async fn assistant(b: &Backend) -> AssistantId {
    let id = AssistantId::mint();
    let content = Content {
        graph: "agent".into(),
        name: "a".into(),
        description: None,
        metadata: Map::new(),
        config: Map::new(),
        context: Map::new(),
    };
    let new = NewAssistant {
        id,
        owner: "ann".into(),
        content,
    };
    b.assistants.create_assistant(new, 100).await.unwrap();
    id
}

pub(super) fn row(assistant: AssistantId, thread: Option<ThreadId>) -> CronRow {
    CronRow {
        id: CronId::mint(),
        owner: "ann".into(),
        principal: None,
        assistant,
        thread,
        schedule: "0 * * * *".into(),
        timezone: None,
        end_time: None,
        enabled: true,
        on_run_completed: thread.is_none().then_some(OnRunCompleted::Delete),
        metadata: Map::new(),
        payload: Map::new(),
        next_run: Some(DUE),
        last_run: None,
        created_at: DUE,
        updated_at: DUE,
    }
}

pub(super) async fn create(b: &Backend, row: CronRow) -> CronRow {
    let created = b.crons.create_cron(row, Access::unrestricted(), 100).await;
    match created.unwrap() {
        CreatedCron::Done(row) => *row,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn get(b: &Backend, id: CronId) -> Option<CronRow> {
    b.crons.cron(id, None).await.unwrap()
}

fn of(principal: &str) -> Access {
    Access::of(principal.into(), "request".into(), Level::Writer)
}

async fn share(b: &Backend, thread: ThreadId, level: Option<Level>) {
    let tree = b.trees.thread(thread).await.unwrap().unwrap().tree;
    let mut tx = b.trees.begin(tree).await.unwrap();
    tx.put_member(tree, "bob".into(), level).await.unwrap();
    tx.commit().await.unwrap();
}

/// The due time of a cron, and the run that is to be created at it.
fn firing(cron: &CronRow, run: Option<NewRun>) -> Firing {
    Firing {
        cron: cron.id,
        due: cron.next_run.unwrap(),
        updated_at: cron.updated_at,
        now: Timestamp(DUE.0 + 5),
        next: Some(Timestamp(DUE.0 + HOUR)),
        run,
    }
}

pub(super) async fn fire(b: &Backend, cron: &CronRow, run: NewRun) -> Fired {
    b.runs.fire(firing(cron, Some(run))).await.unwrap()
}

pub async fn a_cron_comes_back_with_every_field(b: &Backend) {
    let thread = b.thread().await;
    let new = CronRow {
        principal: Some("ann\0".into()),
        owner: "ann\0".into(),
        timezone: Some("Europe/Paris".into()),
        end_time: Some(Timestamp(DUE.0 + HOUR)),
        enabled: false,
        metadata: map(value!({"m": {"n": [1, "\0"]}})),
        payload: map(value!({"input": {"x": (f64::MAX), "y": "\0"}, "end_time": null})),
        ..row(assistant(b).await, Some(thread))
    };
    let written = create(b, new.clone()).await;
    assert_eq!(written.created_at, written.updated_at);
    let (created_at, updated_at) = (written.created_at, written.updated_at);
    let expected = CronRow {
        created_at,
        updated_at,
        ..new.clone()
    };
    assert_eq!(written, expected);
    assert_eq!(get(b, new.id).await, Some(written.clone()));
    // As after a reply that was lost.
    let viewer: Option<Arc<str>> = Some("bob".into());
    assert_eq!(b.crons.cron(new.id, viewer.clone()).await.unwrap(), None);
    assert!(!b.crons.delete_cron(new.id, viewer).await.unwrap());
    let owner: Option<Arc<str>> = Some("ann\0".into());
    let found = b.crons.cron(new.id, owner.clone()).await.unwrap();
    assert_eq!(found, Some(written));
    assert!(b.crons.delete_cron(new.id, owner).await.unwrap());
    assert!(!b.crons.delete_cron(new.id, None).await.unwrap());
    assert_eq!(get(b, new.id).await, None);
    let now = b.crons.clock().await.unwrap();
    assert!((now.0 - Timestamp::now().0).abs() < 60_000_000);
}

pub async fn a_cron_needs_its_assistant_and_a_level_on_its_thread(b: &Backend) {
    let assistant = assistant(b).await;
    let refused = b
        .crons
        .create_cron(row(unknown(), None), Access::unrestricted(), 100)
        .await;
    assert_eq!(refused.unwrap(), CreatedCron::NoAssistant);
    let nowhere = row(assistant, Some(unknown()));
    for access in [Access::unrestricted(), of("bob")] {
        let refused = b
            .crons
            .create_cron(nowhere.clone(), access, 100)
            .await
            .unwrap();
        assert_eq!(refused, CreatedCron::NoThread);
    }
    let thread = b.thread().await;
    for level in [None, Some(Level::Reader)] {
        share(b, thread, level).await;
        let new = row(assistant, Some(thread));
        let refused = b.crons.create_cron(new, of("bob"), 100).await.unwrap();
        let CreatedCron::Denied(denied) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(denied.foreign().is_some(), level.is_none());
    }
    share(b, thread, Some(Level::Writer)).await;
    let new = row(assistant, Some(thread));
    let created = b
        .crons
        .create_cron(new.clone(), of("bob"), 100)
        .await
        .unwrap();
    assert!(matches!(created, CreatedCron::Done(_)), "{created:?}");
    assert!(b.trees.delete_thread(thread).await.unwrap());
    let refused = b.crons.create_cron(new, of("bob"), 100).await.unwrap();
    assert_eq!(refused, CreatedCron::NoThread);
    assert_eq!(b.crons.count_crons(Filter::default()).await.unwrap(), 0);
}

pub async fn a_cron_that_changed_meanwhile_is_not_replaced(b: &Backend) {
    let old = create(b, row(assistant(b).await, None)).await;
    let mut new = CronRow {
        schedule: "5 * * * *".into(),
        timezone: Some("UTC".into()),
        end_time: Some(DUE),
        enabled: false,
        on_run_completed: Some(OnRunCompleted::Keep),
        metadata: map(value!({"m": 1})),
        payload: map(value!({"p": 1})),
        next_run: None,
        ..old.clone()
    };
    let replaced = b.crons.replace_cron(old.clone(), new.clone()).await;
    let replaced = replaced.unwrap().unwrap();
    assert!(replaced.updated_at > old.updated_at);
    new.updated_at = replaced.updated_at;
    assert_eq!(replaced, new);
    let refused = b.crons.replace_cron(old, new.clone()).await.unwrap();
    assert_eq!(refused, None, "it has changed");
    let back = CronRow {
        next_run: Some(DUE),
        enabled: true,
        ..new.clone()
    };
    let due = b.crons.replace_cron(new, back).await.unwrap().unwrap();
    let run = new_run(b.thread().await);
    assert!(matches!(fire(b, &due, run).await, Fired::Past(_)));
    let refused = b.crons.replace_cron(due.clone(), due).await.unwrap();
    assert_eq!(refused, None, "it was due");
}

pub async fn a_cron_goes_with_its_thread_or_its_assistant(b: &Backend) {
    let assistant = assistant(b).await;
    let (thread, other) = (b.thread().await, b.thread().await);
    let [on_thread, on_other, alone] = [Some(thread), Some(other), None];
    let [on_thread, on_other, alone] = [
        create(b, row(assistant, on_thread)).await.id,
        create(b, row(assistant, on_other)).await.id,
        create(b, row(assistant, alone)).await.id,
    ];
    assert!(b.trees.delete_thread(thread).await.unwrap());
    assert_eq!(get(b, on_thread).await, None);
    assert!(get(b, on_other).await.is_some() && get(b, alone).await.is_some());
    let subject = Subject {
        id: assistant,
        viewer: None,
        graphs: ["agent".into()].into(),
    };
    b.assistants.delete_assistant(subject).await.unwrap();
    assert_eq!(b.crons.count_crons(Filter::default()).await.unwrap(), 0);
}

pub async fn a_due_time_has_one_run_whoever_tries(b: &Backend) {
    let thread = b.thread().await;
    let cron = create(b, row(assistant(b).await, Some(thread))).await;
    let id = RunId::mint();
    let new = || NewRun {
        id,
        ..new_run(thread)
    };
    let tries = (0..8).map(|_| fire(b, &cron, new()));
    let fired = futures::future::join_all(tries).await;
    let (created, lost): (Vec<_>, Vec<_>) = fired
        .into_iter()
        .partition(|fired| !matches!(fired, Fired::Lost));
    assert_eq!(lost.len(), 7);
    assert!(
        matches!(created[..], [Fired::Past(Created::Started(..))]),
        "{created:?}"
    );
    assert_eq!(b.runs.runs(thread, None, 10, 0).await.unwrap().len(), 1);
    let after = get(b, cron.id).await.unwrap();
    assert_eq!(after.next_run, Some(Timestamp(DUE.0 + HOUR)));
    assert_eq!(after.last_run, Some(Timestamp(DUE.0 + 5)));
    assert_eq!(after.updated_at, cron.updated_at);
    // The second guard: a run of this time exists already.
    let back = CronRow {
        next_run: Some(DUE),
        ..after.clone()
    };
    let back = b.crons.replace_cron(after, back).await.unwrap().unwrap();
    let exists = fire(b, &back, new()).await;
    assert!(matches!(exists, Fired::Past(Created::Exists)), "{exists:?}");
    assert_eq!(b.runs.runs(thread, None, 10, 0).await.unwrap().len(), 1);
    assert!(get(b, cron.id).await.unwrap().next_run > Some(DUE));
    // A time is skipped without a run.
    let after = get(b, cron.id).await.unwrap();
    let skipped = b.runs.fire(Firing {
        next: None,
        ..firing(&after, None)
    });
    assert!(matches!(skipped.await.unwrap(), Fired::Skipped));
    let after = get(b, cron.id).await.unwrap();
    assert_eq!((after.next_run, after.enabled), (None, true));
}

pub async fn a_due_time_whose_run_is_refused_is_past(b: &Backend) {
    let thread = b.thread().await;
    let cron = create(b, row(assistant(b).await, Some(thread))).await;
    b.start(new_run(thread)).await;
    let reject = NewRun {
        strategy: Strategy::Reject,
        ..new_run(thread)
    };
    let busy = fire(b, &cron, reject).await;
    assert!(matches!(busy, Fired::Past(Created::Busy)), "{busy:?}");
    let after = get(b, cron.id).await.unwrap();
    assert_eq!(after.next_run, Some(Timestamp(DUE.0 + HOUR)));
    assert_eq!(after.last_run, None);
    // Interrupting ends the other one, in the transaction that moves the cron on.
    let interrupt = NewRun {
        strategy: Strategy::Interrupt,
        ..new_run(thread)
    };
    let started = fire(b, &after, interrupt).await;
    assert!(
        matches!(started, Fired::Past(Created::Started(..))),
        "{started:?}"
    );
    let gone = get(b, cron.id).await.unwrap();
    let nowhere = fire(b, &gone, new_run(unknown())).await;
    assert!(
        matches!(nowhere, Fired::Past(Created::NoThread)),
        "{nowhere:?}"
    );
    assert_eq!(get(b, cron.id).await, None);
}

pub async fn a_cron_whose_principal_lost_the_level_is_disabled(b: &Backend) {
    let thread = b.thread().await;
    share(b, thread, Some(Level::Writer)).await;
    let cron = create(b, row(assistant(b).await, Some(thread))).await;
    let of_bob = || NewRun {
        access: of("bob"),
        ..new_run(thread)
    };
    let started = fire(b, &cron, of_bob()).await;
    assert!(
        matches!(started, Fired::Past(Created::Started(..))),
        "{started:?}"
    );
    share(b, thread, Some(Level::Reader)).await;
    let cron = get(b, cron.id).await.unwrap();
    let denied = fire(b, &cron, of_bob()).await;
    assert!(
        matches!(denied, Fired::Past(Created::Denied(_))),
        "{denied:?}"
    );
    let after = get(b, cron.id).await.unwrap();
    assert_eq!((after.enabled, after.next_run), (false, cron.next_run));
    assert_eq!(b.runs.runs(thread, None, 10, 0).await.unwrap().len(), 1);
}
