//! The bundled server: demo graphs behind the Agent Server protocol.

use backstitch::Server;

mod demo;

#[tokio::main]
async fn main() -> std::process::ExitCode {
    let model = demo::Model::choose();
    Server::new()
        .program(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        .about(env!("CARGO_PKG_DESCRIPTION"))
        .notice(model.notice())
        .graph("chat", demo::chat::graph(&model))
        .graph("research", demo::research::graph(&model))
        .run()
        .await
}
