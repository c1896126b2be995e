// Runs: waited for, in the background, in batches, without a thread, joined, cancelled and resumed.
import assert from "node:assert/strict";
import { events, named, names, refused, run, same, threadOf, until } from "./common.js";

const COUNT = { input: { count: 0, log: [] } };
const SLOW = { input: { ms: 100, ticks: 300 }, streamMode: ["custom", "values"], streamResumable: true };

async function background(client) {
  const { runs } = client;
  const thread = await threadOf(client);
  const made = await runs.create(thread, "counter", { ...COUNT, metadata: { m: 1 } });
  same([made.thread_id, made.metadata.m], [thread, 1]);
  same((await runs.join(thread, made.run_id)).count, 1111);
  same((await runs.get(thread, made.run_id)).status, "success");
  same((await runs.list(thread, { status: "success", select: ["run_id"] })), [{ run_id: made.run_id }]);
  await refused(422, runs.create(thread, "nope", COUNT));
  await runs.delete(thread, made.run_id);
  await refused(404, runs.get(thread, made.run_id));

  same((await runs.wait(null, "counter", COUNT)).count, 1111);
  // This client sends the fields of a batch as they are spelled here.
  const [one, two] = await runs.createBatch([
    { assistantId: "counter", ...COUNT, on_completion: "keep" },
    { assistantId: "router", input: { n: 1 }, on_completion: "keep" },
  ]);
  assert.notEqual(one.thread_id, two.thread_id);
  same((await runs.join(one.thread_id, one.run_id)).count, 1111);
}

async function cancelled(client) {
  const { runs } = client;
  const thread = await threadOf(client);
  const first = await runs.create(thread, "slow", SLOW);
  const second = await runs.create(thread, "counter", { ...COUNT, multitaskStrategy: "enqueue" });
  await refused(409, runs.wait(thread, "counter", { ...COUNT, multitaskStrategy: "reject" }));
  const parts = [];
  for await (const part of runs.joinStream(thread, first.run_id, { lastEventId: "-1", streamMode: ["custom", "values"] })) {
    parts.push([part.event, part.data]);
    if (part.event === "custom") break;
  }
  same(named(parts, "custom"), [{ tick: 0 }]);
  await runs.cancel(thread, second.run_id, false);
  await runs.cancel(thread, first.run_id, true, "interrupt");
  same((await runs.get(thread, first.run_id)).status, "interrupted");
  await until("the other one is cancelled", async () => (await runs.get(thread, second.run_id)).status === "interrupted");
  const rest = await events(runs.joinStream(thread, first.run_id, { lastEventId: "-1", streamMode: "custom" }));
  same(names(rest), ["custom"]);

  const undone = await runs.create(thread, "slow", SLOW);
  await runs.cancel(thread, undone.run_id, true, "rollback");
  await until("its row is gone", async () => (await runs.list(thread)).every((row) => row.run_id !== undone.run_id));
  assert.notEqual((await client.threads.get(thread)).status, "busy");
}

async function resumed(client) {
  const { runs, threads } = client;
  const thread = await threadOf(client);
  const paused = await runs.wait(thread, "approve", { input: { request: "pay" } });
  same(paused.__interrupt__[0].value, { question: "approve?", request: "pay" });
  same((await threads.get(thread)).status, "interrupted");
  const [task] = (await threads.getState(thread)).tasks;
  same(task.interrupts.map((one) => [one.id, one.value]), paused.__interrupt__.map((one) => [one.id, one.value]));
  const { checkpoint } = await threads.getState(thread);
  same((await runs.wait(thread, "approve", { command: { resume: "yes" } })).result, "answer=yes");
  same((await runs.wait(thread, "approve", { command: { resume: "no" }, checkpoint })).result, "answer=no");

  const many = await threadOf(client);
  const asked = (await runs.wait(many, "approve_many", { input: { answers: [] } })).__interrupt__;
  same(asked.map((one) => one.value).sort(), ["A?", "B?"]);
  const resume = Object.fromEntries(asked.map((one) => [one.id, one.value === "A?" ? 1 : 2]));
  same((await runs.wait(many, "approve_many", { command: { resume } })).answers, [["a", 1], ["b", 2]]);

  const stopped = await threadOf(client);
  same((await runs.wait(stopped, "counter", { ...COUNT, interruptBefore: ["last"] })).count, 111);
  same((await runs.wait(stopped, "counter", { input: null })).count, 1111);
  await assert.rejects(runs.wait(stopped, "failing", { input: { fail: true } }), /boom from node bad/);
}

await run(async (client) => {
  await background(client);
  await cancelled(client);
  await resumed(client);
});
