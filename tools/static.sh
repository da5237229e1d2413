#!/bin/sh
# Builds the static binary of a musl target and checks what it promises: no C library, at most 5.3 MB.
set -eu

target=$1
binary=$2
# The node that only runs agents and lets them travel was 2.96 MB, of which the HTTP client with its TLS is 1 MB. Capsules
# brought 0.5 MB, what lasts, the roster and the sandbox 0.9, TLS of its own 0.2, tokens, quotas and carriers 0.5.
most=5300000

missing() {
    echo "static: $1" >&2
    exit 2
}

installed=$(rustup target list --installed 2>/dev/null || true)
case "$installed" in
    *"$target"*) ;;
    *) [ -d "$(rustc --print sysroot)/lib/rustlib/$target" ] || missing "run: rustup target add $target" ;;
esac
if command -v musl-gcc >/dev/null; then
    compiler=musl-gcc
    flags=
elif command -v clang >/dev/null; then
    compiler=clang
    flags="--target=$target -ffreestanding -nostdlibinc"
else
    missing "needs musl-gcc (Debian: apt-get install musl-tools) or clang"
fi
suffix=$(echo "$target" | tr - _)
# Addresses fixed at link time save the relocation tables, some 90 KB. With frame pointers the tables for unwinding
# need not say after each push and pop where the frame is, which saves 110 KB.
env "CC_$suffix=$compiler" "CFLAGS_$suffix=$flags" cargo build --release --locked --target "$target" \
    --config "target.$target.rustflags=['-Crelocation-model=static', '-Cforce-frame-pointers=yes']"

if ldd "$binary" 2>/dev/null | grep -q '=>'; then
    missing "$binary needs shared libraries"
fi
size=$(wc -c <"$binary")
[ "$size" -le "$most" ] || missing "$binary has $size bytes, more than $most"
echo "static: $binary, $size bytes"
