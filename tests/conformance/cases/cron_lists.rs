//! Lists of crons: pages in every order, what is read of each, and those that are due.

use std::sync::Arc;

use backstitch::{
    crons::{
        CronRow,
        request::{Columns, Filter, Search, SortBy},
    },
    id::CronId,
    time::Timestamp,
    value,
    value::Map,
};

use super::{
    backend::*,
    crons::{DUE, assistant, create, row},
};

pub async fn crons_are_listed_in_every_order_and_counted(b: &Backend) {
    let (one, two) = (assistant(b).await, assistant(b).await);
    let thread = b.thread().await;
    let mut rows = vec![];
    for (at, assistant) in [one, two, one].into_iter().enumerate() {
        let number = i64::try_from(at).unwrap();
        let new = CronRow {
            owner: if at == 1 { "bob".into() } else { "ann".into() },
            enabled: at != 2,
            end_time: (at != 0).then_some(Timestamp(DUE.0 - number)),
            next_run: (at != 1).then_some(Timestamp(DUE.0 - number)),
            metadata: map(value!({"n": number, "all": {"x": 1, "y": 2}})),
            ..row(assistant, (at == 2).then_some(thread))
        };
        rows.push(create(b, new).await.id);
    }
    let list = async |sort_by, ascending| {
        let search = Search {
            sort_by,
            ascending,
            limit: 10,
            ..Search::default()
        };
        let found = b.crons.search_crons(search, Columns::NONE).await.unwrap();
        let at = |(cron, _): &(CronId, u64)| rows.iter().position(|id| id == cron).unwrap();
        found.iter().map(at).collect::<Vec<_>>()
    };
    assert_eq!(list(SortBy::CreatedAt, true).await, [0, 1, 2]);
    assert_eq!(list(SortBy::CreatedAt, false).await, [2, 1, 0]);
    assert_eq!(list(SortBy::UpdatedAt, false).await, [2, 1, 0]);
    assert_eq!(list(SortBy::CronId, true).await, [0, 1, 2]);
    assert_eq!(list(SortBy::AssistantId, true).await, [0, 2, 1]);
    assert_eq!(list(SortBy::ThreadId, false).await[0], 2);
    assert_eq!(list(SortBy::ThreadId, true).await[0], 2);
    // What has none comes last in either direction.
    assert_eq!(list(SortBy::NextRunDate, true).await, [2, 0, 1]);
    assert_eq!(list(SortBy::NextRunDate, false).await, [0, 2, 1]);
    assert_eq!(list(SortBy::EndTime, true).await, [2, 1, 0]);
    assert_eq!(list(SortBy::EndTime, false).await, [1, 2, 0]);
    let viewer = |name: &str| Some(Arc::<str>::from(name));
    let all = Filter::default;
    for (filter, expected) in [
        (all(), 3),
        (
            Filter {
                viewer: viewer("ann"),
                ..all()
            },
            2,
        ),
        (
            Filter {
                viewer: viewer("cid"),
                ..all()
            },
            0,
        ),
        (
            Filter {
                thread: Some(thread),
                ..all()
            },
            1,
        ),
        (
            Filter {
                thread: Some(thread),
                viewer: viewer("bob"),
                ..all()
            },
            0,
        ),
        (
            Filter {
                assistant: Some(one),
                ..all()
            },
            2,
        ),
        (
            Filter {
                assistant: Some(one),
                enabled: Some(true),
                ..all()
            },
            1,
        ),
        (
            Filter {
                metadata: map(value!({"all": {"y": 2}})),
                ..all()
            },
            3,
        ),
        (
            Filter {
                metadata: map(value!({"n": 1})),
                ..all()
            },
            1,
        ),
    ] {
        let count = b.crons.count_crons(filter.clone()).await.unwrap();
        assert_eq!(count, expected, "{filter:?}");
        let search = Search {
            filter,
            limit: 10,
            ..Search::default()
        };
        let found = b
            .crons
            .search_crons(search.clone(), Columns::NONE)
            .await
            .unwrap();
        assert_eq!(found.len() as u64, expected, "{search:?}");
        let second = Search {
            limit: 1,
            offset: 1,
            ..search
        };
        let page = b.crons.search_crons(second, Columns::NONE).await.unwrap();
        assert_eq!(page, found.into_iter().skip(1).take(1).collect::<Vec<_>>());
    }
    let due = async |at: i64, limit| {
        let found = b.crons.due_crons(Timestamp(at), None, limit).await.unwrap();
        found.iter().map(|cron| cron.id).collect::<Vec<_>>()
    };
    assert_eq!(
        due(DUE.0, 10).await,
        [rows[0]],
        "one has no time, one is disabled"
    );
    assert_eq!(due(DUE.0 - 1, 10).await, []);
    assert_eq!(due(DUE.0, 0).await, []);
}

