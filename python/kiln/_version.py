"""Kiln's version: CMakeLists.txt and pyproject.toml read this line, and all else has it from them."""

__version__ = "0.2.0"
