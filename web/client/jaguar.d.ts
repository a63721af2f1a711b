/** What a client says when something was not done. After all but `input` the session is over: connect anew. */
export type ErrorKind =
  /** The page or the browser lacks something: cross-origin isolation, a secure context. */
  | 'unsupported'
  /** Nobody listens, the page's origin is not let in, or the connection was lost. */
  | 'connection'
  /** The server gave up, and said why: an unknown token or model, for instance. */
  | 'aborted'
  /** The server does no more for now. The text says when to come back; `wait` waits instead. */
  | 'busy'
  /** The server speaks another version, or breaks the protocol. */
  | 'peer'
  /** The picture cannot be used. The session goes on, and nothing was sent. */
  | 'input'
  /** The browser gives no more memory. */
  | 'memory'
  /** A mistake in this client. */
  | 'internal';

export class JaguarError extends Error {
  readonly kind: ErrorKind;
}

/** A class, and how likely the network holds it. */
export interface Class {
  /** Its number, from 0. */
  class: number;
  /** Its label; `class N` in a model without labels. */
  name: string;
  /** The network's own logit. */
  logit: number;
  /** 0 to 1. */
  probability: number;
}

export interface Answer {
  /** The number of the class that comes first. */
  label: number;
  /** Its label. */
  name: string;
  /** The five that come first; none where the server reveals the label only. */
  top: Class[];
  /** All logits; none where the server reveals the label only. */
  logits: number[];
  /** What is unusual about the picture, if anything is. */
  warning: string | null;
  /** From the picture's integers to the answer. */
  seconds: number;
  /** Bytes of memory that the module has. */
  memory: number;
}

/** What every client learns of the model. */
export interface Model {
  name: string;
  /** 64 hexadecimal digits that commit to the weights. Compare them with what the operator publishes. */
  id: string;
  labels: string[];
  classes: number;
  label_only: boolean;
  /** Channels, rows, columns. */
  shape: [number, number, number];
  /** How a picture becomes the input. */
  image: object;
  nodes: number;
  /** Bytes that come once on a connection. */
  hint_bytes: number;
  /** Bytes of an answer before the picture, both ways. */
  offline_bytes: number;
  /** Bytes of an answer with the picture, both ways. */
  online_bytes: number;
}

export interface Progress {
  stage: 'client' | 'offline' | 'online';
  /** How much of the stage is done, 0 to 1. */
  share: number;
  layer?: string;
}

/** Four bytes a pixel (red, green, blue, and one that does not count), row by row. */
export interface Pixels {
  data: Uint8Array | Uint8ClampedArray;
  width: number;
  height: number;
}

/** In Node: pixels only. */
export type Picture = Pixels | ImageData | ImageBitmap | Blob | HTMLImageElement | HTMLCanvasElement | OffscreenCanvas;

export interface ConnectOptions {
  /** What shows the server who asks. */
  token?: string;
  /** The model's name at the server. Without it: the only one. */
  model?: string | null;
  /** Seconds to wait for a place, 0 to 65,535. */
  wait?: number;
  /** Threads that compute. Without it: as many as the machine runs at once, but at most 8. */
  threads?: number;
  /**
   * Whether the model's hint (`hint_bytes` of {@link Model}) is kept in the origin's private file system, so that later connections do
   * not fetch it. `'none'`, the default: it comes anew with each connection. `'keep'`: **the server recognises this browser** then,
   * by the random name that belongs to the hint, as long as it is kept ({@link Client.forgetHints}). Where it cannot be kept (a
   * private window, no room, another tab that has it open, Node), it comes anew, as without this option.
   */
  hints?: 'none' | 'keep';
  /** Bytes of all kept hints together, at most; those that were written first go. Without it: 268,435,456. */
  hintBytes?: number;
  /** Aborting ends the session. */
  signal?: AbortSignal | null;
  /** Hears of places in the server's line while `connect` waits. */
  onqueued?: ((event: CustomEvent<{ place: number; seconds: number }>) => void) | null;
}

/**
 * A session with a server. Events: `progress` ({@link Progress}), `sent` (the beginning of each message, a `Uint8Array`), `closed`
 * (why, an error).
 */
export class Client extends EventTarget {
  /** Connects to `wss://…` (or `ws://` on this machine), and learns the model. */
  static connect(url: string | URL, options?: ConnectOptions): Promise<Client>;
  /** Removes all kept hints of this origin, but those that a session has open. Says how many those are. */
  static forgetHints(): Promise<number>;
  readonly model: Model;
  /** Whether a query is prepared: the next `predict` is quick then. */
  readonly prepared: boolean;
  readonly closed: boolean;
  /** Bytes so far. */
  readonly traffic: { sent: number; received: number };
  /** Does all of the next query's work that needs no picture. */
  prepare(options?: { signal?: AbortSignal | null }): Promise<void>;
  /** What the model says of a picture; prepares first, if nothing is. */
  predict(picture: Picture, options?: { signal?: AbortSignal | null }): Promise<Answer>;
  /** The picture as the network will see it. Nothing is sent. */
  look(picture: Picture): Promise<ImageData | Pixels>;
  close(): void;
}
