use backstitch::prelude::*;

#[derive(State)]
struct Chat {
    topic: String,
}

async fn node() -> Update<Chat> {
    Chat::update().topic(3)
}

fn main() {
    let _ = Graph::<Chat>::new().node("node", node);
}
