// A client of private predictions, in browsers and in Node. Nothing is loaded but the files beside this one.
//
//   import { Client } from './jaguar.js';
//   const client = await Client.connect('wss://clinic.example/', { token });
//   await client.prepare();                        // before there is a picture
//   const { top, logits } = await client.predict(await createImageBitmap(file));
//
// Types and their meaning: jaguar.d.ts.

import * as hints from './hints.js';
import { cores, file, missing, pixelsOf, shown, startWorker } from './platform.js';
import { SENT, RECEIVED, allocate, bytesOf, figures, newMemory } from './shared.js';

// Threads that compute where nobody says how many: more bring little, and each holds some MB.
const THREADS = Math.min(8, cores);

// Bytes of kept hints, if nobody says how many: those of several networks.
const KEPT_BYTES = 1 << 28;

export class JaguarError extends Error {
  constructor(kind, text) {
    super(text);
    this.name = 'JaguarError';
    this.kind = kind;
  }
}

let loaded = null;

// The module, fetched and compiled once. It is stored compressed.
function load() {
  loaded ??= (async () => {
    const answer = await file('./jaguar_web.wasm.gz');
    if (!answer.ok) throw new JaguarError('connection', `the program cannot be loaded: HTTP ${answer.status}`);
    const body = answer.body.pipeThrough(new DecompressionStream('gzip'));
    return WebAssembly.compileStreaming(new Response(body, { headers: { 'Content-Type': 'application/wasm' } }));
  })();
  loaded.catch(() => { loaded = null; });
  return loaded;
}

// An instance for what needs no connection.
let eye = null;
async function looker() {
  const none = () => 0, memory = newMemory();
  let told = null;
  const jaguar = {
    ...hints.imports(memory, none), now: () => performance.now(), random: none, read: none, write: none, close: none,
    tell: (from, len) => { told = JSON.parse(new TextDecoder().decode(bytesOf(memory, from, len))); },
  };
  const { exports } = await WebAssembly.instantiate(await load(), { jaguar, env: { memory } });
  const { room, look, give_back } = exports;
  const put = (data) => {
    const to = room(data.length);
    new Uint8Array(memory.buffer, to, data.length).set(data);
    return [to, data.length];
  };
  return ({ data, width, height }, { image, shape }) => {
    const text = new TextEncoder().encode(JSON.stringify({ image, shape }));
    const pixels = put(data);
    const at = look(...pixels, width, height, ...put(text));
    if (at === 0) throw new JaguarError(told.failure.kind, told.failure.text);
    const [, rows, columns] = shape;
    const seen = new Uint8ClampedArray(bytesOf(memory, at, rows * columns * 4).buffer);
    give_back(at, seen.length);
    return shown(seen, columns, rows);
  };
}

// The pixels of a picture, four bytes each, of which there are as many as it says.
async function checkedPixels(picture) {
  const pixels = await pixelsOf(picture);
  if (!pixels) throw new JaguarError('input', 'this is no picture that can be read here');
  const { data, width, height } = pixels;
  if (!Number.isInteger(width) || !Number.isInteger(height) || width < 1 || height < 1 || data.byteLength !== 4 * width * height) {
    throw new JaguarError('input', `a picture of ${width} x ${height} pixels does not have ${data.byteLength} bytes, but four for a pixel`);
  }
  return { data: new Uint8Array(data.buffer, data.byteOffset, data.byteLength), width, height };
}

export class Client extends EventTarget {
  #session;
  #socket;
  #threads = [];
  #figures;
  #pending = null;
  #last = Promise.resolve();
  #why = null;

  static async connect(url, options = {}) {
    const { token = '', model = null, wait = 0, threads = THREADS, hints: place = 'none', hintBytes = KEPT_BYTES, signal = null,
      onqueued = null } = options;
    if (place !== 'none' && place !== 'keep') throw new JaguarError('input', `hints are "none" or "keep", not "${place}"`);
    const lacks = missing();
    if (lacks) throw new JaguarError('unsupported', lacks);
    signal?.throwIfAborted();
    const client = new Client();
    if (onqueued) client.addEventListener('queued', onqueued);
    await client.#until(signal, client.#open(String(url), threads, place === 'keep' ? hintBytes : 0, { token, model, wait }));
    return client;
  }

  // Removes the hints that were kept, but those of sessions that are open. Says how many those are.
  static forgetHints() {
    return hints.forget();
  }

