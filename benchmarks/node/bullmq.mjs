// BullMQ on Node, driven by benchmarks/adapters/redis/bullmq_node.py.
//
//   node bull.mjs send <url>                             a request per line of input, "done" per line of output
//   node bull.mjs work <url> <tally> <row> <room>        runs what arrives until it is killed
import readline from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { Queue, Worker } from "bullmq";
import { Redis } from "ioredis";
import { now, tally } from "./tally.mjs";

const CONCURRENCY = 100;
const AT_ONCE = 1000;
const FORGOTTEN = { removeOnComplete: true };
const [mode, url, ...rest] = process.argv.slice(2);
const connection = new Redis(url, { maxRetriesPerRequest: null });

async function send() {
  const queue = new Queue("bench", { connection });
  const add = (sent, text) => queue.add("noop", { sent, text }, FORGOTTEN);
  const each = async (jobs) => {
    for (let number = 0; number < jobs; number++) await add(0, "");
  };
  const requests = {
    each: ({ jobs }) => each(jobs),
    together: ({ jobs, producers }) =>
      Promise.all(Array.from({ length: producers }, () => each(Math.floor(jobs / producers)))),
    bulk: async ({ jobs, text }) => {
      const job = { name: "noop", data: { sent: 0, text }, opts: FORGOTTEN };
      for (let done = 0; done < jobs; done += AT_ONCE)
        await queue.addBulk(Array(Math.min(AT_ONCE, jobs - done)).fill(job));
    },
    paced: async ({ gaps }) => {
      let due = now();
      for (const gap of gaps) {
        due += gap;
        await sleep(Math.max(0, (due - now()) * 1000));
        await add(now(), "");
      }
    },
  };
  await queue.waitUntilReady();
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const request = JSON.parse(line);
    await requests[request.do](request);
    process.stdout.write("done\n");
  }
  process.exit(0);
}

function work() {
  const started = tally(rest[0], Number(rest[1]), Number(rest[2]));
  const noop = async (job) => started(job.data.sent);
  new Worker("bench", noop, { connection, concurrency: CONCURRENCY });
}

await { send, work }[mode]();
