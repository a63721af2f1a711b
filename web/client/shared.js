// The memory that the workers and the page share: a ring of bytes that have come, and figures; and the module's own.

export const RING = 1 << 22;

// Places of 32-bit numbers: bytes ever put in and taken out (modulo 2^32), whether the connection has ended, and whether there was no room.
export const HEAD = 0, TAIL = 1, ENDED = 2, FULL = 3;

// Places of 64-bit floats: bytes ever sent and received.
export const SENT = 2, RECEIVED = 3;

const START = 64;

export const allocate = () => new SharedArrayBuffer(START + RING);
export const indices = (shared) => new Int32Array(shared, 0, 4);
export const figures = (shared) => new Float64Array(shared, 0, 4);
export const ring = (shared) => new Uint8Array(shared, START, RING);

// The module's memory, in pages of 64 KiB: as web/build.sh says.
export const newMemory = () => new WebAssembly.Memory({ initial: 64, maximum: 32768, shared: true });

// Bytes of the module's memory. (Browsers' own functions take none of shared memory, so this is a copy.)
export const bytesOf = (memory, from, len) => new Uint8Array(memory.buffer).slice(from, from + len);

// Fills bytes of the module's memory with randomness, no more than 65,536 at once.
export function random(memory, to, len) {
  for (let done = 0; done < len; done += 65536) {
    const drawn = crypto.getRandomValues(new Uint8Array(Math.min(65536, len - done)));
    new Uint8Array(memory.buffer, to + done, drawn.length).set(drawn);
    drawn.fill(0);
  }
}

// What became of a call that JavaScript ended. (A module that gets no memory ends itself, without a word.)
export function fault(error) {
  const memory = error instanceof RangeError || /memory|allocation/i.test(String(error?.message));
  return { event: 'failed', failure: { kind: memory ? 'memory' : 'internal', text: String(error?.message ?? error) } };
}
