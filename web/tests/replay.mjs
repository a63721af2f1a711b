// The module without a browser, in Node: one session against a real server, whose bytes are recorded, and then many against what
// becomes of the recording. Randomness and time are the test's, so the module says the same each time, and nothing waits.
//
//   node web/tests/replay.mjs faults PORT [EVERY]
//   node web/tests/replay.mjs fuzz PORT CASES [SEED]
//
// PORT: of a `jaguar serve` on this machine, of a small model. EVERY: of the faults that are not a closed connection, one in so many is
// tried (1: all). It ends with 1, and says which case and why, when the module panics, blames itself (`internal`), blames the wrong
// side, gives an answer that it should not, takes more memory or time than it may, or never ends.

import { readFileSync } from 'node:fs';
import net from 'node:net';
import { Worker, isMainThread, parentPort, workerData } from 'node:worker_threads';
import { gunzipSync } from 'node:zlib';

// Pages of 64 KiB that the module may have.
const MOST_PAGES = 4096;
// Bytes that a server sends to a client of this model, at most.
const MOST_BYTES = 1 << 26;
// Milliseconds of the test's clock after which a session that makes no progress must have ended, and seconds of the real one.
const MOST_TIME = 1.1e6, MOST_SECONDS = 60;
const GREETING = 52, HEAD = 5, DATA = 1, LIVES = 2, KEEP_ALIVE = Uint8Array.of(2, 0, 0, 0, 0);

// Numbers that look random, from a seed (xorshift, 32 bits).
function numbers(seed) {
  let x = (seed * 2654435761) >>> 0 || 1;
  return (below) => {
    x ^= x << 13; x >>>= 0;
    x ^= x >>> 17;
    x ^= x << 5; x >>>= 0;
    return below === undefined ? x : x % below;
  };
}

const compiled = isMainThread && await WebAssembly.compile(gunzipSync(readFileSync(new URL('../client/jaguar_web.wasm.gz', import.meta.url))));

// An instance of the module. What its server does is set for each session.
class Instance {
  static async make() {
    const made = new Instance();
    const memory = new WebAssembly.Memory({ initial: 64, maximum: MOST_PAGES, shared: true });
    const view = (at, len) => new Uint8Array(memory.buffer, at, len);
    const jaguar = {
      now: () => (made.clock += 0.001),
      random(to, len) {
        const into = view(to, len);
        for (let i = 0; i < len; i += 1) into[i] = made.draw() >>> 24;
      },
      read: (to, len, milliseconds) => made.server.read(view(to, len), milliseconds, made),
      write: (from, len) => made.server.write(view(from, len).slice(), made),
      close: () => {},
      kept: () => (made.file ? 1 : 0),
      kept_read(at, to, len) {
        const there = made.file.subarray(at, at + len);
        view(to, len).set(there);
        return there.length === len ? 1 : 0;
      },
      kept_write(at, from, len) {
        const grown = new Uint8Array(Math.max(made.file.length, at + len));
        grown.set(made.file);
        grown.set(view(from, len), at);
        made.file = grown;
        return 1;
      },
      kept_cut(len) {
        made.file = made.file.slice(0, len);
        return 1;
      },
      kept_remove: () => { made.file = new Uint8Array(0); },
      tell(from, len) {
        const told = JSON.parse(new TextDecoder().decode(view(from, len).slice()));
        if (told.event === 'panic') made.panic = told.text;
        else made.told = told;
      },
    };
    ({ exports: made.exports } = await WebAssembly.instantiate(compiled, { jaguar, env: { memory } }));
    made.memory = memory;
    made.call('begin', 1);
    return made;
  }

  put(bytes) {
    const at = this.exports.room(bytes.length);
    new Uint8Array(this.memory.buffer, at, bytes.length).set(bytes);
    return [at, bytes.length];
  }

  call(name, ...args) {
    this.told = this.panic = null;
    this.exports[name](...args);
    if (this.told.event === 'failed') throw Object.assign(new Error(this.told.failure.text), { kind: this.told.failure.kind });
    return this.told.value;
  }

