"""What the client scripts share: the client of the server under test, and short forms of its answers."""

import asyncio
import sys

from langgraph_sdk import get_client


def run(scenario):
    """Runs `scenario(client)` against the server whose URL is the first argument."""
    asyncio.run(scenario(get_client(url=sys.argv[1], api_key=None)))


async def events(stream):
    """All parts of a stream as (event, data)."""
    return [(part.event, part.data) async for part in stream]


def named(parts, name):
    """The data of the events of one name."""
    return [data for event, data in parts if event == name]


async def until(what, holds):
    """Asks `holds()` until it is true."""
    for _ in range(1000):
        if await holds():
            return
        # Nothing else tells a client how a run stands without waiting for its end.
        await asyncio.sleep(0.01)
    raise AssertionError(f"it never came to be that {what}")


def names(parts):
    """The distinct names of the events, in the order of their first appearance."""
    return list(dict.fromkeys(event for event, _ in parts))


def same(actual, expected):
    """Fails with both sides when they differ."""
    assert actual == expected, f"\n  got      {actual!r}\n  expected {expected!r}"


def checkpoint_of(state):
    return state["checkpoint"]["checkpoint_id"]


def parent_of(state):
    parent = state["parent_checkpoint"]
    return parent and parent["checkpoint_id"]


def in_any_order(parts, start, end):
    """A copy in which the events of tasks that ran at the same time, `start` to `end`, are sorted."""
    return parts[:start] + sorted(parts[start:end], key=str) + parts[end:]
