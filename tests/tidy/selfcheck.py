"""Plants mistakes in front of the other checks: a check that finds nothing has to be one that could have."""

import sys
import unittest

sys.dont_write_bytecode = True

import layers
import leftovers

ROOMS = {"engine/base": set(), "config": {"engine/base"}, "engine/plan": {"engine/base", "config"}}
BUILD = """
zr_room(engine/base USES LINKS PkgConfig::HWLOC) # a comment (with braces)
zr_room(config USES engine/base LINKS PkgConfig::YAML)
zr_room(engine/plan USES engine/base
        config)
"""
KNOWN = {"engine/base/error.h", "config/config.h", "engine/plan/plan.h", "clients/lib/zeroclient.h"}


class Layers(unittest.TestCase):
    def test_the_build_is_read(self):
        self.assertEqual(layers.table_of_build(BUILD, ROOMS), ROOMS)

    def test_a_room_built_by_hand_is_read(self):
        rooms = {"kernels": set(), "kernels/cpu": {"kernels"}}
        build = "zr_room(kernels USES)\ntarget_link_libraries(room_kernels_cpu PUBLIC room_kernels ${X} m)\n"
        self.assertEqual(layers.table_of_build(build, rooms), rooms)

    def test_equal_tables_are_fine(self):
        self.assertEqual(list(layers.compare(ROOMS, ROOMS)), [])

    def test_a_room_too_many_on_either_side_is_found(self):
        for here, there in ((ROOMS, {"engine/base": set(), "config": {"engine/base"}}), (dict(config=set()), ROOMS)):
            self.assertTrue(list(layers.compare(here, there)))

    def test_a_use_too_many_on_either_side_is_found(self):
        other = dict(ROOMS, config=set())
        self.assertEqual(len(list(layers.compare(other, ROOMS))), 1)
        self.assertEqual(len(list(layers.compare(ROOMS, other))), 1)

    def test_a_circle_is_found(self):
        self.assertEqual(layers.circles(ROOMS), [])
        self.assertTrue(layers.circles(dict(ROOMS, **{"engine/base": {"engine/plan"}})))

    def test_an_include_from_above_is_found(self):
        text = '#include "engine/base/error.h"\n  #  include "engine/plan/plan.h"\n'
        found = list(layers.wrong_includes("config/apply.c", text, ROOMS, KNOWN))
        self.assertEqual(found, ['config/apply.c:2: config may not include "engine/plan/plan.h"'])

    def test_an_include_by_a_detour_is_found(self):
        text = '#include "../engine/plan/plan.h"\n'
        self.assertTrue(list(layers.wrong_includes("config/apply.c", text, ROOMS, KNOWN)))

    def test_allowed_includes_pass(self):
        text = '#include "engine/base/error.h"\n#include "config/config.h"\n#include <stdio.h>\n'
        self.assertEqual(list(layers.wrong_includes("engine/plan/fit.c", text, ROOMS, KNOWN)), [])

    def test_a_source_outside_of_all_rooms_is_found(self):
        self.assertTrue(list(layers.wrong_includes("engine/odd/x.c", "", ROOMS, KNOWN)))


class Leftovers(unittest.TestCase):
    def test_notes_and_places_are_found(self):
        for line in ("/* TO" + "DO: later */", "// FIX" + "ME", "# X" + "XX", "open(/wo" + "rk/main)", "/home" + "/ann/x"):
            self.assertEqual(len(list(leftovers.wrong_lines("a.c", "int a;\n" + line))), 1, line)

    def test_words_that_contain_them_pass(self):
        for line in ('mkdtemp("zerod-XXXXXX")', "a workload", "work/leisure", "shared memory", "/etc/zerod"):
            self.assertEqual(list(leftovers.wrong_lines("a.c", line)), [], line)


if __name__ == "__main__":
    unittest.main()
