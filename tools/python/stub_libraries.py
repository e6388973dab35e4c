#!/usr/bin/env python3
"""Stands in for the CUDA libraries that a torch wheel needs, where no GPU and none of them is.

usage: stub_libraries.py PACKAGES OUTPUT

A wheel of torch installed with --no-deps lacks the libraries of CUDA, 2.5 GB less to download. This
reads which libraries the files in PACKAGES/torch/lib need that are neither there nor of the system,
and which of their symbols, with their versions, they use: from nm and readelf. It then compiles one
library a name into OUTPUT, in which each function returns 100, cudaErrorNoDevice. With OUTPUT being
PACKAGES/torch/lib itself, where torch looks first, torch imports, torch.cuda.is_available() is False,
and all that runs on the CPU works. Nothing here is for a machine with a GPU.
"""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

MARK = "stub_of_a_cuda_library"  # a symbol of each stub, so that a second run does not read them
SYSTEM = re.compile(r"^(ld-linux|libc|libm|libdl|libpthread|librt|libutil|libgcc_s|libstdc\+\+)[-.]")


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def libraries_of(packages):
    """The shared libraries of torch."""
    folders = [packages / "torch/lib", packages / "torch"]
    files = [f for d in folders for f in sorted(d.glob("*.so*")) if f.is_file() and is_elf(f)]
    return [file for file in files if MARK not in defined_in(file)]


def needed_by(library):
    dynamic = run("readelf", "-dW", str(library))
    return re.findall(r"\(NEEDED\)\s+Shared library: \[(.+?)\]", dynamic)


def versions_of(library):
    """The versions of symbols that `library` asks of each library: {soname: {version}}."""
    wanted, soname = defaultdict(set), None
    for line in run("readelf", "-VW", str(library)).splitlines():
        if match := re.search(r"Version: \d+\s+File: (\S+)", line):
            soname = match[1]
        elif soname and (match := re.search(r"Name: (\S+)\s+Flags:", line)):
            wanted[soname].add(match[1])
        elif line.startswith("Version definition"):
            soname = None
    return wanted


def undefined_in(library):
    """Its undefined symbols and their versions: {(name, version or None)}."""
    found = set()
    for line in run("nm", "-D", "--undefined-only", str(library)).splitlines():
        kind, name = line.split()[-2:]
        name, _, version = name.partition("@")
        found.add((name, version.lstrip("@") or None, kind))
    return found


def defined_in(library):
    names = run("nm", "-D", "--defined-only", str(library)).split("\n")
    return {line.split()[-1].partition("@")[0] for line in names if line}


# Which library has a symbol is written nowhere in ELF; its beginning tells, as NVIDIA names them.
PREFIXES = (
    ("cudnn", "libcudnn"),
    ("cublasLt", "libcublasLt"),
    ("cublas", "libcublas"),
    ("cufft", "libcufft"),
    ("cufile", "libcufile"),
    ("cuFile", "libcufile"),
    ("curand", "libcurand"),
    ("cusolver", "libcusolver"),
    ("cusparseLt", "libcusparseLt"),
    ("cusparse", "libcusparse"),
    ("cupti", "libcupti"),
    ("nccl", "libnccl"),
    ("nvrtc", "libnvrtc"),
    ("nvJitLink", "libnvJitLink"),
    ("nvshmem", "libnvshmem_host"),
    ("nvtx", "libnvToolsExt"),
    ("cuda", "libcudart"),
    ("__cuda", "libcudart"),
    ("nvml", "libnvidia-ml"),
    ("cu", "libcuda"),
)


def owner_of(symbol, sonames):
    for prefix, stem in PREFIXES:
        if symbol.startswith(prefix):
            for soname in sonames:
                if soname.split(".so")[0] == stem:
                    return soname
    return None


def write_stub(soname, symbols, versions, folder):
    """`symbols`: {(name, version)}; `versions`: those that must be defined, used or not."""
    lines = [f"const int {MARK} = 1;"]
    script = []
    by_version = defaultdict(set)
    for name, version in sorted(symbols, key=str):
        by_version[version].add(name)
    for name in sorted({name for name, _ in symbols}):
        lines.append(f"int {name}(void) {{ return 100; }}")
    for version in sorted({*versions, *(v for v in by_version if v)}):
        names = "".join(f" {name};" for name in sorted(by_version[version]))
        script.append(f"{version} {{ global:{names} {'' if script else MARK + ';'} }};")
    source, map_file = folder / f"{soname}.c", folder / f"{soname}.map"
    source.write_text("\n".join(lines) + "\n")
    command = ["cc", "-shared", "-fPIC", "-w", "-O1", "-fno-builtin", f"-Wl,-soname,{soname}"]
    if script:
        map_file.write_text("\n".join(script) + "\n")
        command.append(f"-Wl,--version-script={map_file}")
    subprocess.run([*command, "-o", str(folder / soname), str(source)], check=True)
    source.unlink()
    map_file.unlink(missing_ok=True)


def main(packages, output):
    packages, output = Path(packages), Path(output)
    output.mkdir(parents=True, exist_ok=True)
    libraries = libraries_of(packages)
    if not libraries:
        sys.exit(f"there is no torch in {packages}")
    there = {library.name for library in libraries}
    sonames, versions, symbols = set(), defaultdict(set), {}
    defined = set()
    for library in libraries:
        sonames |= {n for n in needed_by(library) if n not in there and not SYSTEM.match(n)}
        for soname, names in versions_of(library).items():
            versions[soname] |= names
        defined |= defined_in(library)
        for name, version, kind in undefined_in(library):
            symbols.setdefault((name, version), kind)
    of_version = {v: soname for soname, names in versions.items() if soname in sonames for v in names}
    stubs = {soname: set() for soname in sonames}
    unknown = set()
    for (name, version), kind in symbols.items():
        if name in defined or kind in "wv":
            continue
        soname = of_version.get(version) if version else owner_of(name, sonames)
        if soname is not None:
            stubs[soname].add((name, version))
        elif version is None:
            unknown.add(name)
    for soname, wanted in stubs.items():
        write_stub(soname, wanted, versions.get(soname, ()), output)
    functions = sum(len(wanted) for wanted in stubs.values())
    print(f"{len(stubs)} libraries with {functions} functions in {output}")
    strange = sorted(name for name in unknown if not name.startswith(("Py", "_Py", "_Z", "__cxa", "__gxx")))
    if strange:  # Python's own are in the interpreter, and C++'s in libstdc++
        print("undefined, and of no stub:", *strange)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
