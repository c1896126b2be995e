"""What schemathesis has to know of this server beyond its document: what exists, rules between fields, and which
failures are none."""

import json
import os
import random
import re
import uuid

import httpx
import schemathesis
from schemathesis.core.parameters import ParameterLocation

from operations import ABSENT

IDS = json.loads(os.environ["OPENAPI_IDS"])
THREAD = IDS["thread_id"]
client = httpx.Client(base_url=os.environ["OPENAPI_BASE"], timeout=30)
chance = random.Random(7)

# Valid requests that are refused for what is stored, or for a rule that no schema can say: the operations, the text
# of the refusal, and the reason.
REFUSALS = [
    # Which graphs a server has is no matter of its protocol, and LangGraph's server has this status.
    (r".*", r"Invalid assistant: "),
    (r"search_crons|count_crons", r"Invalid assistant ID: must be a UUID"),
    # A thread has a graph once something ran on it; the status is that of LangGraph's server.
    (r"update_state|create_thread|command_create_thread", r"has no assigned graph ID"),
    # The graph of the thread decides which nodes there are, and what it accepts.
    (r"update_state|create_thread|command_create_thread|post_messages", r"Node .* does not exist|Expected dict"),
    # Which schedules, zones and ends there are no schema says, nor that a change has to change something.
    (r"\w*cron", r"Invalid cron schedule|Invalid timezone|in `end_time`|end_time must be|No updates provided|cannot be empty"),
    # The supersteps of a new thread are updates, which the engine reads.
    (r"update_state|create_thread|command_create_thread", r"No updates provided"),
    # Whom a webhook may reach, which threads have an assistant, and what texts of an item are embedded.
    (r".*", r"^Webhook |^Invalid webhook"),
    (r"command_send_message|post_messages", r"has no assistant yet"),
    (r"put_item", r"is no path: write"),
    (r"\w*fork_thread", r"^Give one of |^It must be the thread of the path"),
    # An agent that is not there is refused with 400, in the form of its protocol.
    (r"\w*agent\w*", r"^Assistant '.*' not found"),
    # Ids of messages are texts or UUIDs, and which ones there are is stored.
    (r".*", r"is neither a UUID nor the id of a message"),
    # One state of a thread has one address, in whatever form.
    (r".*", r"The request names different "),
    # Metadata counts in bytes of its JSON.
    (r".*", r"Metadata has \d+ bytes"),
    # A stateless run has nothing to resume.
    (r"\w+_stateless_run|create_run_batch", r"You must provide a thread_id when resuming"),
    # LangGraph's server refuses these with statuses of its own: the first label is not `langgraph`, a filter has known
    # operators, and the bytes of a namespace are bounded.
    (r"put_item|delete_item|get_item|search_items|list_namespaces", r"langgraph|Unsupported operator|bytes together"),
    # What a content may consist of is checked as the messages of a graph are.
    (r"post_messages|command_send_message", r"Invalid message: "),
]


def is_id(text):
    return isinstance(text, str) and re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text)


def a_thread():
    """A thread that may be taken apart."""
    thread = client.post("/threads", json={"metadata": {"graph_id": "agent"}}).json()["thread_id"]
    message = {"role": "user", "content": "hi", "id": "u1"}
    client.post(f"/threads/{thread}/messages", json=message)
    client.post(f"/threads/{thread}/branches", json={"name": "side", "message_id": "u1"})
    client.put(f"/threads/{thread}/tags/t", json={"message_id": "u1"})
    client.put(f"/threads/{thread}/members/dora", json={"level": "reader"})
    return thread


def a_run(thread):
    """A run that waits long enough to be cancelled or deleted."""
    body = {"assistant_id": "agent", "after_seconds": 300}
    return client.post(f"/threads/{thread}/runs", json=body).json()["run_id"]


