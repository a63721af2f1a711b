// The worker that computes: the WebAssembly module, whose calls block. What it reads comes out of shared memory, and what it writes
// goes to the worker with the WebSocket.

import * as hints from './hints.js';
import { starter } from './platform.js';
import { HEAD, TAIL, ENDED, FULL, RING, bytesOf, fault, indices, random, ring } from './shared.js';

// Bytes of a thread's stack.
const STACK = 1 << 21;

let call = null;

starter.hear(({ data }) => {
  if (data.module) {
    start(data).then((threads) => starter.tell({ event: 'started', threads }), (error) => starter.tell(fault(error)));
  } else {
    call(data);
  }
});

// Says where the stacks of `threads` threads begin, and where their own variables lie.
async function start({ module, memory, threads, shared, port, keep }) {
  const at = indices(shared), bytes = ring(shared);
  const decoder = new TextDecoder();
  let panic = '', model = null, file = null;
  const jaguar = {
    ...hints.imports(memory, () => file),
    now: () => performance.now(),
    random: (to, len) => random(memory, to, len),
    read(to, len, milliseconds) {
      const tail = Atomics.load(at, TAIL);
      let there = (Atomics.load(at, HEAD) - tail) >>> 0;
      if (there === 0) {
        if (!Atomics.load(at, ENDED)) Atomics.wait(at, HEAD, tail, milliseconds);
        there = (Atomics.load(at, HEAD) - tail) >>> 0;
        if (there === 0) return Atomics.load(at, ENDED) ? 0 : -1;
      }
      const n = Math.min(len, there), start = (tail >>> 0) % RING, first = Math.min(n, RING - start);
      const into = new Uint8Array(memory.buffer, to, n);
      into.set(bytes.subarray(start, start + first));
      into.set(bytes.subarray(0, n - first), first);
      Atomics.store(at, TAIL, (tail + n) | 0);
      if (Atomics.exchange(at, FULL, 0)) port.postMessage('room');
      return n;
    },
    write(from, len) {
      if (Atomics.load(at, ENDED)) return 0;
      const frame = bytesOf(memory, from, len);
      port.postMessage(frame, [frame.buffer]);
      return 1;
    },
    close: () => port.postMessage('close'),
    tell(from, len) {
      const told = JSON.parse(decoder.decode(bytesOf(memory, from, len)));
      if (told.event === 'done' && told.value?.id) model = told.value;
      if (told.event === 'panic') panic = told.text;
      else starter.tell(told.event === 'done' ? { ...told, memory: memory.buffer.byteLength } : told);
    },
  };
  const { exports } = await WebAssembly.instantiate(module, { jaguar, env: { memory } });
  const { room, begin, connect, prepare, predict } = exports;
  const put = (data) => {
    const to = room(data.length);
    new Uint8Array(memory.buffer, to, data.length).set(data);
    return [to, data.length];
  };
  const calls = {
    begin: () => begin(threads),
    connect: ({ wishes }) => connect(...put(new TextEncoder().encode(JSON.stringify(wishes)))),
    prepare: () => prepare(),
    predict: ({ pixels, width, height }) => predict(...put(pixels), width, height),
  };
  call = async (data) => {
    try {
      // (The module's calls do not wait, so the file must be open before it is needed: by the first call that knows the model.)
      if (model && keep > 0) file = await hints.open(model.id, model.hint_bytes, keep);
      model = null;
      calls[data.call](data);
    } catch (error) {
      starter.tell(panic ? { event: 'failed', failure: { kind: 'internal', text: panic } } : fault(error));
    }
  };
  const size = exports.__tls_size.value, unit = Math.max(16, exports.__tls_align.value);
  const up = (place) => Math.ceil(place / unit) * unit;
  return Array.from({ length: threads > 1 ? threads : 0 }, () => {
    const local = up(room(up(size) + STACK + 2 * unit));
    return { local, stack: up(local + size) + STACK };
  });
}
