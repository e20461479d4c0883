"""Holds every #include of one room's header in another against layers.txt, and layers.txt against CMakeLists.txt.

A room is a folder of sources. The table says whose headers it may include besides its own; the build says the same in its
zr_room(... USES ...) lines and, for the rooms that it builds by hand, in target_link_libraries(room_X PUBLIC ...)."""

import posixpath
import re

import tree

TOPS = ("engine/", "config/", "ipc/", "kernels/", "clients/")
SOURCES = (".c", ".h", ".cu", ".cuh")
# The client side is built by clients/CMakeLists.txt as one library and one program: its two lines stand in the table alone.
BUILT_ELSEWHERE = {"clients/lib", "clients/zeroctl"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)


def table(text):
    rooms = {}
    for line in text.splitlines():
        line = line.split("#")[0].strip()
        if line:
            room, _, uses = line.partition(":")
            rooms[room.strip()] = set(uses.split())
    return rooms


def table_of_build(text, rooms):
    """Room to used rooms, as CMakeLists.txt has them."""
    text = re.sub(r"#[^\n]*", "", text)
    built = {}
    for folder, words in re.findall(r"\bzr_room\(\s*([\w/]+)([^)]*)\)", text):
        uses = re.search(r"\bUSES\b(.*?)(?:\bLINKS\b|$)", words, re.S)
        built[folder] = set(uses.group(1).split()) if uses else set()
    by_target = {"room_" + room.replace("/", "_"): room for room in rooms}
    for target, words in re.findall(r"\btarget_link_libraries\(\s*(room_\w+)\s+PUBLIC\b([^)]*)\)", text):
        if target in by_target and by_target[target] not in built:
            built[by_target[target]] = {by_target[w] for w in words.split() if w in by_target}
    return built


def compare(rooms, built):
    for room in sorted(rooms.keys() - built.keys() - BUILT_ELSEWHERE):
        yield f"layers.txt: {room} is in no line of CMakeLists.txt"
    for room in sorted(built.keys() - rooms.keys()):
        yield f"CMakeLists.txt: {room} is in no line of layers.txt"
    for room in sorted(built.keys() & rooms.keys()):
        for used in sorted(built[room] ^ rooms[room]):
            has, lacks = ("CMakeLists.txt", "layers.txt") if used in built[room] else ("layers.txt", "CMakeLists.txt")
            yield f"{room} uses {used} by {has}, not by {lacks}"
    for room, uses in sorted(rooms.items()):
        for used in sorted(uses - rooms.keys()):
            yield f"layers.txt: {room} uses {used}, which is no room"


def circles(rooms):
    """Rooms that would include each other: the table has floors."""
    done, path, found = set(), [], []

    def visit(room):
        if room in path:
            found.append("layers.txt: a circle: " + " -> ".join(path[path.index(room):] + [room]))
        elif room not in done:
            path.append(room)
            for used in sorted(rooms.get(room, ())):
                visit(used)
            path.pop()
            done.add(room)

    for room in sorted(rooms):
        visit(room)
    return found


def owner(path, include, known):
    """The room of an included header, or None when the tree has no such file."""
    beside = posixpath.normpath(posixpath.join(posixpath.dirname(path), include))
    for candidate in (include, beside, "clients/lib/" + include):
        if candidate in known:
            return posixpath.dirname(candidate)
    return None


def wrong_includes(path, text, rooms, known):
    room = posixpath.dirname(path)
    if room not in rooms:
        yield f"{path}: its folder is no room of layers.txt"
        return
    for match in INCLUDE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        used = owner(path, match.group(1), known)
        if used is None:
            yield f'{path}:{line}: "{match.group(1)}" is no file of the tree'
        elif used != room and used not in rooms[room]:
            yield f'{path}:{line}: {room} may not include "{match.group(1)}"'


def main():
    rooms = table(tree.read("tests/tidy/layers.txt"))
    known = set(tree.files())
    complaints = list(compare(rooms, table_of_build(tree.read("CMakeLists.txt"), rooms))) + circles(rooms)
    sources = [p for p in sorted(known) if p.startswith(TOPS) and p.endswith(SOURCES)]
    # The examples are programs of users: they see the installed header alone.
    sources = [p for p in sources if not p.startswith(("clients/examples/", "clients/python/"))]
    for path in sources:
        complaints += wrong_includes(path, tree.read(path), rooms, known)
    tree.finish(len(sources), complaints)


if __name__ == "__main__":
    main()