def close_responses(document):
    """Makes fields of responses that the document does not name failures."""
    schemas = document["components"]["schemas"]
    names = set()

    def close(schema):
        for one in schema if isinstance(schema, list) else []:
            close(one)
        if not isinstance(schema, dict):
            return
        name = schema.get("$ref", "").rsplit("/", 1)[-1]
        if name and name not in names:
            names.add(name)
            close(schemas[name])
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
        for key in ("items", "anyOf", "oneOf", "allOf", "additionalProperties"):
            close(schema.get(key))
        for one in schema.get("properties", {}).values():
            close(one)

    for operations in document["paths"].values():
        for operation in operations.values():
            for response in operation["responses"].values():
                for kind, content in response.get("content", {}).items():
                    if kind == "application/json":
                        close(content["schema"])


@schemathesis.hook
def before_load_schema(context, raw_schema):
    close_responses(raw_schema)


# An address is one of these.
ADDRESS = ["message_id", "parent_id", "branch", "tag", "checkpoint_id", "checkpoint", "event_number"]
# What exists in the thread that requests are sent to.
EXISTING = {
    "message_id": "u1",
    "parent_id": "u1",
    "branch": "main",
    "tag": "t",
    "event_number": 1,
    "checkpoint_id": IDS["checkpoint_id"],
    "checkpoint": {"checkpoint_id": IDS["checkpoint_id"]},
}


def one_address(fields, operation):
    """Leaves one field of an address, and lets most of them name what exists."""
    own = {"message_id"} if operation == "command_send_message" else set()
    possible = [name for name in ADDRESS if name not in own]
    if operation in ("post_messages", "command_send_message"):
        possible = ["parent_id", "branch"]
    if operation == "restore_tag":
        possible = ["tag"]
    named = [name for name in possible if fields.get(name) is not None]
    chosen = chance.choice(named) if named else None
    for name in ADDRESS:
        if name != chosen and name not in own:
            fields.pop(name, None)
    if chosen and chance.random() < 0.8:
        fields[chosen] = EXISTING[chosen]
    if chosen not in ("message_id", "parent_id"):
        fields.pop("position", None)
    config = fields.get("config")
    if isinstance(config, dict) and (fields.get("context") or isinstance(config.get("configurable"), dict)):
        # A context is not beside the older form of it, where an address may hide too.
        config.pop("configurable", None)


