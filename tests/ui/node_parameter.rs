use backstitch::prelude::*;

#[derive(State)]
struct Chat {
    topic: String,
}

#[node]
async fn node(_chat: Chat, _text: String) {}

fn main() {
    let _ = Graph::<Chat>::new();
}