  // A session with a server, and a question or two: what came of it. `file`: where the hint is kept.
  session(server, { file = null, seed = 1, answers = 2 } = {}) {
    Object.assign(this, { server, file, draw: numbers(seed), clock: 0 });
    const started = performance.now(), result = { answers: [] };
    try {
      this.model = this.call('connect', ...this.put(new TextEncoder().encode(JSON.stringify({ url: 'ws://recorded/', wait: 60 }))));
      const [, rows, columns] = this.model.shape;
      const pixels = Uint8Array.from({ length: 4 * rows * columns }, (_, i) => (37 * i) % 251);
      for (let number = 0; number < answers; number += 1) {
        this.call('prepare');
        result.answers.push(this.call('predict', ...this.put(pixels), columns, rows).logits);
      }
    } catch (error) {
      result.kind = this.panic || !error.kind ? 'PANIC' : error.kind;
      result.text = this.panic ?? error.message;
    }
    return { ...result, clock: this.clock, seconds: (performance.now() - started) / 1e3, pages: this.memory.buffer.byteLength >> 16 };
  }
}

// A server beyond a socket: reads block this thread until another one has bytes.
function beyond(port) {
  const shared = new SharedArrayBuffer(8 + MOST_BYTES), at = new Int32Array(shared, 0, 2), bytes = new Uint8Array(shared, 8);
  const worker = new Worker(new URL(import.meta.url), { workerData: { port, shared } });
  let read = 0;
  const marks = [];
  return {
    marks,
    recorded: () => bytes.slice(0, read),
    end: () => worker.terminate(),
    read(into, milliseconds) {
      Atomics.wait(at, 0, read, milliseconds);
      const n = Math.min(into.length, Atomics.load(at, 0) - read);
      if (n === 0) return Atomics.load(at, 1) ? 0 : -1;
      into.set(bytes.subarray(read, read + n));
      read += n;
      return n;
    },
    write(frame) {
      marks.push(read);
      worker.postMessage(frame);
      return 1;
    },
  };
}

if (!isMainThread) {
  const { port, shared } = workerData;
  const at = new Int32Array(shared, 0, 2), bytes = new Uint8Array(shared, 8);
  const socket = net.connect(port, '127.0.0.1');
  socket.on('data', (data) => {
    bytes.set(data, at[0]);
    Atomics.add(at, 0, data.length);
    Atomics.notify(at, 0);
  });
  socket.on('close', () => { Atomics.store(at, 1, 1); Atomics.notify(at, 0); });
  socket.on('error', () => {});
  parentPort.on('message', (frame) => socket.write(frame));
}

// A server that says `bytes`, and then closes, is silent, or only lives. Writes after the first `writes` find the connection closed.
function recording(bytes, { then = 'close', writes = Infinity } = {}) {
  let at = 0, left = writes, alive = 0;
  return {
    read(into, milliseconds, instance) {
      if (at === bytes.length && then === 'alive' && left > 0) {
        // (A second passes before the first byte of a sign of life.)
        if (alive % HEAD === 0 && milliseconds < 1000) {
          instance.clock += milliseconds + 0.01;
          return -1;
        }
        if (alive % HEAD === 0) instance.clock += 1000;
        into[0] = KEEP_ALIVE[alive++ % HEAD];
      } else if (at === bytes.length && then === 'silence' && left > 0) {
        instance.clock += milliseconds + 0.01;
        if (instance.clock > MOST_TIME) throw new Error('it waits for ever');
        return -1;
      } else if (at === bytes.length || left === 0) {
        return 0;
      } else {
        const n = Math.min(into.length, bytes.length - at);
        into.set(bytes.subarray(at, at + n));
        at += n;
        return n;
      }
      if (instance.clock > MOST_TIME) throw new Error('it waits for ever');
      return 1;
    },
    write() {
      if (left > 0) left -= 1;
      return left > 0 ? 1 : 0;
    },
  };
}

// The greeting and the frames, as places: where each begins, and the end.
function places(bytes) {
  const found = [0, GREETING];
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  while (found.at(-1) < bytes.length) found.push(found.at(-1) + HEAD + view.getUint32(found.at(-1) + 1, true));
  if (found.at(-1) !== bytes.length) throw new Error('the recording does not end with a frame');
  return found;
}

// Without signs of life, which come when they want, and as the frames that say something: greeting first.
function told(bytes) {
  const at = places(bytes);
  return at.slice(0, -1).map((start, i) => bytes.slice(start, at[i + 1])).filter((part, i) => i === 0 || part[0] !== LIVES);
}

function joined(parts) {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  parts.reduce((at, part) => { whole.set(part, at); return at + part.length; }, 0);
  return whole;
}

