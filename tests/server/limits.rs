//! Limits of bodies, fields and settings that need no load to reach: one below and the limit itself
//! are accepted, one above is refused with the status and a text that names the limit. Limits of
//! connections, streams, memory and time are attacked in `tests/attacks`.

mod message_ids;
mod settings;

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use serde_json::{Value, json};
use test_support::client::{Answer, Client};
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::{Server, Setup};
use test_support::talk::{self, agent_thread, ok, slow, with};

on_both_storages!(
    what_a_body_may_have,
    what_fields_may_have,
    whom_a_thread_may_be_shared_with,
    what_settings_allow,
    how_much_one_principal_may_have,
    how_many_headers_a_request_may_have,
    what_one_search_of_items_may_read,
    how_many_streams_and_connections_there_may_be,
    connections_without_requests_make_room_while_none_is_free,
);

/// Sends something of three sizes around a limit, and checks that only the largest is refused.
fn limit(name: &str, most: usize, status: u16, part: &str, send: impl Fn(usize) -> Answer) {
    for size in [most - 1, most] {
        let answer = send(size);
        let text = answer.text();
        assert!(
            answer.status < 300,
            "{name} {size}: {} {text}",
            answer.status
        );
    }
    let detail = send(most + 1).refused(status);
    assert!(detail.contains(part), "{name} {}: {detail}", most + 1);
}

