#include "kiln/version.h"

#include "kiln_build_id.h"

namespace kiln {

const char* version() {
  return KILN_VERSION;
}

const char* build_id() {
  return KILN_BUILD_ID;
}

}  // namespace kiln
