"""Questions and answers, pauses, and runs that meet on one thread."""

from common import checkpoint_of, events, named, run, same, until


async def ask_and_resume(client):
    thread = (await client.threads.create())["thread_id"]
    parts = await events(client.runs.stream(
        thread, "approve", input={"request": "pay"}, stream_mode=["updates", "values"]))
    question = {"question": "approve?", "request": "pay"}
    asked = [data["__interrupt__"] for data in named(parts, "updates") if "__interrupt__" in data]
    same([one["value"] for one in asked[0]], [question])

    same((await client.threads.get(thread))["status"], "interrupted")
    state = await client.threads.get_state(thread)
    same((state["next"], state["values"]), (["ask"], {"request": "pay"}))
    same(state["tasks"][0]["interrupts"], [{"id": asked[0][0]["id"], "value": question}])
    runs = await client.runs.list(thread)
    same([one["status"] for one in runs], ["success"])

    values = await client.runs.wait(thread, "approve", command={"resume": "yes"})
    same(values, {"request": "pay", "answer": "yes", "result": "answer=yes"})
    same((await client.threads.get(thread))["status"], "idle")

    # The same question, answered otherwise, on a line of its own.
    values = await client.runs.wait(
        thread, "approve", command={"resume": "no"}, checkpoint_id=checkpoint_of(state))
    same(values["result"], "answer=no")
    history = await client.threads.get_history(thread, limit=100)
    results = {one["values"]["result"] for one in history if "result" in one["values"]}
    same(results, {"answer=yes", "answer=no"})


async def several_questions(client):
    thread = (await client.threads.create())["thread_id"]
    values = await client.runs.wait(thread, "approve_many", input={"answers": []})
    asked = {one["value"]: one["id"] for one in values["__interrupt__"]}
    same(sorted(asked), ["A?", "B?"])
    values = await client.runs.wait(
        thread, "approve_many", command={"resume": {asked["A?"]: 1, asked["B?"]: 2}})
    same(values["answers"], [["a", 1], ["b", 2]])


async def inside_a_subgraph(client):
    thread = (await client.threads.create())["thread_id"]
    await client.runs.wait(thread, "subgraph", input={"path": [], "pause": True})
    state = await client.threads.get_state(thread, subgraphs=True)
    same(state["next"], ["child"])
    leaf = state["tasks"][0]["state"]["tasks"][0]["state"]
    same(leaf["next"], ["leaf"])
    same(leaf["tasks"][0]["interrupts"][0]["value"], {"where": "leaf"})
    values = await client.runs.wait(thread, "subgraph", command={"resume": "go"})
    assert "leaf:go" in values["path"] and values["path"][-1] == "after", values


async def pauses(client):
    thread = (await client.threads.create())["thread_id"]
    values = await client.runs.wait(
        thread, "counter", input={"count": 0, "log": []}, interrupt_before=["last"])
    same(values["count"], 111)
    same((await client.threads.get_state(thread))["next"], ["last"])
    values = await client.runs.wait(thread, "counter", input=None)
    same(values["count"], 1111)


async def stateless(client):
    values = await client.runs.wait(None, "counter", input={"count": 0, "log": []})
    same(values["count"], 1111)
    parts = await events(client.runs.stream(
        None, "counter", input={"count": 0, "log": []}, stream_mode="values"))
    same(named(parts, "values")[-1]["count"], 1111)
    first = await client.runs.create(None, "slow", input={"ms": 1, "ticks": 1})
    assert first["thread_id"], first


async def meeting_runs(client):
    thread = (await client.threads.create())["thread_id"]
    first = await client.runs.create(thread, "slow", input={"ms": 150, "ticks": 2})
    try:
        await client.runs.create(thread, "slow", input={}, multitask_strategy="reject")
        raise AssertionError("a second run was accepted")
    except Exception as error:
        same(error.response.status_code, 409)
    second = await client.runs.create(thread, "slow", input={"ms": 1, "ticks": 1})
    same(second["status"], "pending")
    values = await client.runs.join(thread, second["run_id"])
    same(values["seen"], ["work", "rest", "work", "rest"])
    same((await client.runs.get(thread, first["run_id"]))["status"], "success")

    # A stream can be left and joined again.
    third = await client.runs.create(
        thread, "slow", input={"ms": 100, "ticks": 3}, stream_mode=["custom", "values"],
        stream_resumable=True)
    async for part in client.runs.join_stream(thread, third["run_id"]):
        if part.event == "custom":
            break
    parts = await events(client.runs.join_stream(thread, third["run_id"], last_event_id="-1"))
    same(named(parts, "custom"), [{"tick": 0}, {"tick": 1}, {"tick": 2}])

    fourth = await client.runs.create(thread, "slow", input={"ms": 100, "ticks": 100})

    async def works():
        return (await client.runs.get(thread, fourth["run_id"]))["status"] == "running"

    await until("the run works", works)
    await client.runs.cancel(thread, fourth["run_id"], wait=True)
    same((await client.runs.get(thread, fourth["run_id"]))["status"], "interrupted")


async def main(client):
    await ask_and_resume(client)
    await several_questions(client)
    await inside_a_subgraph(client)
    await pauses(client)
    await stateless(client)
    await meeting_runs(client)


run(main)
