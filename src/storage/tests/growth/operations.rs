//! The operations on rows that are no part of trees, each with a page or with one row.

use std::{sync::Arc, time::Duration};

use super::{
    accidents::waiting,
    rooms::{DUE, Known, PAGE, Rooms, ann, chunk, claim, content, create_cron, cron, labels, put},
};
use crate::{
    assistants::{
        Change, Limits,
        request::{
            Columns as AssistantColumns, Filter as AssistantFilter, Search as AssistantSearch,
            SortBy as AssistantOrder,
        },
        store::{NewAssistant, Subject, VersionQuery},
    },
    crons::{
        CronRow,
        request::{
            Columns as CronColumns, Filter as CronFilter, Search as CronSearch, SortBy as CronOrder,
        },
    },
    id::{AssistantId, RunId, ThreadId},
    runs::{self, Fired, Firing, NewRun},
    store::{
        filter::Filter,
        namespace::ranges,
        rank::Nearest,
        search::{Listing, Search},
    },
    time::Timestamp,
    tree::members::{Access, Level},
    value::Map,
    webhooks::outbox::{FailedTry, HostPage},
};

fn subject(id: AssistantId) -> Subject {
    Subject {
        id,
        viewer: Some(ann()),
        graphs: [Arc::from("agent")].into(),
    }
}

/// All of them.
pub(super) async fn operate<S: Rooms>(store: &S, known: &mut Known) {
    items(store).await;
    assistants(store, known).await;
    crons(store, known).await;
    keys(store).await;
    log(store, known).await;
    deliveries(store, known).await;
    runs::Store::probe(store).await.unwrap();
}

async fn items<S: Rooms>(store: &S) {
    let (few, key) = (labels(&["few"]), "0".to_owned());
    store.item(ann(), few.clone(), key.clone()).await.unwrap();
    let weight = store.item_weight(ann(), few.clone(), key.clone());
    weight.await.unwrap();
    let again = put(few.clone(), key.clone(), Some(Duration::from_secs(99)));
    store.put_item(again, usize::MAX >> 1).await.unwrap();
    // Replaced also by whoever may have no other one.
    let again = put(few.clone(), key.clone(), Some(Duration::from_secs(99)));
    assert!(store.put_item(again, 1).await.unwrap());
    let name = (ann(), few.clone(), key.clone());
    store.refresh_items(vec![name]).await.unwrap();
    for (prefix, offset) in [("few", 0), ("few", 2), ("many", 0), ("many", 2)] {
        let prefix = labels(&[prefix]);
        let search = Search {
            ranges: ranges(&[], &ann(), &prefix),
            filter: Filter::default(),
            limit: 3,
            offset,
            scan_rows: 10_000,
            scan_bytes: 1 << 24,
            page_bytes: 1 << 24,
            memory: None,
        };
        store.search_items(search).await.unwrap();
        let listing = Listing {
            ranges: ranges(&[], &ann(), &prefix),
            prefix: prefix.clone(),
            suffix: labels(&[]),
            max_depth: Some(2),
            limit: 1,
            offset: 0,
            scan_rows: 10_000,
        };
        store.item_namespaces(listing).await.unwrap();
    }
    let nearest = Nearest {
        ranges: ranges(&[], &ann(), &few),
        filter: Filter::default(),
        model: "m".into(),
        vector: vec![1.0; 16].into(),
        limit: 3,
        offset: 0,
        scan_rows: 10_000,
        scan_bytes: 1 << 24,
        page_bytes: 1 << 24,
        memory: None,
    };
    store.nearest_items(nearest).await.unwrap();
    assert!(
        store
            .delete_item(ann(), few.clone(), key.clone())
            .await
            .unwrap()
    );
    let again = put(few, key, None);
    store.put_item(again, usize::MAX >> 1).await.unwrap();
    store.sweep_items(PAGE).await.unwrap();
}

