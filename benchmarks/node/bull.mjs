// BullMQ on Node, driven by benchmarks/adapters/redis/bullmq_node.py.
//
//   node bull.mjs send <url>                             a request per line of input, "done" per line of output
//   node bull.mjs work <url> <tally> <row> <room>        runs what arrives until it is killed
import fs from "node:fs";
import readline from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { Queue, Worker } from "bullmq";
import { Redis } from "ioredis";

const CONCURRENCY = 100;
const AT_ONCE = 1000;
const FORGOTTEN = { removeOnComplete: true };
const [mode, url, ...rest] = process.argv.slice(2);
const connection = new Redis(url, { maxRetriesPerRequest: null });

// The machine's monotonic clock in seconds, as Python's time.monotonic reads it.
const now = () => Number(process.hrtime.bigint()) / 1e9;

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

// The same row as benchmarks/tally.py writes. Node has no shared memory with a file: what changed is written
// a few milliseconds later, with the times at which it happened.
function work() {
  const [path, row, room] = [rest[0], Number(rest[1]), Number(rest[2])];
  const [COUNT, FIRST, LAST, HEAD] = [0, 1, 2, 3];
  const file = fs.openSync(path, "r+");
  const kept = new Float64Array(HEAD + room);
  let waiting = false;
  const write = () => {
    waiting = false;
    const [start, count] = [row * kept.byteLength, kept.BYTES_PER_ELEMENT];
    // The count last: whoever reads it must find the rest.
    fs.writeSync(file, kept, count, kept.byteLength - count, start + count);
    fs.writeSync(file, kept, 0, count, start);
  };
  const noop = async (job) => {
    const started = now();
    if (!kept[COUNT]) kept[FIRST] = started;
    if (kept[COUNT] < room) kept[HEAD + kept[COUNT]] = started - job.data.sent;
    kept[LAST] = started;
    kept[COUNT] += 1;
    if (!waiting) {
      waiting = true;
      setTimeout(write, 5);
    }
  };
  new Worker("bench", noop, { connection, concurrency: CONCURRENCY });
}

await { send, work }[mode]();
