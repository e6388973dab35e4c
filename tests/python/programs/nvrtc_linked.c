/* A program that is linked with NVRTC: asks for its version. */

#include <stdio.h>

int nvrtcVersion(int* major, int* minor);

int main(void) {
  int major = 0;
  int minor = 0;
  const int code = nvrtcVersion(&major, &minor);
  printf("%d: %d.%d\n", code, major, minor);
  return 0;
}
