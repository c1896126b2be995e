//! The bundled server: demo graphs behind the Agent Server protocol.

fn main() {}
