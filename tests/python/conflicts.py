"""How operations are brought to answer 409, and why some are not."""


def running(client, thread):
    """A run that occupies a thread, and a body of one that does not wait for it."""
    later = {"assistant_id": "agent", "after_seconds": 300}
    client.post(f"/threads/{thread}/runs", json=later).raise_for_status()
    return {"assistant_id": "agent", "multitask_strategy": "reject"}


def busy(end):
    def conflict(client, note, furnished):
        thread = furnished(client)["thread_id"]
        note(client.post(f"/threads/{thread}/runs{end}", json=running(client, thread)))

    return conflict


def twice(path, **body):
    def conflict(client, note, _):
        client.post(path, json=body)
        note(client.post(path, json=body))

    return conflict


def beyond(path, count, **body):
    """One more than there may be."""

    def conflict(client, note, furnished):
        thread = furnished(client)["thread_id"]
        for _ in range(count):
            client.post(path.format(thread), json=body)
        note(client.post(path.format(thread), json=body))

    return conflict


def on_thread(method, path, body=None, first=None):
    """A request about a thread with the branch `side`, a member and a tag."""

    def conflict(client, note, furnished):
        thread = furnished(client)["thread_id"]
        if first:
            first(client, thread)
        arguments = {} if body is None else {"json": body}
        note(client.request(method, f"/threads/{thread}{path}", **arguments))

    return conflict


def full_store(client, note, _):
    for key in ["a", "b", "c"]:
        response = client.put("/store/items", json={"namespace": ["a"], "key": key, "value": {}})
    note(response)


def full_versions(client, note, furnished):
    assistant = furnished(client)["assistant_id"]
    for _ in range(4):
        response = client.patch(f"/assistants/{assistant}", json={})
    note(response)


def pruned(method, path, body=None, query=None):
    """A request that names a message whose checkpoint is gone."""

    def conflict(client, note, furnished):
        thread = furnished(client)["thread_id"]
        messages = {"messages": [{"role": "user", "content": "hi"}]}
        more = {"assistant_id": "agent", "input": messages}
        client.post(f"/threads/{thread}/runs/wait", json=more).raise_for_status()
        client.delete(f"/threads/{thread}/branches/side").raise_for_status()
        client.delete(f"/threads/{thread}/tags/t").raise_for_status()
        client.post("/threads/prune", json={"thread_ids": [thread], "strategy": "keep_latest"}).raise_for_status()
        sent = {} if body is None else {"json": {**body, **({"source_thread_id": thread} if "fork-" in path else {})}}
        note(client.request(method, path.format(thread), params=query, **sent))

    return conflict


THREAD = "99999999-2222-7333-8444-555555555555"
AT = {"message_id": "u1"}
CRON = {"schedule": "0 0 1 1 *", "assistant_id": "agent"}
CONFLICTS = {
    "create_thread": twice("/threads", thread_id=THREAD),
    "command_create_thread": twice("/commands/create-thread", thread_id=THREAD),
    "create_assistant": twice("/assistants", graph_id="agent", assistant_id=THREAD),
    "create_cron": beyond("/runs/crons", 4, **CRON),
    "create_thread_cron": beyond("/threads/{}/runs/crons", 4, **CRON),
    "patch_assistant": full_versions,
    "put_item": full_store,
    "create_run": busy(""),
    "stream_run": busy("/stream"),
    "wait_run": busy("/wait"),
    "create_branch": on_thread("POST", "/branches", {"name": "side"}),
    "rename_branch": on_thread("PATCH", "/branches/side", {"name": "main"}),
    "delete_branch": on_thread("DELETE", "/branches/main"),
    "get_state": pruned("GET", "/threads/{}/state", query=AT),
    "update_state": pruned("POST", "/threads/{}/state", {"values": {"messages": []}, **AT}),
    "list_history": pruned("GET", "/threads/{}/history", query=AT),
    "search_history": pruned("POST", "/threads/{}/history", AT),
    "diff_states": pruned("GET", "/threads/{}/diff", query={"from": "message:u1", "to": "branch:main"}),
    "post_messages": pruned("POST", "/threads/{}/messages", {"role": "user", "content": "a", "parent_id": "u1"}),
    "rewind_thread": pruned("POST", "/threads/{}/rewind", AT),
    "create_side_branch": pruned("POST", "/threads/{}/btw", AT),
    "fork_thread": pruned("POST", "/threads/{}/fork", AT),
    "command_fork_thread": pruned("POST", "/commands/fork-thread", AT),
    "put_tag": pruned("PUT", "/threads/{}/tags/new", AT),
}
OTHERS = "others change the same thing at the same time"
# Why the rest cannot be made to conflict by one client; tests of those reasons are elsewhere.
NO_CONFLICT = dict.fromkeys(
    [
        "delete_assistant",
        "prune_threads",
        "put_member",
        "delete_member",
        "copy_thread",
        "delete_thread",
        "get_state_at_checkpoint",
        "get_state_by_checkpoint",
        "list_messages",
        "command_send_message",
        "delete_run",
        "cancel_run",
        "cancel_runs",
        "activate_branch",
        "restore_tag",
        "delete_tag",
        "patch_cron",
        "create_stateless_run",
        "stream_stateless_run",
        "wait_stateless_run",
        "create_run_batch",
    ],
    OTHERS,
)
