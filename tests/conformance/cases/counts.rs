//! How many crons and assistants an owner may have.

use std::sync::Arc;

use backstitch::{
    assistants::{
        Content,
        store::{CreatedAssistant, NewAssistant, Subject},
    },
    crons::{CronRow, store::CreatedCron},
    id::{AssistantId, CronId},
    tree::members::Access,
    value::Map,
};

use super::{
    backend::*,
    crons::{assistant, row},
};

/// The id of the new cron, unless its owner has as many as it may.
async fn create(b: &Backend, row: CronRow, most: usize) -> Option<CronId> {
    let created = b.crons.create_cron(row, Access::unrestricted(), most).await;
    match created.unwrap() {
        CreatedCron::Done(row) => Some(row.id),
        CreatedCron::Full => None,
        other => panic!("{other:?}"),
    }
}

pub async fn an_owner_has_as_many_crons_as_it_may(b: &Backend) {
    let (one, other) = (assistant(b).await, assistant(b).await);
    let thread = b.thread().await;
    let of = |owner: &str, assistant, thread| CronRow {
        owner: owner.into(),
        ..row(assistant, thread)
    };
    let first = create(b, of("ann\0", one, None), 2).await.unwrap();
    assert!(
        create(b, of("ann\0", other, Some(thread)), 2)
            .await
            .is_some()
    );
    let refused = of("ann\0", one, None);
    let id = refused.id;
    assert_eq!(create(b, refused, 2).await, None);
    assert_eq!(b.crons.cron(id, None).await.unwrap(), None);
    assert!(create(b, of("bob", one, None), 2).await.is_some());
    // Whatever takes one away makes room: its owner, its thread, its assistant.
    assert!(b.crons.delete_cron(first, None).await.unwrap());
    assert!(create(b, of("ann\0", other, None), 2).await.is_some());
    assert_eq!(create(b, of("ann\0", one, None), 2).await, None);
    assert!(b.trees.delete_thread(thread).await.unwrap());
    assert!(create(b, of("ann\0", other, None), 2).await.is_some());
    assert_eq!(create(b, of("ann\0", one, None), 2).await, None);
    delete_assistant(b, other).await;
    assert!(create(b, of("ann\0", one, None), 2).await.is_some());
    assert!(create(b, of("ann\0", one, None), 2).await.is_some());
    assert_eq!(create(b, of("ann\0", one, None), 2).await, None);
}

pub async fn of_crons_created_at_the_same_time_no_more_stay_than_may(b: &Backend) {
    let assistant = assistant(b).await;
    let tries = (0..12).map(|_| create(b, row(assistant, None), 5));
    let made = futures::future::join_all(tries).await;
    assert_eq!(made.iter().flatten().count(), 5, "{made:?}");
}

async fn delete_assistant(b: &Backend, id: AssistantId) {
    let subject = Subject {
        id,
        viewer: None,
        graphs: ["agent".into()].into(),
    };
    b.assistants.delete_assistant(subject).await.unwrap();
}

fn new_assistant(owner: &str) -> NewAssistant {
    NewAssistant {
        id: AssistantId::mint(),
        owner: Arc::from(owner),
        content: Content {
            graph: "agent".into(),
            name: "a".into(),
            description: None,
            metadata: Map::new(),
            config: Map::new(),
            context: Map::new(),
        },
    }
}

pub async fn an_owner_has_as_many_assistants_as_it_may(b: &Backend) {
    let create = async |new: &NewAssistant| {
        let created = b.assistants.create_assistant(new.clone(), 2).await;
        created.unwrap()
    };
    let (first, second) = (new_assistant("ann\0"), new_assistant("ann\0"));
    for new in [&first, &second] {
        let created = create(new).await;
        assert!(matches!(created, CreatedAssistant::New(_)), "{created:?}");
    }
    let full = new_assistant("ann\0");
    assert_eq!(create(&full).await, CreatedAssistant::Full);
    let known = create(&first).await;
    assert!(matches!(known, CreatedAssistant::Exists(_)), "{known:?}");
    let of_bob = create(&new_assistant("bob")).await;
    assert!(matches!(of_bob, CreatedAssistant::New(_)), "{of_bob:?}");
    delete_assistant(b, first.id).await;
    let created = create(&full).await;
    assert!(matches!(created, CreatedAssistant::New(_)), "{created:?}");
    assert_eq!(create(&first).await, CreatedAssistant::Full);
    // The server takes an id for an assistant of its own, which is nobody's.
    let own = NewAssistant {
        owner: "".into(),
        ..second.clone()
    };
    for _ in 0..2 {
        b.assistants.put_system(vec![own.clone()]).await.unwrap();
    }
    let created = create(&first).await;
    assert!(matches!(created, CreatedAssistant::New(_)), "{created:?}");
    assert_eq!(
        create(&new_assistant("ann\0")).await,
        CreatedAssistant::Full
    );
}
