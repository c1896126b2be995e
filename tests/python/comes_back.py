"""A client whose stream breaks off with its server comes back to the next one by itself, and so does one that waits."""

import asyncio
import sys

from common import named, run, same

TICKS = int(sys.argv[2])


async def scenario(client):
    other = await client.threads.create()
    waited = client.runs.wait(other["thread_id"], "slow", input={"ms": 100, "ticks": TICKS})
    waiting = asyncio.create_task(waited)
    thread = await client.threads.create()
    parts = []
    stream = client.runs.stream(
        thread["thread_id"],
        "slow",
        input={"ms": 100, "ticks": TICKS},
        stream_mode=["values", "custom"],
        stream_resumable=True,
    )
    async for part in stream:
        parts.append((part.event, part.data))
        if part.event == "custom" and len(named(parts, "custom")) == 3:
            print("streaming", flush=True)
    events = {event for event, _ in parts}
    assert events <= {"metadata", "values", "custom"}, events
    assert named(parts, "values")[-1]["seen"], parts
    runs = await client.runs.list(thread["thread_id"])
    same([one["status"] for one in runs], ["success"])
    state = await client.threads.get_state(thread["thread_id"])
    same(state["values"]["seen"], named(parts, "values")[-1]["seen"])
    result = await waiting
    same(result["seen"], state["values"]["seen"])
    same((await client.threads.get_state(other["thread_id"]))["values"], result)
    print(len(named(parts, "metadata")), "attempts", flush=True)


run(scenario)
