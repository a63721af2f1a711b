#!/usr/bin/env bash
# Makes web/client/jaguar_web.wasm.gz from the sources: the client's crates for WebAssembly.
#
# It takes a Rust toolchain whose standard library can be built for wasm32-unknown-unknown, and a linker for it. On Debian:
#   apt-get install rustc-web rust-web-src lld-19
# Elsewhere `rustup target add wasm32-unknown-unknown` has both; then RUSTC=rustc STD= LINKER=rust-lld.
# With --check the result is compared with the file that is there, and nothing is written.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export RUSTC=${RUSTC:-/usr/bin/rustc}
cargo=${CARGO:-/usr/bin/cargo}
linker=${LINKER:-/usr/lib/llvm-19/bin/wasm-ld}
std=${STD--Z build-std=std,panic_abort}
out=web/client/jaguar_web.wasm.gz

for tool in "$RUSTC" "$cargo" "$linker"; do
  command -v "$tool" >/dev/null || { echo "$tool is not installed: see $0" >&2; exit 3; }
done
sources=${CARGO_HOME:-$HOME/.cargo}
export RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=target/wasm
export RUSTFLAGS="-C linker=$linker -C target-feature=+simd128,+bulk-memory --cfg getrandom_backend=\"custom\" \
--remap-path-prefix=$sources=cargo --remap-path-prefix=$PWD=jaguar --remap-path-prefix=$("$RUSTC" --print sysroot)=rust"
# shellcheck disable=SC2086
"$cargo" build --locked --package jaguar-web --profile web --target wasm32-unknown-unknown $std

made=$CARGO_TARGET_DIR/made.wasm.gz
gzip -9nc "$CARGO_TARGET_DIR/wasm32-unknown-unknown/web/jaguar_web.wasm" >"$made"
if [ "${1-}" = --check ]; then
  cmp "$made" "$out" || { echo "$out is not what $RUSTC makes of the sources: run web/build.sh" >&2; exit 1; }
else
  cp "$made" "$out"
fi
sha256sum "$made" | cut -d ' ' -f 1
ls -l "$made" | awk '{ print $5 " bytes" }'
