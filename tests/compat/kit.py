"""What a scenario function gets: the official SDK, raw HTTP, and a transcript to write to."""

import json
import socket
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
from langgraph_sdk import get_sync_client

from normalise import ASSISTANT_NS, literal, order_parallel

SCENARIOS: dict = {}
HEADERS = ("content-type", "location", "content-location", "x-pagination-total", "x-pagination-next")


def scenario(fn):
    """Register a scenario. The function's name is the scenario's name."""
    if fn.__name__ in SCENARIOS:
        raise ValueError(f"two scenarios named {fn.__name__}")
    SCENARIOS[fn.__name__] = fn
    return fn


class Ctx:
    def __init__(self, base_url: str):
        self.base = base_url.rstrip("/")
        self.sdk = get_sync_client(url=self.base, api_key=None, timeout=180)
        self.http = httpx.Client(base_url=self.base, timeout=180, limits=httpx.Limits(max_keepalive_connections=0))
        self.tag = "tag" + uuid.uuid4().hex[:10]
        self.steps: list = []
        self.hook = None

    def close(self):
        self.http.close()
        if self.hook:
            self.hook.shutdown()

    # -- transcript ---------------------------------------------------------
    def log(self, step: str, out):
        self.steps.append({"step": step, "out": out})
        return out

    def call(self, step: str, fn, *args, **kw):
        """Log what an SDK call returns, or how it fails."""
        try:
            out = fn(*args, **kw)
        except Exception as e:  # noqa: BLE001 - every failure belongs in the transcript
            return self.log(step, failure(e))
        return self.log(step, out)

    # -- raw HTTP -----------------------------------------------------------
    def req(self, step, method, path, json=None, *, exact=False, show=(), headers=None,
            content=None, params=None, keep=None):
        """One raw request. Error bodies are reduced to 'detail is a string' unless exact."""
        r = self.http.request(method, path, json=json, headers=headers, content=content, params=params)
        out = {"status": r.status_code}
        if show:
            out["headers"] = {h: r.headers.get(h) for h in show}
        body = parse(r.text)
        if r.status_code >= 400 and not exact:
            body = {"detail": "<string>"} if isinstance(body, dict) and isinstance(body.get("detail"), str) else body
        out["body"] = keep(body) if keep else body
        self.log(step, out)
        return parse(r.text)

    def sse(self, method, path, body=None, *, headers=None, params=None, until=None, idle=60.0,
            limit=180.0, on_open=None, after=0.0):
        """Raw SSE: list of {event, data, id?}. `until(events)` ends reading, then `after` more seconds."""
        events, cur, deadline = [], {}, time.monotonic() + limit
        timeout = httpx.Timeout(60, read=idle)
        try:
            with self.http.stream(method, path, json=body, headers=headers, params=params, timeout=timeout) as r:
                self.last_headers = {h: r.headers.get(h) for h in HEADERS}
                self.last_status = r.status_code
                if r.status_code != 200:
                    r.read()
                    return {"status": r.status_code}
                if on_open:
                    on_open(r)
                for line in r.iter_lines():
                    if time.monotonic() > deadline:
                        break
                    if line.startswith(":"):
                        continue
                    if line:
                        name, _, value = line.partition(":")
                        cur[name] = value.removeprefix(" ")
                        continue
                    if cur:
                        ev = {"event": cur.get("event"), "data": parse(cur.get("data", ""))}
                        if "id" in cur:
                            ev["id"] = cur["id"]
                        events.append(ev)
                        cur = {}
                        if until and until(events):
                            if not after:
                                break
                            sock, until = r.extensions["network_stream"].get_extra_info("socket"), None
                            threading.Timer(after, sock.shutdown, [socket.SHUT_RDWR]).start()
        except (httpx.ReadTimeout, httpx.RemoteProtocolError, httpx.ReadError):
            pass  # we stopped reading, or the server broke off: what came so far is the result
        return events

    def log_sse(self, step, events):
        if isinstance(events, list):
            events = [{"event": e["event"], "data": e["data"], "has id": "id" in e} for e in order_parallel(events)]
        return self.log(step, events)

    @staticmethod
    def system(graph: str) -> str:
        """Id of the assistant that every registered graph has."""
        return str(uuid.uuid5(ASSISTANT_NS, graph))

    # -- threads and runs ---------------------------------------------------
    def thread(self, **kw) -> str:
        return self.sdk.threads.create(**kw)["thread_id"]

    def stream(self, step, thread, graph, input=None, **kw):
        """runs.stream through the SDK, logged as [{event, data}]."""
        try:
            parts = self.sdk.runs.stream(thread, graph, input=input, **kw)
            events = [{"event": p.event, "data": p.data} for p in parts]
        except Exception as e:  # noqa: BLE001
            return self.log(step, failure(e))
        return self.log(step, order_parallel(events))

    def wait(self, step, thread, graph, input=None, **kw):
        kw.setdefault("raise_error", False)
        return self.call(step, self.sdk.runs.wait, thread, graph, input=input, **kw)

    def run(self, thread, graph, input=None, **kw):
        """A finished run that is not part of the transcript."""
        return self.sdk.runs.wait(thread, graph, input=input, raise_error=False, **kw)

    def state(self, step, thread, **kw):
        return self.call(step, self.sdk.threads.get_state, thread, **kw)

    def history(self, thread, **kw):
        kw.setdefault("limit", 100)
        return self.sdk.threads.get_history(thread, **kw)

    def brief(self, step, thread, **kw):
        """The shape of a thread's history, newest first."""
        return self.log(step, [short(s) for s in self.history(thread, **kw)])

    def row(self, step, thread, *keys):
        row = self.sdk.threads.get(thread)
        return self.log(step, {k: row.get(k) for k in keys} if keys else row)

    def at(self, thread, **want) -> str:
        """Id of the newest checkpoint whose metadata matches, e.g. step=1."""
        for s in self.history(thread):
            if all(s["metadata"].get(k) == v for k, v in want.items()):
                return s["checkpoint"]["checkpoint_id"]
        raise LookupError(f"no checkpoint with {want}")

    def poll(self, fn, ok, limit=120.0):
        """Poll until ok(fn()); the last value either way."""
        end = time.monotonic() + limit
        while True:
            v = fn()
            if ok(v) or time.monotonic() > end:
                return v
            time.sleep(0.05)

    def run_status(self, thread, run, *status, limit=120.0):
        get = lambda: self.http.get(f"/threads/{thread}/runs/{run}").json()  # noqa: E731
        return self.poll(get, lambda r: r.get("status") in status, limit).get("status")

    def settled(self, thread, limit=120.0):
        """Wait until the thread is no longer busy; its row."""
        return self.poll(lambda: self.sdk.threads.get(thread), lambda r: r["status"] != "busy", limit)

    def tick(self, thread, run):
        """Wait until the slow graph has really started (its first checkpoint is there)."""
        self.run_status(thread, run, "running")
        self.poll(lambda: self.http.get(f"/threads/{thread}/state").json(), lambda s: s.get("next") == ["work"])

    # -- event-streaming protocol -------------------------------------------
    def command(self, step, thread, method, params, id=1):
        return self.req(step, "POST", f"/threads/{thread}/commands",
                        {"id": id, "method": method, "params": params},
                        keep=lambda b: {k: v for k, v in b.items() if k not in ("meta", "message")})

    def events(self, thread, channels, *, terminals=1, after=0.7, **body):
        """Read the thread's event stream until the n-th terminal root lifecycle event."""
        def done(evs):
            last = [e for e in evs if e["event"] == "lifecycle" and e["data"]["params"]["namespace"] == []
                    and e["data"]["params"]["data"]["event"] in ("completed", "failed", "interrupted")]
            return len(last) >= terminals
        return self.sse("POST", f"/threads/{thread}/stream/events", {"channels": channels, **body},
                        until=done, after=after, idle=60, limit=180)

    def log_events(self, step, events):
        """Per channel: what it carried. Server-wide: envelope, order and id rules."""
        if not isinstance(events, list):
            return self.log(step, events)
        seqs = [e["data"]["seq"] for e in events]
        channels: dict = {}
        for e in events:
            d = e["data"]
            data = d["params"]["data"]
            if d["method"] == "input.requested":  # a server may add `value`, which the SDK reads
                data = {k: data.get(k) for k in ("interrupt_id", "payload")}
            item = {"namespace": d["params"]["namespace"], "data": data}
            seen = channels.setdefault(d["method"], [])
            if d["method"] != "values" or item not in seen[-1:]:
                seen.append(item)
        return self.log(step, {
            "channels": channels,
            "first": events[0]["data"]["method"] if events else None,
            "event_name_is_method": all(e["event"] == e["data"]["method"] for e in events),
            "sse_id_is_seq": all(e.get("id") == str(e["data"]["seq"]) for e in events),
            "seq_rises": all(a < b for a, b in zip(seqs, seqs[1:])),
            "event_ids_unique": len({e["data"]["event_id"] for e in events}) == len(events),
            "type_is_event": all(e["data"]["type"] == "event" for e in events),
        })

    # -- MCP / A2A ----------------------------------------------------------
    def mcp(self, step, method, params=None, id=1, keep=None):
        body = {"jsonrpc": "2.0", "method": method, **({"id": id} if id else {}), **({"params": params} if params else {})}

        def shape(b):
            if isinstance(b, dict) and isinstance(b.get("result"), dict):
                for c in b["result"].get("content", []):
                    c["text"] = literal(c["text"])
            return keep(b) if keep else b
        return self.req(step, "POST", "/mcp", body, exact=True, keep=shape,
                        headers={"accept": "application/json, text/event-stream"})

    # -- webhooks -----------------------------------------------------------
    def receiver(self) -> str:
        """Start a local webhook receiver; its URL. Deliveries land in self.hooks."""
        self.hooks: list = []
        hooks = self.hooks

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                raw = self.rfile.read(int(self.headers.get("content-length") or 0))
                hooks.append({"path": self.path, "type": self.headers.get("content-type"), "body": json.loads(raw)})
                self.send_response(200)
                self.end_headers()

            def log_message(self, *a):
                pass

        self.hook = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.hook.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self.hook.server_port}/hook"


def failure(e: Exception):
    response = getattr(e, "response", None)
    if response is not None:
        return {"http_error": response.status_code}
    return {"raises": str(e)}


def parse(text: str):
    try:
        return json.loads(text)
    except ValueError:
        return text


def short(s: dict) -> dict:
    m = s["metadata"] or {}
    parent = s["parent_checkpoint"]
    return {"checkpoint_id": s["checkpoint"]["checkpoint_id"],
            "parent_checkpoint_id": parent["checkpoint_id"] if parent else None,
            "source": m.get("source"), "step": m.get("step"), "next": s["next"], "values": s["values"]}
