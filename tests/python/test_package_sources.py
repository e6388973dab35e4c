"""kiln.package_source: the sources that a package ships, in a folder and in a zip."""

import importlib
import sys
import zipfile

import pytest
from conftest import ROOT, blocks

import kiln

FILES = {
    "__init__.py": b"",
    "scale.cu": b'#include "own.h"\r\n#include "detail/tile.h"\n'
    b'extern "C" __global__ void scale(float* y) { y[threadIdx.x] *= FACTOR + TILE; }',
    "own.h": b"#define FACTOR 2  // \xe2\x82\xac\r\n",
    "detail/tile.h": b"#define TILE 1",
    "kernels/fill.cu": b'#include "../own.h"\n#include "fill.h"\n',
    "kernels/fill.h": b"",
    "latin1.cu": b"// \xe9",
}


@pytest.fixture(params=["folder", "zip"])
def package(request, tmp_path, monkeypatch):
    """The name of a package with FILES that can be imported."""
    name = f"package_in_{request.param}"
    if request.param == "zip":
        path = tmp_path / "packages.zip"
        with zipfile.ZipFile(path, "w") as packed:
            for each, content in FILES.items():
                packed.writestr(f"{name}/{each}", content)
    else:
        path = tmp_path
        for each, content in FILES.items():
            (tmp_path / name / each).parent.mkdir(exist_ok=True)
            (tmp_path / name / each).write_bytes(content)
    monkeypatch.syspath_prepend(path)
    importlib.invalidate_caches()
    yield name
    sys.modules.pop(name, None)


def test_each_byte_of_a_text_arrives_and_headers_have_the_names_that_includes_spell(package):
    assert kiln.package_source(package, "scale.cu", ["own.h", "detail/tile.h"]) == (
        FILES["scale.cu"].decode(),
        {"own.h": FILES["own.h"].decode(), "detail/tile.h": "#define TILE 1"},
        "scale.cu",
    )
    headers = {"../own.h": FILES["own.h"].decode(), "fill.h": ""}
    assert kiln.package_source(package, "kernels/fill.cu", ["../own.h", "fill.h"]) == (
        FILES["kernels/fill.cu"].decode(),
        headers,
        "fill.cu",
    )
    assert kiln.package_source(package, "scale.cu", "own.h")[1].keys() == {"own.h"}


def test_wrong_names_are_refused_in_words(package):
    for name, headers in (("none.cu", ()), ("scale.cu", ["none.h"]), ("detail", ())):
        with pytest.raises(kiln.NotFound, match=f"'{package}' has no file (none|detail).*package-data"):
            kiln.package_source(package, name, headers)
    for name in ("../x.cu", "/etc/passwd", "detail/../../x.cu", ".."):
        with pytest.raises(kiln.InvalidArgument, match=f"{name} is outside of the package {package}"):
            kiln.package_source(package, name)
    with pytest.raises(kiln.InvalidArgument, match="latin1.cu in the package .* is not UTF-8"):
        kiln.package_source(package, "latin1.cu")
    with pytest.raises(kiln.NotFound, match="'no_such_package' has no file"):
        kiln.package_source("no_such_package", "scale.cu")
    for wrong in (None, b"scale.cu", 3):
        with pytest.raises(kiln.InvalidArgument, match="and not a text"):
            kiln.package_source(package, wrong)
        with pytest.raises(kiln.InvalidArgument, match="and not a text"):
            kiln.package_source(package, "scale.cu", [wrong])
        with pytest.raises(kiln.InvalidArgument, match="package is .*, and not a text"):
            kiln.package_source(wrong, "scale.cu")


def test_a_package_in_a_zip_has_the_kernel_of_the_readme(python, nvrtc, tmp_path):
    (lines,) = (each for each in blocks((ROOT / "python/README.md").read_text(), "python") if "package_source" in each)
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as packed:
        packed.writestr("mine/__init__.py", lines)
        packed.writestr("mine/kernels/scale.cu", FILES["scale.cu"].decode())
        packed.writestr("mine/kernels/own.h", FILES["own.h"])
        packed.writestr("mine/kernels/detail/tile.h", FILES["detail/tile.h"])
    said = python(
        """
        import sys
        sys.path.insert(0, "app.zip")
        import kiln.testing
        kiln.testing.use_simulated_device("9.0")
        import mine, numpy
        y = numpy.ones(4, numpy.float32)
        mine.scale(1, 4, y.ctypes.data)
        print(y)
        """,
        folder=tmp_path,
    )
    assert said == "[3. 3. 3. 3.]"
