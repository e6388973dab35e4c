// Marks what the shared library exports; all other symbols are hidden.

#pragma once

#define KILN_EXPORT __attribute__((visibility("default")))
// Hides a private part of an exported class.
#define KILN_HIDDEN __attribute__((visibility("hidden")))
