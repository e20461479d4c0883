"""The files of the source tree: what git tracks and what it would track."""

import os
import subprocess
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
SKIPPED = {".git", "build", ".cache", "__pycache__"}


def walk():
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(f for f in folders if f not in SKIPPED)
        for name in sorted(names):
            yield os.path.relpath(os.path.join(folder, name), ROOT)


def files():
    """Paths relative to ROOT, sorted. Outside of a git checkout (a release archive): everything but build folders."""
    git = ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(git, capture_output=True, check=True).stdout
        paths = [os.fsdecode(p) for p in listed.split(b"\0") if p]
    except (OSError, subprocess.CalledProcessError):
        paths = list(walk())
    return sorted(p for p in set(paths) if os.path.isfile(os.path.join(ROOT, p)))


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def finish(checked, complaints):
    """Prints what is wrong and ends with the exit status that ctest looks at."""
    for complaint in complaints:
        print(complaint)
    print(f"{checked} looked at, {len(complaints)} wrong")
    sys.exit(1 if complaints or not checked else 0)