async fn assistants<S: Rooms>(store: &S, known: &Known) {
    let new = NewAssistant {
        id: AssistantId::mint(),
        owner: ann(),
        content: content("changed".into()),
    };
    let id = new.id;
    store
        .create_assistant(new.clone(), usize::MAX >> 1)
        .await
        .unwrap();
    store
        .create_assistant(new.clone(), usize::MAX >> 1)
        .await
        .unwrap();
    store.assistant(subject(id)).await.unwrap().unwrap();
    let limits = Limits {
        bytes: 1 << 20,
        versions: 10,
        most: 1 << 20,
        ..Limits::default()
    };
    let change = Change {
        name: Some("again".into()),
        ..Change::default()
    };
    store
        .change_assistant(subject(id), change, limits)
        .await
        .unwrap();
    store.activate_version(subject(id), 1).await.unwrap();
    let query = VersionQuery {
        metadata: Map::new(),
        limit: PAGE,
        offset: 0,
    };
    store.assistant_versions(subject(id), query).await.unwrap();
    store.versions(subject(id), vec![1, 2]).await.unwrap();
    let graphs: Arc<[Arc<str>]> = [Arc::from("agent")].into();
    store
        .assistants(vec![id], Some(ann()), graphs, AssistantColumns::default())
        .await
        .unwrap();
    for viewer in [None, Some(ann())] {
        let filter = AssistantFilter {
            graphs: vec!["agent".into()],
            viewer,
            ..AssistantFilter::default()
        };
        store.count_assistants(filter.clone()).await.unwrap();
        for (_, sort_by) in AssistantOrder::ALL {
            for ascending in [false, true] {
                let search = AssistantSearch {
                    filter: filter.clone(),
                    limit: PAGE,
                    offset: 0,
                    sort_by: *sort_by,
                    ascending,
                };
                let found = store
                    .search_assistants(search, AssistantColumns::default())
                    .await
                    .unwrap();
                assert_eq!(found.len(), PAGE);
            }
        }
    }
    create_cron(store, cron(id, None, DUE)).await;
    store.delete_assistant(subject(id)).await.unwrap();
    store
        .create_assistant(new.clone(), usize::MAX >> 1)
        .await
        .unwrap();
    // The server takes the id for an assistant of its own.
    let own = NewAssistant {
        owner: "".into(),
        ..new
    };
    store.put_system(vec![own]).await.unwrap();
    store
        .assistant(subject(known.assistant))
        .await
        .unwrap()
        .unwrap();
}

async fn crons<S: Rooms>(store: &S, known: &Known) {
    let of_thread = create_cron(store, cron(known.assistant, Some(known.thread), DUE - 1)).await;
    store.delete_cron(of_thread.id, Some(ann())).await.unwrap();
    let row = create_cron(store, cron(known.assistant, None, DUE - 1)).await;
    store.cron(row.id, Some(ann())).await.unwrap().unwrap();
    let next = CronRow {
        schedule: "1 * * * *".into(),
        ..row.clone()
    };
    let row = store.replace_cron(row, next).await.unwrap().unwrap();
    for columns in [CronColumns::NONE, CronColumns::default()] {
        let found = store.crons(vec![row.id], Some(ann()), columns).await;
        assert_eq!(found.unwrap().len(), 1);
    }
    for (viewer, thread) in [
        (None, None),
        (Some(ann()), None),
        (Some(ann()), Some(known.thread)),
    ] {
        let filter = CronFilter {
            thread,
            viewer,
            ..CronFilter::default()
        };
        store.count_crons(filter.clone()).await.unwrap();
        for (_, sort_by) in CronOrder::ALL {
            for ascending in [false, true] {
                let search = CronSearch {
                    filter: filter.clone(),
                    limit: PAGE,
                    offset: 0,
                    sort_by: *sort_by,
                    ascending,
                };
                let found = store
                    .search_crons(search, CronColumns::default())
                    .await
                    .unwrap();
                assert_eq!(found.len(), PAGE);
            }
        }
    }
    store
        .due_crons(Timestamp(DUE - 1), None, PAGE)
        .await
        .unwrap();
    let firing = |row: &CronRow, next| Firing {
        cron: row.id,
        due: row.next_run.unwrap(),
        updated_at: row.updated_at,
        now: Timestamp(DUE),
        next,
        run: None,
    };
    let moved = firing(&row, Some(Timestamp(DUE + 1)));
    store.fire(moved).await.unwrap();
    let row = store.cron(row.id, None).await.unwrap().unwrap();
    store.fire(firing(&row, None)).await.unwrap();
    store.delete_cron(row.id, Some(ann())).await.unwrap();
    // One cron may not do what it is to do, and the thread of another is gone.
    let foreign = NewRun {
        access: Access::of("bob".into(), "request".into(), Level::Writer),
        ..waiting(known.thread)
    };
    for run in [foreign, waiting(ThreadId::mint())] {
        let row = create_cron(store, cron(known.assistant, None, DUE - 1)).await;
        let failing = Firing {
            run: Some(run),
            ..firing(&row, None)
        };
        let fired = store.fire(failing).await.unwrap();
        assert!(matches!(fired, Fired::Past(_)), "{fired:?}");
        store.delete_cron(row.id, Some(ann())).await.unwrap();
    }
    crate::crons::Store::clock(store).await.unwrap();
}

