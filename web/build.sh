#!/usr/bin/env bash
# Makes web/client/jaguar_web.wasm.gz from the sources: the client's crates for WebAssembly.
#
# It takes a Rust toolchain whose standard library can be built for wasm32-unknown-unknown (the ready one knows no threads), and a linker
# for it. On Debian:
#   apt-get install rustc-web cargo-web rust-web-src lld-19
# Elsewhere, with rustup: a toolchain with the component rust-src; then RUSTC=rustc CARGO=cargo LINKER=rust-lld.
# With --check the result is compared with the file that is there, and nothing is written.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export RUSTC=${RUSTC:-/usr/bin/rustc}
cargo=${CARGO:-/usr/bin/cargo}
linker=${LINKER:-/usr/lib/llvm-19/bin/wasm-ld}
out=web/client/jaguar_web.wasm.gz

for tool in "$RUSTC" "$cargo" "$linker"; do
  command -v "$tool" >/dev/null || { echo "$tool is not installed: see $0" >&2; exit 3; }
done
sources=${CARGO_HOME:-$HOME/.cargo}
export RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=target/wasm
# Threads: one memory for all instances, of 4 MiB at first and 2 GiB at most (client/shared.js makes it), and what a thread's start needs.
threads="-C link-arg=--shared-memory -C link-arg=--import-memory"
threads+=" -C link-arg=--initial-memory=$((64 << 16)) -C link-arg=--max-memory=$((32768 << 16))"
for name in __stack_pointer __wasm_init_tls __tls_size __tls_align; do threads+=" -C link-arg=--export=$name"; done
export RUSTFLAGS="-C linker=$linker -C target-feature=+simd128,+bulk-memory,+atomics $threads --cfg getrandom_backend=\"custom\" \
--remap-path-prefix=$sources=cargo --remap-path-prefix=$PWD=jaguar --remap-path-prefix=$("$RUSTC" --print sysroot)=rust"
"$cargo" build --locked --package jaguar-web --profile web --target wasm32-unknown-unknown -Z build-std=std,panic_abort

made=$CARGO_TARGET_DIR/made.wasm.gz
gzip -9nc "$CARGO_TARGET_DIR/wasm32-unknown-unknown/web/jaguar_web.wasm" >"$made"
if [ "${1-}" = --check ]; then
  cmp "$made" "$out" || { echo "$out is not what $RUSTC makes of the sources: run web/build.sh" >&2; exit 1; }
else
  cp "$made" "$out"
fi
sha256sum "$made" | cut -d ' ' -f 1
ls -l "$made" | awk '{ print $5 " bytes" }'
