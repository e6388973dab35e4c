// All C++ headers of Kiln. C programs include kiln/c.h instead.

#pragma once

#include "kiln/device.h"             // IWYU pragma: export
#include "kiln/file_cache.h"         // IWYU pragma: export
#include "kiln/geometry.h"           // IWYU pragma: export
#include "kiln/kernel.h"             // IWYU pragma: export
#include "kiln/ops/activation.h"     // IWYU pragma: export
#include "kiln/ops/attention.h"      // IWYU pragma: export
#include "kiln/ops/cross_entropy.h"  // IWYU pragma: export
#include "kiln/ops/norm.h"           // IWYU pragma: export
#include "kiln/ops/rope.h"           // IWYU pragma: export
#include "kiln/ops/softmax.h"        // IWYU pragma: export
#include "kiln/request.h"            // IWYU pragma: export
#include "kiln/result.h"             // IWYU pragma: export
#include "kiln/service.h"            // IWYU pragma: export
#include "kiln/version.h"            // IWYU pragma: export
