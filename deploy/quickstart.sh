#!/bin/bash
# Trains a small language model on a real text with zerod, on the CPU, its states three times larger than the "GPU" that it
# may use; then shows what it learned and where the bytes lived.
set -euo pipefail
cd "$(dirname "$0")/.."
. deploy/common.sh

usage()
{
    cat <<'EOF'
usage: deploy/quickstart.sh [--data FILE] [--minutes M] [--steps N] [--out DIR]

  --data FILE     any text; default: the Jargon File 4.4.7 (public domain), from Debian's package dict-jargon
  --minutes M     lower the number of steps where the machine is too slow for them; default: 4
  --steps N       default: what config/examples/quickstart.yaml says
  --out DIR       default: quickstart-out

Installs what is missing by apt (root or sudo), builds, starts zerod, trains, evaluates, lets the model write, stops zerod.
Nothing outside this folder is touched but Debian's packages.
EOF
}

data='' minutes=4 steps='' out=quickstart-out
while [ $# -gt 0 ]; do
    case $1 in
    --help | -h) usage; exit 0 ;;
    --data | --minutes | --steps | --out)
        [ $# -ge 2 ] || { echo "quickstart.sh: $1 needs a value" >&2; exit 2; }
        case $1 in
        --data) data=$2 ;;
        --minutes) minutes=$2 ;;
        --steps) steps=$2 ;;
        --out) out=$2 ;;
        esac
        shift 2
        ;;
    *) echo "quickstart.sh: $1: no such option" >&2; usage >&2; exit 2 ;;
    esac
done
[ -z "$data" ] || [ -r "$data" ] || { echo "quickstart.sh: --data $data: cannot be read" >&2; exit 2; }

phases=6
bin=build/release/bin
mkdir -p "$out"
out=$(cd "$out" && pwd)
echo 'zerod quickstart: trains a small language model whose states are 3x larger than the "GPU" it may use'

phase packages
# shellcheck disable=SC2086
install_packages build/quickstart-apt.log $packages_build

phase build
build()
{
    cmake --preset release && cmake --build build/release -j "$(nproc)" --target zerod zeroctl
}
quietly build/quickstart-build.log build
phase_done "release, $(nproc) jobs"

phase data
jargon_sum=6c8118c277d0b00736d406d4941b77b69932d6ab125f7179ff88fe12939cc19e
fetch_jargon()
{
    # unpacked, not installed: the package would bring a dictionary server along
    mkdir -p .cache/jargon
    (cd .cache/jargon && apt-get -q download dict-jargon)
    dpkg-deb --fsys-tarfile .cache/jargon/dict-jargon_*_all.deb | tar -xO ./usr/share/dictd/jargon.dict.dz |
        gzip -dc >.cache/jargon/raw.txt
    echo "$jargon_sum  .cache/jargon/raw.txt" | sha256sum --check
    sed -n '/^(TM)$/,$p' .cache/jargon/raw.txt >.cache/jargon.txt.part # without dictd's own head
    mv .cache/jargon.txt.part .cache/jargon.txt
    rm -r .cache/jargon
}
if [ -n "$data" ]; then
    phase_done "$data"
    default_text=
else
    [ -s .cache/jargon.txt ] || quietly build/quickstart-data.log fetch_jargon
    data=.cache/jargon.txt
    default_text=yes
    phase_done "Jargon File 4.4.7 (public domain), $(($(stat -c %s "$data") / 1000)) kB, checked"
fi

phase zerod
runtime=$(mktemp -d)
socket=$runtime/zerod.sock
log=$out/zerod.log
$bin/zerod --config config/examples/quickstart.yaml --set "zerod.socket=$socket" 2>"$log" &
daemon=$!
trap 'kill "$daemon" 2>/dev/null || true; wait "$daemon" 2>/dev/null || true; rm -rf "$runtime"' EXIT
for _ in $(seq 100); do
    $bin/zeroctl status --host "$socket" -q >/dev/null 2>&1 && break
    if ! kill -0 "$daemon" 2>/dev/null; then
        printf 'failed\n' >&2
        cat "$log" >&2
        exit 1
    fi
    sleep 0.1
done
phase_done "$($bin/zeroctl status --host "$socket" | head -n 1)"

phase train
echo 'a byte-level LLaMA; the last 5 % of the text are held out'
echo
$bin/zeroctl train --host "$socket" --job quickstart --data "$data" --holdout 5% --minutes "$minutes" \
    ${steps:+--steps "$steps"} --log "$out/log.jsonl.part" --chart "$out/loss.svg" --trace "$out/trace.json" \
    --save "$out/model" --json >"$out/summary.json.part"
mv "$out/log.jsonl.part" "$out/log.jsonl"
mv "$out/summary.json.part" "$out/summary.json"
echo

phase results
phase_done "$($bin/zeroctl eval --host "$socket" --job quickstart --data "$data" --holdout 5%)"
echo '  it writes (temperature 0.8, top-p 0.9):'
$bin/zeroctl generate --host "$socket" --job quickstart --prompt $'\n\n' --tokens 400 | sed 's/^/    | /'
$bin/zeroctl stop --host "$socket" -q
wait "$daemon"

number()
{
    sed -n "s/^  \"$1\": \([-+.0-9e]*\),\{0,1\}$/\1/p" "$out/summary.json"
}
awk -v peak="$(number device_peak_bytes)" -v budget="$(number device_budget_bytes)" -v states="$(number model_state_bytes)" \
    -v loss="$(number eval_loss)" -v steps="$(number steps)" -v asked="$steps" -v default_text="$default_text" 'BEGIN {
    if (peak + 0 > budget + 0) { print "the device held more than its budget: this is a bug, please report it"; exit 1 }
    printf "  device peak %.2f MiB of a budget of %.2f MiB; states of %.1f MiB: %.1f times the budget\n", peak / 1048576,
        budget / 1048576, states / 1048576, states / budget
    if (default_text && !asked && steps >= 2000 && loss >= 1.8) {
        print "held-out loss " loss " nats per byte, and 1.8 is what this run should fall below: please report it"; exit 1 }
}'
echo
echo "  ${out#"$PWD"/}/  loss.svg  trace.json (open in ui.perfetto.dev)  model/ (opens in transformers)  summary.json  log.jsonl"
echo "  next: $bin/zeroctl plan --config config/examples/quickstart.yaml"
