//! Due times of crons that are served no more.

use backstitch::{
    crons::CronRow,
    id::ThreadId,
    runs::{Created, Fired, NewRun},
    value::{Map, Value},
};

use super::{
    backend::*,
    crons::{assistant, create, fire, row},
};

pub async fn a_due_time_of_a_changed_or_disabled_cron_is_lost(b: &Backend) {
    let thread = b.thread().await;
    let old = create(b, row(assistant(b).await, Some(thread))).await;
    let new = CronRow {
        payload: Map::from([("input", Value::Int(2))]),
        ..old.clone()
    };
    let changed = b
        .crons
        .replace_cron(old.clone(), new)
        .await
        .unwrap()
        .unwrap();
    assert!(matches!(fire(b, &old, new_run(thread)).await, Fired::Lost));
    let off = CronRow {
        enabled: false,
        ..changed.clone()
    };
    let off = b.crons.replace_cron(changed, off).await.unwrap().unwrap();
    assert!(matches!(fire(b, &off, new_run(thread)).await, Fired::Lost));
    assert!(b.crons.delete_cron(off.id, None).await.unwrap());
    assert!(matches!(fire(b, &off, new_run(thread)).await, Fired::Lost));
    assert!(b.runs.runs(thread, None, 10, 0).await.unwrap().is_empty());
}

/// As when its reply was lost: the second guard besides the due time.
pub async fn a_firing_whose_run_is_there_makes_no_second_one(b: &Backend) {
    let cron = create(b, row(assistant(b).await, None)).await;
    let other = create(b, row(assistant(b).await, None)).await;
    let on_new_thread = |thread| NewRun {
        create_thread: Some(new_thread(thread)),
        ..new_run(thread)
    };
    let (thread, another) = (ThreadId::mint(), ThreadId::mint());
    let run = on_new_thread(thread);
    let created = fire(b, &cron, run.clone()).await;
    assert!(
        matches!(created, Fired::Past(Created::Started(..))),
        "{created:?}"
    );
    let after = b.crons.cron(cron.id, None).await.unwrap().unwrap();
    let back = CronRow {
        next_run: cron.next_run,
        ..after.clone()
    };
    let back = b.crons.replace_cron(after, back).await.unwrap().unwrap();
    // Others of the same group of writes are not touched by what is taken back.
    let (refused, created) =
        futures::future::join(fire(b, &back, run), fire(b, &other, on_new_thread(another))).await;
    assert!(
        matches!(refused, Fired::Past(Created::Exists)),
        "{refused:?}"
    );
    assert!(
        matches!(created, Fired::Past(Created::Started(..))),
        "{created:?}"
    );
    for (id, thread) in [(cron.id, thread), (other.id, another)] {
        let after = b.crons.cron(id, None).await.unwrap().unwrap();
        assert!(after.next_run > cron.next_run);
        assert_eq!(b.runs.runs(thread, None, 10, 0).await.unwrap().len(), 1);
    }
}
