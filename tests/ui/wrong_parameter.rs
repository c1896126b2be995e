use backstitch::prelude::*;

#[derive(State)]
struct Chat {
    topic: String,
}

async fn node(_text: String) {}

fn main() {
    let _ = Graph::<Chat>::new().node("node", node);
}
