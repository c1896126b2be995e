//! Assistants: what comes back of them, who sees them, their versions and their lists.

use std::sync::Arc;

use backstitch::{
    assistants::{
        Change, Content, Limits,
        request::{Columns, Filter, Search, SortBy},
        store::{ChangedAssistant, CreatedAssistant, NewAssistant, SYSTEM, Subject, VersionQuery},
    },
    id::AssistantId,
    value,
    value::Map,
};

use super::backend::*;

fn content(name: &str, bytes: usize) -> Content {
    Content {
        graph: "agent".into(),
        name: name.to_owned(),
        description: Some("what it is for".to_owned()),
        metadata: map(value!({"name": name, "all": {"x": 1, "y": 2}})),
        config: map(value!({"tags": ["t"], "configurable": {"text": "x".repeat(bytes)}})),
        context: map(value!({"nothing": null, "float": 1.0})),
    }
}

async fn create(b: &Backend, owner: &str, content: Content) -> AssistantId {
    let new = NewAssistant {
        id: AssistantId::mint(),
        owner: owner.into(),
        content,
    };
    let created = b.assistants.create_assistant(new.clone(), 100).await;
    let CreatedAssistant::New(row) = created.unwrap() else {
        panic!("it is new");
    };
    assert_eq!((row.id, &*row.owner, row.version), (new.id, owner, 1));
    assert_eq!(row.content, new.content);
    new.id
}

fn graphs() -> Arc<[Arc<str>]> {
    ["agent".into()].into()
}

fn seen_by(viewer: &str, id: AssistantId) -> Subject {
    Subject {
        id,
        viewer: Some(viewer.into()),
        graphs: graphs(),
    }
}

pub async fn an_assistant_comes_back_with_every_field_to_whom_it_is(b: &Backend) {
    let id = create(b, "ann", content("a", 10)).await;
    let row = b.assistants.assistant(seen_by("ann", id)).await.unwrap();
    assert_eq!(row.unwrap().content, content("a", 10));
    let own = NewAssistant {
        id: AssistantId::of_graph("agent"),
        owner: SYSTEM.into(),
        content: content("agent", 0),
    };
    b.assistants.put_system(vec![own.clone()]).await.unwrap();
    let hidden = Subject {
        graphs: ["other".into()].into(),
        ..seen_by("ann", id)
    };
    let anybody = Subject {
        viewer: None,
        ..seen_by("", id)
    };
    for (subject, is_seen) in [
        (seen_by("bob", id), false),
        (hidden, false),
        (anybody, true),
        (seen_by("ann", AssistantId::mint()), false),
        (seen_by("bob", own.id), true),
    ] {
        let row = b.assistants.assistant(subject.clone()).await.unwrap();
        assert_eq!(row.is_some(), is_seen, "{subject:?}");
        let ids = vec![subject.id];
        let (viewer, graphs) = (subject.viewer, subject.graphs);
        let rows = b
            .assistants
            .assistants(ids, viewer, graphs, Columns::default());
        assert_eq!(rows.await.unwrap(), Vec::from_iter(row));
    }
    let taken = NewAssistant { id, ..own.clone() };
    let created = b.assistants.create_assistant(taken, 100).await.unwrap();
    assert!(matches!(created, CreatedAssistant::Exists(row) if row.content == content("a", 10)));
}

pub async fn a_change_is_a_version_that_can_be_activated(b: &Backend) {
    let id = create(b, "ann", content("v1", 10)).await;
    let limits = Limits {
        versions: 3,
        ..Limits::default()
    };
    let change = async |subject: Subject, name: &str| {
        let change = Change {
            name: Some(name.to_owned()),
            ..Change::default()
        };
        let changed = b.assistants.change_assistant(subject, change, limits).await;
        changed.unwrap()
    };
    for (name, version) in [("v2", 2), ("v3", 3)] {
        let ChangedAssistant::Done(row) = change(seen_by("ann", id), name).await else {
            panic!("it has less versions than it may");
        };
        assert_eq!((row.version, &*row.content.name), (version, name));
    }
    assert_eq!(
        change(seen_by("ann", id), "v4").await,
        ChangedAssistant::TooManyVersions
    );
    assert_eq!(
        change(seen_by("bob", id), "v4").await,
        ChangedAssistant::Missing
    );
    let activate = async |who: &str, version| {
        let subject = seen_by(who, id);
        b.assistants
            .activate_version(subject, version)
            .await
            .unwrap()
    };
    assert!(
        matches!(activate("ann", 1).await, ChangedAssistant::Done(row) if row.content == content("v1", 10))
    );
    assert_eq!(activate("ann", 4).await, ChangedAssistant::NoVersion);
    assert_eq!(activate("bob", 2).await, ChangedAssistant::Missing);

    let list = async |who: &str, metadata, limit, offset| {
        let query = VersionQuery {
            metadata,
            limit,
            offset,
        };
        let found = b.assistants.assistant_versions(seen_by(who, id), query);
        found.await.unwrap()
    };
    let numbers = |found: Option<Vec<(i32, u64)>>| -> Vec<i32> {
        found.unwrap().iter().map(|(version, _)| *version).collect()
    };
    assert_eq!(numbers(list("ann", Map::new(), 10, 0).await), [3, 2, 1]);
    assert_eq!(numbers(list("ann", Map::new(), 1, 1).await), [2]);
    let of_first = map(value!({"name": "v1", "all": {"y": 2}}));
    assert_eq!(numbers(list("ann", of_first, 2, 1).await), [2, 1]);
    let of_none = map(value!({"name": "v9"}));
    assert_eq!(list("ann", of_none, 10, 0).await, Some(vec![]));
    assert_eq!(list("bob", Map::new(), 10, 0).await, None);
    let read = async |who: &str| {
        let rows = b.assistants.versions(seen_by(who, id), vec![3, 9, 1]);
        let rows = rows.await.unwrap();
        rows.into_iter().map(|row| (row.version, row.content.name))
    };
    let expected = [(3, "v3".to_owned()), (1, "v1".to_owned())];
    assert!(read("ann").await.eq(expected));
    assert_eq!(read("bob").await.count(), 0);
}

