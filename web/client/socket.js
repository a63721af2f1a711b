// The worker that owns the WebSocket: it goes on while the other one computes. What comes is put into a ring in shared memory, from
// which the other worker reads; what that one sends comes as messages.

import { starter } from './platform.js';
import { HEAD, TAIL, ENDED, FULL, RING, SENT, RECEIVED, figures, indices, ring } from './shared.js';

// As `KEEP_ALIVE` in crates/wire/src/unthreaded.rs: after the greeting, whenever nothing else was sent for a second.
const KEEP_ALIVE = Uint8Array.of(2, 0, 0, 0, 0);
const SECOND = 1000;

// Bytes that may wait here because the other worker does not read. A server that sends more is given up.
const MOST_WAITING = 1 << 29;

// Bytes of what was sent that are shown, at most.
const SHOWN = 1 << 14;

starter.hear(({ data: { url, shared, port } }) => {
  const at = indices(shared), count = figures(shared), bytes = ring(shared);
  let waiting = [], held = 0, sent = 0, greeted = false, failure = '';

  const socket = new WebSocket(url, 'jaguar');
  socket.binaryType = 'arraybuffer';

  const end = (text) => {
    if (Atomics.load(at, ENDED)) return;
    flow();
    // (What is still waiting for room is read before the end: `flow` ends it then.)
    failure = text;
    if (waiting.length === 0) finish();
    clearInterval(alive);
    socket.close();
  };
  const finish = () => {
    Atomics.store(at, ENDED, 1);
    Atomics.notify(at, HEAD);
    starter.tell({ event: 'ended', text: failure });
  };
  // Puts what waits into the ring, as far as there is room.
  const flow = () => {
    while (waiting.length > 0) {
      const head = Atomics.load(at, HEAD), room = RING - ((head - Atomics.load(at, TAIL)) >>> 0);
      if (room === 0) {
        Atomics.store(at, FULL, 1);
        // (It may have read everything in between.)
        if (((head - Atomics.load(at, TAIL)) >>> 0) === RING) return;
        continue;
      }
      const part = waiting[0].subarray(0, room), start = (head >>> 0) % RING;
      const first = part.subarray(0, RING - start);
      bytes.set(first, start);
      bytes.set(part.subarray(first.length), 0);
      waiting[0] = waiting[0].subarray(part.length);
      held -= part.length;
      if (waiting[0].length === 0) waiting.shift();
      Atomics.store(at, HEAD, (head + part.length) | 0);
      Atomics.notify(at, HEAD);
    }
    if (failure && !Atomics.load(at, ENDED)) finish();
  };
  const send = (frame) => {
    if (socket.readyState !== WebSocket.OPEN) return;
    socket.send(frame);
    count[SENT] += frame.length;
    sent = performance.now();
  };
  const alive = setInterval(() => {
    if (greeted && performance.now() - sent >= SECOND) send(KEEP_ALIVE);
  }, SECOND / 4);

  port.onmessage = ({ data }) => {
    if (data === 'room') return flow();
    if (data === 'close') return end('this side has closed the connection');
    send(data);
    greeted = true;
    // A look at what the server gets.
    if (data.length > 5) starter.tell({ event: 'sent', bytes: data.slice(5, 5 + SHOWN) });
  };
  let open = false;
  socket.onopen = () => { open = true; starter.tell({ event: 'open' }); };
  socket.onmessage = ({ data }) => {
    if (typeof data === 'string') return end('the server sent text');
    count[RECEIVED] += data.byteLength;
    held += data.byteLength;
    if (held > MOST_WAITING) return end('the server sent more than can be kept');
    waiting.push(new Uint8Array(data));
    flow();
  };
  // (Node tells of an error alone where no connection came to be.)
  socket.onclose = socket.onerror = () =>
    end(open ? 'the connection was lost' : 'no connection: the server does not run there, or does not let this page in');
});