  async #open(url, threads, keep, { token, model, wait }) {
    const module = await load();
    const shared = allocate(), { port1, port2 } = new MessageChannel();
    this.#figures = figures(shared);
    this.#socket = startWorker('./socket.js');
    const open = new Promise((resolve, reject) => {
      this.#socket.onmessage = ({ data }) => {
        if (data.event === 'open') return resolve();
        if (data.event === 'sent') return this.#tell('sent', data.bytes);
        const lost = new JaguarError('connection', data.text);
        reject(lost);
        // (A call that runs, or will when the threads are there, hears of it from the module, which knows more.)
        if (!this.#pending && this.model) this.#end(lost);
      };
      this.#socket.onerror = () => reject(new JaguarError('internal', 'a worker cannot be started'));
    });
    this.#socket.postMessage({ url, shared, port: port1 }, [port1]);
    await open;
    if (this.#why) throw this.#why;
    this.#session = startWorker('./session.js');
    this.#session.onmessage = ({ data }) => this.#hear(data);
    this.#session.onerror = () => this.#hear({ event: 'failed', failure: { kind: 'internal', text: 'a worker cannot be started' } });
    const memory = newMemory();
    const started = await this.#answer(() => this.#session.postMessage({ module, memory, threads, shared, port: port2, keep }, [port2]));
    await Promise.all(started.threads.map((room) => this.#thread(startWorker('./thread.js'), { module, memory, ...room })));
    await this.#ask({ call: 'begin' });
    this.model = (await this.#answer(() => this.#session.postMessage({ call: 'connect', wishes: { url, token, model, wait } }))).value;
  }

  // Starts a thread. What goes wrong in it ends the client: the session waits for its threads.
  #thread(worker, room) {
    this.#threads.push(worker);
    return new Promise((resolve, reject) => {
      const failed = ({ kind, text }) => {
        const error = new JaguarError(kind, text);
        reject(error);
        this.#end(error);
      };
      worker.onmessage = ({ data }) => (data.event === 'started' ? resolve() : failed(data.failure));
      worker.onerror = () => failed({ kind: 'internal', text: 'a worker cannot be started' });
      worker.postMessage(room);
    });
  }

  // Does the next query's work that needs no picture.
  prepare({ signal = null } = {}) {
    return this.#call(signal, async () => { await this.#ask({ call: 'prepare' }); this.prepared = true; });
  }

  // What the model says of a picture.
  predict(picture, { signal = null } = {}) {
    return this.#call(signal, async () => {
      const { data, width, height } = await checkedPixels(picture);
      const pixels = data.slice();
      const { value, memory } = await this.#ask({ call: 'predict', pixels, width, height }, [pixels.buffer]);
      this.prepared = false;
      return { ...value, memory };
    });
  }

  // The picture as the network will see it. Nothing leaves the page.
  async look(picture) {
    eye ??= looker();
    return (await eye)(await checkedPixels(picture), this.model);
  }

  // Whether a query is prepared.
  prepared = false;

  // Bytes on the connection so far.
  get traffic() {
    return { sent: this.#figures?.[SENT] ?? 0, received: this.#figures?.[RECEIVED] ?? 0 };
  }

  get closed() {
    return this.#why !== null;
  }

  close() {
    this.#end(new JaguarError('connection', 'the client was closed'));
  }

  #call(signal, work) {
    const turn = this.#last.then(() => {
      signal?.throwIfAborted();
      if (this.#why) throw this.#why;
      return this.#until(signal, work());
    });
    this.#last = turn.catch(() => {});
    return turn;
  }

  async #until(signal, work) {
    if (!signal) return work.catch((error) => this.#failed(error));
    let stop;
    const stopped = new Promise((_, reject) => { stop = () => reject(signal.reason); });
    signal.addEventListener('abort', stop, { once: true });
    try {
      return await Promise.race([work, stopped]);
    } catch (error) {
      return this.#failed(error);
    } finally {
      signal.removeEventListener('abort', stop);
      work.catch(() => {});
    }
  }

  // A session does not outlive what went wrong in it, but for a picture that could not be used.
  #failed(error) {
    if (error?.kind !== 'input') this.#end(error);
    throw error;
  }

  #ask(call, transfer = []) {
    return this.#answer(() => this.#session.postMessage(call, transfer));
  }

  #answer(send) {
    return new Promise((resolve, reject) => {
      this.#pending = { resolve, reject };
      send();
    });
  }

  #hear(told) {
    const pending = this.#pending;
    if (told.event === 'failed') {
      this.#pending = null;
      pending?.reject(new JaguarError(told.failure.kind, told.failure.text));
    } else if (told.event === 'done' || told.event === 'started') {
      this.#pending = null;
      pending?.resolve(told);
    } else {
      this.#tell(told.event, told);
    }
  }

  #tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }

  #end(error) {
    if (this.#why) return;
    this.#why = error instanceof Error ? error : new JaguarError('aborted', String(error));
    this.prepared = false;
    this.#session?.terminate();
    this.#socket?.terminate();
    this.#threads.forEach((thread) => thread.terminate());
    this.#pending?.reject(this.#why);
    this.#pending = null;
    this.#tell('closed', this.#why);
  }
}