/// A list in a list in a list, so many deep.
fn nested(depth: usize) -> String {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

/// A JSON object with these members that has so many bytes.
fn padded(members: &str, bytes: usize) -> String {
    let rest = bytes - members.len() - r#"{"pad":"",}"#.len();
    format!(r#"{{"pad":"{}",{members}}}"#, "x".repeat(rest))
}

/// So many members of an object.
fn members(count: usize) -> Value {
    let member = |number| (format!("k{number}"), json!(number));
    (0..count)
        .map(member)
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn what_a_body_may_have(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_BODY_VALUES", "1000");
    let server = place.start(setup);
    let client = Client::of(&server);
    let thread = agent_thread(&client);
    let search = |body: String| client.post_text("/threads/search", body);
    limit("bytes", 4 << 20, 413, "4194304", |bytes| {
        search(padded(r#""limit":1"#, bytes))
    });
    let state = format!("/threads/{thread}/state");
    let edit = r#""values":{"messages":[]}"#;
    limit("bytes of an edit", 16 << 20, 413, "16777216", |bytes| {
        client.post_text(&state, padded(edit, bytes))
    });
    // The object around is a level too.
    limit("depth", 126, 422, "127", |depth| {
        search(format!(r#"{{"pad":{}}}"#, nested(depth)))
    });
    // The object, the list, and what is in it.
    limit("values", 998, 413, "BACKSTITCH_BODY_VALUES", |count| {
        search(json!({"pad": vec![1; count]}).to_string())
    });
    drop(server);
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_BODY_LIMIT", "2000")
        .env("BACKSTITCH_EDIT_LIMIT", "3000");
    let server = place.start(setup);
    let client = Client::of(&server);
    let state = format!("/threads/{}/state", agent_thread(&client));
    limit("bytes by a setting", 2000, 413, "2000", |bytes| {
        client.post_text("/threads/search", padded(r#""limit":1"#, bytes))
    });
    limit(
        "bytes of an edit by a setting",
        3000,
        413,
        "3000",
        |bytes| client.post_text(&state, padded(edit, bytes)),
    );
}

fn what_fields_may_have(place: &Place) {
    let server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    let thread = client.thread();
    let path = |rest: &str| format!("/threads/{thread}/{rest}");
    limit("keys of metadata", 64, 422, "64", |keys| {
        client.post("/threads", &json!({"metadata": members(keys)}))
    });
    let around = r#"{"k":""}"#.len();
    limit("bytes of metadata", 16_000, 422, "16000", |bytes| {
        let metadata = json!({"k": "x".repeat(bytes - around)});
        client.post("/threads", &json!({"metadata": metadata}))
    });
    limit("threads of a search", 1000, 422, "1000", |limit| {
        client.post("/threads/search", &json!({"limit": limit}))
    });
    limit("runs of a list", 1000, 422, "1000", |limit| {
        client.get(&path(&format!("runs?limit={limit}")))
    });
    limit("events of a page", 1000, 422, "1000", |limit| {
        client.get(&path(&format!("events?limit={limit}")))
    });
    let stateless = |more: Value, key: &str| {
        let body = json!({"assistant_id": "slow", "input": {"ms": 0, "ticks": 0}});
        client.post("/runs", &with(body, key, more))
    };
    limit("supersteps", 10_000, 422, "10000", |limit| {
        stateless(json!({"recursion_limit": limit}), "config")
    });
    limit("tags of a config", 16_000, 422, "16000", |bytes| {
        let tags = json!(["t".repeat(bytes - r#"[""]"#.len())]);
        stateless(json!({"tags": tags}), "config")
    });
    limit("delay", 366 * 86_400, 422, "after_seconds", |seconds| {
        stateless(json!(seconds), "after_seconds")
    });
    limit("idempotency key", 255, 422, "255", |length| {
        let key = "k".repeat(length);
        let headers = [
            ("idempotency-key", &*key),
            ("content-type", "application/json"),
        ];
        client.send("POST", "/threads", &headers, b"{}")
    });
    let point = client.run(&thread, &slow(0, 0));
    assert!(point.is_object());
    limit("name of a branch", 128, 422, "128", |length| {
        let name = "b".repeat(length);
        client.post(&path("branches"), &json!({"name": name}))
    });
    limit("name of a tag", 128, 422, "128", |length| {
        let path = path(&format!("tags/{}", "t".repeat(length)));
        let headers = [("content-type", "application/json")];
        client.send("PUT", &path, &headers, b"{}")
    });
    let message = |length: usize, id: &str| {
        let thread = agent_thread(&client);
        let message = json!({"role": "user", "content": "x".repeat(length), "id": id});
        let body = json!({"messages": [message]});
        client.post(&format!("/threads/{thread}/messages"), &body)
    };
    limit("id of a message", 255, 422, "255", |length| {
        message(1, &"i".repeat(length))
    });
    limit("content of a message", 1 << 20, 413, "1048576", |length| {
        message(length, "one")
    });
    let item = |namespace: Vec<String>, key: String| {
        let body = json!({"namespace": namespace, "key": key, "value": {}});
        let headers = [("content-type", "application/json")];
        client.send("PUT", "/store/items", &headers, body.to_string().as_bytes())
    };
    limit("labels of a namespace", 64, 422, "64", |labels| {
        item(vec!["l".to_owned(); labels], "k".to_owned())
    });
    limit("bytes of a name", 1536, 422, "1536", |bytes| {
        item(vec!["l".to_owned()], "k".repeat(bytes - 1))
    });
}

fn whom_a_thread_may_be_shared_with(place: &Place) {
    let server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    let thread = client.thread();
    let grant = |name: &str, level: &str| {
        let path = format!("/threads/{thread}/members/{name}");
        talk::put(&client, &path, &json!({"level": level}))
    };
    for number in 2..1000 {
        assert_eq!(grant(&format!("p{number}"), "reader").status, 201);
    }
    let next = Cell::new(0);
    limit("members", 1000, 409, "1000", |number| {
        next.set(next.get() + 1);
        grant(
            &format!("q{}", next.get()),
            if number > 999 { "reader" } else { "writer" },
        )
    });
    // Those who are there may get another level.
    assert_eq!(grant("q1", "reader").status, 200);
}

fn what_settings_allow(place: &Place) {
    let setup = Setup::example("faulty_server")
        .env("BACKSTITCH_MAX_TASKS", "5")
        .env("BACKSTITCH_MAX_QUEUED", "3")
        .env("BACKSTITCH_ASSISTANT_VERSIONS", "3")
        .env("BACKSTITCH_ASSISTANT_BYTES", "2000")
        .env("BACKSTITCH_STORE_ITEM_BYTES", "1000");
    let server = place.start(setup);
    let client = Client::of(&server);
    for (count, error) in [(4, None), (5, None), (6, Some("FanOutError"))] {
        let wide = json!({"assistant_id": "wide", "input": {"count": count, "how": ""}});
        let values = client.run(&client.thread(), &wide);
        assert_eq!(
            values["__error__"]["error"].as_str(),
            error,
            "{count} tasks"
        );
    }
    // The runs wait for a time that does not come during the test.
    limit("queued runs", 3, 429, "BACKSTITCH_MAX_QUEUED", |runs| {
        let path = format!("/threads/{}/runs", client.thread());
        let later = json!({"assistant_id": "wide", "input": {}, "after_seconds": 3600});
        for _ in 1..runs {
            ok(client.post(&path, &later), 200);
        }
        client.post(&path, &later)
    });
    // The name, and the braces of three empty objects.
    limit("bytes of an assistant", 2000, 413, "2000", |bytes| {
        let description = "x".repeat(bytes - "n".len() - "{}{}{}".len());
        let body = json!({"graph_id": "wide", "name": "n", "description": description});
        client.post("/assistants", &body)
    });
    // As it is stored the value takes one byte more than its JSON.
    let around = r#"{"k":""}"#.len() + 1;
    limit("bytes of an item", 1000, 413, "1000", |bytes| {
        let value = json!({"k": "x".repeat(bytes - around)});
        let body = json!({"namespace": ["a"], "key": "k", "value": value});
        let headers = [("content-type", "application/json")];
        client.send("PUT", "/store/items", &headers, body.to_string().as_bytes())
    });
    let assistant = json!({"graph_id": "wide"});
    limit("versions", 3, 409, "3 versions", |versions| {
        let row = ok(client.post("/assistants", &assistant), 200);
        let path = format!("/assistants/{}", row["assistant_id"].as_str().unwrap());
        let headers = [("content-type", "application/json")];
        let patch = || client.send("PATCH", &path, &headers, br#"{"name":"n"}"#);
        for _ in 2..versions {
            ok(patch(), 200);
        }
        patch()
    });
}

fn how_much_one_principal_may_have(place: &Place) {
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b")
        .env("BACKSTITCH_MAX_CRONS", "2")
        .env("BACKSTITCH_MAX_ASSISTANTS", "2")
        .env("BACKSTITCH_MAX_STORE_ITEMS", "2");
    let server = place.start(setup);
    let [ann, bob] = ["key-a", "key-b"].map(|key| Client::of(&server).with_key(key));
    let json = [("content-type", "application/json")];
    let put = |client: &Client, key: &str, value: u32| {
        let body = json!({"namespace": ["n"], "key": key, "value": {"v": value}});
        client.send("PUT", "/store/items", &json, body.to_string().as_bytes())
    };
    let cron = json!({"assistant_id": "counter", "schedule": "0 0 1 1 *"});
    let assistant = json!({"graph_id": "counter"});
    let path =
        |made: Value, name: &str, id: &str| format!("/{name}/{}", made[id].as_str().unwrap());
    for _ in 0..2 {
        let crons: Vec<String> = (0..2)
            .map(|_| {
                path(
                    ok(ann.post("/runs/crons", &cron), 200),
                    "runs/crons",
                    "cron_id",
                )
            })
            .collect();
        let on_thread = format!("/threads/{}/runs/crons", ann.thread());
        for door in ["/runs/crons", &on_thread] {
            let refused = ann.post(door, &cron).refused(409);
            assert!(refused.contains("BACKSTITCH_MAX_CRONS"), "{refused}");
        }
        let assistants: Vec<String> = (0..2)
            .map(|_| ok(ann.post("/assistants", &assistant), 200))
            .map(|made| path(made, "assistants", "assistant_id"))
            .collect();
        let refused = ann.post("/assistants", &assistant).refused(409);
        assert!(refused.contains("BACKSTITCH_MAX_ASSISTANTS"), "{refused}");
        // A version is none.
        ok(ann.send("PATCH", &assistants[0], &json, b"{}"), 200);
        for (key, value) in [("a", 1), ("b", 2), ("a", 3)] {
            ok(put(&ann, key, value), 204);
        }
        let refused = put(&ann, "c", 1).refused(409);
        assert!(refused.contains("BACKSTITCH_MAX_STORE_ITEMS"), "{refused}");
        assert_eq!(
            ok(ann.get("/store/items?namespace=n&key=c"), 200),
            json!(null)
        );
        assert_eq!(
            ok(ann.get("/store/items?namespace=n&key=a"), 200)["value"],
            json!({"v": 3})
        );
        // Others have their own.
        ok(bob.post("/runs/crons", &cron), 200);
        ok(bob.post("/assistants", &assistant), 200);
        ok(put(&bob, "c", 1), 204);
        // What is deleted makes room.
        for path in crons.iter().chain(&assistants) {
            ok(ann.delete(path), 204);
        }
        for key in ["a", "b"] {
            let body = json!({"namespace": ["n"], "key": key});
            ok(
                ann.send("DELETE", "/store/items", &json, body.to_string().as_bytes()),
                204,
            );
        }
    }
}

fn how_many_headers_a_request_may_have(place: &Place) {
    let server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    let send = |count: usize| {
        let names: Vec<String> = (0..count).map(|number| format!("x-{number}")).collect();
        let headers: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "v")).collect();
        client.send("GET", "/ok", &headers, b"").status
    };
    // The client sends some of its own.
    let most = (60..110).find(|count| send(*count) != 200).unwrap();
    assert!((90..=100).contains(&most), "{most}");
    assert_eq!(send(most), 431);
}

fn what_one_search_of_items_may_read(place: &Place) {
    let search = |setting: &str, most: &str, sizes: &dyn Fn(usize) -> Vec<usize>, status: u16| {
        let server = place.start(Setup::example("reference_server").env(setting, most));
        let client = Client::of(&server);
        let count: usize = most.parse().unwrap();
        limit(setting, count, status, most, |size| {
            let namespace = format!("{setting}{size}");
            for (key, bytes) in sizes(size).into_iter().enumerate() {
                // Besides the text a value takes seven bytes as it is stored.
                let value = json!({"k": "x".repeat(bytes - 7)});
                let body =
                    json!({"namespace": [namespace], "key": format!("{key}"), "value": value});
                ok(talk::put(&client, "/store/items", &body), 204);
            }
            let wanted =
                json!({"namespace_prefix": [namespace], "filter": {"none": 1}, "limit": 10});
            let page = json!({"namespace_prefix": [namespace], "limit": 10});
            let is_page = setting == "BACKSTITCH_STORE_PAGE_BYTES";
            client.post("/store/items/search", if is_page { &page } else { &wanted })
        });
    };
    search(
        "BACKSTITCH_STORE_SCAN_ITEMS",
        "3",
        &|count| vec![20; count],
        422,
    );
    search(
        "BACKSTITCH_STORE_SCAN_BYTES",
        "200",
        &|bytes| vec![100, bytes - 100],
        422,
    );
    search(
        "BACKSTITCH_STORE_PAGE_BYTES",
        "200",
        &|bytes| vec![100, bytes - 100],
        413,
    );
}

/// Connections that the machine has made and the server has not accepted.
fn waiting_at(server: &Server) -> u64 {
    let port: u16 = server
        .base_url()
        .rsplit(':')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let address = format!("0100007F:{port:04X}");
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let mut lines = table.lines().map(str::split_whitespace);
    // The local address, the state of listening (0A), and the two queues.
    let queues = lines.find_map(|mut words| {
        let listens = words.nth(1) == Some(&*address) && words.nth(1) == Some("0A");
        listens.then(|| words.next()).flatten()
    });
    let (_, received) = queues.unwrap().split_once(':').unwrap();
    u64::from_str_radix(received, 16).unwrap()
}

fn how_many_streams_and_connections_there_may_be(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_MAX_STREAMS", "2");
    let server = place.start(setup);
    let client = Client::of(&server);
    let path = format!("/threads/{}/stream", client.thread());
    let open = || client.open("GET", &path, &[], b"");
    let streams = [open(), open()];
    assert_eq!(streams.each_ref().map(|stream| stream.status), [200, 200]);
    assert!(client.get(&path).refused(503).contains("event streams"));
    drop(streams);
    talk::until("there is room for a stream", || open().status == 200);
    drop(server);

    let setup = Setup::example("reference_server").env("BACKSTITCH_MAX_CONNECTIONS", "3");
    let server = place.start(setup);
    let client = Client::of(&server);
    let path = format!("/threads/{}/stream", client.thread());
    let held = [0, 1].map(|_| client.open("GET", &path, &[], b""));
    assert_eq!(client.get("/ok").status, 200);
    let last = client.open("GET", &path, &[], b"");
    // Nobody accepts it before another one has gone.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| client.get("/ok").status);
        talk::until("a request waits for a connection", || {
            waiting_at(&server) > 0
        });
        assert!(!waiting.is_finished());
        drop(held);
        assert_eq!(waiting.join().unwrap(), 200);
    });
    drop(last);
}

fn connections_without_requests_make_room_while_none_is_free(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_MAX_CONNECTIONS", "3");
    let server = place.start(setup);
    let address = server.base_url().strip_prefix("http://").unwrap();
    let idle = [(); 3].map(|()| {
        let mut one = TcpStream::connect(address).unwrap();
        one.write_all(b"GET /ok HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .unwrap();
        let mut status = [0; 12];
        one.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
        one
    });
    let begin = Instant::now();
    assert_eq!(Client::of(&server).get("/ok").status, 200);
    // Without others that wait they would stay for a minute.
    let waited = begin.elapsed();
    assert!((8..40).contains(&waited.as_secs()), "{waited:?}");
    drop(idle);
}
