// What the shared library shows to programs; everything else in it is hidden.

#pragma once

#define KILN_EXPORT __attribute__((visibility("default")))
