"""Every stream mode, as the official client sees it."""

from common import events, in_any_order, named, names, run, same

INPUT = {"count": 0, "log": ["in"]}
STEPS = [
    {"count": 0, "log": ["in"]},
    {"count": 1, "log": ["in", "first"]},
    {"count": 111, "log": ["in", "first", "left", "right"]},
    {"count": 1111, "log": ["in", "first", "left", "right", "last"]},
]
WROTE = [
    ("first", 1),
    ("left", 10),
    ("right", 100),
    ("last", 1000),
]


async def stream(client, graph, modes, input=INPUT, **more):
    thread = await client.threads.create()
    parts = await events(
        client.runs.stream(thread["thread_id"], graph, input=input, stream_mode=modes, **more)
    )
    assert parts[0][0] == "metadata" and parts[0][1]["attempt"] == 1, parts[0]
    return thread["thread_id"], parts[1:]


async def counter_modes(client):
    thread, parts = await stream(client, "counter", ["values"])
    same(parts, [("values", values) for values in STEPS])
    same((await client.threads.get(thread))["values"], STEPS[-1])

    _, parts = await stream(client, "counter", "updates")
    same(in_any_order(parts, 1, 3),
         [("updates", {node: {"count": n, "log": [node]}}) for node, n in WROTE])

    _, parts = await stream(client, "counter", ["values", "updates"])
    same([event for event, _ in parts],
         ["values", "updates", "values", "updates", "updates", "values", "updates", "values"])

    _, parts = await stream(client, "counter", "tasks")
    same(names(parts), ["tasks"])
    tasks = named(parts, "tasks")
    started = [task for task in tasks if "triggers" in task]
    ended = [task for task in tasks if "result" in task]
    same([task["name"] for task in started], [node for node, _ in WROTE])
    same({task["id"] for task in ended}, {task["id"] for task in started})
    same(started[0]["triggers"], ["branch:to:first"])
    same(started[3]["triggers"], ["branch:to:last", "join:left+right:last"])
    same(ended[0]["result"], {"count": 1, "log": ["first"]})
    assert all(task["error"] is None and task["interrupts"] == [] for task in ended), ended

    thread, parts = await stream(client, "counter", "checkpoints")
    checkpoints = named(parts, "checkpoints")
    same([one["metadata"]["step"] for one in checkpoints], [-1, 0, 1, 2, 3])
    same([one["next"] for one in checkpoints],
         [["__start__"], ["first"], ["left", "right"], ["last"], []])
    same(checkpoints[-1]["values"], STEPS[-1])
    ids = [one["config"]["configurable"]["checkpoint_id"] for one in checkpoints]
    same(ids, sorted(ids))
    parents = [one["parent_config"] and one["parent_config"]["configurable"]["checkpoint_id"]
               for one in checkpoints]
    same(parents, [None] + ids[:-1])
    history = await client.threads.get_history(thread)
    same([state["checkpoint"]["checkpoint_id"] for state in history], ids[::-1])

    _, parts = await stream(client, "counter", "debug")
    kinds = [data["type"] for data in named(parts, "debug")]
    same(kinds, ["checkpoint", "checkpoint", "task", "task_result", "checkpoint",
                 "task", "task", "task_result", "task_result", "checkpoint",
                 "task", "task_result", "checkpoint"])
    same([data["step"] for data in named(parts, "debug")], [-1, 0, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3])


async def custom_and_messages(client):
    _, parts = await stream(client, "slow", ["custom", "values"], {"ms": 5, "ticks": 3})
    same(named(parts, "custom"), [{"tick": 0}, {"tick": 1}, {"tick": 2}])

    question = {"messages": [{"role": "user", "content": "one two"}]}
    thread, parts = await stream(client, "agent", "messages-tuple", question)
    same(names(parts), ["messages"])
    chunks = [chunk for chunk, _ in named(parts, "messages")]
    same("".join(chunk["content"] for chunk in chunks), "echo: one two")
    same({chunk["type"] for chunk in chunks}, {"AIMessageChunk"})
    metadata = named(parts, "messages")[0][1]
    same((metadata["langgraph_node"], metadata["langgraph_step"]), ("model", 1))
    stored = (await client.threads.get_state(thread))["values"]["messages"]
    same([message["type"] for message in stored], ["human", "ai"])
    same({chunk["id"] for chunk in chunks}, {stored[1]["id"]})

    _, parts = await stream(client, "agent", "messages", question)
    same(names(parts), ["messages/metadata", "messages/partial"])
    same(named(parts, "messages/partial")[-1][0]["content"], "echo: one two")

    tools = {"messages": [{"role": "user", "content": "tool: 2 3"}]}
    thread, parts = await stream(client, "agent", ["messages-tuple", "updates"], tools)
    same([list(data) for data in named(parts, "updates")], [["model"], ["tools"], ["model"]])
    same([chunk["content"] for chunk, _ in named(parts, "messages") if chunk["type"] == "tool"], ["5"])
    stored = (await client.threads.get_state(thread))["values"]["messages"]
    same([message["type"] for message in stored], ["human", "ai", "tool", "ai"])
    same(stored[1]["tool_calls"][0]["args"], {"a": 2, "b": 3})
    same(stored[3]["content"], "tool said 5")


async def subgraphs(client):
    _, parts = await stream(client, "subgraph", "updates", {"path": []}, stream_subgraphs=True)
    shapes = [tuple(part.split(":")[0] for part in event.split("|")) for event, _ in parts]
    same(sorted(set(shapes)), [("updates",), ("updates", "child"), ("updates", "child", "grand")])
    same([list(data)[0] for _, data in parts], ["before", "enter", "leaf", "grand", "child", "after"])
    _, parts = await stream(client, "subgraph", "updates", {"path": []})
    same([(event, list(data)[0]) for event, data in parts],
         [("updates", "before"), ("updates", "child"), ("updates", "after")])


async def sends(client):
    _, parts = await stream(client, "mapreduce", ["updates", "values"], {"items": [1, 2, 3]})
    squares = [data for data in named(parts, "updates") if "square" in data]
    same(in_any_order(squares, 0, 3), [{"square": {"squares": [n]}} for n in (1, 4, 9)])
    same(named(parts, "values")[-1], {"items": [1, 2, 3], "squares": [1, 4, 9], "total": 14})


async def failures(client):
    thread, parts = await stream(client, "failing", ["values"], {"fail": True})
    same(parts[-1], ("error", {"error": "ValueError", "message": "boom from node bad"}))
    same((await client.threads.get(thread))["status"], "error")
    thread = await client.threads.create()
    try:
        await client.runs.wait(thread["thread_id"], "failing", input={"fail": True})
        raise AssertionError("nothing was raised")
    except Exception as error:
        assert "boom from node bad" in str(error), error


async def main(client):
    await counter_modes(client)
    await custom_and_messages(client)
    await subgraphs(client)
    await sends(client)
    await failures(client)


run(main)
