// The worker that computes: the WebAssembly module, whose calls block. What it reads comes out of shared memory, and what it writes
// goes to the worker with the WebSocket.

import { HEAD, TAIL, ENDED, FULL, RING, indices, ring } from './shared.js';

let call = null;

onmessage = async ({ data }) => {
  if (data.module) {
    start(data).then(() => postMessage({ event: 'started' }), (error) => postMessage(fault(error)));
  } else {
    call(data);
  }
};

const fault = (error) => {
  // (A module that gets no memory ends itself, without a word.)
  const memory = error instanceof RangeError || /memory|allocation/i.test(String(error?.message));
  return { event: 'failed', failure: { kind: memory ? 'memory' : 'internal', text: String(error?.message ?? error) } };
};

async function start({ module, shared, port }) {
  const at = indices(shared), bytes = ring(shared);
  const decoder = new TextDecoder();
  let panic = '';
  const memory = () => instance.exports.memory.buffer;
  const jaguar = {
    now: () => performance.now(),
    random(to, len) {
      // (No more than 65,536 at once, and not into memory that others could share.)
      for (let done = 0; done < len; done += 65536) {
        crypto.getRandomValues(new Uint8Array(memory(), to + done, Math.min(65536, len - done)));
      }
    },
    read(to, len, milliseconds) {
      const tail = Atomics.load(at, TAIL);
      let there = (Atomics.load(at, HEAD) - tail) >>> 0;
      if (there === 0) {
        if (!Atomics.load(at, ENDED)) Atomics.wait(at, HEAD, tail, milliseconds);
        there = (Atomics.load(at, HEAD) - tail) >>> 0;
        if (there === 0) return Atomics.load(at, ENDED) ? 0 : -1;
      }
      const n = Math.min(len, there), start = (tail >>> 0) % RING, first = Math.min(n, RING - start);
      const into = new Uint8Array(memory(), to, n);
      into.set(bytes.subarray(start, start + first));
      into.set(bytes.subarray(0, n - first), first);
      Atomics.store(at, TAIL, (tail + n) | 0);
      if (Atomics.exchange(at, FULL, 0)) port.postMessage('room');
      return n;
    },
    write(from, len) {
      if (Atomics.load(at, ENDED)) return 0;
      const frame = new Uint8Array(memory()).slice(from, from + len);
      port.postMessage(frame, [frame.buffer]);
      return 1;
    },
    close: () => port.postMessage('close'),
    tell(from, len) {
      const told = JSON.parse(decoder.decode(new Uint8Array(memory(), from, len)));
      if (told.event === 'panic') panic = told.text;
      else postMessage(told.event === 'done' ? { ...told, memory: memory().byteLength } : told);
    },
  };
  const instance = await WebAssembly.instantiate(module, { jaguar });
  const { room, connect, prepare, predict } = instance.exports;
  const put = (data) => {
    const to = room(data.length);
    new Uint8Array(memory(), to, data.length).set(data);
    return [to, data.length];
  };
  const calls = {
    connect: ({ wishes }) => connect(...put(new TextEncoder().encode(JSON.stringify(wishes)))),
    prepare: () => prepare(),
    predict: ({ pixels, width, height }) => predict(...put(pixels), width, height),
  };
  call = (data) => {
    try {
      calls[data.call](data);
    } catch (error) {
      postMessage(panic ? { event: 'failed', failure: { kind: 'internal', text: panic } } : fault(error));
    }
  };
}
