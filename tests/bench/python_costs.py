#!/usr/bin/env python3
"""What the package for Python costs, beside the least that it could, and beside others.

Each row is sampled in turns with its floor, the least that the row could cost, and with
its peer: what torch, CuPy or cuda.core have for the same. No time makes anything fail;
what cannot be measured on this machine is left out, with the reason. Calls go to the
GPU, or else to the simulated driver of a build tree, which computes nothing, so that no
row has the time of a kernel.
"""

import argparse
import contextlib
import functools
import importlib.util
import json
import os
import platform
import re
import sys
import tempfile
from pathlib import Path

import machine
import pairs
from call_rows import CallRows
from extension_rows import ExtensionRows
from nvrtc_rows import NvrtcRows
from place import Place, compiler_backend
from process_rows import ProcessRows
from triton_rows import TritonRows


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="Exit status: 1 if a row failed, 2 for wrong usage, else 0.",
    )
    add = parser.add_argument
    add("--build", type=Path, metavar="DIR",
        help="the build tree whose Kiln is measured; the default is that of the "
        "environment, build/release, build/dev, or the installed package")
    add("--filter", default="", metavar="REGEX", help="the rows with such names")
    add("--list", action="store_true", help="their names, and nothing else")
    add("--long", action="store_true", help="the row whose processes import torch, too")
    add("--smoke", action="store_true", help="each row once, tiny: do they still work?")
    add("--json", action="store_true", help="one JSON document instead of the table")
    add("--rounds", type=int, default=11, metavar="N",
        help="samples of each side of a row (%(default)s)")
    add("--calls", type=int, default=500, metavar="N", help="a sample (%(default)s)")
    add("--backend", metavar="NAME",
        help="of torch.compile: inductor where it works; else, and with --smoke, "
        "aot_eager")
    add("--cache", type=Path, metavar="DIR",
        help="where the kernels of calls are kept for later runs")
    add("--dir", type=Path, help="where scratch folders go")
    options = parser.parse_args()
    if options.smoke:
        options.rounds, options.calls, options.long = 1, 5, True
        options.backend = options.backend or "aot_eager"
    return options


def main():
    options = arguments()
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="kiln-bench-", dir=options.dir)
        )
        return run(options, Path(scratch).resolve())


def run(options, scratch):
    machine.use_build(options.build, scratch)
    if importlib.util.find_spec("kiln") is None:
        print("there is no Kiln: name a build tree with --build", file=sys.stderr)
        return 2
    calls = CallRows(
        functools.partial(Place, options.cache or scratch / "calls"),
        functools.partial(compiler_backend, asked=options.backend),
        options.calls,
    )
    rows = [
        row
        for row in (
            *ProcessRows(scratch).rows(),
            *NvrtcRows(scratch, options.calls).rows(),
            *TritonRows(scratch).rows(),
            *ExtensionRows(scratch, is_small=options.smoke).rows(),
            *calls.rows(),
        )
        if re.search(options.filter, row.name) and (options.long or not row.is_long)
    ]
    if options.list:
        print(*(row.name for row in rows), sep="\n")
        return 0
    if not options.json:
        print(f"load {os.getloadavg()[0]:.1f}\n{pairs.table_head()}", flush=True)
    findings = []
    for row in rows:
        findings.append(pairs.compare(row, options.rounds))
        if not options.json:
            print(pairs.table_line(findings[-1]), flush=True)
    about = {
        "load": os.getloadavg()[0],
        "cores": len(os.sched_getaffinity(0)),
        "device": "GPU" if machine.has_gpu() else "simulated",
        "python": platform.python_version(),
        "torch": getattr(sys.modules.get("torch"), "__version__", None),
        "compiled_by": calls.compiled_by,
        "rounds": options.rounds,
    }
    if options.json:
        found = [finding.to_json() for finding in findings]
        print(json.dumps(about | {"rows": found}, indent=2))
    else:
        print(f"medians of {options.rounds} rounds;", *told(about))
    return 1 if any(finding.error for finding in findings) else 0


def told(about):
    yield f"load {about['load']:.1f}; device: {about['device']};"
    yield f"Python {about['python']}; torch {about['torch'] or 'not used'};"
    yield f"compiled by {about['compiled_by'] or 'nothing'}"


if __name__ == "__main__":
    sys.exit(main())
