use backstitch::prelude::*;

#[derive(State)]
struct Chat {
    #[state(apend)]
    notes: Vec<String>,
}

fn main() {}
