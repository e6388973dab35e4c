// <math.h> and <cmath> for NVRTC, which has the functions by itself: libcu++, and POSIX's constants.
#ifndef KILN_MATH_H
#define KILN_MATH_H
#include <cuda/std/cmath>
#define HUGE_VAL (__longlong_as_double(0x7ff0000000000000LL))
#define HUGE_VALF INFINITY
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
namespace std {
using namespace cuda::std;
// What libcu++ lacks or lacked; these hide what a later one has, with the same result.
using ::erf;
using ::erfc;
using ::fdim;
using ::fma;
using ::fmod;
using ::modf;
using ::nan;
using ::nanf;
using ::remainder;
using ::remquo;
#if CCCL_MAJOR_VERSION < 3
using ::cbrt;
using ::exp2;
using ::expm1;
using ::floor;
using ::frexp;
using ::ldexp;
using ::lgamma;
using ::llrint;
using ::llround;
using ::lrint;
using ::lround;
using ::nearbyint;
using ::nextafter;
using ::rint;
using ::round;
using ::scalbln;
using ::scalbn;
using ::tgamma;
using ::trunc;
#endif
}
#endif
