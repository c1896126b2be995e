import json
import threading
import time
import uuid

import httpx

from kit import HEADERS, scenario

SLOW = {"ms": 150, "ticks": 20}


def statuses(t, thread):
    return [r["status"] for r in t.sdk.runs.list(thread)]


@scenario
def runs_background(t):
    tid = t.thread()
    run = t.req("create", "POST", f"/threads/{tid}/runs", {"assistant_id": "slow", "input": {"ms": 30, "ticks": 1}, "metadata": {"m": 1}},
                show=("content-location", "content-type"))
    t.log("finished", t.run_status(tid, run["run_id"], "success"))
    t.call("get", t.sdk.runs.get, tid, run["run_id"])
    t.run(tid, "failing", {"fail": True})
    t.call("list, newest first", t.sdk.runs.list, tid)
    t.call("list errors", t.sdk.runs.list, tid, status="error", select=["run_id", "status"])
    t.call("list page", t.sdk.runs.list, tid, limit=1, offset=1, select=["run_id"])
    t.req("delete", "DELETE", f"/threads/{tid}/runs/{run['run_id']}")
    t.req("deleted", "GET", f"/threads/{tid}/runs/{run['run_id']}")
    t.brief("its checkpoints are gone", tid)


@scenario
def runs_join(t):
    tid = t.thread()
    run = t.sdk.runs.create(tid, "slow", input={"ms": 30, "ticks": 1})["run_id"]
    t.call("join while running", t.sdk.runs.join, tid, run)
    t.call("join finished", t.sdk.runs.join, tid, run)
    run = t.sdk.runs.create(tid, "failing", input={"fail": True})["run_id"]
    t.call("join a failing run", t.sdk.runs.join, tid, run)
    tid = t.thread()
    # Whoever joins after the end gets another form: the run begins after the client has joined.
    run = t.sdk.runs.create(tid, "approve", input={"request": "r"}, after_seconds=2)["run_id"]
    t.call("join an interrupted run", t.sdk.runs.join, tid, run)
    t.req("wait headers", "POST", f"/threads/{tid}/runs/wait", {"assistant_id": "approve", "command": {"resume": 1}}, show=HEADERS[:3])
    t.req("join an unknown run", "GET", f"/threads/{tid}/runs/{uuid.uuid4()}/join", keep=lambda b: sorted(b))
    t.log_sse("stream an unknown run", [{"event": e["event"], "data": e["data"]["error"]} for e in
                                        t.sse("GET", f"/threads/{tid}/runs/{uuid.uuid4()}/stream")])


@scenario
def runs_errors(t):
    tid = t.thread()
    gone = str(uuid.uuid4())
    for kind in ("", "/stream", "/wait"):
        post = lambda step, body, thread=tid: t.req(f"{kind} {step}", "POST", f"/threads/{thread}/runs{kind}", body)  # noqa: E731, B023
        post("no assistant", {"input": {}})
        post("unknown graph", {"assistant_id": "nope"})
        post("unknown assistant", {"assistant_id": gone})
        post("missing thread", {"assistant_id": "counter"}, gone)
        post("bad stream mode", {"assistant_id": "counter", "stream_mode": "bogus"})
        post("bad strategy", {"assistant_id": "counter", "multitask_strategy": "bogus"})
        post("configurable and context", {"assistant_id": "ctx", "config": {"configurable": {"a": 1}}, "context": {"who": "x"}})
    t.req("get unknown run", "GET", f"/threads/{tid}/runs/{gone}")
    t.req("get bad run id", "GET", f"/threads/{tid}/runs/nope")
    t.req("delete unknown run", "DELETE", f"/threads/{tid}/runs/{gone}")
    t.req("cancel unknown run", "POST", f"/threads/{tid}/runs/{gone}/cancel")


@scenario
def runs_malformed_thread_id(t):
    for kind in ("", "/stream", "/wait"):
        t.req(f"runs{kind}", "POST", f"/threads/nope/runs{kind}", {"assistant_id": "counter", "input": {"count": 1}})


