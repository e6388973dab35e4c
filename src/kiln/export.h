// Marks what the shared library exports; all other symbols are hidden.

#pragma once

#define KILN_EXPORT __attribute__((visibility("default")))
// Before a field of an operation's arguments: the version of Kiln that has it first, if
// not all have it. The C interface is written from it. After a minor version is
// released no further field can be of it.
#define KILN_SINCE(major, minor)
// Hides a private part of an exported class.
#define KILN_HIDDEN __attribute__((visibility("hidden")))
