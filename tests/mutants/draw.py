#!/usr/bin/env python3
"""Draws small changes of src, cache and templates, and asks whether the tests notice: see --help."""

import argparse
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

HELP = """Copies the project into the work folder, builds its tests there, and then, for each of the
mutations drawn: makes it, builds, and runs tests until one fails: first the unit tests, those of the
mutation's folder before all others, then the rest of the submission tier, and where none of these
fails, what --full does besides (KILN_TEST_ALL_VARIANTS, KILN_FAULT_LENGTH). The same seed and the same
tree draw the same. Prints a row for each; exit code 1 if one was caught by what --full does besides
alone. "build": it does not build, often since templates or rules no longer pass their checks. With
--templates the tests of the template's family, and then all of the submission tier that run kernels."""

# What is exchanged for what, where the pattern stands in code.
EXCHANGES = [
    (r" == ", " != "), (r" != ", " == "), (r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "),
    (r" >= ", " > "), (r" && ", " || "), (r" \|\| ", " && "), (r"return true;", "return false;"),
    (r"return false;", "return true;"), (r"if \(!", "if ("), (r" \+ 1\b", " + 2"),
    (r" - 1\b", ""), (r"\bcontinue;", "break;"), (r"^(\s+)[a-z_]+(\.|->)[a-z_.]+\(.*\);$", r"\1{}"),
]
# What the submission tier does not run at all.
FULL_ONLY = "^(TemplateArithmetic|TemplateSpills|ProbeAgainstTable)"
# What says nothing of what the code does, or ends the build.
LEFT_OUT = re.compile(r'^\s*(//|#|\*|using |static_assert|log\(|template)|"[^"]*( == | < | > )|<[a-zA-Z_:]+>')


def candidates(root, patterns):
    """(file, line number, new line) of every mutation that could be drawn."""
    for pattern in patterns:
        for path in sorted(root.glob(pattern)):
            for number, line in enumerate(path.read_text().split("\n")):
                if LEFT_OUT.search(line):
                    continue
                for exchanged, replacement in EXCHANGES:
                    changed = re.sub(exchanged, replacement, line, count=1)
                    if changed != line:
                        yield path.relative_to(root), number, changed


def draw(root, patterns, seed, count):
    every = list(candidates(root, patterns))
    chosen = random.Random(seed)
    by_file = {}
    for each in every:
        by_file.setdefault(each[0], []).append(each)
    files = sorted(by_file)
    chosen.shuffle(files)  # a file gives one, so that a long one does not give all
    return [chosen.choice(by_file[file]) for file in files[:count]]


class Work:
    """The copy in which mutations are built and run."""

    def __init__(self, root, folder, jobs):
        self.tree, self.jobs = folder / "tree", jobs
        self.tree.mkdir(parents=True, exist_ok=True)
        files = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"],
                               check=True, capture_output=True, text=True).stdout.split("\n")
        for name in filter(None, files):
            source, copy = root / name, self.tree / name
            if not source.is_file():
                continue
            if copy.is_file() and copy.read_bytes() == source.read_bytes():
                continue
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(source.read_bytes())
            copy.chmod(source.stat().st_mode)
        (self.tree / ".deps").unlink(missing_ok=True)  # it may be of a tree that is gone
        if (root / ".deps").exists():
            (self.tree / ".deps").symlink_to(root / ".deps")
        self.log = open(folder / "log", "w")

    def run(self, *command, limit=3600, environment=None):
        """Whether it succeeds, within `limit` seconds."""
        process = subprocess.Popen(command, cwd=self.tree, stdout=self.log, stderr=self.log,
                                   stdin=subprocess.DEVNULL, start_new_session=True,
                                   env={**os.environ, **(environment or {})})
        try:
            return process.wait(limit) == 0
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return process.wait() == 0

    def configure(self):
        launcher = shutil.which("ccache") or ""
        # What a mutation leaves unused is no error.
        return self.run("cmake", "--preset", "dev", "-DKILN_TESTS=ON", "-DKILN_WERROR=OFF",
                        f"-DCMAKE_C_COMPILER_LAUNCHER={launcher}",
                        f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}")

    def build(self, *targets):
        return self.run("cmake", "--build", "--preset", "dev", "-j", str(self.jobs),
                        *(("-t", *targets) if targets else ()))

    def test(self, *arguments, limit=3600, environment=None):
        return self.run("ctest", "--preset", "dev", "-j", str(self.jobs), "--stop-on-failure",
                        *arguments, limit=limit, environment=environment)

    def unit_programs(self, file):
        """Those of the folder that the file is in."""
        folder = file.parts[1] if file.parts[0] == "src" else file.parts[0]
        found = []
        for lists in sorted((self.tree / "tests" / "unit").glob("*/CMakeLists.txt")):
            for program in re.findall(r"kiln_test\([^)]*", lists.read_text()):
                if lists.parent.name == folder or f"../{folder}/" in program:
                    found.append(re.match(r"kiln_test\((\w+)", program)[1])
        return found

    def outcome_of_template(self, file):
        """What catches the mutation of a template, whose key changes with any change."""
        program = f"{file.parts[1]}_on_cpu_test"
        if file.parts[1] != "prelude":
            if not self.build(program):
                return "build"
            if not self.test("-R", f"^{program}"):
                return "family"
        if not self.build("submission"):
            return "build"
        kernels = "_on_cpu_test|_as_ptx_test|PreludeAsPtx|Prelude[.]|defects_test"
        return "SURVIVED" if self.test("-L", "^submission$", "-R", kernels) else "kernels"

    def outcome(self, file, full):
        """What catches the mutation of the file."""
        nearest = self.unit_programs(file)
        if nearest:
            if not self.build(*nearest):
                return "build"
            if not self.test("-R", f"^({'|'.join(nearest)})$", limit=120):  # they take seconds
                return "unit"
        if not self.build():
            return "build"
        if not self.test("-L", "^unit$"):
            return "unit"
        if not self.test("-LE", "^(unit|gpu)$", "-E", FULL_ONLY):
            return "submission"
        if not full:
            return "NOT by submission"
        longer = {"KILN_TEST_ALL_VARIANTS": "1", "KILN_FAULT_LENGTH": "3"}
        if not self.test("-L", "^fault$", environment=longer):
            return "full"
        if not self.test("-R", FULL_ONLY, environment=longer):
            return "full"
        return "SURVIVED"


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=HELP,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--skip", type=int, default=0, help="leave out the first N of them")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--work", type=pathlib.Path, default=root / "build" / "drawn")
    parser.add_argument("--submission", action="store_true",
                        help="without what --full does besides, which takes longest")
    parser.add_argument("--templates", action="store_true", help="of templates, and of no C++")
    parser.add_argument("--list", action="store_true", help="say what is drawn, and end")
    options = parser.parse_args()

    patterns = (["templates/**/*.mustache", "templates/prelude/*"] if options.templates
                else ["src/**/*.cc", "cache/**/*.cc"])
    drawn = draw(root, patterns, options.seed, options.count)[options.skip:]
    if options.list:
        for file, number, changed in drawn:
            print(f"{file}:{number + 1}: {changed.strip()}")
        return 0
    work = Work(root, options.work.absolute(), options.jobs)
    if not work.configure() or not work.build():
        print(f"the tree does not build; see {options.work}/log", file=sys.stderr)
        return 1

    counts = {}
    for file, number, changed in drawn:
        began = time.monotonic()
        path = work.tree / file
        before = path.read_text()
        lines = before.split("\n")
        lines[number] = changed
        path.write_text("\n".join(lines))
        outcome = (work.outcome_of_template(file) if options.templates
                   else work.outcome(file, not options.submission))
        path.write_text(before)
        counts[outcome] = counts.get(outcome, 0) + 1
        print(f"| {file}:{number + 1} | `{changed.strip()}` | {outcome} |"
              f" {time.monotonic() - began:.0f} s |", flush=True)
    print(", ".join(f"{outcome}: {count}" for outcome, count in sorted(counts.items())))
    return 1 if "full" in counts else 0


if __name__ == "__main__":
    sys.exit(main())
