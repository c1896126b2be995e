use backstitch::prelude::*;

#[derive(State)]
struct Chat {
    #[state(update = u32)]
    turns: u32,
}

fn main() {}
