// What browsers and Node do each in their own way.

// Node, and no window of a program that has both.
const node = globalThis.process?.versions?.node !== undefined && globalThis.document === undefined && globalThis.WorkerGlobalScope === undefined;
// (No `await` for it: a browser's worker would miss what it is sent meanwhile.)
const builtin = (name) => process.getBuiltinModule(`node:${name}`);
const threads = node ? builtin('worker_threads') : null;

// How many threads the machine runs at once.
export const cores = node ? builtin('os').availableParallelism() : navigator.hardwareConcurrency;

// Why there can be no client here; null if there can.
export function missing() {
  if (node) {
    return globalThis.WebSocket ? null : 'this Node has no WebSocket: it takes Node 22, or Node 20 with --experimental-websocket';
  }
  if (globalThis.crossOriginIsolated) return null;
  return 'the page is not cross-origin isolated: it must come by https (or from this machine), with the headers ' +
    'Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp';
}

// A file beside this one, as an answer to a request.
export async function file(name) {
  const url = new URL(name, import.meta.url);
  return node ? new Response(await builtin('fs/promises').readFile(url)) : fetch(url);
}

// A worker that runs a file beside this one.
export function startWorker(name) {
  const url = new URL(name, import.meta.url);
  if (!node) return new Worker(url, { type: 'module' });
  const worker = new threads.Worker(url);
  worker.on('message', (data) => worker.onmessage?.({ data }));
  worker.on('error', (error) => worker.onerror?.(error));
  return worker;
}

// In a worker: who started it. To send to, and to hear of.
export const starter = {
  tell: (data, transfer) => (node ? threads.parentPort : globalThis).postMessage(data, transfer),
  hear(each) {
    if (node) threads.parentPort.on('message', (data) => each({ data }));
    else globalThis.onmessage = each;
  },
};

// Pixels for who called, in what is usual here.
export const shown = (data, width, height) => (globalThis.ImageData ? new ImageData(data, width, height) : { data, width, height });

// The pixels of whatever shows a picture: four bytes each. Null if it shows none.
export async function pixelsOf(picture) {
  if (ArrayBuffer.isView(picture?.data)) return picture;
  if (node) return null;
  let drawn = picture;
  if (picture instanceof Blob) {
    try {
      drawn = await createImageBitmap(picture, { colorSpaceConversion: 'none', premultiplyAlpha: 'none' });
    } catch {
      return null;
    }
  }
  const width = drawn?.naturalWidth ?? drawn?.width, height = drawn?.naturalHeight ?? drawn?.height;
  if (!width || !height) return null;
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext('2d', { willReadFrequently: true });
  context.drawImage(drawn, 0, 0);
  return context.getImageData(0, 0, width, height);
}
