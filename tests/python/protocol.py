"""Threads as event streams: values, messages, calls of tools, interrupts, and both transports."""

import asyncio
import sys

from common import run, same
from langgraph_sdk import get_client
from proxy import Proxy


def user(text):
    return {"messages": [{"role": "user", "content": text}]}


async def within(what):
    """No part of a conversation takes longer than this, even on a slow machine."""
    return await asyncio.wait_for(what, 60)


async def values_and_output(client):
    async with client.threads.stream(assistant_id="counter") as thread:
        await thread.run.start(input={"count": 0, "log": []})
        counts = set()
        # The client begins with the state as it is now, and then gets every one from the first on.
        async for values in thread.values:
            counts.add(values.get("count"))
            if {0, 1, 111, 1111} <= counts:
                break
        same((await within(thread.output))["count"], 1111)


async def first_of(projection, read):
    """What `read` makes of the first item of a projection, which goes on being read meanwhile."""
    found = asyncio.get_running_loop().create_future()

    async def follow():
        reading = []
        async for item in projection:
            reading.append(asyncio.ensure_future(read(item)))
            if len(reading) == 1:
                reading[0].add_done_callback(lambda done: found.set_result(done.result()))

    following = asyncio.ensure_future(follow())
    try:
        return await within(found)
    finally:
        following.cancel()


async def messages_as_they_grow(client):
    async with client.threads.stream(assistant_id="agent") as thread:
        await thread.run.start(input=user("hello big world"))

        async def pieces_of(message):
            return [piece async for piece in message.text]

        pieces = await first_of(thread.messages, pieces_of)
        same(("".join(pieces), len(pieces)), ("echo: hello big world", 4))
        output = await within(thread.output)
        same([one["type"] for one in output["messages"]], ["human", "ai"])


async def calls_of_tools(client):
    async with client.threads.stream(assistant_id="agent") as thread:
        await thread.run.start(input=user("tool: 2 3"))

        async def result_of(call):
            return call.name, call.input, (await call.output)["content"]

        found = await first_of(thread.tool_calls, result_of)
        same(found, ("add", {"a": 2, "b": 3}, "5"))


async def an_interrupt(client):
    async with client.threads.stream(assistant_id="approve") as thread:
        await thread.run.start(input={"request": "pay"})
        for _ in range(3000):
            if thread.interrupted:
                break
            await asyncio.sleep(0.01)
        same([one["value"] for one in thread.interrupts], [{"question": "approve?", "request": "pay"}])
        await thread.run.respond("yes")
        same((await within(thread.output))["result"], "answer=yes")
        state = await client.threads.get_state(thread.thread_id)
        same((state["next"], state["values"]["answer"]), ([], "yes"))


async def a_failure(client):
    async with client.threads.stream(assistant_id="failing") as thread:
        await thread.run.start(input={"fail": True})
        try:
            await within(thread.output)
            raise AssertionError("the failure was not shown")
        except RuntimeError as error:
            assert "boom from node bad" in str(error), error


async def graphs_inside(client):
    async with client.threads.stream(assistant_id="subgraph") as thread:
        await thread.run.start(input={"path": []})
        async for inner in thread.subgraphs:
            same(inner.graph_name, "child")
            break
        path = (await within(thread.output))["path"]
        same((path[0], path[-1]), ("before", "after"))


async def a_connection_that_is_cut_in_mid_run(_):
    async with Proxy(sys.argv[1]) as proxy:
        client = get_client(url=proxy.url, api_key=None)
        async with client.threads.stream(assistant_id="slow") as thread:
            await thread.run.start(input={"ms": 100, "ticks": 20})
            seen = []
            async for values in thread.values:
                if not seen:
                    assert proxy.cut() > 0
                if values.get("seen") not in seen:
                    seen.append(values.get("seen"))
                if values.get("seen") == ["work", "rest"]:
                    break
            same((await within(thread.output))["seen"], ["work", "rest"])
            assert ["work"] in seen, seen


async def a_run_that_is_created_beside_it(client):
    thread = await client.threads.create()
    async with client.threads.stream(thread["thread_id"], assistant_id="slow") as stream:
        # The events of such a run are not stored: it is over when the stream has begun to show it.
        run = await client.runs.create(thread["thread_id"], "slow", input={"ms": 500, "ticks": 2})
        same((await within(stream.output))["seen"], ["work", "rest"])
        same((await client.runs.get(thread["thread_id"], run["run_id"]))["status"], "success")


async def main(client):
    for scenario in (a_run_that_is_created_beside_it, values_and_output, messages_as_they_grow, calls_of_tools, an_interrupt,
                     a_failure, graphs_inside, a_connection_that_is_cut_in_mid_run):
        await within(scenario(client))


run(main)
