// What the client scripts share: the client of the server under test, and short forms of its responses.
import assert from "node:assert/strict";
import { Client } from "@langchain/langgraph-sdk";

export const same = assert.deepEqual;
export const url = process.argv[2];

/** Runs `scenario(client)` against the server whose URL is the first argument. */
export async function run(scenario) {
  await scenario(new Client({ apiUrl: url, apiKey: null, callerOptions: { maxRetries: 0 } }));
}

/** All parts of a stream as [event, data]. */
export async function events(stream) {
  const parts = [];
  for await (const part of stream) parts.push([part.event, part.data]);
  return parts;
}

/** The data of the events of one name. */
export const named = (parts, name) => parts.filter(([event]) => event === name).map(([, data]) => data);

/** The distinct names of the events, in the order of their first appearance. */
export const names = (parts) => [...new Set(parts.map(([event]) => event))];

/** Fails unless the request is refused with this status. */
export async function refused(status, request) {
  await assert.rejects(request, (error) => {
    same(error.status ?? error.response?.status, status, error);
    return true;
  });
}

export const threadOf = async (client) => (await client.threads.create()).thread_id;

/** Requests until `holds()` is true. */
export async function until(what, holds) {
  for (let n = 0; n < 6000; n++) {
    if (await holds()) return;
    // Nothing else tells a client how a run stands without waiting for its end.
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  assert.fail(`it never came to be that ${what}`);
}
