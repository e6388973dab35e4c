// <string.h> and <cstring> for NVRTC, which has memcpy and memset by itself. Of the other functions
// those that libcu++ has.
#ifndef KILN_STRING_H
#define KILN_STRING_H
#include <cuda/std/cstddef>
#if __has_include(<cuda/std/cstring>)
#include <cuda/std/cstring>
using cuda::std::memchr;
using cuda::std::memcmp;
using cuda::std::memmove;
#endif
namespace std {
using namespace cuda::std;
using ::memcpy;
using ::memset;
}
#endif
