"""The floor: what every decision has to do at least, compiled as the product is.

`from bench.floor.floor import Floor` is compiled on first use, into build/bench. A change of a
header, of the floor or of the compile flags makes it anew.
"""

from bench.floor.build import floor_directory

__path__.append(str(floor_directory()))
