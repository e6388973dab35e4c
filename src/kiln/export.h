// What the shared library shows to programs; everything else in it is hidden.

#pragma once

#define KILN_EXPORT __attribute__((visibility("default")))
// Of a part of such a class that is the library's own.
#define KILN_HIDDEN __attribute__((visibility("hidden")))
