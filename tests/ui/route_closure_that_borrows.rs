use backstitch::prelude::*;

#[derive(State)]
struct Chat {
    topic: String,
}

async fn idle() {}

fn main() {
    let _ = Graph::<Chat>::new()
        .node("idle", idle)
        .route("idle", |chat: &Chat| chat.topic.as_str(), ["idle", END]);
}
