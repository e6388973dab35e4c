"""The packs that installed packages offer, by entry points of the group ``kiln.seeds``."""

from __future__ import annotations

import functools
import os
import sys

GROUP = "kiln.seeds"


@functools.cache
def seeds() -> list[str]:
    """KILN_SEED's and then those of entry points; empty if no package offers one.

    An entry point is a path, several paths, or a function that returns them. One that cannot be had is
    said on stderr and passed over.
    """
    from importlib.metadata import entry_points

    offered: list[str] = []
    for point in entry_points(group=GROUP):
        try:
            found = point.load()
            found = found() if callable(found) else found
            paths = [found] if isinstance(found, (str, os.PathLike)) else list(found)
            offered += [os.fspath(path) for path in paths]
        except Exception as error:  # whatever a foreign package raises
            print(f"kiln: warning: the seed {point.name} = {point.value} cannot be used: {error}", file=sys.stderr)
    if not offered:
        return []
    return [path for path in os.environ.get("KILN_SEED", "").split(":") if path] + offered


def seeds_of_packages() -> dict[str, str]:
    """The variable of the environment that gives them to the kiln program; empty if there are none."""
    offered = seeds()
    return {"KILN_SEED": ":".join(offered)} if offered else {}
