"""Runs the programs that are named, and says what each ends with."""

import runpy
import sys

for path in sys.argv[1:]:
    try:
        runpy.run_path(path, run_name="__main__")
        print("nothing")
    except Exception as error:
        print(f"{error}".splitlines()[0])
