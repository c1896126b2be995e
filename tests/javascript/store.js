// Items of the store, as the client stores, finds and lists them.
import { run, same } from "./common.js";

await run(async ({ store }) => {
  for (let n = 0; n < 4; n++) {
    await store.putItem(["docs", n % 2 ? "a" : "b"], `k${n}`, { n, even: n % 2 === 0 });
  }
  const item = await store.getItem(["docs", "a"], "k1");
  same([item.namespace, item.key, item.value], [["docs", "a"], "k1", { n: 1, even: false }]);
  // This client makes dates camel case and keeps no other spelling.
  same(typeof item.createdAt, "string");
  same(await store.getItem(["docs", "a"], "nope"), null);

  const keys = async (query) => (await store.searchItems(["docs"], query)).items.map((one) => one.key);
  same(await keys(), ["k1", "k3", "k0", "k2"]);
  same(await keys({ filter: { n: { $gt: 0, $lte: 2 } } }), ["k1", "k2"]);
  same(await keys({ filter: { even: true }, limit: 1, offset: 1 }), ["k2"]);
  same(await keys({ query: "anything", refreshTtl: false }), ["k1", "k3", "k0", "k2"]);
  same((await store.listNamespaces({ prefix: ["docs"] })).namespaces, [["docs", "a"], ["docs", "b"]]);
  same((await store.listNamespaces({ suffix: ["b"], maxDepth: 1 })).namespaces, [["docs"]]);
  await store.putItem(["docs", "a"], "k1", { n: 10 }, { ttl: 5, index: false });
  await store.deleteItem(["docs", "b"], "k0");
  await store.deleteItem(["docs", "b"], "k0");
  same(await keys({ filter: { n: { $gte: 2 } } }), ["k1", "k3", "k2"]);
});
