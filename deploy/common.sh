# common.sh: what quickstart.sh and tests/run.sh share: packages, phases with their times, logs of what failed. Sourced.
#
#   packages_build, packages_test   Debian 12's names
#   phase TITLE                     begins a line "[n/of] TITLE"; `phases` is set before
#   phase_done TEXT                 ends it with TEXT and the seconds that it took
#   quietly LOG COMMAND...          runs the command with its output in LOG; on failure shows the end of it and exits

# shellcheck shell=bash disable=SC2034
packages_build="gcc cmake ninja-build pkg-config libc6-dev libyaml-dev libjansson-dev liburing-dev libhwloc-dev
                libdnnl-dev libisal-dev"
packages_test="libcmocka-dev python3 shellcheck"

phases=0 # the script says how many
phase_number=0
phase_begin=0

phase()
{
    phase_number=$((phase_number + 1))
    phase_begin=$SECONDS
    printf ' [%d/%d] %-12s ' "$phase_number" "$phases" "$1"
}

phase_done()
{
    printf '%-76s %4d s\n' "$1" $((SECONDS - phase_begin))
}

quietly()
{
    local log=$1 code=0
    shift
    mkdir -p "$(dirname "$log")"
    "$@" >"$log" 2>&1 || code=$?
    [ "$code" -eq 0 ] && return 0
    printf 'failed\n\n' >&2
    tail -n 20 "$log" >&2
    printf '\n%s ended with %d; all it said is in %s\n' "$1" "$code" "$log" >&2
    exit 1
}

# The one line that needs root, and only when something is missing.
install_packages()
{
    local log=$1 missing='' name as_root=''
    shift
    for name in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || missing="$missing $name"
    done
    if [ -z "$missing" ]; then
        phase_done "already there"
        return
    fi
    if ! command -v apt-get >/dev/null; then
        printf 'missing, and no apt here:%s\n' "$missing" >&2
        exit 1
    fi
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            printf 'missing:%s\nrun as root, or: apt-get install%s\n' "$missing" "$missing" >&2
            exit 77
        fi
        as_root='sudo'
    fi
    # shellcheck disable=SC2086
    set -- $missing
    quietly "$log" $as_root sh -ec 'apt-get -q update; DEBIAN_FRONTEND=noninteractive \
        apt-get -q install -y --no-install-recommends "$@"' sh "$@"
    phase_done "$# installed:$missing"
}
