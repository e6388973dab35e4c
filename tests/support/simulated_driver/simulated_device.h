/* Simulated devices for the tests of a program in C or C++: docs/testing.md. It takes
   POSIX, so C with -std=gnu11, and before glibc 2.34 -ldl. Thread safety: none but for
   kiln_take_report(). */

#pragma once

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simulated_driver.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of the simulated driver in the folder that KILN_TEST_KIT names, else in that of this
   header; null after a line on stderr. */
static inline void* kiln_simulated_symbol_(const char* name) {
  static const char kDriver[] = "/driver/libcuda.so.1";
  const char* const named = getenv("KILN_TEST_KIT");
  const char* const kit = named != NULL && *named != '\0' ? named : __FILE__;
  const char* const end = kit == named ? kit + strlen(kit) : strrchr(kit, '/');
  char path[4096];
  void* library = NULL;
  void* symbol = NULL;
  const int length = end == NULL ? -1
                                 : snprintf(path, sizeof path, "%.*s%s",
                                            (int)(end - kit), kit, kDriver);
  if (length > 0 && (size_t)length < sizeof path)
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library != NULL)
    symbol = dlsym(library, name);
  if (symbol == NULL)
    fprintf(stderr, "kiln: no simulated driver: %s; let KILN_TEST_KIT name the kit\n",
            length < 0 ? "it is not beside this header" : dlerror());
  else if (strcmp(name, "kiln_simulated_set_devices") == 0)
    setenv("KILN_DRIVER", path, 1);
  return symbol;
}

/* Gives this process devices of these compute capabilities, "8.6,9.0", in the place of
   a CUDA driver. Kernels run on the CPU and may use any memory of the process; reads of
   memory that nobody wrote and races on shared memory are looked for. Call it before
   Kiln is used. Returns 0; -1 after a line on stderr. */
static inline int kiln_use_simulated_device(const char* capabilities) {
  static const char* const kComputing[3][2] = {
      {"KERNELS", "run"}, {"MEMORY", "process"}, {"CHECKS", "unset,races"}};
  int (*set_devices)(const char*);
  int (*set_computing)(const char*, const char*);
  int i;
  *(void**)&set_devices = kiln_simulated_symbol_("kiln_simulated_set_devices");
  *(void**)&set_computing = kiln_simulated_symbol_("kiln_simulated_set_computing");
  if (set_devices == NULL || set_computing == NULL)
    return -1;
  for (i = 0; i < 3; ++i) set_computing(kComputing[i][0], kComputing[i][1]);
  if (set_devices(capabilities) == 0)
    return 0;
  fprintf(stderr,
          "kiln: '%s': name compute capabilities, such as 8.6,9.0, before any use\n",
          capabilities);
  return -1;
}

/* What kernels did wrong, and what the checks found, a line each, since the last call;
   "" for nothing. Valid until the thread's next call. */
static inline const char* kiln_take_report(void) {
  const char* (*take_report)(void);
  *(void**)&take_report = kiln_simulated_symbol_("kiln_simulated_take_report");
  return take_report == NULL ? "there is no simulated driver" : take_report();
}

#ifdef __cplusplus
}
#endif
