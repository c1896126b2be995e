// A stream that breaks off in mid-run: the client comes back by itself, and has every event once.
import net from "node:net";
import { Client } from "@langchain/langgraph-sdk";
import { named, same, url } from "./common.js";

const TICKS = 30;
const server = new URL(url);
const open = new Set();
let connections = 0;

// Between the client and the server, so that connections can be cut.
const between = net.createServer((client) => {
  connections += 1;
  const upstream = net.connect(Number(server.port), server.hostname);
  open.add(client);
  for (const [from, to] of [[client, upstream], [upstream, client]]) {
    from.pipe(to);
    from.on("error", () => to.destroy());
    from.on("close", () => to.destroy());
  }
});
await new Promise((resolve) => between.listen(0, "127.0.0.1", resolve));
const client = new Client({ apiUrl: `http://127.0.0.1:${between.address().port}`, apiKey: null });

async function follow(name, stream) {
  const parts = [];
  let cuts = 0;
  for await (const part of stream) {
    parts.push([part.event, part.data]);
    const ticks = named(parts, "custom").length;
    if (part.event === "custom" && (ticks === 3 || ticks === 9)) {
      cuts += 1;
      for (const socket of open) socket.resetAndDestroy();
      open.clear();
    }
  }
  same(cuts, 2, name);
  same(named(parts, "custom").map((one) => one.tick), Array.from({ length: TICKS }, (_, n) => n), name);
  same(named(parts, "metadata").length, 1, name);
}

const thread = (await client.threads.create()).thread_id;
const options = { input: { ms: 100, ticks: TICKS }, streamMode: ["values", "custom"], streamResumable: true };
await follow("stream", client.runs.stream(thread, "slow", options));
const { run_id } = await client.runs.create(thread, "slow", { ...options, input: { ms: 100, ticks: TICKS } });
await follow("joinStream", client.runs.joinStream(thread, run_id, { lastEventId: "-1" }));
same((await client.runs.list(thread)).map((one) => one.status), ["success", "success"]);
console.log(`${connections} connections`);
between.close();
for (const socket of open) socket.destroy();
