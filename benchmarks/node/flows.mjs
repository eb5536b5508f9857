// BullMQ's flows on Node, driven by benchmarks/adapters/redis/bullmq_flows.py.
//
//   node flows.mjs send <url>                        a request per line of input, its answer per line of output
//   node flows.mjs work <url> <tally> <row> <room>   runs what arrives until it is killed
import readline from "node:readline";
import { FlowProducer, Queue, QueueEvents, Worker } from "bullmq";
import { Redis } from "ioredis";
import { tally } from "./tally.mjs";

const CONCURRENCY = 100;
const AT_ONCE = 100;
const [mode, url, ...rest] = process.argv.slice(2);
const connection = new Redis(url, { maxRetriesPerRequest: null });
const flows = new FlowProducer({ connection });
let number = 0;

const job = (name, data, children, opts = {}) => ({
  name,
  queueName: "bench",
  data,
  opts: { removeOnComplete: true, ...opts },
  children,
});

// The last step is the root: a parent runs when its children are done.
const chain = (steps, opts) =>
  steps === 1 ? job("step", { first: true }, undefined, opts) : job("step", {}, [chain(steps - 1)], opts);

async function send() {
  const queue = new Queue("bench", { connection });
  const events = new QueueEvents("bench", { connection: connection.duplicate() });
  const waiting = new Map();
  events.on("completed", ({ jobId, returnvalue }) => {
    waiting.get(jobId)?.(returnvalue);
    waiting.delete(jobId);
  });
  events.on("failed", ({ failedReason }) => {
    console.error(failedReason);
    process.exit(1);
  });
  const ended = async (add) => {
    const jobId = `last-${number++}`;
    const result = new Promise((resolve) => waiting.set(jobId, resolve));
    await add(jobId);
    return result;
  };
  const requests = {
    chains: async ({ chains, steps }) => {
      for (let done = 0; done < chains; done += AT_ONCE)
        await flows.addBulk(Array.from({ length: Math.min(AT_ONCE, chains - done) }, () => chain(steps)));
      return "done";
    },
    chain: ({ steps }) => ended((jobId) => flows.add(chain(steps, { jobId }))),
    fanOut: ({ width }) =>
      ended((jobId) => queue.add("split", { width, last: jobId }, { removeOnComplete: true })),
  };
  await Promise.all([queue.waitUntilReady(), events.waitUntilReady()]);
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const request = JSON.parse(line);
    process.stdout.write(`${await requests[request.do](request)}\n`);
  }
  process.exit(0);
}

function work() {
  const started = tally(rest[0], Number(rest[1]), Number(rest[2]));
  const values = async (job) => Object.values(await job.getChildrenValues());
  const handlers = {
    step: async (job) => (job.data.first ? 0 : (await values(job))[0]) + 1,
    split: async ({ data: { width, last } }) => {
      const pieces = Array.from({ length: width }, (_, item) => job("piece", { item }));
      await flows.add(job("join", {}, pieces, { jobId: last }));
    },
    piece: async (job) => job.data.item,
    join: async (job) => (await values(job)).length,
  };
  const run = async (job) => {
    started(0);
    return handlers[job.name](job);
  };
  new Worker("bench", run, { connection, concurrency: CONCURRENCY });
}

await { send, work }[mode]();