@scenario
def runs_if_not_exists(t):
    tid = str(uuid.uuid4())
    t.stream("creates the thread", tid, "counter", {"count": 1, "log": []}, if_not_exists="create", metadata={"rm": 1},
             config={"metadata": {"cm": 2}})
    t.row("row", tid)
    t.req("reject", "POST", f"/threads/{uuid.uuid4()}/runs", {"assistant_id": "counter", "if_not_exists": "reject"})


@scenario
def runs_after_seconds(t):
    tid = t.thread()
    t0 = time.monotonic()
    run = t.sdk.runs.create(tid, "counter", input={"count": 1, "log": []}, after_seconds=2)["run_id"]
    t.log("run", t.sdk.runs.get(tid, run)["status"])
    t.row("busy meanwhile", tid, "status")
    t.call("join", t.sdk.runs.join, tid, run)
    t.log("waited", time.monotonic() - t0 > 1.8)


@scenario
def cancel_running(t):
    tid = t.thread()
    run = t.sdk.runs.create(tid, "slow", input=SLOW)["run_id"]
    t.tick(tid, run)
    t.req("cancel and wait", "POST", f"/threads/{tid}/runs/{run}/cancel?wait=1", keep=lambda b: None)
    t.log("run", t.run_status(tid, run, "interrupted"))
    t.row("row", tid, "status", "error")
    t.state("next is the cancelled node", tid)
    run = t.sdk.runs.create(tid, "slow", input=SLOW)["run_id"]
    t.run_status(tid, run, "running")
    t.req("cancel, no wait", "POST", f"/threads/{tid}/runs/{run}/cancel", keep=lambda b: None)
    t.log("run", t.run_status(tid, run, "interrupted"))


@scenario
def cancel_rollback(t):
    tid = t.thread()
    t.run(tid, "slow", {"ms": 1, "ticks": 1, "seen": ["kept"]})
    run = t.sdk.runs.create(tid, "slow", input=SLOW)["run_id"]
    t.tick(tid, run)
    t.req("cancel", "POST", f"/threads/{tid}/runs/{run}/cancel?wait=1&action=rollback", keep=lambda b: None)
    t.poll(lambda: t.http.get(f"/threads/{tid}/runs/{run}").status_code, lambda s: s == 404)
    t.req("run is gone", "GET", f"/threads/{tid}/runs/{run}")
    t.brief("checkpoints are gone", tid)
    t.log("row", t.settled(tid)["status"])


@scenario
def cancel_rollback_without_wait(t):
    """The thread must not stay busy."""
    tid = t.thread()
    run = t.sdk.runs.create(tid, "slow", input=SLOW)["run_id"]
    t.tick(tid, run)
    t.req("cancel", "POST", f"/threads/{tid}/runs/{run}/cancel?wait=0&action=rollback", keep=lambda b: None)
    t.poll(lambda: t.http.get(f"/threads/{tid}/runs/{run}").status_code, lambda s: s == 404)
    t.log("row", t.settled(tid)["status"])


@scenario
def cancel_pending_and_finished(t):
    tid = t.thread()
    first = t.sdk.runs.create(tid, "slow", input=SLOW)["run_id"]
    t.tick(tid, first)
    second = t.sdk.runs.create(tid, "counter", input={"count": 1})["run_id"]
    t.log("pending", t.sdk.runs.get(tid, second)["status"])
    t.req("cancel the pending one", "POST", f"/threads/{tid}/runs/{second}/cancel", keep=lambda b: None)
    t.log("run", t.run_status(tid, second, "interrupted"))
    t.req("cancel again", "POST", f"/threads/{tid}/runs/{second}/cancel")
    t.req("cancel many", "POST", "/runs/cancel", {"thread_id": tid, "run_ids": [first, second]}, keep=lambda b: None)
    t.log("first", t.run_status(tid, first, "interrupted"))
    t.req("cancel many, nothing left", "POST", "/runs/cancel", {"thread_id": tid, "run_ids": [str(uuid.uuid4())]})


