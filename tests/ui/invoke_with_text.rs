use backstitch::prelude::*;

#[derive(State)]
struct Chat {
    topic: String,
}

fn main() {
    let graph = Graph::<Chat>::new().build().unwrap();
    let thread = backstitch::Local::memory().unwrap().thread(&graph);
    let _ = thread.invoke("Hello");
}
