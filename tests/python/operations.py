"""A good request for each operation of a server, and what has to exist for it."""

import uuid

# Operations whose response never ends, and those that never succeed, since there is nothing behind them.
ENDLESS = {"stream_thread", "stream_events"}
ABSENT = {"get_mcp", "delete_mcp", "connect_events"}


def post(client, path, **body):
    response = client.post(path, json=body)
    response.raise_for_status()
    return response.json()


def say(text):
    return {"messages": [{"role": "user", "content": text, "id": str(uuid.uuid4())}]}


def rpc(method, params):
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def furnished(client):
    """A thread with something of every kind."""
    thread = post(client, "/threads")["thread_id"]
    message = {"messages": [{"role": "user", "content": "hi", "id": "u1"}]}
    post(client, f"/threads/{thread}/runs/wait", assistant_id="agent", input=message)
    found = {
        "thread_id": thread,
        "run_id": client.get(f"/threads/{thread}/runs").json()[0]["run_id"],
        "checkpoint_id": client.get(f"/threads/{thread}/state").json()["checkpoint"]["checkpoint_id"],
        "assistant_id": post(client, "/assistants", graph_id="agent")["assistant_id"],
        "cron_id": post(client, "/runs/crons", schedule="0 0 1 1 *", assistant_id="agent")["cron_id"],
        "namespace": "none",
        "principal": "dora",
        "name": "side",
    }
    post(client, f"/threads/{thread}/branches", name="side", message_id="u1")
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


def good_request(client, operation, path):
    """The path, the queries and the body of good requests for an operation, for which new things are made."""
    name, ids = operation["operationId"], furnished(client)
    if name in ("cancel_runs", "cancel_run"):
        body = {"assistant_id": "agent", "after_seconds": 300}
        ids["run_id"] = post(client, f"/threads/{ids['thread_id']}/runs", **body)["run_id"]
    if name == "set_latest_assistant_version":
        client.patch(f"/assistants/{ids['assistant_id']}", json={}).raise_for_status()
    names = [one["name"] for one in operation.get("parameters", []) if one["in"] == "path"]
    path = {one: "t" if one == "name" and "/tags/{name}" in path else ids[one] for one in names}
    body = bodies(ids).get(name)
    if name == "cancel_runs":
        body["run_ids"] = [ids["run_id"]]
    queries = QUERIES.get(name, {})
    return path, queries if isinstance(queries, list) else [queries], body
