// Every stream mode that front ends use, as the official client reads it.
import { events, named, names, run, same, threadOf } from "./common.js";

async function stream(client, graph, streamMode, input, more = {}) {
  const thread = await threadOf(client);
  let created;
  const parts = await events(client.runs.stream(thread, graph, {
    input, streamMode, onRunCreated: (run) => { created = run; }, ...more,
  }));
  same(parts[0], ["metadata", { run_id: created.run_id, attempt: 1 }]);
  same(created.thread_id, thread);
  return [thread, parts.slice(1)];
}

async function modes(client) {
  const input = { count: 0, log: ["in"] };
  const [thread, values] = await stream(client, "counter", "values", input);
  same(named(values, "values").map((one) => one.count), [0, 1, 111, 1111]);
  same((await client.threads.get(thread)).values, values.at(-1)[1]);
  const [, updates] = await stream(client, "counter", ["updates", "tasks"], input);
  same(named(updates, "updates").map((one) => Object.keys(one)[0]).sort(), ["first", "last", "left", "right"]);
  same(named(updates, "tasks").length, 8);
  const [, checkpoints] = await stream(client, "counter", ["checkpoints", "debug"], input);
  same(named(checkpoints, "checkpoints").map((one) => one.metadata.step), [-1, 0, 1, 2, 3]);
  const [, custom] = await stream(client, "slow", ["custom", "values"], { ms: 5, ticks: 3 });
  same(named(custom, "custom"), [{ tick: 0 }, { tick: 1 }, { tick: 2 }]);
  const [, nested] = await stream(client, "subgraph", "updates", { path: [] }, { streamSubgraphs: true });
  const shapes = new Set(nested.map(([event]) => event.split("|").map((part) => part.split(":")[0]).join("|")));
  same([...shapes].sort(), ["updates", "updates|child", "updates|child|grand"]);
  const [, failing] = await stream(client, "failing", "values", { fail: true });
  same(failing.at(-1), ["error", { error: "ValueError", message: "boom from node bad" }]);
}

async function messages(client) {
  const input = { messages: [{ role: "user", content: "one two" }] };
  const [thread, tuples] = await stream(client, "agent", "messages-tuple", input);
  same(names(tuples), ["messages"]);
  const chunks = named(tuples, "messages").map(([chunk]) => chunk);
  same(chunks.map((chunk) => chunk.content).join(""), "echo: one two");
  const { values } = await client.threads.getState(thread);
  same(values.messages.map((one) => one.type), ["human", "ai"]);
  same([...new Set(chunks.map((chunk) => chunk.id))], [values.messages[1].id]);
  const [, partial] = await stream(client, "agent", "messages", input);
  same(names(partial), ["messages/metadata", "messages/partial"]);
  same(named(partial, "messages/partial").at(-1)[0].content, "echo: one two");

  const sum = { messages: [{ role: "user", content: "tool: 2 3" }] };
  const [, tools] = await stream(client, "agent", ["messages-tuple", "events"], sum);
  const called = named(tools, "messages").map(([chunk]) => chunk).filter((chunk) => chunk.type === "tool");
  same(called.map((chunk) => chunk.content), ["5"]);
  const started = named(tools, "events").filter((one) => one.event === "on_chain_start").map((one) => one.name);
  same(started.filter((name) => name === "model" || name === "tools"), ["model", "tools", "model"]);
  const ofTool = named(tools, "events").filter((one) => one.event.startsWith("on_tool"));
  same(ofTool.map((one) => [one.event, one.name]), [["on_tool_start", "add"], ["on_tool_end", "add"]]);
}

async function interrupts(client) {
  const [thread, parts] = await stream(client, "approve", ["values", "updates"], { request: "pay" });
  const [[asked]] = named(parts, "updates").flatMap((one) => (one.__interrupt__ ? [one.__interrupt__] : []));
  same(asked.value, { question: "approve?", request: "pay" });
  const resumed = await events(client.runs.stream(thread, "approve", { command: { resume: "yes" }, streamMode: "values" }));
  same(resumed.at(-1)[1].result, "answer=yes");
}

async function ofAThread(client) {
  const thread = await threadOf(client);
  const abort = new AbortController();
  const reader = client.threads.joinStream(thread, { streamMode: ["run_modes", "lifecycle"], lastEventId: "-1", signal: abort.signal });
  const parts = [];
  const first = reader.next();
  for (let n = 0; n < 2; n++) {
    // Stored, so that they are shown however late the reader is connected.
    await events(client.runs.stream(thread, "counter", { input: { count: n, log: [] }, streamMode: "values", streamResumable: true }));
  }
  for (let ends = 0, part = await first; ; part = await reader.next()) {
    parts.push([part.value.event, part.value.data]);
    if (part.value.data?.status === "run_done" && ++ends === 2) break;
  }
  same(new Set(named(parts, "metadata").map((one) => one.run_id)).size, 2);
  abort.abort();
}

await run(async (client) => {
  await modes(client);
  await messages(client);
  await interrupts(client);
  await ofAThread(client);
});