@scenario
def multitask_reject_and_enqueue(t):
    tid = t.thread()
    first = t.sdk.runs.create(tid, "slow", input={"ms": 400, "ticks": 2})["run_id"]
    t.req("reject", "POST", f"/threads/{tid}/runs", {"assistant_id": "counter", "multitask_strategy": "reject"})
    second = t.sdk.runs.create(tid, "slow", input={"ms": 5, "ticks": 1})["run_id"]
    third = t.sdk.runs.create(tid, "slow", input={"ms": 6, "ticks": 1}, multitask_strategy="enqueue")["run_id"]
    t.log("waiting", [t.sdk.runs.get(tid, r)["status"] for r in (second, third)])
    t.row("busy", tid, "status")
    for r in (first, second, third):
        t.log("done", t.run_status(tid, r, "success"))
    t.log("one after the other", t.settled(tid)["values"])
    t.brief("inputs", tid, metadata={"source": "input"})


@scenario
def multitask_interrupt(t):
    tid = t.thread()
    first = t.sdk.runs.create(tid, "slow", input=SLOW)["run_id"]
    t.tick(tid, first)
    t.stream("second", tid, "slow", {"ms": 1, "ticks": 1, "seen": ["second"]}, multitask_strategy="interrupt")
    t.log("first", t.run_status(tid, first, "interrupted"))
    t.brief("steps go on", tid)
    t.log("row", t.settled(tid)["status"])


def hang_up(t, tid, kind, body):
    """Start a run over a connection that is closed after the run has started; its id."""
    def go():
        try:
            httpx.post(f"{t.base}/threads/{tid}/runs/{kind}", json=body, timeout=1.5)
        except httpx.HTTPError:
            pass
    th = threading.Thread(target=go)
    th.start()
    th.join()
    return t.sdk.runs.list(tid)[0]["run_id"]


@scenario
def on_disconnect(t):
    for kind in ("stream", "wait"):
        tid = t.thread()
        events = []
        body = {"assistant_id": "slow", "input": {"ms": 200, "ticks": 40}, "on_disconnect": "cancel", "stream_mode": "custom"}
        if kind == "stream":
            events = t.sse("POST", f"/threads/{tid}/runs/stream", body, until=lambda e: e[-1]["event"] == "custom")
            run = events[0]["data"]["run_id"]
        else:
            run = hang_up(t, tid, "wait", body)
        t.log(f"{kind}: cancelled", t.run_status(tid, run, "interrupted"))
        t.log("row", t.settled(tid)["status"])
    tid = t.thread()
    body = {"assistant_id": "slow", "input": {"ms": 100, "ticks": 3}, "stream_mode": "custom"}
    run = t.sse("POST", f"/threads/{tid}/runs/stream", body, until=lambda e: e[-1]["event"] == "custom")[0]["data"]["run_id"]
    t.log("default: continues", t.run_status(tid, run, "success"))
    t.log("values", t.settled(tid)["values"])


@scenario
def resumable_rejoin(t):
    tid = t.thread()
    body = {"assistant_id": "slow", "input": {"ms": 60, "ticks": 3}, "stream_mode": ["values", "custom"], "stream_resumable": True}
    got = t.sse("POST", f"/threads/{tid}/runs/stream", body, until=lambda e: len(e) == 4)
    run = got[0]["data"]["run_id"]
    path = f"/threads/{tid}/runs/{run}/stream"
    t.log_sse("first part", got)
    t.log_sse("rejoin while it runs", t.sse("GET", path, headers={"last-event-id": got[-1]["id"]}))
    t.log("headers", t.last_headers)
    whole = t.log_sse("from the start (-1)", t.sse("GET", path, headers={"last-event-id": "-1"}))
    for last in ("-", "0"):
        t.log(f"the same with {last}", t.sse("GET", path, headers={"last-event-id": last}) == t.sse("GET", path, headers={"last-event-id": "-1"}))
    t.log("the first part has the same ids", t.sse("GET", path, headers={"last-event-id": "-1"})[:4] == got and len(whole) == 7)
    t.log_sse("finished, no header", t.sse("GET", path))
    t.log_sse("one mode", t.sse("GET", path, headers={"last-event-id": "-1"}, params={"stream_mode": "custom"}))
    t.log_sse("JSON array of modes", t.sse("GET", path, headers={"last-event-id": "-1"}, params={"stream_mode": '["values","custom"]'}))
    t.log("SDK join_stream", [p.event for p in t.sdk.runs.join_stream(tid, run, last_event_id="-1", stream_mode="values")])


