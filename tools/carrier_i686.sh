#!/bin/sh
# Carriers on i686: the tests of what has to come out the same everywhere run as 32-bit programs, and models and texts that
# a 32-bit program makes are compared with those of this machine's own. Needs an x86-64 that runs 32-bit programs (every
# Linux there does, no emulator), the target, and gcc or clang, which compile the C of ring; no 32-bit C library.
set -eu

target=i686-unknown-linux-musl
fail() {
    echo "carrier-i686: $1" >&2
    exit 2
}

case $(uname -m) in
    x86_64 | i?86) ;;
    *) fail "a $(uname -m) runs no program for i686" ;;
esac
[ -d "$(rustc --print sysroot)/lib/rustlib/$target" ] || fail "run: rustup target add $target"
if command -v clang >/dev/null; then
    compiler=clang
    flags="--target=$target -ffreestanding"
elif command -v gcc >/dev/null; then
    compiler=gcc
    flags="-m32 -ffreestanding -DRING_CORE_NOSTDLIBINC=1" # or it looks for the headers of a C library
else
    fail "needs gcc or clang"
fi
export CC_i686_unknown_linux_musl="$compiler" CFLAGS_i686_unknown_linux_musl="$flags"

cargo test --locked --target "$target" --lib -- carrier::
cargo test --locked --target "$target" --test carrier
cargo build --locked
cargo build --locked --target "$target"
folder=$(cargo metadata --locked --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
here="$folder/debug/agentcontainer"
there="$folder/$target/debug/agentcontainer"
corpus="$PWD/fixtures/carrier/corpus.txt"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# The same command with both programs; what they write has to be the same.
same=0
both() {
    name=$1
    shift
    "$here" carrier "$@" --out here >/dev/null
    "$there" carrier "$@" --out there >/dev/null
    cmp here there || fail "they differ: carrier $*"
    mv here "$name"
    same=$((same + 1))
}

"$here" carrier corpus --out payload --lines 60 --seed 3 >/dev/null
for seed in 1 2 3 4 5 6 7 8; do
    both "model-$seed" train --data "$corpus" --model-type transformer --seed "$seed" --epochs 2
done
for order in 0 1 2 3; do
    both "model-order-$order" train --data "$corpus" --order "$order" --alpha 0.01 --uniform-mix 0.1
done
for model in model-*; do
    for shape in "" "--temperature 1.25 --shape-uniform-mix 0.8" "--temperature 0.6 --min-prob 0.0001"; do
        both text encode --in payload --model "$model" --wrap 72 $shape
        "$there" carrier decode --in text --model "$model" --out back >/dev/null
        cmp payload back
    done
done
both text encode --in payload
echo "carrier-i686: the tests passed, and $same models and texts are the same on i686 and here"