// A frame of data.
function framed(data) {
  const head = new Uint8Array(HEAD);
  head[0] = DATA;
  new DataView(head.buffer).setUint32(1, data.length, true);
  return joined([head, data]);
}

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

// Runs cases, and finds what must not be in what comes of them.
class Judge {
  cases = 0;
  kinds = {};
  slowest = 0;
  pages = 0;

  static async make(port) {
    const judge = new Judge();
    judge.instance = await Instance.make();
    const server = beyond(port);
    judge.sound = judge.instance.session(server);
    await server.end();
    if (judge.sound.kind) throw new Error(`the recorded session fails: ${judge.sound.kind}: ${judge.sound.text}`);
    judge.parts = told(server.recorded());
    judge.writes = server.marks.length;
    // The same again, with a file for the hint: the first fetches it, the second has it.
    judge.file = new Uint8Array(0);
    for (const turn of ['fetching', 'fetched']) {
      const server = beyond(port);
      const came = judge.instance.session(server, { file: judge.file });
      await server.end();
      if (!same(came.answers, judge.sound.answers) && came.kind) throw new Error(`${turn}: ${came.kind}: ${came.text}`);
      judge.file = judge.instance.file;
      judge.kept = told(server.recorded());
    }
    return judge;
  }

  // Wants `check(result)` to say nothing.
  async judge(name, server, check, options = {}) {
    const result = this.instance.session(server, options);
    this.cases += 1;
    const kind = result.kind ?? 'answer';
    this.kinds[kind] = (this.kinds[kind] ?? 0) + 1;
    this.slowest = Math.max(this.slowest, result.seconds);
    this.pages = Math.max(this.pages, result.pages);
    const wrong = ['PANIC', 'internal', 'memory'].includes(kind) || result.seconds > MOST_SECONDS ? 'it must not' : check(result);
    if (wrong) {
      process.exitCode = 1;
      console.log(`${name}: ${wrong}: ${kind}: ${result.text ?? same(result.answers, this.sound.answers)} (${result.seconds.toFixed(1)} s)`);
    }
    if (kind === 'PANIC') this.instance = await Instance.make();
  }

  // As `judge`, for one of so many.
  async sample(every, name, server, check) {
    this.turn = (this.turn ?? 0) + 1;
    if (this.turn % every === 0) await this.judge(name, server(), check);
  }

  close() {
    const kinds = Object.entries(this.kinds).map(([kind, n]) => `${n} ${kind}`).join(', ');
    console.log(`${this.cases} cases: ${kinds}; the slowest took ${this.slowest.toFixed(2)} s; ${this.pages} pages of memory`);
  }
}

const lost = ({ kind, answers }, whole) => (kind !== 'connection' ? 'not the connection is blamed' : answers.length > whole ? 'an answer too many' : '');
// A peer that breaks the protocol may be understood, as one that gave up or that is busy, too.
const blames = ({ kind }) => (kind === undefined || ['peer', 'connection', 'aborted', 'busy'].includes(kind) ? '' : 'the server is not blamed');

