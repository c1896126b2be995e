"""Items of the store, as the client stores, finds and lists them."""

from common import run, same


async def items(client):
    store = client.store
    for n in range(4):
        await store.put_item(["docs", "a" if n % 2 else "b"], key=f"k{n}", value={"n": n, "even": n % 2 == 0})
    item = await store.get_item(["docs", "a"], key="k1")
    same((item["namespace"], item["key"], item["value"]), (["docs", "a"], "k1", {"n": 1, "even": False}))
    same(await store.get_item(["docs", "a"], key="nope", refresh_ttl=False), None)

    async def keys(**query):
        found = await store.search_items(["docs"], **query)
        return [item["key"] for item in found["items"]]

    same(await keys(), ["k1", "k3", "k0", "k2"])
    same(await keys(filter={"n": {"$gt": 0, "$lte": 2}}), ["k1", "k2"])
    same(await keys(filter={"even": True}, limit=1, offset=1), ["k2"])
    same(await keys(query="anything", refresh_ttl=False), ["k1", "k3", "k0", "k2"])
    same((await store.list_namespaces(prefix=["docs"]))["namespaces"], [["docs", "a"], ["docs", "b"]])
    same((await store.list_namespaces(suffix=["b"], max_depth=1))["namespaces"], [["docs"]])
    await store.put_item(["docs", "a"], key="k1", value={"n": 10}, ttl=5, index=False)
    await store.delete_item(["docs", "b"], key="k0")
    await store.delete_item(["docs", "b"], key="k0")
    same(await keys(filter={"n": {"$gte": 2}}), ["k1", "k3", "k2"])


run(items)
