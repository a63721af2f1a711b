// A worker that computes beside the session's: an instance of the module of its own, in the same memory.

import { starter } from './platform.js';
import { bytesOf, fault, random } from './shared.js';

starter.hear(async ({ data: { module, memory, local, stack } }) => {
  let panic = '';
  const never = () => { throw new Error('only the session reads and writes'); };
  const jaguar = {
    now: () => performance.now(),
    random: (to, len) => random(memory, to, len),
    read: never,
    write: never,
    close: never,
    kept: never,
    kept_read: never,
    kept_write: never,
    kept_cut: never,
    kept_remove: never,
    tell(from, len) {
      const told = JSON.parse(new TextDecoder().decode(bytesOf(memory, from, len)));
      if (told.event === 'panic') panic = told.text;
    },
  };
  try {
    const { exports } = await WebAssembly.instantiate(module, { jaguar, env: { memory } });
    exports.__stack_pointer.value = stack;
    exports.__wasm_init_tls(local);
    starter.tell({ event: 'started' });
    exports.work();
  } catch (error) {
    starter.tell(panic ? { event: 'failed', failure: { kind: 'internal', text: panic } } : fault(error));
  }});
