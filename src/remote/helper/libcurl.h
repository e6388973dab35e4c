// libcurl's functions, from the machine's own library, opened when kiln-remote starts:
// so a wheel has kiln-remote without a copy of libcurl, whose TLS nobody would renew.

#pragma once

#include <curl/curl.h>

#include <string>
#include <vector>

#include "kiln/result.h"

namespace kiln::remote {

// clang-format off
// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): one list for the members and their names
#define KILN_LIBCURL_FUNCTIONS(X)                                             \
  X(easy_cleanup) X(easy_getinfo) X(easy_header) X(easy_init) X(easy_setopt)  \
  X(easy_strerror) X(free) X(getdate) X(global_init) X(multi_add_handle)      \
  X(multi_cleanup) X(multi_info_read) X(multi_init) X(multi_perform)          \
  X(multi_poll) X(multi_remove_handle) X(slist_append) X(slist_free_all)      \
  X(url) X(url_cleanup) X(url_get) X(url_set) X(version_info)
// clang-format on

/// Each member is the function of its name with `curl_` before it.
struct Libcurl {
  // NOLINTNEXTLINE(cppcoreguidelines-macro-usage, bugprone-macro-parentheses)
#define KILN_MEMBER(name) decltype(&::curl_##name) name = nullptr;
  KILN_LIBCURL_FUNCTIONS(KILN_MEMBER)
#undef KILN_MEMBER
};

/// The first library of `names`, found where the loader and Python environments have
/// them, that is 7.85 or later: its header API and CURLOPT_PROTOCOLS_STR are used.
/// Never closed. Errors: kUnavailable, with what is wrong with each that was found.
[[nodiscard]] Result<Libcurl> open_libcurl(const std::vector<std::string>& names = {
                                               "libcurl.so.4", "libcurl-gnutls.so.4"});

}  // namespace kiln::remote
