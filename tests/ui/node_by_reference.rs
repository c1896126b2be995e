use backstitch::prelude::*;

#[derive(State)]
struct Chat {
    topic: String,
}

#[node]
async fn node(_chat: &Chat) {}

fn main() {}
