// Crons through the official client: created, searched, counted, changed and deleted.
import { randomUUID } from "node:crypto";
import { refused, run, same, threadOf } from "./common.js";

await run(async (client) => {
  const { crons } = client;
  const tag = randomUUID();
  const made = await crons.create("counter", {
    schedule: "0 3 1 1 *", input: { count: 1 }, metadata: { tag }, onRunCompleted: "keep",
  });
  same([made.schedule, made.on_run_completed, made.enabled], ["0 3 1 1 *", "keep", true]);
  same(made.next_run_date.slice(5), "01-01T03:00:00+00:00");
  const thread = await threadOf(client);
  const other = await crons.createForThread(thread, "router", {
    schedule: "30 4 1 1 *", input: { n: 1 }, metadata: { tag }, multitaskStrategy: "interrupt", enabled: false,
  });
  same([other.thread_id, other.enabled], [thread, false]);
  const found = await crons.search({ threadId: thread });
  same(found.map((one) => one.cron_id), [other.cron_id]);
  const enabled = await crons.search({ assistantId: "counter", enabled: true, sortBy: "next_run_date", sortOrder: "asc", select: ["cron_id"] });
  same(enabled, [{ cron_id: made.cron_id }]);
  same(await crons.count({ threadId: thread }), 1);
  const changed = await crons.update(other.cron_id, { schedule: "0 5 2 1 *", enabled: true, input: { n: 2 } });
  same([changed.schedule, changed.enabled, changed.payload.input], ["0 5 2 1 *", true, { n: 2 }]);
  await refused(422, crons.update(other.cron_id, { schedule: "61 * * * *" }));
  await crons.delete(made.cron_id);
  await refused(404, crons.delete(made.cron_id));
  await client.threads.delete(thread);
  await refused(404, crons.update(other.cron_id, { enabled: false }));
});
