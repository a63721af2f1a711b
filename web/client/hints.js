// Hints that are kept for later connections: a file for each model in the origin's private file system, under the model's public name.
// What is in it is the module's (crates/engine/src/hint/kept.rs), which checks each block by its hash and takes what is sound.

import { bytesOf } from './shared.js';

const FOLDER = 'jaguar-hints';

// Bytes of a file beside the hint's: its head, and 32 for each block.
const BESIDE = 1 << 16;

// How often, and after how many milliseconds, a file is tried that another session has: one that has just been closed lets go of it soon.
const TRIES = 5, PAUSE = 100;

// The folder; null where the browser has none to give (an old one, a private window).
async function folder(create) {
  try {
    return await (await navigator.storage.getDirectory()).getDirectoryHandle(FOLDER, { create });
  } catch {
    return null;
  }
}

// Of all kept hints: name, bytes, when it was written last.
async function entries(kept) {
  const found = [];
  for await (const handle of kept.values()) {
    const { size, lastModified } = await handle.getFile();
    found.push({ name: handle.name, size, lastModified });
  }
  return found;
}

// Does what a session that has the file stops.
async function insist(work) {
  for (let tried = 1; ; tried += 1) {
    try {
      return await work();
    } catch (error) {
      if (error.name !== 'NoModificationAllowedError' || tried === TRIES) throw error;
      await new Promise((resolve) => { setTimeout(resolve, PAUSE); });
    }
  }
}

// Removes them all, but those that a session has open. Says how many those are.
export async function forget() {
  const kept = await folder(false);
  let left = 0;
  for (const { name } of kept ? await entries(kept) : []) {
    await insist(() => kept.removeEntry(name)).catch(() => { left += 1; });
  }
  return left;
}

// Opens the file for a hint of so many bytes, such that all files together have no more than `bound`: those that were written first go.
// Null where it cannot be kept.
export async function open(model, bytes, bound) {
  const kept = await folder(true);
  const name = `${model}.hint`, most = bytes + BESIDE;
  if (!kept || bytes === 0 || most > bound) return null;
  try {
    const others = (await entries(kept)).filter((entry) => entry.name !== name).sort((a, b) => a.lastModified - b.lastModified);
    let taken = others.reduce((sum, { size }) => sum + size, most);
    for (const other of others) {
      if (taken <= bound) break;
      // (One that a session has open stays.)
      await kept.removeEntry(other.name).then(() => { taken -= other.size; }, () => {});
    }
    if (taken > bound) return null;
    const handle = await kept.getFileHandle(name, { create: true });
    const access = await insist(() => handle.createSyncAccessHandle());
    return { access, most, remove: () => kept.removeEntry(name) };
  } catch {
    return null;
  }
}

// What the module asks of the file that `file()` says, if there is one.
export function imports(memory, file) {
  const done = (work) => {
    try {
      return work(file().access) ? 1 : 0;
    } catch {
      return -1;
    }
  };
  return {
    kept: () => (file() ? 1 : 0),
    kept_read: (at, to, len) => done((access) => {
      const bytes = new Uint8Array(len), n = access.read(bytes, { at });
      new Uint8Array(memory.buffer, to, len).set(bytes);
      return n === len;
    }),
    kept_write: (at, from, len) => done((access) => {
      if (at + len > file().most || access.write(bytesOf(memory, from, len), { at }) !== len) throw new Error('no room');
      return true;
    }),
    kept_cut: (len) => done((access) => {
      access.truncate(len);
      return true;
    }),
    kept_remove() {
      done((access) => {
        access.truncate(0);
        access.close();
        file().remove().catch(() => {});
      });
    },
  };
}
