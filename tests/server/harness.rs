//! The harness itself keeps its promises.
use test_support::{postgres, tables::connect};

#[tokio::test]
async fn every_test_gets_a_database_of_its_own_and_leaves_none_behind() {
    let (one, two) = tokio::join!(postgres::database(), postgres::database());
    assert_ne!(one.url, two.url);
    connect(&one.url)
        .await
        .batch_execute("CREATE TABLE only_here (id int)")
        .await
        .unwrap();
    let other = connect(&two.url).await;
    let seen = other
        .query_one("SELECT to_regclass('only_here')::text", &[])
        .await
        .unwrap();
    assert_eq!(seen.get::<_, Option<String>>(0), None);

    let name = one.url.rsplit('/').next().unwrap().to_owned();
    drop(one);
    let count = "SELECT count(*) FROM pg_database WHERE datname = $1";
    assert_eq!(
        other
            .query_one(count, &[&name])
            .await
            .unwrap()
            .get::<_, i64>(0),
        0
    );
}

#[tokio::test]
async fn an_empty_database_has_no_tables() {
    let database = postgres::empty_database().await;
    let client = connect(&database.url).await;
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    assert_eq!(
        client
            .query_one(tables, &[])
            .await
            .unwrap()
            .get::<_, i64>(0),
        0
    );
}

#[tokio::test]
async fn a_crashed_cluster_comes_back_with_what_was_committed() {
    let cluster = postgres::Cluster::start();
    let database = cluster.database().await;
    let client = connect(&database.url).await;
    client
        .batch_execute("CREATE TABLE kept (id int); INSERT INTO kept VALUES (7)")
        .await
        .unwrap();
    cluster.crash();
    client.batch_execute("SELECT 1").await.unwrap_err();
    cluster.recover();
    let kept = connect(&database.url)
        .await
        .query_one("SELECT id FROM kept", &[])
        .await
        .unwrap();
    assert_eq!(kept.get::<_, i32>(0), 7);
}

#[test]
fn a_server_is_found_by_its_first_line_killed_and_started_again() {
    // Stands in for a server: announces an address and waits for a signal.
    let script = "echo listening on http://127.0.0.1:$PORT; echo started >&2; exec sleep 60";
    let mut server = test_support::server::Setup::program("/bin/sh")
        .arg("-c")
        .arg(script)
        .start();
    assert_eq!(server.base_url(), "http://127.0.0.1:0");
    let status = server.terminate();
    assert!(!status.success());
    server.restart();
    server.kill();
    assert_eq!(server.output().matches("listening on").count(), 2);
}

#[test]
fn the_official_python_client_can_be_imported() {
    let Some(python) = test_support::python::python() else {
        return;
    };
    let version = python.run("sdk_version.py", &[]);
    assert_eq!(version.trim(), "0.4.14");
}
