// <stdio.h> and <cstdio> for NVRTC: printf, which it has by itself.
#ifndef KILN_STDIO_H
#define KILN_STDIO_H
#include <cuda/std/cstddef>
namespace std {
using namespace cuda::std;
using ::printf;
}
#endif