async function faults(port, every) {
  const judge = await Judge.make(port);
  const { parts, sound } = judge, whole = joined(parts), at = [0];
  for (const part of parts) at.push(at.at(-1) + part.length);
  const right = ({ answers }) => (same(answers, sound.answers) ? '' : 'another answer');
  // Nothing but a sound session gives the second answer.
  const one = (result) => lost(result, 1);
  await judge.judge('as recorded', recording(whole), right);
  console.log(`a session of ${parts.length - 1} messages of the server's, ${whole.length} bytes, ${judge.writes} of the client's`);
  for (let i = 0; i < parts.length; i += 1) {
    const [start, end] = [at[i], at[i + 1]], middle = (start + end) >> 1, data = parts[i].slice(HEAD);
    await judge.judge(`closed before message ${i}`, recording(whole.subarray(0, start)), one);
    await judge.judge(`closed in message ${i}`, recording(whole.subarray(0, [middle, start + 3, end - 1][i % 3])), one);
    const sample = (name, server, check) => judge.sample(every, name.replace('#', `message ${i}`), server, check);
    const instead = (change) => () => recording(joined(parts.flatMap((part, j) => (j === i ? change(part) : [part]))));
    const flipped = (byte, bit) => () => recording(whole.map((b, j) => (j === byte ? b ^ (1 << bit) : b)));
    await sample('silence before #', () => recording(whole.subarray(0, start), { then: 'silence' }), one);
    await sample('silence in #', () => recording(whole.subarray(0, middle), { then: 'silence' }), one);
    if (i > 0) await sample('nothing but signs of life before #', () => recording(whole.subarray(0, start), { then: 'alive' }), one);
    await sample('# twice', instead((part) => [part, part]), blames);
    await sample('# left out', instead(() => []), blames);
    await sample('garbage for #', instead((part) => [part.map((_, j) => (j * 73 + i) & 255)]), blames);
    for (const kind of [0, 2, 3, 4, 5, 255]) {
      await sample(`# of kind ${kind}`, instead((part) => [part.map((byte, j) => (j === 0 ? kind : byte))]), blames);
    }
    await sample('# of all bytes that a length can say', instead((part) => [part.map((byte, j) => (j > 0 && j < 5 ? 255 : byte))]), blames);
    if (i > 0) {
      await sample('# cut by half', instead(() => [framed(data.subarray(0, data.length >> 1))]), blames);
      await sample('# of other bytes', instead(() => [framed(data.map((_, j) => (j * 73 + i) & 255))]), blames);
      await sample('signs of life around #', instead((part) => [KEEP_ALIVE, part, KEEP_ALIVE]), right);
    }
    for (const bit of [0, 7]) await sample(`bit ${bit} of a byte in # flipped`, flipped((middle + end) >> 1, bit), blames);
  }
  // What the server names: a protocol, backends, comparisons.
  const text = Buffer.from(whole).toString('latin1');
  for (const { index } of text.matchAll(/[a-z]{6,}/g)) {
    if (index < parts[0].length || index > at[4]) continue;
    await judge.judge(`another letter in the name at byte ${index}`, recording(whole.map((b, j) => (j === index + 3 ? b ^ 1 : b))), blames);
  }
  for (let i = 0; i < judge.writes; i += 1) {
    await judge.judge(`closed before the client's message ${i}`, recording(whole, { writes: i }), one);
  }
  judge.close();
}

// Some changes to the bytes, of framed data (`framing` is left as it is then) or of all bytes.
function changed(parts, draw, framing) {
  const out = parts.map((part) => part.slice());
  const skip = framing ? HEAD : 0;
  for (let changes = 1 + draw(6); changes > 0; changes -= 1) {
    // (The first messages have the most to parse.)
    const i = draw(2) ? Math.min(draw(6), out.length - 1) : draw(out.length);
    const part = out[i];
    if (part.length <= skip) continue;
    const at = skip + draw(part.length - skip), many = 1 + draw(16);
    switch (draw(framing ? 5 : 7)) {
      case 0: part[at] ^= 1 << draw(8); break;
      case 1: part[at] = [0, 1, 127, 128, 255][draw(5)]; break;
      case 2: part.fill([0, 255, draw(256)][draw(3)], at, at + many); break;
      case 3: for (let j = at; j < Math.min(at + many, part.length); j += 1) part[j] = draw(256); break;
      case 4: part.copyWithin(at, skip + draw(part.length - skip), at + many); break;
      case 5: out[i] = joined([part.subarray(0, at), part.subarray(at + many)]); break;
      case 6: out[i] = joined([part.subarray(0, at), part.subarray(0, many), part.subarray(at)]); break;
    }
  }
  return out;
}

async function fuzz(port, cases, seed) {
  const judge = await Judge.make(port);
  for (let number = 0; number < cases; number += 1) {
    const draw = numbers(seed + number);
    const what = ['data', 'bytes', 'file'][draw(3)];
    const options = { answers: 1 };
    let server = null;
    if (what === 'file') {
      // The file of the hint is changed too; a server that was not asked for a hint sends none.
      const [file] = changed([judge.file], draw, false);
      options.file = draw(4) ? file : file.slice(0, draw(file.length));
      server = recording(joined(draw(2) ? judge.kept : judge.parts));
    } else {
      server = recording(joined(changed(draw(2) ? judge.kept : judge.parts, draw, what === 'data')));
      if (draw(2)) options.file = judge.file;
    }
    await judge.judge(`case ${number} of seed ${seed} (${what})`, server, blames, options);
  }
  judge.close();
}

if (isMainThread) {
  const [what, port, number, seed] = process.argv.slice(2);
  if (what === 'faults') await faults(Number(port), Number(number ?? 1));
  else await fuzz(Number(port), Number(number), Number(seed ?? 1));
}
