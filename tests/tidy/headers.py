"""Compiles each header alone, and twice in one file: it names all that it needs, and its guard works.

usage: headers.py COMPILER [-Ifolder ...]"""

import concurrent.futures
import os
import re
import subprocess
import sys

import tree

TOPS = ("engine/", "config/", "ipc/", "kernels/", "clients/", "tests/lib/")
FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-fsyntax-only", "-Wall", "-Wextra", "-Wshadow", "-Wstrict-prototypes", "-Werror",
         "-Wno-unused-function", "-x", "c", "-"]
CUDA = re.compile(r"#\s*include\s*<(cuda|cublas)")


def wrong(command, path):
    text = f'#include "{path}"\n#include "{path}"\n'
    run = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return [f"{path}: does not compile alone\n{run.stderr}"] if run.returncode else []


def compiles(command, text):
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False).returncode == 0


def main():
    command = [sys.argv[1], "-I" + tree.ROOT, *sys.argv[2:], *FLAGS]
    headers = [p for p in tree.files() if p.startswith(TOPS) and p.endswith(".h")]
    if not compiles(command, "#include <cuda_runtime_api.h>\n"):
        headers = [p for p in headers if not CUDA.search(tree.read(p))]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = [c for found in pool.map(lambda p: wrong(command, p), headers) for c in found]
    tree.finish(len(headers), complaints)


if __name__ == "__main__":
    main()
