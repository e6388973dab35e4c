"""CUDA sources that a package of Python ships, also from a zip."""

from __future__ import annotations

import importlib.resources
import posixpath
from collections.abc import Sequence

from ._given import several, text
from .errors import InvalidArgument, NotFound


def package_source(package: str, name: str, headers: str | Sequence[str] = ()) -> tuple[str, dict[str, str], str]:
    """The text of a source in a package, the texts of its headers, and its file name, for a Kernel:

    >>> source, headers, file_name = kiln.package_source(__package__, "kernels/scale.cu", ["own.h"])
    >>> scale = kiln.Kernel(source, headers=headers, file_name=file_name)

    ``headers`` are names as ``#include`` spells them, from the folder of the source.
    """
    folder, file_name = posixpath.split(text("name", name))
    text("package", package)
    texts = {each: _text_of(package, posixpath.join(folder, each)) for each in several("headers", headers)}
    return _text_of(package, name), texts, file_name


def _text_of(package: str, name: str) -> str:
    path = posixpath.normpath(name)
    if path.startswith(("/", "..")):
        raise InvalidArgument(f"{name} is outside of the package {package}")
    try:
        return importlib.resources.files(package).joinpath(path).read_bytes().decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{path} in the package {package} is not UTF-8: {error}") from None
    except (OSError, KeyError, ImportError, TypeError, ValueError) as error:  # of folders, zips, modules
        raise NotFound(
            f"the package {package!r} has no file {path} that can be read: {error}. Its build must ship the file, "
            "as setuptools does by package-data"
        ) from error
