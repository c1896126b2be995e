"""Edits of the state: at the head, in the name of a node, and at an old checkpoint."""

from common import checkpoint_of, parent_of, run, same


async def at_the_head(client):
    thread = (await client.threads.create())["thread_id"]
    await client.runs.wait(thread, "counter", input={"count": 0, "log": ["in"]})
    before = await client.threads.get_state(thread)
    answer = await client.threads.update_state(thread, {"count": 5, "log": ["edit"]})
    state = await client.threads.get_state(thread)
    same(checkpoint_of(state), answer["checkpoint"]["checkpoint_id"])
    same(parent_of(state), checkpoint_of(before))
    same(state["values"], {"count": 1116, "log": before["values"]["log"] + ["edit"]})
    same((state["metadata"]["source"], state["metadata"]["step"]), ("update", 4))
    same(state["next"], [])


async def in_the_name_of_a_node(client):
    thread = (await client.threads.create())["thread_id"]
    await client.runs.wait(thread, "counter", input={"count": 0, "log": []})
    await client.threads.update_state(thread, {"count": 1, "log": ["edit"]}, as_node="first")
    same((await client.threads.get_state(thread))["next"], ["left", "right"])
    same((await client.threads.get(thread))["status"], "interrupted")
    values = await client.runs.wait(thread, "counter", input=None)
    same(values, {"count": 1111 + 1 + 1110,
                  "log": ["first", "left", "right", "last", "edit", "left", "right", "last"]})


async def at_an_old_checkpoint(client):
    thread = (await client.threads.create())["thread_id"]
    await client.runs.wait(thread, "counter", input={"count": 0, "log": []})
    history = await client.threads.get_history(thread)
    middle = next(state for state in history if state["metadata"]["step"] == 1)
    await client.threads.update_state(
        thread, {"count": 1000000, "log": ["edit"]}, checkpoint=middle["checkpoint"])
    state = await client.threads.get_state(thread)
    same(parent_of(state), checkpoint_of(middle))
    same(state["values"], {"count": 1000001, "log": ["first", "edit"]})
    same(state["next"], ["left", "right"])
    values = await client.runs.wait(thread, "counter", input=None)
    same(values["count"], 1001111)
    # The line that was left is as it was.
    same((await client.threads.get_history(thread, limit=100))[-len(history):], history)


async def an_answer_in_place_of_a_node(client):
    thread = (await client.threads.create())["thread_id"]
    await client.runs.wait(thread, "approve", input={"request": "pay"})
    await client.threads.update_state(thread, {"answer": "by hand"}, as_node="ask")
    values = await client.runs.wait(thread, "approve", input=None)
    same(values["result"], "answer=by hand")


async def what_cannot_be(client):
    thread = (await client.threads.create())["thread_id"]
    await client.runs.wait(thread, "counter", input={"count": 0, "log": []})
    before = await client.threads.get_history(thread)
    for values, more, statuses in [
        ({"count": 1}, {"as_node": "nobody"}, (400, 422)),
        ({"count": "many"}, {}, (400, 422)),
        ({"count": 1}, {"checkpoint_id": "1f1e52d3-b51d-655d-8000-078d7d9aa83f"}, (404,)),
    ]:
        try:
            await client.threads.update_state(thread, values, **more)
            raise AssertionError(f"{values} {more} was accepted")
        except Exception as error:
            if not hasattr(error, "response"):
                raise
            assert error.response.status_code in statuses, (error, more)
    same(await client.threads.get_history(thread), before)


async def main(client):
    await at_the_head(client)
    await in_the_name_of_a_node(client)
    await at_an_old_checkpoint(client)
    await an_answer_in_place_of_a_node(client)
    await what_cannot_be(client)


run(main)