@scenario
def join_stream_repeated_modes(t):
    tid = t.thread()
    run = t.sdk.runs.create(tid, "slow", input={"ms": 20, "ticks": 2}, stream_mode=["values", "custom", "updates"], stream_resumable=True)["run_id"]
    t.run_status(tid, run, "success")
    t.log_sse("values and custom", t.sse(
        "GET", f"/threads/{tid}/runs/{run}/stream", headers={"last-event-id": "-1"}, params=[("stream_mode", "values"), ("stream_mode", "custom")]))


@scenario
def join_stream_live(t):
    """A second reader of a run that is not resumable sees what comes from now on."""
    tid = t.thread()
    run = t.sdk.runs.create(tid, "slow", input={"ms": 400, "ticks": 1}, stream_mode=["values", "custom"])["run_id"]
    t.tick(tid, run)
    got = [[p.event, p.data] for p in t.sdk.runs.join_stream(tid, run, stream_mode="values")]
    t.log("the last values", got[-1])
    t.log("no replay when it is over", [p.event for p in t.sdk.runs.join_stream(tid, run)])


def thread_stream(t, tid, param, modes, act, stop):
    """Read a thread stream while `act` runs in another thread."""
    def later():
        time.sleep(0.5)
        act()
    return t.sse("GET", f"/threads/{tid}/stream", params={param: modes}, on_open=lambda r: threading.Thread(target=later).start(),
                 until=stop, idle=60)


@scenario
def thread_stream_modes(t):
    tid = t.thread()
    two = lambda: [t.run(tid, "counter", {"count": n, "log": []}) for n in (1, 2)]  # noqa: E731
    done = lambda n: lambda es: sum(isinstance(e["data"], dict) and e["data"].get("status") == "run_done" for e in es) >= n  # noqa: E731
    evs = thread_stream(t, tid, "stream_modes", "lifecycle", two, done(2))
    t.log_sse("lifecycle of two runs", evs)
    t.log("every event has an id", all("id" in e for e in evs))
    evs = thread_stream(t, tid, "stream_modes", "run_modes", lambda: t.run(tid, "router", {"n": 1, "hops": []}),
                        lambda es: es[-1]["event"] == "values" and "land" in es[-1]["data"].get("hops", []))
    t.log_sse("run_modes", evs)
    evs = thread_stream(t, tid, "stream_modes", "state_update", lambda: t.sdk.threads.update_state(tid, {"hops": ["u"]}),
                        lambda es: es[-1]["event"] == "state_update")
    t.log_sse("state_update", evs)
    t.req("bad mode", "GET", f"/threads/{tid}/stream?stream_modes=bogus")
    t.req("bad last-event-id", "GET", f"/threads/{tid}/stream", headers={"last-event-id": "bogus"})


@scenario
def durability(t):
    for mode in ("sync", "async", "exit"):
        tid = t.thread()
        t.run(tid, "router", {"n": 1, "hops": ["in"]}, durability=mode)
        t.brief(mode, tid)
    tid = t.thread()
    t.run(tid, "failing", {"fail": True}, durability="exit")
    t.log("exit, failed", t.history(tid))
    tid = t.thread()
    t.run(tid, "approve", {"request": "x"}, durability="exit")
    t.run(tid, "approve", command={"resume": 1}, durability="exit")
    t.brief("exit, interrupted and resumed", tid)


