//! Tools of the official server.

use super::*;

fn command() -> Option<Command> {
    Some(python()?.script("mcp_server.py"))
}

/// The official server as a child process.
fn child() -> Option<Server> {
    let command = command()?;
    let text = |text: &std::ffi::OsStr| text.to_str().unwrap().to_owned();
    let server = Server::command(text(command.get_program()));
    Some(server.args(command.get_args().map(text)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_calls_the_tools_of_a_program() {
    let Some(server) = child() else { return };
    let connection = server.env("ONE", "1").connect().await.unwrap();
    let tools = connection.tools();
    let names: Vec<&str> = tools.iter().map(|tool| tool.name()).collect();
    assert_eq!(
        names,
        ["add", "fail", "draw_it", "environment", "crash", "wait"]
    );
    assert_eq!(tools[0].description(), "Adds two numbers.");
    let parameters = tools[0].parameters();
    assert_eq!(parameters["properties"]["a"]["type"], "integer");
    assert_eq!(parameters["required"], json!(["a", "b"]));

    assert_eq!(called(&tools, "add", json!({"a": 1, "b": 2})).await, "3");
    let picture = called(&tools, "draw_it", json!({})).await;
    let picture: Json = serde_json::from_str(&picture).unwrap();
    let kinds = [&picture[0]["type"], &picture[0]["mime_type"]];
    assert_eq!(kinds, [&json!("image"), &json!("image/png")], "{picture}");
    // Six bytes in Base64, and nothing beside them.
    let bytes = picture[0]["base64"].as_str().unwrap();
    assert_eq!((bytes.len(), picture.as_array().unwrap().len()), (8, 1));
    let environment = called(&tools, "environment", json!({})).await;
    assert_eq!(environment.split(' ').skip(1).collect::<Vec<_>>(), ["ONE"]);

    let error = failed(&tools, "fail", json!({"why": "no luck"})).await;
    assert!(error.contains("no luck"), "{error}");
    let error = failed(&tools, "add", json!({"a": "x"})).await;
    assert!(error.contains("integer"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_ends_fails_its_call_and_is_started_anew() {
    let Some(server) = child() else { return };
    let connection = server.connect().await.unwrap();
    let tools = connection.tools();
    let environment = called(&tools, "environment", json!({})).await;
    let error = failed(&tools, "crash", json!({})).await;
    assert!(
        error.contains("broke off the call: it ended (exit status: 3)"),
        "{error}"
    );
    // Under load its start may take longer than a call waits for it.
    let tools = &tools;
    eventually("it was started anew", async || {
        let (status, text) = call(tools, "environment", json!({})).await;
        status != "error" && text != environment
    })
    .await;

    connection.close().await;
    let error = failed(tools, "environment", json!({})).await;
    assert!(error.ends_with("is closed"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_nobody_waits_for_is_cancelled_at_the_server() {
    let Some(server) = child() else { return };
    let folder = tempfile::tempdir().unwrap();
    let notes = folder.path().join("notes").to_str().unwrap().to_owned();
    let connection = server.env("NOTES", &notes).connect().await.unwrap();
    let tools = connection.tools();
    let waiting = tokio::spawn(async move { call(&tools, "wait", json!({})).await });
    let there = async |end: &str| std::fs::exists(format!("{notes}.{end}")).unwrap();
    eventually("it began", async || there("began").await).await;
    waiting.abort();
    eventually("it was cancelled", async || there("cancelled").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_calls_the_tools_of_a_web_address() {
    let Some(mut command) = command() else { return };
    command.arg("http");
    let web = Web::start(command);
    let Err(error) = Server::http(&web.url).connect().await else {
        panic!("it wants a key");
    };
    assert!(error.to_string().contains("401"), "{error}");
    let server = Server::http(&web.url)
        .header("x-key", "secret")
        .prefix("my ");
    let connection = server.connect().await.unwrap();
    let tools = connection.tools();
    assert_eq!(tools[0].name(), "my_add");
    assert_eq!(called(&tools, "my_add", json!({"a": 1, "b": 2})).await, "3");
    let error = failed(&tools, "my_fail", json!({"why": "no luck"})).await;
    assert!(error.contains("no luck"), "{error}");
    let error = failed(&tools, "my_crash", json!({})).await;
    assert!(error.contains("the MCP server"), "{error}");
    drop(web);
    let error = failed(&tools, "my_add", json!({"a": 1, "b": 2})).await;
    assert!(error.contains("the MCP server"), "{error}");
}