async fn keys<S: Rooms>(store: &S) {
    let (kept, other) = (claim("kept"), claim("other"));
    for one in [&kept, &kept, &other] {
        store.claim_key(one.clone()).await.unwrap();
    }
    store
        .store_response(kept.clone(), vec![1; 9])
        .await
        .unwrap();
    store.claim_key(claim("kept")).await.unwrap();
    store.abandon_key(other).await.unwrap();
    let again = claim("other");
    store.claim_key(again.clone()).await.unwrap();
    store.release_key(again).await.unwrap();
    store.expire_keys(PAGE).await.unwrap();
}

async fn log<S: Rooms>(store: &S, known: &Known) {
    let run = RunId::mint();
    let new = (1..=PAGE)
        .map(|first| chunk(known.thread, run, first, false))
        .collect();
    store.append_chunks(new).await.unwrap();
    let end = store.thread_position(known.thread).await.unwrap();
    assert!(store.thread_start(known.thread).await.unwrap() > 0);
    assert_eq!(store.end_of_run(run).await.unwrap(), PAGE as i64);
    assert_eq!(store.chunks_of_run(run, 0).await.unwrap().len(), PAGE);
    let last = store.chunks_of_thread(known.thread, end - PAGE as i64);
    assert_eq!(last.await.unwrap().len(), PAGE);
    // The share is what there is but for a page.
    store.trim_principal(ann(), 1 << 40, PAGE).await.unwrap();
    assert_eq!(
        store.trim_principal(ann(), 0, PAGE).await.unwrap(),
        PAGE as u64
    );
    store.trim_run(run, 99).await.unwrap();
    runs::Store::thread_of_run(store, run).await.unwrap();
    crate::stream::log::Log::ended_run(store, run)
        .await
        .unwrap();
    store
        .sweep_log(Duration::from_secs(9999), PAGE)
        .await
        .unwrap();
    assert_eq!(
        store.sweep_log(Duration::ZERO, PAGE).await.unwrap(),
        PAGE as u64
    );
}

async fn deliveries<S: Rooms>(store: &S, known: &mut Known) {
    assert_eq!(store.due_deliveries(PAGE).await.unwrap().len(), PAGE);
    let page = HostPage {
        after: "".into(),
        hosts: 2,
        per_host: PAGE / 2,
    };
    let due = store.due_by_host(page).await.unwrap().due;
    assert_eq!(due.len(), PAGE);
    known.deliveries = due.iter().map(|due| due.key).collect();
    let lease = Duration::from_secs(60);
    let taken = store
        .take_deliveries(known.deliveries.clone(), lease)
        .await
        .unwrap();
    assert_eq!(taken.len(), PAGE);
    let [first, second, third, ..] = &taken[..] else {
        panic!("{taken:?}");
    };
    store.delivered(first.key).await.unwrap();
    for (one, pause) in [(second, Some(lease)), (third, None)] {
        let failed = FailedTry {
            key: one.key,
            attempt: one.attempt,
            error: "no".into(),
            pause,
        };
        store.delivery_failed(failed).await.unwrap();
    }
    let rest = taken[3..]
        .iter()
        .map(|one| (one.key, one.attempt))
        .collect();
    store.release_deliveries(rest).await.unwrap();
    store.sweep_deliveries(Duration::ZERO, PAGE).await.unwrap();
}
