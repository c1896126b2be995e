use backstitch::prelude::*;

struct Chat {
    _topic: String,
}

fn main() {
    let _ = Graph::<Chat>::new();
}
