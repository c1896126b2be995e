// Assistants of clients: created, changed, searched, deleted, and what their runs get of them.
import assert from "node:assert/strict";
import { refused, run, same, threadOf } from "./common.js";

await run(async (client) => {
  const { assistants } = client;
  const made = await assistants.create({
    graphId: "ctx", name: "mine", metadata: { js: 1 }, config: { tags: ["t"], recursion_limit: 7 },
    context: { who: "ann" }, description: "d",
  });
  const id = made.assistant_id;
  same([made.version, made.context, made.description], [1, { who: "ann" }, "d"]);
  same(await assistants.get(id), made);
  same((await assistants.create({ graphId: "ctx", assistantId: id, ifExists: "do_nothing" })).name, "mine");
  await refused(409, assistants.create({ graphId: "ctx", assistantId: id }));
  await refused(404, assistants.create({ graphId: "nope" }));
  const changed = await assistants.update(id, { name: "other", metadata: { more: 2 } });
  same([changed.version, changed.metadata], [2, { js: 1, more: 2 }]);
  same((await assistants.getVersions(id)).map((one) => one.version), [2, 1]);
  same((await assistants.setLatest(id, 1)).name, "mine");
  const found = await assistants.search({ metadata: { js: 1 }, graphId: "ctx", name: "MIN" });
  same(found.map((one) => one.assistant_id), [id]);
  const page = await assistants.search({ metadata: { js: 1 }, limit: 1, select: ["assistant_id"], includePagination: true });
  same(page, { assistants: [{ assistant_id: id }], next: null });
  same(await assistants.count({ metadata: { js: 1 } }), 1);

  same((await assistants.getSchemas(id)).graph_id, "ctx");
  const [{ assistant_id: nested }] = await assistants.search({ graphId: "subgraph" });
  assert((await assistants.getGraph(nested, { xray: true })).nodes.length > 3);
  same(Object.keys(await assistants.getSubgraphs(nested, { recurse: true })).sort(), ["child", "child|grand"]);

  const thread = await threadOf(client);
  const { out } = await client.runs.wait(thread, id, { input: { text: "x" } });
  same([out.context.who, out.tags, out.recursion_limit], ["ann", ["t"], 7]);
  await assistants.delete(id, { deleteThreads: true });
  await refused(404, assistants.get(id));
  await refused(404, client.threads.get(thread));
});
