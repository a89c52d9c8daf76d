// The library node-redlock on ioredis, as a client process of the bench (src/worker.rs describes the protocol).
//
//   node node-redlock.mjs cycle|contend TASKS redis://HOST:PORT...
//
// cycle: every task acquires and releases its own lock. contend: all tasks share one lock and hold it for 1 ms.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

const packages = `${process.env.REDLOCK_NODE_PEERS}/node_modules/`;
const require = createRequire(packages);
const Redis = require("ioredis");
const { default: Redlock } = require("redlock");

const [mode, tasks, ...urls] = process.argv.slice(2);
const TTL_MS = 30_000;
const clients = urls.map((url) => new Redis(url));
const redlock = new Redlock(clients);
// Without a listener, the loss of a node ends the process.
redlock.on("error", () => {});
clients.forEach((client) => client.on("error", () => {}));

const now = () => process.hrtime.bigint();

async function acquire(key) {
  for (;;) {
    try {
      return await redlock.acquire([key], TTL_MS);
    } catch (error) {
      if (error.name !== "ExecutionError") throw error;
      if (mode === "cycle") return null;
    }
  }
}

async function task(number, key, end, told) {
  for (let from = now(); from < end; from = now()) {
    const lock = await acquire(key);
    if (lock === null) {
      told.refused += 1;
      continue;
    }
    if (mode === "cycle") {
      await lock.release().catch(() => {});
      told.turns.push([number, from, now()]);
    } else {
      const had = now();
      await sleep(1);
      told.turns.push([number, had, now()]);
      await lock.release().catch(() => {});
    }
  }
}

async function serve(key, ms) {
  const told = { turns: [], refused: 0 };
  const before = process.cpuUsage();
  const end = now() + BigInt(ms) * 1_000_000n;
  const keyOf = (number) => (mode === "cycle" ? `${key}:${number}` : key);
  await Promise.all(Array.from({ length: Number(tasks) }, (_, number) => task(number, keyOf(number), end, told)));
  const { user, system } = process.cpuUsage(before);
  const lines = told.turns.map(([number, from, to]) => `turn ${number} ${from} ${to} true\n`);
  if (told.refused > 0) lines.push(`refused ${told.refused}\n`);
  process.stdout.write(`${lines.join("")}cpu ${user + system}\n`);
}

const version = (name) => JSON.parse(readFileSync(`${packages}${name}/package.json`)).version.replace("v", "");
await Promise.all(clients.map((client) => client.ping()));
console.log(`ready redlock ${version("redlock")}, ioredis ${version("ioredis")}, Node.js ${process.versions.node}`);
for await (const order of createInterface({ input: process.stdin })) {
  const [key, ms] = order.split(" ");
  await serve(key, ms);
}
process.exit(0);