pub async fn assistants_are_listed_in_every_order_with_their_sizes(b: &Backend) {
    let mut ids = vec![];
    for (owner, name, bytes) in [
        ("ann", "Zoe", 10),
        ("bob", "amy", 50_000),
        ("ann", "Max", 10),
    ] {
        ids.push(create(b, owner, content(name, bytes)).await);
    }
    let changed =
        b.assistants
            .change_assistant(seen_by("ann", ids[0]), Change::default(), Limits::default());
    assert!(matches!(changed.await.unwrap(), ChangedAssistant::Done(_)));
    let all = || Filter {
        graphs: vec!["agent".into()],
        ..Filter::default()
    };
    let list = async |filter: Filter, sort_by, ascending| {
        let search = Search {
            filter,
            sort_by,
            ascending,
            limit: 10,
            offset: 0,
        };
        let found = b
            .assistants
            .search_assistants(search.clone(), Columns::default())
            .await
            .unwrap();
        let second = Search {
            limit: 1,
            offset: 1,
            ..search
        };
        let page = b
            .assistants
            .search_assistants(second, Columns::default())
            .await
            .unwrap();
        assert_eq!(
            page,
            found.iter().skip(1).take(1).copied().collect::<Vec<_>>()
        );
        for (id, bytes) in &found {
            let least = if *id == ids[1] { 50_000 } else { 10 };
            assert!((least..least + 1000).contains(bytes), "{bytes}");
        }
        let at = |(id, _): &(AssistantId, u64)| ids.iter().position(|one| one == id).unwrap();
        found.iter().map(at).collect::<Vec<_>>()
    };
    assert_eq!(list(all(), SortBy::CreatedAt, true).await, [0, 1, 2]);
    assert_eq!(list(all(), SortBy::CreatedAt, false).await, [2, 1, 0]);
    assert_eq!(list(all(), SortBy::UpdatedAt, false).await, [0, 2, 1]);
    assert_eq!(list(all(), SortBy::AssistantId, true).await, [0, 1, 2]);
    let by_name = list(all(), SortBy::Name, true).await;
    let mut backwards = list(all(), SortBy::Name, false).await;
    backwards.reverse();
    assert_eq!(by_name, backwards);
    for (filter, expected) in [
        (all(), 3),
        (
            Filter {
                viewer: Some("ann".into()),
                ..all()
            },
            2,
        ),
        (
            Filter {
                name: Some("A".to_owned()),
                ..all()
            },
            2,
        ),
        (
            Filter {
                metadata: map(value!({"all": {"x": 1}, "name": "amy"})),
                ..all()
            },
            1,
        ),
        (
            Filter {
                graphs: vec!["other".into()],
                ..all()
            },
            0,
        ),
    ] {
        let found = list(filter.clone(), SortBy::CreatedAt, true).await;
        assert_eq!(found.len(), expected, "{filter:?}");
        let count = b.assistants.count_assistants(filter).await.unwrap();
        assert_eq!(count, expected as u64);
    }
    let delete = async |who: &str| {
        let subject = seen_by(who, ids[0]);
        b.assistants.delete_assistant(subject).await.unwrap()
    };
    assert_eq!(delete("bob").await, ChangedAssistant::Missing);
    assert!(matches!(delete("ann").await, ChangedAssistant::Done(_)));
    assert_eq!(delete("ann").await, ChangedAssistant::Missing);
    assert_eq!(list(all(), SortBy::CreatedAt, true).await, [1, 2]);
}
