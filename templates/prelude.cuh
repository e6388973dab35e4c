// Types, conversions and intrinsics for kernels. Kiln puts this in front of every
// template's text; the build puts the parts in for these lines, so NVRTC needs no
// header of any toolkit. They are the one place with inline assembly. Every name begins
// with kiln_ or KILN_.

#include "prelude/device.cuh"
#include "prelude/arithmetic.cuh"
#include "prelude/elements.cuh"
#include "prelude/packs.cuh"
#include "prelude/tensor_cores.cuh"
#include "prelude/copies.cuh"
#include "prelude/reductions.cuh"
#include "prelude/activations.cuh"
