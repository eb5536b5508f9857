// The same row as benchmarks/start_log.py writes. Node has no shared memory with a file: what changed is written
// a few milliseconds later, with the times at which it happened.
import fs from "node:fs";

// The machine's monotonic clock in seconds, as Python's time.monotonic reads it.
export const now = () => Number(process.hrtime.bigint()) / 1e9;

export function tally(path, row, room) {
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
  return (sent) => {
    const started = now();
    if (!kept[COUNT]) kept[FIRST] = started;
    if (kept[COUNT] < room) kept[HEAD + kept[COUNT]] = started - sent;
    kept[LAST] = started;
    kept[COUNT] += 1;
    if (!waiting) {
      waiting = true;
      setTimeout(write, 5);
    }
  };
}
