use backstitch::prelude::*;

#[derive(State)]
struct Chat {
    topic: String,
}

async fn idle() {}

fn next(chat: &Chat, _ctx: Ctx) -> String {
    chat.topic.clone()
}

fn main() {
    let _ = Graph::<Chat>::new()
        .node("idle", idle)
        .route("idle", next, ["idle", END]);
}
