// Threads: made, found, copied and changed; their states, histories and what was edited by hand.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { refused, run, same } from "./common.js";

await run(async (client) => {
  const { threads, runs } = client;
  const threadId = randomUUID();
  const tag = randomUUID();
  const made = await threads.create({ threadId, metadata: { tag }, graphId: "counter", ttl: 60 });
  same([made.thread_id, made.metadata.tag, made.status], [threadId, tag, "idle"]);
  await refused(409, threads.create({ threadId }));
  same((await threads.create({ threadId, ifExists: "do_nothing" })).thread_id, threadId);
  await refused(404, threads.get(randomUUID()));

  const values = await runs.wait(threadId, "counter", { input: { count: 0, log: [] } });
  same(values.count, 1111);
  const state = await threads.getState(threadId);
  same([state.values.count, state.next], [1111, []]);
  const history = await threads.getHistory(threadId, { limit: 3 });
  same(history.map((one) => one.metadata.step), [3, 2, 1]);
  const before = { configurable: { checkpoint_id: history[1].checkpoint.checkpoint_id } };
  same((await threads.getHistory(threadId, { before })).map((one) => one.metadata.step), [1, 0, -1]);
  // What the types of this client say: a checkpoint as the history has it.
  same((await threads.getHistory(threadId, { before: history[1].checkpoint })).map((one) => one.metadata.step), [1, 0, -1]);
  same((await threads.getHistory(threadId, { metadata: { step: 2 } })).length, 1);
  const old = history[1].checkpoint;
  same((await threads.getState(threadId, old.checkpoint_id)).values.count, 111);
  same((await threads.getState(threadId, old, { subgraphs: true })).values.count, 111);

  const edited = await threads.updateState(threadId, { values: { count: 5, log: ["me"] }, asNode: "last" });
  assert(edited.configurable.checkpoint_id > history[0].checkpoint.checkpoint_id);
  same((await threads.getState(threadId)).values.count, 1116);
  await threads.updateState(threadId, { values: { count: 1 }, checkpoint: old, asNode: "right" });
  same((await threads.getState(threadId)).parent_checkpoint.checkpoint_id, old.checkpoint_id);

  const copy = await threads.copy(threadId);
  assert.notEqual(copy.thread_id, threadId);
  same((await threads.getState(copy.thread_id)).values, (await threads.getState(threadId)).values);
  await threads.update(copy.thread_id, { metadata: { copied: true } });
  const search = { metadata: { tag }, sortBy: "created_at", sortOrder: "asc" };
  same((await threads.search(search)).map((one) => one.thread_id), [threadId, copy.thread_id]);
  same(await threads.search({ ...search, select: ["thread_id"], limit: 1, offset: 1 }), [{ thread_id: copy.thread_id }]);
  same((await threads.search({ ids: [copy.thread_id] })).map((one) => one.metadata.copied), [true]);
  same(await threads.count({ metadata: { tag } }), 2);

  const supersteps = [{ updates: [{ values: { count: 3, log: ["made"] }, asNode: "__start__" }] }];
  const started = await threads.create({ graphId: "counter", supersteps });
  same((await threads.getState(started.thread_id)).values.count, 3);

  for (const one of [threadId, copy.thread_id]) await threads.delete(one);
  await refused(404, threads.getState(threadId));
  same(await threads.count({ metadata: { tag } }), 0);
});
