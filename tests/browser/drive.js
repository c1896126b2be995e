// Uses a page as a person would: types, clicks, reloads, and compares what it shows.
import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import { readFile, mkdtemp, rm } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";
import { build } from "vite";

const [, , server, browser, name, transport] = process.argv;
const same = assert.deepEqual;
const PATIENCE = 60_000;
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** Serves what was built from the pages, on an origin of its own. */
async function serve() {
  const root = path.resolve("pages");
  const input = [path.join(root, `${name}.html`)];
  await build({ root, base: "./", logLevel: "error", build: { outDir: "../built", minify: false, rolldownOptions: { input } } });
  const types = { ".html": "text/html", ".js": "text/javascript" };
  const files = http.createServer(async (request, response) => {
    const { pathname } = new URL(request.url, "http://page");
    const file = path.join(path.resolve("built"), path.normalize(pathname));
    const content = await readFile(file).catch(() => null);
    response.writeHead(content ? 200 : 404, { "content-type": types[path.extname(file)] ?? "text/plain" });
    response.end(content ?? "");
  });
  await once(files.listen(0, "127.0.0.1"), "listening");
  return files;
}

const files = await serve();
const profile = await mkdtemp(path.join(os.tmpdir(), "backstitch-chromium-"));
const context = await chromium.launchPersistentContext(profile, {
  executablePath: browser,
  args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync"],
});
context.setDefaultTimeout(PATIENCE);
const page = await context.newPage();
const problems = [];
page.on("pageerror", (error) => problems.push(String(error)));
page.on("console", (message) => message.type() === "error" && problems.push(message.text()));

let sockets = 0;
page.on("websocket", () => { sockets += 1; });

async function open(graph) {
  const address = new URL(`http://127.0.0.1:${files.address().port}/${name}.html`);
  address.search = new URLSearchParams({ server, graph, ...(transport && { transport }) });
  await page.goto(address.href);
}

const texts = () => page.locator(".text").allTextContents();
const isIdle = () => page.locator("#state", { hasText: "idle" }).waitFor();
const thread = () => new URL(page.url()).searchParams.get("thread");
const get = async (address) => (await fetch(`${server}${address}`)).json();

async function type(text) {
  await page.fill("#text", text);
}

async function send(text) {
  await type(text);
  await page.click("#send");
}

/** Waits until the conversation reads so. */
async function reads(...expected) {
  const deadline = Date.now() + PATIENCE;
  let shown = await texts();
  while (JSON.stringify(shown) !== JSON.stringify(expected) && Date.now() < deadline) {
    await page.waitForTimeout(50);
    shown = await texts();
  }
  same(shown, expected, problems.join("\n"));
  await isIdle();
}

/** What the page showed of the message at this position, without repetitions. */
async function versionsOf(index) {
  const rendered = await page.evaluate(() => window.rendered);
  const shown = rendered.map((one) => one[index]).filter((one) => one !== undefined);
  return shown.filter((one, n) => one !== shown[n - 1]);
}

/** Every version is a beginning of the last one: nothing was lost, and nothing shown twice. Returns how many there were. */
async function grew(index) {
  const versions = await versionsOf(index);
  const full = versions.at(-1);
  for (const [n, one] of versions.entries()) {
    assert(full.startsWith(one), `"${one}" is not how "${full}" begins`);
    if (n > 0) assert(one.length > versions[n - 1].length, `"${one}" came after "${versions[n - 1]}"`);
  }
  return versions.length;
}

/** A browser that has too little of a busy machine shows many words at once: then it is looked at again. */
async function comesInPieces(least, look) {
  const counts = [];
  while (!(counts.at(-1) >= least)) {
    assert(counts.length < 5, `it came in ${counts.join(", ")} pieces`);
    counts.push(await look());
  }
}

const WORDS = Array.from({ length: 30 }, (_, n) => `word${n}`).join(" ");

/** A new thread's first message, which is replied to for about a second: over a WebSocket the package subscribes twice, and shows nothing of a run whose end comes between the two. */
const FIRST = WORDS;

async function wordsComeOneByOne() {
  await comesInPieces(10, async () => {
    await open("agent");
    await send(WORDS);
    await reads(WORDS, `echo: ${WORDS}`);
    return await grew(1);
  });
  same(sockets > 0, transport === "websocket");
}

async function earlierMessagesAreEdited() {
  await open("agent");
  await send(FIRST);
  await reads(FIRST, `echo: ${FIRST}`);
  await send("second");
  await reads(FIRST, `echo: ${FIRST}`, "second", "echo: second");
  await type("changed");
  await page.locator("li.human .edit").nth(1).click();
  await reads(FIRST, `echo: ${FIRST}`, "changed", "echo: changed");
  // Back to the version before the edit, and on from there.
  await page.locator("li.human").nth(1).locator(".version:enabled").click();
  await reads(FIRST, `echo: ${FIRST}`, "second", "echo: second");
  await send("third");
  const all = [FIRST, `echo: ${FIRST}`, "second", "echo: second", "third", "echo: third"];
  await reads(...all);
  // And not while it came alone.
  same(await texts(), all);
}

