"""Sends every operation a request that succeeds and requests that fail in each way that the document names, and compares
the responses with those in `endpoints/`. What the document names and nobody sends is a failure too.

`endpoints.py BASE`, against a server with the settings that `tests/server/openapi.rs` gives it; with `WRITE=1` the
responses are written down instead of compared."""

import difflib
import json
import os
import re
import sys
import uuid
from pathlib import Path

import httpx

from conflicts import CONFLICTS, NO_CONFLICT
from operations import ABSENT, ENDLESS, furnished, good_request

BASE = sys.argv[1]
FOLDER = Path(__file__).parent / "endpoints"
NOWHERE = "11111111-2222-7333-8444-555555555555"
HEADERS = ["content-type", "location", "content-location", "x-pagination-total", "x-pagination-next", "retry-after", "allow"]
# The ways to fail that every operation shows which names them.
FAILURES = ["401", "404", "409", "422"]
# What an operation names and cannot be made to answer here, with the reason.
EXCEPTIONS = {
    ("stream_thread", "200"): "its stream never ends",
    ("stream_events", "200"): "its stream never ends",
    ("stream_thread", "404"): "a thread that is not there yet is waited for; 404 is for one that is lost meanwhile",
    ("connect_events", "422"): "without an upgrade nothing else is read",
    ("connect_events", "404"): "without an upgrade nothing else is read",
    ("connect_events", "101"): "a WebSocket; see the tests of the protocol",
    ("create_thread", "201"): "a failing superstep; see the tests of threads",
    ("command_create_thread", "201"): "a failing superstep; see the tests of threads",
    ("call_tools", "202"): "a notification; see the tests of agents",
    ("delete_thread", "200"): "a question about forks; see the tests of trees",
    ("put_member", "201"): "its 200 is shown",
    ("post_messages", "200"): "its 201 is shown",
    ("put_tag", "200"): "its 201 is shown",
    ("put_tag", "201"): "its 200 is shown",
    ("patch_thread", "204"): "its 200 is shown; see the tests of threads for `Prefer`",
    ("cancel_run", "200"): "its 202 is shown",
    ("post_messages", "201"): "its 200 is shown",
    ("put_member", "200"): "its 201 is shown",
}
# Bodies and queries that name what does not exist, where the path has no id.
MISSING = {
    "search_assistants": {"graph_id": "none"},
    "count_assistants": {"graph_id": "none"},
    "create_assistant": {"graph_id": "none"},
    "create_cron": {"schedule": "0 0 1 1 *", "assistant_id": NOWHERE},
    "create_stateless_run": {"assistant_id": NOWHERE},
    "stream_stateless_run": {"assistant_id": NOWHERE},
    "wait_stateless_run": {"assistant_id": NOWHERE},
    "create_run_batch": [{"assistant_id": NOWHERE}],
    "cancel_runs": {"thread_id": NOWHERE, "run_ids": [NOWHERE]},
    "command_fork_thread": {"source_thread_id": NOWHERE},
    "command_send_message": {"thread_id": NOWHERE, "content": "hi"},
    "rebuild_projections": {"thread_id": NOWHERE},
}
# Queries that are refused.
WRONG_QUERY = {
    "root": "check_db=maybe",
    "ok": "check_db=maybe",
    "get_metrics": "format=none",
    "list_threads": "limit=x",
    "get_item": "namespace=a..b&key=k",
}
# Of these only the kind of content is compared: it is long, or counts what happened before.
UNREAD = {"openapi", "docs", "get_metrics"}
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)")

keys = (f"key-{number}" for number in range(1000))


def client_of(key):
    return httpx.Client(base_url=BASE, timeout=20, headers={"x-api-key": key})


root = client_of("key-root")
document = root.get("/openapi.json").json()


def redacted(text):
    text = TIME.sub("<time>", ID.sub("<id>", text))
    text = re.sub(r"p\d+\b", "<principal>", text)
    # Sizes and ids of events that depend on the storage or the clock.
    text = re.sub(r"(?<=bytes\":)\d+", "<bytes>", text)
    text = re.sub(r"\b\d+\.[0-9a-f]{6}\b", "<version>", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "<host>", text)
    return text


