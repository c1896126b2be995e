use backstitch::prelude::*;

#[derive(State)]
struct Chat {
    topic: String,
}

async fn node() -> String {
    "bees".to_owned()
}

fn main() {
    let _ = Graph::<Chat>::new().node("node", node);
}
