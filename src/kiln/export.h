// Marks what the shared library exports; all other symbols are hidden.

#pragma once

#define KILN_EXPORT __attribute__((visibility("default")))
// Before a field of an operation's arguments: the version of Kiln that has it first, if
// not all have it. The C interface is written from it. After a minor version is
// released no further field can be of it.
#define KILN_SINCE(major, minor)
// Before a field that says what to compute; the others say where tensors are, and of
// which type and shape. Python, whose tensors say this, passes options alone.
#define KILN_OPTION
// Hides a private part of an exported class.
#define KILN_HIDDEN __attribute__((visibility("hidden")))