async function aReplyIsMadeAnew() {
  await open("agent");
  await send(FIRST);
  await reads(FIRST, `echo: ${FIRST}`);
  const count = async () => (await get(`/threads/${thread()}/runs`)).length;
  const before = (await get(`/threads/${thread()}/state`)).values.messages[1].id;
  await page.locator("li.ai .regenerate").click();
  const deadline = Date.now() + PATIENCE;
  while ((await count()) < 2 && Date.now() < deadline) await page.waitForTimeout(50);
  await reads(FIRST, `echo: ${FIRST}`);
  const runs = await get(`/threads/${thread()}/runs`);
  same(runs.length, 2);
  while ((await get(`/threads/${thread()}`)).status === "busy") await page.waitForTimeout(50);
  const { messages } = (await get(`/threads/${thread()}/state`)).values;
  same(messages.map((one) => one.content), [FIRST, `echo: ${FIRST}`]);
  assert.notEqual(messages[1].id, before);
}

async function interruptsAreResumed() {
  await open("approve");
  await send(JSON.stringify({ request: "pay" }));
  const shown = page.locator(".interrupt");
  await shown.first().waitFor();
  same((await shown.allTextContents()).map(JSON.parse), [{ question: "approve?", request: "pay" }]);
  // A reload shows it too.
  await page.reload();
  await shown.first().waitFor();
  await isIdle();
  await page.click("#resume");
  await page.locator("#values", { hasText: '"result":"answer=yes"' }).waitFor();
  await isIdle();
  // The hook takes it away once it has heard of the end, which need not be when it shows the last state.
  await shown.first().waitFor({ state: "detached" });
  same(await shown.count(), 0);

  await open("approve_many");
  await send(JSON.stringify({ answers: [] }));
  await shown.nth(1).waitFor();
  await isIdle();
  same((await shown.allTextContents()).map(JSON.parse).sort(), ["A?", "B?"]);
  await page.click("#resume");
  await page.locator("#values", { hasText: '"answers":[["a","yes A?"],["b","yes B?"]]' }).waitFor();
}

async function aRunIsStopped() {
  await open("agent");
  // It would go on for many times as long as it takes to click.
  await send(Array(50).fill(WORDS).join(" "));
  await page.locator("li.ai .text", { hasText: "word3" }).waitFor();
  await page.click("#stop");
  await isIdle();
  const deadline = Date.now() + PATIENCE;
  const status = async () => (await get(`/threads/${thread()}/runs`))[0].status;
  while ((await status()) !== "interrupted" && Date.now() < deadline) await page.waitForTimeout(50);
  same(await status(), "interrupted");
}

async function aReloadInMidStreamLosesNothing() {
  const long = [WORDS, WORDS, WORDS].join(" ");
  await comesInPieces(2, async () => {
    await open("agent");
    await send(long);
    await page.locator("li.ai .text", { hasText: "word5" }).waitFor();
    await page.reload();
    await reads(long, `echo: ${long}`);
    return await grew(1);
  });
}

async function aRestartKeepsTheConversation() {
  await open("agent");
  await send(FIRST);
  await reads(FIRST, `echo: ${FIRST}`);
  console.log("restart");
  await lines.next();
  await page.reload();
  await reads(FIRST, `echo: ${FIRST}`);
  await send("after");
  await reads(FIRST, `echo: ${FIRST}`, "after", "echo: after");
}

async function aServerThatIsKilledInMidRunComesBackWithTheRest() {
  await open("agent");
  const long = [WORDS, WORDS, WORDS].join(" ");
  await send(long);
  await page.locator("li.ai .text", { hasText: "word5" }).waitFor();
  console.log("restart");
  await lines.next();
  const deadline = Date.now() + PATIENCE;
  const status = async () => (await get(`/threads/${thread()}/runs`))[0].status;
  while ((await status()) !== "success" && Date.now() < deadline) await page.waitForTimeout(50);
  same(await status(), "success");
  await page.reload();
  await reads(long, `echo: ${long}`);
  await send("after");
  await reads(long, `echo: ${long}`, "after", "echo: after");
}

/** The runs and the states of the page's thread, newest first. */
async function conversation() {
  const runs = await get(`/threads/${thread()}/runs`);
  const states = await get(`/threads/${thread()}/history?limit=50`);
  return {
    runs: runs.map((run) => [run.run_id, run.status, run.created_at, run.kwargs.input, run.kwargs.config?.configurable?.checkpoint_id]),
    states: states.map((state) => [
      state.checkpoint.checkpoint_id, state.parent_checkpoint?.checkpoint_id, state.created_at,
      (state.values.messages ?? []).map((one) => one.content.slice(0, 20)),
    ]),
  };
}

let failed = false;
for (const scenario of [wordsComeOneByOne, interruptsAreResumed, earlierMessagesAreEdited, aReplyIsMadeAnew,
  aRunIsStopped, aReloadInMidStreamLosesNothing, aRestartKeepsTheConversation,
  aServerThatIsKilledInMidRunComesBackWithTheRest]) {
  const began = Date.now();
  problems.length = 0;
  try {
    await scenario();
    console.log(`${scenario.name}: ${Date.now() - began} ms`);
  } catch (error) {
    failed = true;
    console.error(`${scenario.name}: ${error.stack}\nthe page says:\n${problems.join("\n")}\n${await page.locator("main").innerText()}`);
    console.error(`the server has:\n${JSON.stringify(await conversation(), null, 1)}`);
  }
}
await context.close();
files.close();
await rm(profile, { recursive: true, force: true });
process.exit(failed ? 1 : 0);
