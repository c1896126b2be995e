//! Servers that break the rules: calls fail with a clear error, in bounded time and memory.

use super::*;

async fn refusal(server: Server) -> String {
    match server.connect().await {
        Ok(_) => panic!("it cannot be connected to"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_cannot_be_made_says_why() {
    for (server, why) in [
        (
            Server::command("/no/such/program"),
            "could not be started: No such file",
        ),
        (
            Server::command("/bin/false"),
            "ended at once (exit status: 1)",
        ),
        (
            liar("silent").timeout(Duration::from_millis(500)),
            "did not begin within 500ms",
        ),
        (liar("endless"), "it offers more than 512 tools"),
        (liar("no_list"), "cannot list its tools"),
        (Server::http("http://127.0.0.1:9/mcp"), "did not begin"),
        (Server::http("no address"), "did not begin"),
        (Server::http("http://[::1"), "did not begin"),
        (
            Server::http("http://127.0.0.1:9/mcp").header("a b", "c"),
            "`a b` cannot be a header",
        ),
        (
            Server::http("http://127.0.0.1:9/mcp").args(["-v"]),
            "a web address takes no arguments",
        ),
        (
            Server::http("http://127.0.0.1:9/mcp").env("A", "1"),
            "a web address has no environment",
        ),
        (
            Server::command("/bin/cat").header("a", "b"),
            "a program takes no headers",
        ),
    ] {
        let error = refusal(server).await;
        assert!(error.starts_with("the MCP server `"), "{error}");
        assert!(error.contains(why), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn noise_is_passed_over_and_odd_tools_are_left_out() {
    let connection = liar("noise").connect().await.unwrap();
    assert_eq!(called(&connection.tools(), "talk", json!({})).await, "");
    let connection = liar("odd").connect().await.unwrap();
    let tools = connection.tools();
    let names: Vec<&str> = tools.iter().map(|tool| tool.name()).collect();
    assert_eq!(names, ["same"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_a_result_ends_in_time() {
    let server = liar("never").timeout(Duration::from_secs(10));
    let connection = server.connect().await.unwrap();
    let error = failed(&connection.tools(), "talk", json!({})).await;
    assert!(error.contains("was silent for 10s"), "{error}");
    let connection = liar("wrong_result").connect().await.unwrap();
    let error = failed(&connection.tools(), "talk", json!({})).await;
    assert!(error.contains("the MCP server"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_too_large_is_not_read_to_its_end() {
    let server = liar("huge").most_bytes(1 << 20);
    let connection = server.connect().await.unwrap();
    let error = failed(&connection.tools(), "talk", json!({})).await;
    assert!(
        error.contains("sent a message of more than 1048576 bytes"),
        "{error}"
    );

    for way in ["huge", "huge_stream"] {
        let folder = tempfile::tempdir().unwrap();
        let notes = folder.path().join("notes");
        let mut command = Command::new("python3");
        let script = programs::repository().join("tests/python/mcp_liar.py");
        command.arg(script).args(["http", way]).env("NOTES", &notes);
        let web = Web::start(command);
        let server = Server::http(&web.url).most_bytes(1 << 20);
        let connection = server
            .timeout(Duration::from_secs(20))
            .connect()
            .await
            .unwrap();
        let error = failed(&connection.tools(), "talk", json!({})).await;
        assert!(error.contains("the MCP server"), "{error}");
        // What it could write is what fits between the two processes.
        let written = async || std::fs::read_to_string(&notes).unwrap_or_default();
        eventually("it gave up", async || written().await.ends_with('\n')).await;
        let written: u64 = written().await.trim().parse().unwrap();
        assert!(written < 50_000_000, "{way}: {written}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_hang_at_a_web_address_leave_room_for_others() {
    let mut command = Command::new("python3");
    let script = programs::repository().join("tests/python/mcp_liar.py");
    command.arg(script).args(["http", "hangs"]);
    let web = Web::start(command);
    let server = Server::http(&web.url).timeout(Duration::from_secs(10));
    let tools = server.connect().await.unwrap().tools();
    let hanging = (0..40).map(|_| failed(&tools, "talk", json!({"hang": true})));
    for error in futures::future::join_all(hanging).await {
        assert!(error.contains("was silent for 10s"), "{error}");
    }
    assert_eq!(called(&tools, "talk", json!({})).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_to_another_address_is_not_followed() {
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let elsewhere = format!("http://{}/mcp", other.local_addr().unwrap());
    other.set_nonblocking(true).unwrap();
    let mut command = Command::new("python3");
    let script = programs::repository().join("tests/python/mcp_liar.py");
    command
        .arg(script)
        .args(["http", "elsewhere"])
        .env("ELSEWHERE", elsewhere);
    let web = Web::start(command);
    let error = refusal(Server::http(&web.url).header("x-key", "secret")).await;
    assert!(error.contains("did not begin"), "{error}");
    assert!(other.accept().is_err(), "the header was passed on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_does_not_end_is_killed_with_its_children() {
    for close in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let notes = folder.path().join("notes");
        let server = liar("stubborn").env("NOTES", notes.to_str().unwrap());
        let connection = server.connect().await.unwrap();
        let tools = connection.tools();
        assert_eq!(called(&tools, "talk", json!({})).await, "");
        let processes = std::fs::read_to_string(&notes).unwrap();
        let processes: Vec<&str> = processes.split_whitespace().collect();
        assert_eq!(processes.len(), 2);
        assert!(processes.iter().all(|process| runs(process)));
        if close {
            connection.close().await;
        }
        drop((connection, tools));
        let gone = async || !processes.iter().any(|process| runs(process));
        eventually("both are gone", gone).await;
    }
}

/// Whether a process is there and no zombie.
fn runs(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}