pub async fn listed_crons_are_read_with_what_is_wanted_of_them(b: &Backend) {
    let assistant = assistant(b).await;
    let mut rows = vec![];
    for (number, owner) in ["ann", "bob\0", "ann"].into_iter().enumerate() {
        let new = CronRow {
            owner: owner.into(),
            metadata: map(value!({"m": number})),
            payload: map(value!({"input": ("x".repeat(1000 * (number + 1)))})),
            end_time: (number == 1).then_some(DUE),
            ..row(assistant, None)
        };
        rows.push(create(b, new).await);
    }
    // What each column weighs by itself.
    let (metadata, payload, end_time) = (
        only(|columns| columns.metadata = true),
        only(|columns| columns.payload = true),
        only(|columns| columns.end_time = true),
    );
    let weights = async |columns| -> Vec<u64> {
        let search = Search {
            limit: 10,
            ascending: true,
            ..Search::default()
        };
        let found = b.crons.search_crons(search, columns).await.unwrap();
        let ids = found.iter().map(|(id, _)| *id);
        assert!(ids.eq(rows.iter().map(|row| row.id)));
        found.into_iter().map(|(_, weight)| weight).collect()
    };
    assert_eq!(weights(Columns::NONE).await, [0, 0, 0]);
    let of_metadata = weights(metadata).await;
    // Twelve for each byte of a text with a space or without.
    let texts = [7 * 12, 8 * 12];
    assert!(of_metadata.iter().all(|weight| texts.contains(weight)));
    let of_payload = weights(payload).await;
    for (row, weight) in rows.iter().zip(&of_payload) {
        let stored = row.payload.get("input").unwrap().as_str().unwrap().len() as u64;
        assert!((stored..stored + 100).contains(weight), "{weight}");
    }
    // The payload is read for the end of what has one.
    let of_end = weights(end_time).await;
    assert_eq!(of_end, [0, of_payload[1], 0]);
    let sums = of_metadata.iter().zip(&of_payload);
    let sums: Vec<u64> = sums.map(|(one, other)| one + other).collect();
    assert_eq!(weights(Columns::default()).await, sums);

    let ids: Vec<CronId> = rows.iter().map(|row| row.id).chain([unknown()]).collect();
    for viewer in [None, Some("ann"), Some("bob\0"), Some("cid")] {
        for columns in [
            Columns::default(),
            metadata,
            payload,
            end_time,
            Columns::NONE,
        ] {
            let viewer: Option<Arc<str>> = viewer.map(Into::into);
            let found = b.crons.crons(ids.clone(), viewer.clone(), columns);
            let mut found = found.await.unwrap();
            found.sort_by_key(|row| ids.iter().position(|id| *id == row.id));
            let expected = rows
                .iter()
                .filter(|row| viewer.as_ref().is_none_or(|viewer| *viewer == row.owner));
            let expected = expected.cloned().map(|mut row| {
                let has_end = row.end_time.is_some();
                if !columns.metadata {
                    row.metadata = Map::new();
                }
                if !(columns.payload || columns.end_time && has_end) {
                    row.payload = Map::new();
                }
                row
            });
            assert_eq!(found, expected.collect::<Vec<_>>());
        }
    }
}

/// Of no column but one.
fn only(choose: impl Fn(&mut Columns)) -> Columns {
    let mut columns = Columns::NONE;
    choose(&mut columns);
    columns
}

pub async fn due_crons_are_read_in_pages_without_a_gap(b: &Backend) {
    let assistant = assistant(b).await;
    let thread = b.thread().await;
    let mut expected = vec![];
    for (number, thread) in [None, Some(thread), None, Some(thread), None]
        .into_iter()
        .enumerate()
    {
        let owner = if number % 2 == 0 { "ann\0" } else { "bob" };
        // Three have the same time.
        let time = Timestamp(DUE.0 + (number as i64 / 3));
        let new = CronRow {
            owner: owner.into(),
            next_run: Some(time),
            ..row(assistant, thread)
        };
        let made = create(b, new).await;
        expected.push((time, made.id, made.owner, thread));
    }
    expected.sort();
    let mut found = vec![];
    let mut after = None;
    loop {
        let page = b.crons.due_crons(Timestamp(DUE.0 + 9), after, 2).await;
        let page = page.unwrap();
        let Some(last) = page.last() else { break };
        after = Some((last.due, last.id));
        let page = page.into_iter();
        found.extend(page.map(|due| (due.due, due.id, due.owner, due.thread)));
    }
    assert_eq!(found, expected);
}
