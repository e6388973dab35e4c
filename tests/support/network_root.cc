// Preloaded: what lies below KILN_TEST_NETWORK_ROOT is on NFS, as far as statfs says.

#include <dlfcn.h>
#include <linux/magic.h>
#include <sys/vfs.h>

#include <cstdlib>
#include <string_view>

extern "C" __attribute__((visibility("default"))) int statfs(
    const char* path, struct statfs* info) noexcept {
  using Statfs = int (*)(const char*, struct statfs*);
  static const auto real = reinterpret_cast<Statfs>(::dlsym(RTLD_NEXT, "statfs"));
  const int done = real(path, info);
  const char* const root = std::getenv("KILN_TEST_NETWORK_ROOT");
  if (done == 0 && root != nullptr && std::string_view(path).starts_with(root))
    info->f_type = NFS_SUPER_MAGIC;
  return done;
}
