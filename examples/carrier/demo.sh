#!/bin/sh
# Carriers: a file there and back, the three models side by side, a transformer with its experiment, and the page.
# What it makes stays in build/carrier/ (or OUT). AGENTCONTAINER is the program.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
program=${AGENTCONTAINER:-agentcontainer}
case $program in */*) program=$(cd "$(dirname "$program")" && pwd)/$(basename "$program") ;; esac
out=${OUT:-$root/build/carrier}
rm -rf "$out"
mkdir -p "$out/configurations"

echo "== There and back, with the fixed model"
"$program" carrier encode --in "$here/payload.txt" --out "$out/message.txt" --wrap 72
"$program" carrier decode --in "$out/message.txt" --out "$out/payload.txt"
cmp "$here/payload.txt" "$out/payload.txt"
sed -n 1,7p "$out/message.txt"

echo "== The three models side by side"
"$program" carrier compare --payload "$here/payload.txt" --corpus "$here/train.txt" \
    --quality-text "$here/heldout.txt" --json-out "$out/compare.json"

# The configurations as they stand here, but for where their results go.
for name in fixed ngram transformer size-ladder; do
    echo "== Experiment: $name.json"
    sed -e "s|\"\.\./\.\./build/carrier/|\"$out/|" -e "s|\"payload\.txt|\"$here/payload.txt|" \
        -e "s|\"train\.txt|\"$here/train.txt|" -e "s|\"heldout\.txt|\"$here/heldout.txt|" "$here/$name.json" \
        >"$out/configurations/$name.json"
    "$program" carrier experiment "$out/configurations/$name.json" >"$out/$name.log"
    cat "$out/$name.log"
    tail -n 1 "$out/$name.log" | grep -qx "verdict: promote"
done
cmp "$here/payload.txt" "$out/transformer/decoded_payload.bin"

echo "== Shaping the transformer"
"$program" carrier sweep --payload "$here/payload.txt" --model "$out/transformer/model.json" \
    --quality-text "$here/heldout.txt" --shape-uniform-mix 0,0.2,0.8 --temperature 1,1.25 --json-out "$out/sweep.json"

"$program" carrier report "$out/compare.json" "$out/sweep.json" "$out"/*/result.json --out "$out/report.html"
echo "carriers: every payload came back, 4 of 4 experiments promoted; the page is $out/report.html"
