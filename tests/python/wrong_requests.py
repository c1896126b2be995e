"""Sends requests in which one thing is wrong, made from the OpenAPI document of a server: every field of every body in
every wrong type, outside its range and, where it is allowed to be large, far too large; and every id of every path in
wrong forms.

    wrong_requests.py BASE make FILE      good requests for each operation, for the two others
    wrong_requests.py BASE refused FILE   all of these are refused
    wrong_requests.py BASE large FILE     these may be accepted, but the server stands them
"""

import copy
import json
import sys
import uuid
from urllib.parse import quote

import httpx

from operations import ABSENT, ENDLESS, good_request

BASE, MODE, FILE = sys.argv[1:]
client = httpx.Client(base_url=BASE, timeout=60)
# A value of every type of JSON that no field of another type takes.
VALUES = {"null": None, "boolean": True, "integer": 7, "number": 1.5, "string": "é no such", "array": [{}], "object": {"a": 1}}
# The errors of these are in the form of their protocol.
PROTOCOLS = {"call_agent", "call_tools", "send_command"}
# These have begun when it is known whether there is such a run.
JOINS = {"join_run", "join_run_stream"}
# A message of MCP without an id is a notification, and one without a method is a response of its client.
NO_METHOD = {("call_tools", ("method",)), ("call_tools", ("id",))}
# Whatever their bodies say, these have nothing behind them.
SKIPPED = ENDLESS | ABSENT
# Fields whose response would come as late as they say.
LATE = {"after_seconds"}
# An id that no server has made, and what is none.
UNKNOWN = str(uuid.uuid4())
MALFORMED = ["nonsense", "é", f"{UNKNOWN}0", UNKNOWN[:-1], "a/b", "\0", "' OR 1=1 --", "x" * 5000]
# Of an assistant or a cron other spellings are none either, as on LangGraph's server.
SPELLINGS = [f"{{{UNKNOWN}}}", f"urn:uuid:{UNKNOWN}", UNKNOWN.replace("-", "")]


def operations(document):
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if operation["operationId"] not in SKIPPED:
                yield path, method.upper(), operation


def make(document):
    made = {}
    for path, _, operation in operations(document):
        values, queries, body = good_request(client, operation, path)
        made[operation["operationId"]] = {"path": values, "query": queries[0], "body": body}
    with open(FILE, "w") as file:
        json.dump(made, file)


