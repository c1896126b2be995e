"""New input and replay at old checkpoints, and the history over all that."""

from common import checkpoint_of, events, in_any_order, named, parent_of, run, same

INPUT = {"count": 0, "log": ["in"]}


async def new_input_at_an_old_checkpoint(client):
    thread = (await client.threads.create())["thread_id"]
    first = await client.runs.wait(thread, "counter", input=INPUT)
    same(first, {"count": 1111, "log": ["in", "first", "left", "right", "last"]})
    turn_one = await client.threads.get_state(thread)
    second = await client.runs.wait(thread, "counter", input={"count": 5, "log": ["again"]})
    same(second["count"], 2227)
    turn_two = await client.threads.get_state(thread)

    parts = await events(client.runs.stream(
        thread, "counter", input={"count": 7, "log": ["other"]},
        checkpoint_id=checkpoint_of(turn_one), stream_mode="values"))
    same(named(parts, "values")[0], {"count": 1118, "log": first["log"] + ["other"]})
    same(named(parts, "values")[-1]["count"], 2229)

    history = await client.threads.get_history(thread, limit=100)
    ids = [checkpoint_of(state) for state in history]
    same(len(ids), 15)
    same(ids, sorted(ids, reverse=True))
    same([state["metadata"]["step"] for state in history],
         [8, 7, 6, 5, 4, 8, 7, 6, 5, 4, 3, 2, 1, 0, -1])
    same([state["metadata"]["source"] for state in history],
         (["loop"] * 4 + ["input"]) * 3)
    # Both later turns go on from the end of the first one.
    same(parent_of(history[4]), checkpoint_of(turn_one))
    same(parent_of(history[9]), checkpoint_of(turn_one))
    for at in (0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13):
        if at != 9:
            same(parent_of(history[at]), ids[at + 1])
    same(parent_of(history[14]), None)
    # The head is the new line; each checkpoint still has the state it had.
    same((await client.threads.get_state(thread))["values"]["count"], 2229)
    for state in history:
        again = await client.threads.get_state(thread, checkpoint_id=checkpoint_of(state))
        same(again["values"], state["values"])
        same(again["next"], state["next"])
    same((await client.threads.get_state(thread, checkpoint=turn_two["checkpoint"]))["values"],
         turn_two["values"])

    # Pages of the history follow each other without gap and repetition.
    before, walked = None, []
    while page := await client.threads.get_history(thread, limit=4, before=before):
        walked += [checkpoint_of(state) for state in page]
        before = {"configurable": {"checkpoint_id": walked[-1]}}
    same(walked, ids)
    # A turn on the abandoned line makes it the head again.
    third = await client.runs.wait(thread, "counter", input={"count": 0, "log": []},
                                   checkpoint=turn_two["checkpoint"])
    same(third["count"], 2227 + 1111)


async def replay_without_input(client):
    thread = (await client.threads.create())["thread_id"]
    await client.runs.wait(thread, "counter", input=INPUT)
    before = await client.threads.get_history(thread)
    middle = next(state for state in before if state["metadata"]["step"] == 1)
    parts = await events(client.runs.stream(
        thread, "counter", input=None, checkpoint_id=checkpoint_of(middle),
        stream_mode=["values", "updates"]))
    same(named(parts, "values")[0], middle["values"])
    ran = [list(data)[0] for data in named(parts, "updates")]
    same(in_any_order(ran, 0, 2), ["left", "right", "last"])
    same(named(parts, "values")[-1]["count"], 1111)

    history = await client.threads.get_history(thread)
    same([(state["metadata"]["source"], state["metadata"]["step"]) for state in history],
         [("loop", 4), ("loop", 3), ("fork", 2), ("loop", 3), ("loop", 2), ("loop", 1), ("loop", 0),
          ("input", -1)])
    fork = history[2]
    same(parent_of(fork), checkpoint_of(middle))
    same((fork["values"], fork["next"]), (middle["values"], middle["next"]))
    same(parent_of(history[1]), checkpoint_of(fork))
    same(history[3:], before)

    # Of a finished thread there is nothing to run again.
    parts = await events(client.runs.stream(thread, "counter", input=None, stream_mode="values"))
    same(named(parts, "values"), [history[0]["values"]])
    same(len(await client.threads.get_history(thread)), len(history))


async def turns_of_a_chat(client):
    thread = (await client.threads.create())["thread_id"]

    async def say(text, **more):
        values = await client.runs.wait(
            thread, "agent", input={"messages": [{"role": "user", "content": text}]}, **more)
        return [message["content"] for message in values["messages"]]

    await say("one")
    turn_one = await client.threads.get_state(thread)
    same(await say("two"), ["one", "echo: one", "two", "echo: two"])
    same(await say("three", checkpoint_id=checkpoint_of(turn_one)),
         ["one", "echo: one", "three", "echo: three"])
    same(await say("four"), ["one", "echo: one", "three", "echo: three", "four", "echo: four"])
    # Messages that both lines share have the same ids in both.
    ids = [
        [message["id"] for message in state["values"]["messages"][:2]]
        for state in await client.threads.get_history(thread, limit=100)
        if len(state["values"].get("messages", [])) >= 2
    ]
    assert len(ids) > 5 and all(pair == ids[0] for pair in ids), ids


async def main(client):
    await new_input_at_an_old_checkpoint(client)
    await replay_without_input(client)
    await turns_of_a_chat(client)


run(main)
