#!/usr/bin/env bash
# One private inference from end to end: compiles SqueezeNet 1.1, starts a server that holds it, and has a client
# that holds a photograph ask it. Both run on this machine, as two processes that share a socket and nothing else.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cargo=${CARGO:-cargo}
if ! command -v "$cargo" >/dev/null; then
  echo 'cargo is not installed. Get Rust from https://rustup.rs, or from your distribution (1.91 or newer).' >&2
  exit 1
fi

jaguar=${CARGO_TARGET_DIR:-target}/release/jaguar
work=target/demo
model=$work/squeezenet.jaguar
log=$work/server.log
mkdir -p "$work"

say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }

say 'Building'
"$cargo" build --release --locked --package jaguar-cli

say 'Server: quantising the network'
"$jaguar" compile demo/squeezenet1_1.onnx --calibrate demo/calibration --calibrate demo/more --labels demo/labels.txt \
  --bgr --mean 103.939,116.779,123.68 --resize 256 -o "$model"

say 'Server: starting'
# Port 0 lets the system choose a free one; the server says which.
"$jaguar" serve "$model" --listen 127.0.0.1:0 >"$log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true' EXIT

address=
for _ in $(seq 1200); do
  address=$(sed -n 's/.*listening on \([0-9.:]*\).*/\1/p' "$log")
  [ -n "$address" ] && break
  if ! kill -0 "$server" 2>/dev/null; then
    echo 'The server ended before it listened:' >&2
    cat "$log" >&2
    exit 1
  fi
  sleep 0.1
done
if [ -z "$address" ]; then
  echo 'The server does not listen after two minutes:' >&2
  cat "$log" >&2
  exit 1
fi
cat "$log"

say 'Client: asking about demo/photo.jpg'
if ! "$jaguar" predict --costs --server "$address" --cache "$work/cache" demo/photo.jpg; then
  echo 'The client failed. What the server said:' >&2
  cat "$log" >&2
  exit 1
fi

say 'What the server saw'
cat "$log"
