#include "tools/verbs.h"

#include <array>

namespace kiln::tools {

std::span<const Verb> verbs() {
  constexpr const char* kBuild = "Build";
  constexpr const char* kInspect = "Inspect";
  constexpr const char* kLookAfter = "Look after";
  static constexpr std::array kVerbs{
      Verb{"warm", "Build what is missing, before a job starts", kBuild, add_warm},
      Verb{"compile", "Compile a CUDA C++ file into the cache", kBuild, add_compile},
      Verb{"render", "Print the source that a template renders to", kBuild, add_render},
      Verb{"templates", "List the kernel templates and their parameters", kBuild,
           add_templates},
      Verb{"ls", "List what the cache holds", kInspect, add_ls},
      Verb{"show", "Everything about one entry", kInspect, add_show},
      Verb{"why", "Why two keys differ, or why a request misses", kInspect, add_why},
      Verb{"stats", "Size of the cache, and what happened in it", kInspect, add_stats},
      Verb{"doctor", "What is found on this machine, and what is wrong", kInspect,
           add_doctor},
      Verb{"attention",
           "Attention by cuDNN: whether it runs, why not, and its plans beforehand",
           kInspect, add_attention},
      Verb{"bench", "How fast the operations run here, beside a copy or cuDNN",
           kInspect, add_bench},
      Verb{"verify", "Check every object, byte by byte", kLookAfter, add_verify},
      Verb{"trim", "Remove what was used least recently", kLookAfter, add_trim},
      Verb{"clear", "Remove entries", kLookAfter, add_clear},
  };
  return kVerbs;
}

}  // namespace kiln::tools
