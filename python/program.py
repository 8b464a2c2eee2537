#!python
"""Starts the program `penstock`, which lies inside the package of the same name."""

import importlib.util
import os
import sys

# find_spec() imports nothing: the program starts as fast as Python does.
folder = importlib.util.find_spec("penstock").submodule_search_locations[0]
program = os.path.join(folder, "bin", "penstock")
os.execv(program, [program, *sys.argv[1:]])
