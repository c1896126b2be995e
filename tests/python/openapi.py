"""Holds every response of a server against its OpenAPI document: of one good request for each operation, and, for as
long as `BACKSTITCH_SCHEMATHESIS_SECONDS` says, of what schemathesis makes up."""

import json
import os
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import httpx
import schemathesis

BASE = sys.argv[1]
SECONDS = os.environ.get("BACKSTITCH_SCHEMATHESIS_SECONDS")
HERE = Path(__file__).parent
# Operations whose response never ends, and those that never succeed, since there is nothing behind them.
ENDLESS = {"stream_thread", "stream_events"}
ABSENT = {"get_mcp", "delete_mcp", "connect_events"}
# Checks of single responses that make further requests.
SINGLE = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
]

client = httpx.Client(base_url=BASE, timeout=60)


def post(path, **body):
    response = client.post(path, json=body)
    response.raise_for_status()
    return response.json()


def say(text):
    return {"messages": [{"role": "user", "content": text, "id": str(uuid.uuid4())}]}


def rpc(method, params):
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def furnished():
    """A thread with something of every kind."""
    thread = post("/threads")["thread_id"]
    message = {"messages": [{"role": "user", "content": "hi", "id": "u1"}]}
    post(f"/threads/{thread}/runs/wait", assistant_id="agent", input=message)
    found = {
        "thread_id": thread,
        "run_id": client.get(f"/threads/{thread}/runs").json()[0]["run_id"],
        "checkpoint_id": client.get(f"/threads/{thread}/state").json()["checkpoint"]["checkpoint_id"],
        "assistant_id": post("/assistants", graph_id="agent")["assistant_id"],
        "cron_id": post("/runs/crons", schedule="0 0 1 1 *", assistant_id="agent")["cron_id"],
        "namespace": "none",
        "principal": "dora",
        "name": "side",
    }
    post(f"/threads/{thread}/branches", name="side", message_id="u1")
    client.put(f"/threads/{thread}/tags/t", json={"message_id": "u1"}).raise_for_status()
    client.put(f"/threads/{thread}/members/dora", json={"level": "reader"}).raise_for_status()
    client.put("/store/items", json={"namespace": ["a", "b"], "key": "k", "value": {"v": 1}})
    return found


def bodies(ids):
    """A good body for each operation that reads one."""
    thread, run = ids["thread_id"], {"assistant_id": "agent", "input": say("hi")}
    later = {**run, "after_seconds": 300}
    item = {"namespace": ["a", "b"], "key": "k"}
    at = {"message_id": "u1"}
    return {
        "search_assistants": {"limit": 2, "sort_by": "name", "select": ["name", "version"]},
        "create_assistant": {"graph_id": "agent", "name": "n", "metadata": {"a": 1}},
        "count_assistants": {"graph_id": "agent"},
        "patch_assistant": {"description": "d"},
        "list_assistant_versions": {"limit": 5},
        "set_latest_assistant_version": {"version": 1},
        "call_tools": rpc("tools/call", {"name": "agent", "arguments": {"messages": "hi"}}),
        "call_agent": rpc("message/send", {"message": {"role": "user", "messageId": "m", "parts": [{"text": "hi"}]}}),
        "send_command": {"id": 1, "method": "run.start", "params": run},
        "create_thread": {"metadata": {"a": 1}},
        "search_threads": {"ids": [thread], "extract": {"first": "values.messages[0].id"}},
        "count_threads": {"status": "idle"},
        "prune_threads": {"thread_ids": [thread], "strategy": "keep_latest"},
        "patch_thread": {"metadata": {"b": 2}},
        "command_create_thread": {},
        "command_fork_thread": {"source_thread_id": thread, **at},
        "fork_thread": at,
        "put_member": {"level": "writer"},
        "update_state": {"values": say("edited")},
        "get_state_by_checkpoint": {"checkpoint": {"checkpoint_id": ids["checkpoint_id"]}},
        "search_history": {"limit": 10},
        "post_messages": {"role": "user", "content": "more"},
        "command_send_message": {"thread_id": thread, "content": "sent", "assistant_id": "agent"},
        "create_run": later,
        "stream_run": run,
        "wait_run": run,
        "create_stateless_run": run,
        "stream_stateless_run": run,
        "wait_stateless_run": run,
        "create_run_batch": [run, run],
        "cancel_runs": {"thread_id": thread, "run_ids": []},
        "create_cron": {"schedule": "0 0 1 1 *", "assistant_id": "agent", "input": say("hi")},
        "create_thread_cron": {"schedule": "0 0 1 1 *", "assistant_id": "agent", "timezone": "Europe/Berlin"},
        "search_crons": {"limit": 5, "sort_by": "created_at"},
        "count_crons": {"enabled": True},
        "patch_cron": {"enabled": False},
        "create_branch": {"name": "new", **at},
        "rename_branch": {"name": "renamed"},
        "activate_branch": {"pending": "keep"},
        "rewind_thread": at,
        "create_side_branch": at,
        "restore_tag": {"tag": "t"},
        "put_tag": at,
        "rebuild_projections": {"thread_id": thread},
        "put_item": {**item, "value": {"v": 1}, "ttl": 5},
        "delete_item": item,
        "search_items": {"namespace_prefix": ["a"], "filter": {"v": 1}},
        "list_namespaces": {"max_depth": 1},
    }


