#!/bin/bash
# Training speed on the CPU: zerod with its states streamed, zerod with all in RAM, and PyTorch, in turns; medians of steps and
# of rounds. Needs a release build; installs python3-torch (Debian's) where it is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/common.sh

rounds=${1:-5} steps=${2:-100} threads=$(nproc)
phases=1
phase packages
install_packages build/bench-apt.log python3-torch libopenblas0-pthread

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
text=$out/text
cat engine/*/*.c kernels/*/*.c >"$text" # any text does for a speed

# tokens/s of the median step, from the log of the steps after the first fifth
zerod()
{
    rm -f "$out/log"
    build/release/bin/zeroctl train --config config/examples/quickstart.yaml --set zerod.compute.threads="$threads" \
        --data "$text" --steps "$steps" --log "$out/log" -q "$@" >/dev/null
    sed -n 's/.*"step":\([0-9]*\),.*"tokens":\([0-9]*\),.*"step_seconds":\([-+.0-9e]*\),.*/\1 \2 \3/p' "$out/log" |
        awk -v steps="$steps" '$1 > steps / 5 { printf "%.0f\n", $2 / $3 }' | median
}

median()
{
    sort -n | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

# What a machine's settings do to PyTorch's BLAS is not its fault; and where its two thread pools spin against each other on
# few cores, waiting threads that sleep make it two to three times faster.
torch()
{
    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE -u OPENBLAS_NUM_THREADS -u OMP_NUM_THREADS OMP_WAIT_POLICY=passive \
        /usr/bin/python3 tests/bench/train_torch.py "$text" "$threads" "$steps" | cut -d ' ' -f 1
}

: >"$out/streamed"; : >"$out/ram"; : >"$out/resident"; : >"$out/torch"
for _ in $(seq "$rounds"); do
    zerod >>"$out/streamed"
    zerod --set zero_optimization.offload_optimizer.device=cpu >>"$out/ram"
    zerod --set zero_optimization.offload_optimizer.device=none --set zero_optimization.offload_param.device=none \
        --set zerod.device.memory=64MiB >>"$out/resident"
    torch >>"$out/torch"
done
awk -v rounds="$rounds" -v steps="$steps" -v threads="$threads" -v s="$(median <"$out/streamed")" -v r="$(median <"$out/ram")" \
    -v d="$(median <"$out/resident")" -v t="$(median <"$out/torch")" 'BEGIN {
    printf "%d rounds of %d steps, %d threads, fp32, tokens/s, medians\n", rounds, steps, threads
    printf "  zerod, weights streamed, v on nvme    %7.0f\n", s
    printf "  zerod, weights streamed, m, v in RAM  %7.0f   nvme against RAM: %.2f\n", r, s / r
    printf "  zerod, all on the device              %7.0f   streamed against resident: %.2f\n", d, s / d
    printf "  PyTorch, all in RAM                   %7.0f   zerod streamed against PyTorch: %.2f\n", t, s / t
}'
