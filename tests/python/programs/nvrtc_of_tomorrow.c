/* A library of the name and the symbols of an NVRTC, of a major version to come. Its
   private functions have signatures that nobody knows. */

#include <stdarg.h>

struct Three {
  long first;
  long second;
  double third;
};

int nvrtcVersion(int* major, int* minor) {
  *major = 99;
  *minor = 1;
  return 0;
}

int nvrtcCreateProgram(void) {
  return 5;
}
int nvrtcCompileProgram(void) {
  return 6;
}

const char* nvrtcGetErrorString(int code) {
  return code == 0 ? "fine" : "not fine";
}

/* More than fit into registers, of each kind; the result is returned in memory. */
struct Three __nvrtcCPEx(long a, double b, long c, float d, long e, double f, long g,
                         double h, long i, double j, long k, double l, long m, double n,
                         double o, double p, struct Three q, long double r) {
  struct Three made = {a + 2 * c + 3 * e + 4 * g + 5 * i + 6 * k + 7 * m,
                       q.first - q.second,
                       b + 2 * d + 3 * f + 4 * h + 5 * j + 6 * l + 7 * n + 8 * o +
                           9 * p + q.third + (double)r};
  return made;
}

/* A variable number of arguments, of which rax says on x86-64 how many are in vector
 * registers. */
double __nvrtcNvvmHandle(int count, ...) {
  va_list list;
  va_start(list, count);
  double sum = 0;
  for (int i = 0; i < count; ++i) sum = 10 * sum + va_arg(list, double);
  va_end(list);
  return sum;
}

#ifdef WITH_ANOTHER_FUNCTION
int nvrtcOfTomorrow(void) {
  return 0;
}
#endif