def resolved(document, schema):
    """The alternatives of a schema, none of which is a reference."""
    if isinstance(schema, bool):
        return [{}] if schema else []
    if "$ref" in schema:
        return resolved(document, document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return [one for inner in schema[key] for one in resolved(document, inner)]
    return [schema]


def types(alternatives):
    """The types of JSON that a value may have; None for all of them."""
    found = set()
    for one in alternatives:
        if "const" in one or "enum" in one:
            for value in one.get("enum", [one.get("const")]):
                kinds = {type(None): "null", bool: "boolean", int: "integer", str: "string"}
                found.add(kinds[type(value)])
            continue
        if "type" not in one:
            return None
        found |= {one["type"]} if isinstance(one["type"], str) else set(one["type"])
    return found | ({"integer"} if "number" in found else set())


def outside(alternatives):
    """Values of the right type that are not allowed."""
    if len([one for one in alternatives if one.get("type") != "null"]) != 1:
        return
    one = next(one for one in alternatives if one.get("type") != "null")
    if "enum" in one or "pattern" in one or one.get("format") == "uuid":
        yield "\u0001 no such"
    if one.get("format") == "uuid":
        yield from ["", "nonsense", f"{UNKNOWN}0"]
    if "minimum" in one:
        yield one["minimum"] - 1
    if "exclusiveMinimum" in one:
        yield from [one["exclusiveMinimum"], -1, -1e300]
    if "maximum" in one:
        yield from [one["maximum"] + 1, 2**63 if one["maximum"] < 2**63 else 2**64, 1e300]
    if "maxLength" in one:
        yield "x" * (one["maxLength"] + 1)
    if "maxItems" in one:
        yield ["x"] * (one["maxItems"] + 1)
    if one.get("minLength") == 1:
        yield ""
    if one.get("minItems") == 1:
        yield []
    if "maxProperties" in one:
        yield {str(number): number for number in range(one["maxProperties"] + 1)}


def fields(document, schema, at=()):
    """Every field of an object and of the objects in it: where it is, what it may be, and whether it must be there."""
    for one in resolved(document, schema):
        for name, inner in one.get("properties", {}).items():
            alternatives = resolved(document, inner)
            yield (*at, name), alternatives, name in one.get("required", [])
            if len(at) < 2:
                yield from fields(document, inner, (*at, name))


def with_field(body, at, value):
    body = copy.deepcopy(body)
    inner = body[0] if isinstance(body, list) else body
    for name in at[:-1]:
        if not isinstance(inner.get(name), dict):
            inner[name] = {}
        inner = inner[name]
    inner[at[-1]] = value
    return body


def body_schema(document, operation):
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if schema and schema.get("type") == "array":
        return schema["items"]
    return schema


def send(path, method, request, body):
    for name, value in request["path"].items():
        path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
    content = {} if body is None else {"content": json.dumps(body).encode(), "headers": {"content-type": "application/json"}}
    with client.stream(method, path, params=request["query"], **content) as response:
        # A stream of what was not refused may never end.
        if response.headers.get("content-type") == "text/event-stream" and MODE == "refused":
            response._content = b"a stream"
        else:
            response.read()
    return response


def is_refused(name, response):
    try:
        answer = response.json()
    except ValueError:
        answer = {}
    if name in PROTOCOLS:
        return 400 <= response.status_code < 500 or "error" in answer
    if name in JOINS:
        # As on LangGraph's server.
        return "404: Run not found" in response.text or response.status_code == 422
    if response.status_code == 400 and isinstance(answer, dict) and "error" in answer:
        # Of the store on LangGraph's server.
        return isinstance(answer["error"], (str, dict))
    return 400 <= response.status_code < 500 and isinstance(answer.get("detail"), str) and answer["detail"] != ""


def wrong_bodies(document, operation, request):
    schema = body_schema(document, operation)
    if schema is None or request["body"] is None:
        return
    has_forms = len(resolved(document, schema)) > 1
    for at, alternatives, is_required in fields(document, schema):
        allowed = types(alternatives)
        if allowed is None or (operation["operationId"], at) in NO_METHOD:
            continue
        for kind, value in VALUES.items():
            if kind == "null":
                if is_required and "null" not in allowed and len(at) == 1 and not has_forms:
                    yield at, with_field(request["body"], at, None)
            elif kind not in allowed and not (kind == "integer" and "number" in allowed):
                yield at, with_field(request["body"], at, value)
        for value in outside(alternatives):
            yield at, with_field(request["body"], at, value)


def wrong_paths(path, operation, request):
    for name in request["path"]:
        if not name.endswith("_id") or name == "checkpoint_id" or operation["operationId"] == "get_assistant_graph":
            continue
        others = SPELLINGS if name in ("assistant_id", "cron_id") else []
        for value in [*MALFORMED, *others]:
            yield f"{name} = {value[:60]}", {**request, "path": {**request["path"], name: value}}
        if (operation["operationId"], name) != ("send_command", "thread_id"):
            # A run that is started so has a new thread.
            yield f"{name} unknown", {**request, "path": {**request["path"], name: UNKNOWN}}


def refused(document, made):
    wrong, count = [], 0
    for path, method, operation in operations(document):
        name, request = operation["operationId"], made[operation["operationId"]]
        sent = set()
        for at, body in wrong_bodies(document, operation, request):
            # Alternatives of a schema have fields in common.
            text = json.dumps(body)
            if text in sent:
                continue
            sent.add(text)
            response = send(path, method, request, body)
            count += 1
            if not is_refused(name, response):
                value = body[0] if isinstance(body, list) else body
                for key in at:
                    value = value[key]
                text = json.dumps(value)[:80]
                wrong.append(f"{name} {'.'.join(at)} = {text}: {response.status_code} {response.text[:200]}")
        for what, changed in wrong_paths(path, operation, request):
            response = send(path, method, changed, request["body"])
            count += 1
            if not is_refused(name, response):
                wrong.append(f"{name} {what}: {response.status_code} {response.text[:200]}")
    return wrong, count


def large_values(allowed):
    if "string" in allowed:
        yield from ["x" * 300_000, "\0"]
    if "integer" in allowed or "number" in allowed:
        yield from [2**63 - 1, -(2**63), 2**64, 1e308, 5e-324]
    if "array" in allowed:
        yield ["x"] * 20_000
        yield [["x" * 300_000]]
    if "object" in allowed:
        yield {str(number): number for number in range(20_000)}
        deep = {}
        for _ in range(129):
            deep = {"a": deep}
        yield deep
        yield {"\0": "\0", "": "", "é": "\ud800"}


def large(document, made):
    wrong, count, sent = [], 0, []
    for path, method, operation in operations(document):
        name, request = operation["operationId"], made[operation["operationId"]]
        schema = body_schema(document, operation)
        # Operations that read the same body read it in the same way.
        if schema is None or request["body"] is None or schema in sent:
            continue
        sent.append(schema)
        for at, alternatives, _ in fields(document, schema):
            if at[-1] in LATE:
                continue
            allowed = types(alternatives)
            for value in large_values(set(VALUES) if allowed is None else allowed):
                response = send(path, method, request, with_field(request["body"], at, value))
                count += 1
                if response.status_code >= 500 or response.status_code >= 400 and not is_refused(name, response):
                    text = json.dumps(value)[:80]
                    wrong.append(f"{name} {'.'.join(at)} = {text}: {response.status_code} {response.text[:200]}")
    return wrong, count


document = client.get("/openapi.json").json()
if MODE == "make":
    make(document)
    sys.exit(0)
with open(FILE) as file:
    good = json.load(file)
wrong, count = (refused if MODE == "refused" else large)(document, good)
print(f"{count} requests")
if wrong:
    print("\n".join(wrong))
    sys.exit(1)