class Transcript:
    """The responses to requests about one operation."""

    def __init__(self, operation, path):
        self.operation, self.path = operation, path
        self.shown = {}

    def note(self, request, response):
        status = str(response.status_code)
        if status not in self.operation["responses"]:
            fail(f"{self.operation['operationId']}: {status} is not in the document: {response.text[:200]}")
        if status in self.shown:
            return
        lines = [f"    {name}: {response.headers[name]}" for name in HEADERS if name in response.headers]
        kind = response.headers.get("content-type", "")
        if response.text and self.operation["operationId"] not in UNREAD:
            text = response.text
            if kind == "application/json":
                text = json.dumps(json.loads(text), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
            lines += [f"    {line}" for line in text.replace("\r\n", "\n").strip().split("\n")]
        self.shown[status] = f"{status} {request}\n" + "".join(f"{redacted(line)}\n" for line in lines)

    def text(self, method):
        shown = "".join(self.shown[status] for status in sorted(self.shown))
        return f"{method.upper()} {self.path} {self.operation['operationId']}\n{shown}\n"


wrong = []


def fail(text):
    wrong.append(text)


def send(client, method, path, query=None, body=None):
    arguments = {} if body is None else {"json": body}
    return client.request(method, path, params=query, **arguments)


def filled(path, names):
    return re.sub(r"\{(\w+)\}", lambda found: str(names.get(found[1], NOWHERE)), path)


# Bodies that no operation takes, whatever its fields are.
MALFORMED = [b"{", b"\xff{}", b'{"a": "\xc3\x28"}', b"[" * 129 + b"]" * 129, b'{"a":' * 129 + b"1" + b"}" * 129, b"text", b'"text"', b"5"]
# Their errors have forms of their own.
OWN_FORMS = {"send_command", "call_tools", "call_agent", "get_agent", "get_agent_card", "get_older_agent_card"}
# Other forms of ids: refused, or understood as Python does and found nowhere.
OTHER_IDS = ["%7B{}%7D", "urn:uuid:{}", "{}"]


def refuses_what_is_malformed(client, path, method, operation, names):
    """Malformed bodies and ids are refused with a text that says why, whatever the operation."""
    name = operation["operationId"]

    def check(what, response, statuses):
        shown = f"{name}, {what}: {response.status_code} {response.text[:200]}"
        if response.status_code not in statuses:
            fail(shown)
        elif name not in OWN_FORMS and not isinstance(response.json().get("detail"), str):
            fail(shown)

    if "requestBody" in operation:
        optional = not operation["requestBody"]["required"]
        for content in [*MALFORMED, *([] if optional else [b""])]:
            response = client.request(method, filled(path, names), content=content)
            check(content[:20], response, {200, 400, 422} if name in OWN_FORMS else {400, 413, 422})
    for one in re.findall(r"\{(\w+)\}", path):
        if not one.endswith("_id") or name in ENDLESS | ABSENT:
            continue
        for form in OTHER_IDS:
            number = NOWHERE.replace("-", "") if form == "{}" else NOWHERE
            bad = {**names, one: form.format(number)}
            body = {"content": b"{}"} if "requestBody" in operation else {}
            # What is at a checkpoint that nobody knows is empty, and whoever joins a run is told at its end.
            known = name in OWN_FORMS or one == "checkpoint_id" or name in ("join_run", "join_run_stream")
            response = client.request(method, filled(path, bad), **body)
            if response.status_code != 200 or not known:
                check(form, response, {400, 404, 422})


def describe(path, method, operation):
    if os.environ.get("TRACE"):
        print(method, path, file=sys.stderr, flush=True)
    name, responses = operation["operationId"], operation["responses"]
    shown = Transcript(operation, path)
    key = next(keys)
    client = root if operation["x-access"] in ("admin", "operator") else client_of(key)
    endless = name in ENDLESS or name == "connect_events"
    names, queries, body = good_request(client, operation, path)
    if not endless:
        for query in queries:
            shown.note("a good request", send(client, method, filled(path, names), query, body))
    if "401" in responses:
        shown.note("no key", send(httpx.Client(base_url=BASE), method, filled(path, names), queries[0], body))
    ids = [one for one in re.findall(r"\{(\w+)\}", path) if one.endswith("_id")]
    if "404" in responses and name not in ABSENT and (name, "404") not in EXCEPTIONS:
        if ids:
            absent = {**names, **{one: NOWHERE for one in ids}}
            shown.note("ids of nothing", send(client, method, filled(path, absent), queries[0], body))
        elif name in MISSING:
            shown.note("what does not exist", send(client, method, path, queries[0], MISSING[name]))
    if "422" in responses:
        if "requestBody" in operation:
            cut = client.request(method, filled(path, names), params=queries[0], content=b"{")
            shown.note("a body that is cut off", cut)
        elif name in WRONG_QUERY:
            shown.note(f"?{WRONG_QUERY[name]}", client.request(method, f"{path}?{WRONG_QUERY[name]}"))
        elif ids:
            malformed = {**names, **{one: "nope" for one in ids}}
            shown.note("ids that are none", send(client, method, filled(path, malformed), queries[0]))
    if "422" in responses and "422" not in shown.shown and method in ("post", "put"):
        # The errors of its body have a form of their own.
        header = {"idempotency-key": "a b"}
        shown.note("a key that is none", client.request(method, filled(path, names), json=body, headers=header))
    if "409" in responses and name in CONFLICTS:
        CONFLICTS[name](client, lambda response: shown.note("a conflict", response), furnished)
    refuses_what_is_malformed(client, path, method, operation, names)
    for status in responses:
        is_shown = status in shown.shown or (name, status) in EXCEPTIONS
        if status == "409":
            is_shown = is_shown or name in NO_CONFLICT
        if (status[0] in "12" or status in FAILURES) and not is_shown:
            fail(f"{name}: no response {status} was seen; seen: {sorted(shown.shown)}")
    return shown.text(method)


def main():
    found = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            file = operation["tags"][0].replace(" ", "_") + ".txt"
            found[file] = found.get(file, "") + describe(path, method, operation)
    if os.environ.get("WRITE"):
        FOLDER.mkdir(exist_ok=True)
        for file, text in found.items():
            (FOLDER / file).write_text(text)
    known = {file.name: file.read_text() for file in FOLDER.glob("*.txt")}
    for file in sorted({*known, *found}):
        before, now = known.get(file, "").split("\n"), found.get(file, "").split("\n")
        difference = "\n".join(difflib.unified_diff(before, now, f"endpoints/{file}", "now", lineterm="", n=1))
        if difference:
            fail(difference)
    if wrong:
        print("\n\n".join(wrong))
        print("\nIf the responses are as they should be, run this with WRITE=1 against a server with the same settings.")
        sys.exit(1)


main()