# More than one where the response depends on it.
QUERIES = {
    "find_agent_card": {"assistant_id": "fe096781-5601-53d2-b2f6-0d3403f7e9ca"},
    "get_metrics": [{"format": "json"}, {"format": "prometheus"}, {"format": ""}, {}],
    "get_item": {"namespace": "a.b", "key": "k"},
    "diff_states": {"from": "branch:main", "to": "branch:side"},
    "list_runs": {"limit": "5", "select": ["run_id", "status"]},
    "get_state": {"subgraphs": "true"},
    "list_history": {"limit": "10"},
    "get_assistant_graph": {"xray": "true"},
    "get_tree": {"format": "checkpoints"},
    "list_messages": {"siblings": "true"},
}


def one_of_each(schema):
    """Every operation succeeds with a good request, and its response is as the document says."""
    wrong = []
    checks = [getattr(schemathesis.checks, name, None) or schemathesis.checks.CHECKS.get_one(name) for name in SINGLE]
    for result in schema.get_all_operations():
        operation = result.ok()
        name = operation.definition.raw["operationId"]
        if name in ENDLESS | ABSENT:
            continue
        ids = furnished()
        names = [one["name"] for one in operation.definition.raw.get("parameters", []) if one["in"] == "path"]
        path = {one: ids[one] for one in names}
        if "/tags/{name}" in operation.path:
            path["name"] = "t"
        if name in ("cancel_runs", "cancel_run"):
            body = {"assistant_id": "agent", "after_seconds": 300}
            ids["run_id"] = post(f"/threads/{ids['thread_id']}/runs", **body)["run_id"]
            path = {one: ids[one] for one in names}
        if name == "set_latest_assistant_version":
            client.patch(f"/assistants/{ids['assistant_id']}", json={}).raise_for_status()
        arguments = {}
        if "requestBody" in operation.definition.raw:
            if name not in bodies(ids):
                wrong.append(f"{name}: write a good body for it")
                continue
            arguments = {"body": bodies(ids)[name], "media_type": "application/json"}
        if name == "cancel_runs":
            arguments["body"]["run_ids"] = [ids["run_id"]]
        queries = QUERIES.get(name, {})
        for query in queries if isinstance(queries, list) else [queries]:
            case = operation.Case(path_parameters=path, query=query, **arguments)
            response = case.call(base_url=BASE)
            if response.status_code >= 300:
                wrong.append(f"{name}: {response.status_code} {response.text[:300]}")
                continue
            try:
                case.validate_response(response, checks=checks)
            except Exception as error:
                wrong.append(f"{name}: {error}")
    return wrong


with tempfile.TemporaryDirectory() as folder:
    ids = furnished()
    os.environ |= {
        "SCHEMATHESIS_HOOKS": "openapi_hooks",
        "PYTHONPATH": str(HERE),
        "OPENAPI_BASE": BASE,
        "OPENAPI_IDS": json.dumps(ids),
    }
    import openapi_hooks

    document = client.get("/openapi.json").json()
    openapi_hooks.close_responses(document)
    wrong = one_of_each(schemathesis.openapi.from_dict(document))
    if wrong:
        print("\n\n".join(wrong))
        sys.exit(1)
    if not SECONDS:
        sys.exit(0)
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(HERE / "schemathesis.toml")]
    command += ["run", f"{BASE}/openapi.json", "--max-time", SECONDS, *sys.argv[2:]]
    sys.exit(subprocess.run(command, cwd=folder).returncode)
