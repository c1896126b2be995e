"""Runs in batches, cancelled together, and joined."""

from common import named, names, run, same, until


async def life(client):
    body = {"assistant_id": "counter", "input": {"count": 0, "log": ["in"]}, "on_completion": "keep", "webhook": None}
    made = await client.runs.create_batch([body, {"assistant_id": "router", "input": {"n": 1}, "on_completion": "keep"}])
    same([r["metadata"]["graph_id"] for r in made], ["counter", "router"])
    assert len({r["thread_id"] for r in made}) == 2
    same((await client.runs.join(made[0]["thread_id"], made[0]["run_id"]))["count"], 1111)
    try:
        await client.runs.create_batch([body, {"assistant_id": "nope"}])
    except Exception as error:
        same(error.response.status_code, 422)
    else:
        raise AssertionError("a graph that is not there was run")

    thread = (await client.threads.create())["thread_id"]
    slow = {"input": {"ms": 100, "ticks": 300}, "stream_mode": ["custom", "values"], "stream_resumable": True}
    first = await client.runs.create(thread, "slow", **slow)
    second = await client.runs.create(thread, "counter", input={"count": 0, "log": []})
    seen = []
    async for part in client.runs.join_stream(thread, first["run_id"], last_event_id="-1"):
        seen.append((part.event, part.data))
        if named(seen, "custom"):
            break
    same(names(seen), ["metadata", "values", "custom"])
    await client.runs.cancel_many(thread_id=thread, run_ids=[first["run_id"], second["run_id"]])

    async def cancelled():
        return {r["status"] for r in await client.runs.list(thread)} == {"interrupted"}
    await until("both runs are cancelled", cancelled)
    rest = [part async for part in client.runs.join_stream(thread, first["run_id"], stream_mode="custom", last_event_id="-1")]
    same({part.event for part in rest}, {"custom"})
    try:
        await client.runs.cancel_many(status="all")
    except Exception as error:
        same(error.response.status_code, 404)
    else:
        raise AssertionError("there was nothing left to cancel")
    running = await client.runs.create(thread, "slow", **slow)
    await client.runs.cancel_many(status="all")
    same((await client.runs.get(thread, running["run_id"]))["status"], "interrupted")


run(life)
