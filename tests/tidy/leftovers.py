"""Finds what should not stay: notes to oneself, files that hold a second idea, large files, paths of someone's machine."""

import os
import re

import tree

LINES_MOST = 800
BYTES_MOST = 1 << 20
WRITTEN_BY_HAND = (".c", ".h", ".cu", ".cuh", ".py", ".sh", ".cmake", ".txt", ".md", ".yaml", ".yml", ".in", ".map")

# Put together from pieces, since this file is looked at too.
NOTES = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK"]) + r")\b")
PLACES = re.compile("|".join(["/wo" + r"rk/\w", "/ro" + "ot/", "/home" + r"/[a-z]", "/tmp" + "/b/", r"\.\./sha" + "red/",
                              "sha" + "red/refer" + "ence", r"\.lib" + "rary/"]))


def wrong_lines(path, text):
    for number, line in enumerate(text.splitlines(), 1):
        for what, pattern in (("a note to oneself", NOTES), ("a path of one machine", PLACES)):
            found = pattern.search(line)
            if found:
                yield f"{path}:{number}: {what}: {found.group(0)}"


def wrong(path):
    whole = os.path.join(tree.ROOT, path)
    size = os.path.getsize(whole)
    if size > BYTES_MOST:
        return [f"{path}: {size} bytes, more than {BYTES_MOST}"]
    with open(whole, "rb") as file:
        content = file.read()
    if b"\0" in content:
        return []  # not a text
    text = content.decode("utf-8", errors="replace")
    complaints = list(wrong_lines(path, text))
    lines = text.count("\n")
    if path.endswith(WRITTEN_BY_HAND) and lines > LINES_MOST:
        complaints.append(f"{path}: {lines} lines, more than {LINES_MOST}")
    return complaints


def main():
    paths = tree.files()
    tree.finish(len(paths), [c for path in paths for c in wrong(path)])


if __name__ == "__main__":
    main()
