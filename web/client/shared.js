// The memory that the two workers and the page share: a ring of bytes that have come, and figures.

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