def within_64_bits(value):
    """Numbers beyond 64 bits are refused wherever they stand."""
    if isinstance(value, dict):
        return {key: within_64_bits(one) for key, one in value.items()}
    if isinstance(value, list):
        return [within_64_bits(one) for one in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return max(-(2**63), min(2**64 - 1, value))
    return value


def sensible_query(query, operation):
    if operation in ("get_state", "list_history"):
        one_address(query, operation)
    if operation == "list_messages":
        for names in (["leaf_id", "branch", "checkpoint_id", "leaf"], ["after", "before", "tail"]):
            for name in [name for name in names if name in query][1:]:
                query.pop(name)
        query.update({name: "u1" for name in ("leaf_id", "after", "before") if name in query})


def sensible_body(body, operation):
    one_address(body, operation)
    if isinstance(body.get("run"), dict):
        for name in ["input", "command", *ADDRESS]:
            body["run"].pop(name, None)
        one_address(body["run"], operation)
    if operation == "post_messages":
        # The fork that a post makes is one of a message that both threads have.
        for name in ("forkedAtConversationId", "forkedAtEntryId", "forked_at_thread_id", "forked_at_message_id"):
            body.pop(name, None)
        for message in body.get("messages") or []:
            message["id"] = str(uuid.uuid4())
    if operation == "command_send_message":
        body["content"] = "hi"
    if operation == "rewind_thread" and not any(body.get(name) for name in ADDRESS):
        body["message_id"] = "u1"
    if operation == "fork_thread":
        body.pop("source_thread_id", None)
    if operation == "command_fork_thread":
        body["source_thread_id"] = THREAD
    if is_id(body.get("thread_id")) and operation == "command_send_message":
        body["thread_id"] = THREAD


def existing_path(path, case, operation):
    """Puts ids of what exists in place of well-formed ids of nothing."""
    consumed = case.method == "DELETE" or operation in ("rename_branch", "cancel_run")
    if is_id(path.get("thread_id")):
        thread = a_thread() if consumed else THREAD
        path["thread_id"] = thread
        if is_id(path.get("run_id")):
            path["run_id"] = a_run(thread) if consumed else IDS["run_id"]
        if "checkpoint_id" in path:
            path["checkpoint_id"] = IDS["checkpoint_id"]
        if "name" in path and case.method != "PUT":
            path["name"] = "t" if "/tags/" in case.path else "side"
        if "principal" in path and consumed:
            path["principal"] = "dora"
    elif is_id(path.get("run_id")):
        path["run_id"] = IDS["run_id"]
    if "assistant_id" in path and (is_id(path["assistant_id"]) or operation == "get_assistant_graph"):
        new = lambda: client.post("/assistants", json={"graph_id": "agent"}).json()["assistant_id"]
        path["assistant_id"] = new() if consumed else IDS["assistant_id"]


@schemathesis.hook
def before_call(context, case, kwargs):
    meta = case.meta
    operation = case.operation.definition.raw.get("operationId", "")
    for body in case.body if isinstance(case.body, list) else [case.body]:
        # Nobody waits for the end of a run that begins in a year.
        if isinstance(body, dict) and isinstance(body.get("after_seconds"), (int, float)):
            body["after_seconds"] = min(0, body["after_seconds"])
    if operation == "list_events":
        # Its stream never ends.
        case.headers = {**(case.headers or {}), "Accept": "application/json"}
    headers = {one.lower(): one for one in case.headers or {}}
    key = headers.get("idempotency-key")
    if key and re.fullmatch(r"[!-~]{1,255}", str(case.headers[key])):
        # One that two requests share lets the second one have no effect, or refuses it.
        case.headers[key] = str(uuid.uuid4())
    if not meta:
        return
    # What is wrong in one part leaves the others as they are: a wrong header that the server ignores makes a request
    # a good one.
    good = lambda part: part not in meta.components or meta.components[part].mode.value == "positive"
    if "last-event-id" in headers and good(ParameterLocation.HEADER):
        # What ids there are only the server knows.
        case.headers[headers["last-event-id"]] = "-"
    if isinstance(case.query, dict) and good(ParameterLocation.QUERY):
        sensible_query(case.query, operation)
    good_body = good(ParameterLocation.BODY)
    if isinstance(case.body, (dict, list)) and good_body:
        case.body = within_64_bits(case.body)
    for body in case.body if isinstance(case.body, list) else [case.body]:
        if isinstance(body, dict) and good_body:
            sensible_body(body, operation)
            searched = "search" in operation or "count" in operation
            for name in ("assistant_id", "graph_id"):
                own = name == "assistant_id" and operation == "create_assistant"
                if isinstance(body.get(name), str) and not own and not searched and chance.random() < 0.8:
                    body[name] = "agent"
    if meta.phase.name.value != "stateful" and good(ParameterLocation.PATH) and chance.random() < 0.8:
        existing_path(case.path_parameters or {}, case, operation)


@schemathesis.hook
def filter_failure(context, failure, case, response):
    """False for failures that are none."""
    operation = case.operation.definition.raw.get("operationId", "")
    try:
        error = response.json()
        detail, code = error.get("detail", ""), error.get("code", "")
    except Exception:
        error, detail, code = None, "", ""
    if isinstance(error, dict) and isinstance(error.get("error"), dict):
        detail = error["error"].get("message", "")
    if operation in ("call_agent", "call_tools", "send_command") and "Schema-violating" in failure.title:
        # Their errors are responses, and notifications have none.
        return not (response.status_code in (202, 400) or "error" in (error if isinstance(error, dict) else {}))
    if operation in ABSENT:
        return "Schema-valid" not in failure.title
    if response.status_code == 503:
        # Whether an event that a client waits for is still to come nobody knows, so that it is put off.
        return not (code == "projection_behind" and re.fullmatch(r"(list|search|count)_threads", operation))
    if response.status_code not in (400, 422) or "Schema-valid request rejected" not in failure.title:
        return True
    return not any(re.fullmatch(names, operation) and re.search(text, detail) for names, text in REFUSALS)
