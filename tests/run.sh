#!/bin/bash
# Installs what is missing, builds, runs every test: unit, property, golden and integration tests in a release build, the same
# under the address and undefined-behaviour sanitizers and under the thread sanitizer, and the checks of the source itself.
set -euo pipefail
cd "$(dirname "$0")/.."
. deploy/common.sh

case ${1:-} in
--help | -h)
    echo "usage: tests/run.sh [REGEX]     tests whose name matches, of: ROOM/TEST, asan/ROOM/TEST, tsan/ROOM/TEST, tidy/..."
    exit 0
    ;;
esac

phases=5
phase packages
# shellcheck disable=SC2086
install_packages build/tests-apt.log $packages_build $packages_test

build()
{
    cmake --preset "$1" -DZR_WERROR=ON && cmake --build "build/$1" -j "$(nproc)"
}
for preset in release asan tsan; do
    phase "$preset"
    quietly "build/tests-$preset.log" build "$preset"
    phase_done built
done

# One ctest over the three builds, so that there is one summary.
mkdir -p build/tests
for preset in release asan tsan; do
    echo "subdirs(\"$PWD/build/$preset\")"
done >build/tests/CTestTestfile.cmake

# Some kernels scatter memory wider than the thread sanitizer can follow.
plain=()
if setarch "$(uname -m)" -R true 2>/dev/null; then plain=(setarch "$(uname -m)" -R); fi
phase tests
echo
"${plain[@]}" ctest --test-dir build/tests -j "$(nproc)" --output-on-failure ${1:+-R "$1"}
