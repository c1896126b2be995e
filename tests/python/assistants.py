"""Assistants of clients: created, changed, searched, deleted, and what their runs get of them."""

from common import run, same


async def life(client):
    made = await client.assistants.create(
        "ctx", name="mine", metadata={"m": 1}, config={"tags": ["t"], "recursion_limit": 7},
        context={"who": "ann"}, description="d")
    id = made["assistant_id"]
    same((made["version"], made["config"]["configurable"], made["description"]), (1, {"who": "ann"}, "d"))
    same(await client.assistants.get(id), made)
    same((await client.assistants.create("ctx", assistant_id=id, if_exists="do_nothing"))["name"], "mine")
    changed = await client.assistants.update(id, name="other", metadata={"n": 2})
    same((changed["version"], changed["metadata"]), (2, {"m": 1, "n": 2}))
    same([v["version"] for v in await client.assistants.get_versions(id)], [2, 1])
    same((await client.assistants.set_latest(id, 1))["name"], "mine")
    found = await client.assistants.search(metadata={"m": 1}, graph_id="ctx", name="MIN")
    same([a["assistant_id"] for a in found], [id])
    same(await client.assistants.count(metadata={"m": 1}), 1)
    same((await client.assistants.get_schemas(id))["graph_id"], "ctx")
    assert (await client.assistants.get_graph(id))["nodes"]
    thread = (await client.threads.create())["thread_id"]
    out = (await client.runs.wait(thread, id, input={"text": "x"}))["out"]
    same((out["context"]["who"], out["tags"], out["recursion_limit"]), ("ann", ["t"], 7))
    await client.assistants.delete(id, delete_threads=True)
    for gone in (client.assistants.get(id), client.threads.get(thread)):
        try:
            await gone
        except Exception as error:
            same(error.response.status_code, 404)
        else:
            raise AssertionError("it is still there")


run(life)