@scenario
def context_and_config(t):
    pick = lambda out: {"context": out["out"]["context"], "tags": out["out"]["tags"] or [],  # noqa: E731
                        "configurable": {k: out["out"]["configurable"].get(k) for k in ("thread_id", "run_id", "graph_id", "assistant_id", "who", "k")}}
    for step, kw in (("context", {"context": {"who": "ann", "other": 1}}), ("configurable", {"config": {"configurable": {"who": "bob", "k": 3}}}),
                     ("tags", {"config": {"tags": ["a", "b"]}}), ("nothing", {})):
        t.log(step, pick(t.run(t.thread(), "ctx", {"text": t.tag}, **kw)))
    out = t.run(t.thread(), "ctx", {"text": "x"}, config={"recursion_limit": 9}, metadata={"m": "1"})["out"]
    t.log("limit and metadata", [out["recursion_limit"], out["metadata"]["m"]])
    t.log("the graph wrote to the store", sorted(t.sdk.store.get_item(["notes"], key="last")["value"]))


@scenario
def stateless(t):
    body = {"assistant_id": "counter", "input": {"count": 1, "log": ["s"]}}
    t.call("SDK wait", t.sdk.runs.wait, None, "counter", input=body["input"])
    t.log("SDK stream", [[p.event, p.data] for p in t.sdk.runs.stream(None, "counter", input=body["input"], stream_mode=["values"])])
    run = t.req("create", "POST", "/runs", body, show=("content-location",), keep=lambda b: {**b, "metadata": None})
    t.poll(lambda: t.http.get(f"/threads/{run['thread_id']}").status_code, lambda s: s == 404)
    t.req("the temporary thread goes away", "GET", f"/threads/{run['thread_id']}")
    t.log_sse("stream", t.sse("POST", "/runs/stream", body))
    t.log("headers", t.last_headers)
    t.req("wait, failing", "POST", "/runs/wait", {"assistant_id": "failing", "input": {"fail": True}})
    t.req("wait, interrupted", "POST", "/runs/wait", {"assistant_id": "approve", "input": {"request": "r"}})
    t.req("resume needs a thread", "POST", "/runs/wait", {"assistant_id": "approve", "command": {"resume": 1}})
    t.req("unknown graph", "POST", "/runs/wait", {"assistant_id": "nope"})
    run = t.req("keep", "POST", "/runs", {**body, "on_completion": "keep"}, keep=lambda b: b["status"])
    t.run_status(run["thread_id"], run["run_id"], "success")
    t.row("kept", run["thread_id"], "status", "values")
    runs = t.req("batch", "POST", "/runs/batch", [body, {"assistant_id": "router", "input": {"n": 1}}],
                 keep=lambda b: [{k: r[k] for k in ("status", "assistant_id", "kwargs", "multitask_strategy")} for r in b])
    t.log("two threads", len({r["thread_id"] for r in runs}))


@scenario
def keepalive(t):
    """Silence of more than 5 s: comments in SSE, leading newlines before the JSON of /wait."""
    body = {"assistant_id": "slow", "input": {"ms": 5600, "ticks": 1}, "stream_mode": "custom"}
    texts = {}

    def go(kind, tid):
        texts[kind] = httpx.post(f"{t.base}/threads/{tid}/runs/{kind}", json=body, timeout=180).text
    threads = [threading.Thread(target=go, args=(kind, t.thread())) for kind in ("stream", "wait")]
    for th in threads:
        th.start()
    for th in threads:
        th.join()
    t.log("stream has comments", any(line.startswith(":") for line in texts["stream"].splitlines()))
    t.log("wait starts with newlines", texts["wait"].startswith("\n"))
    t.log("and is JSON", json.loads(texts["wait"]))
