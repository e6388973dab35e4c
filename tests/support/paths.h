// Where this build put what tests run and open. These paths are compiled into paths.cc
// alone, so that ccache has every other file of a build in another folder.

#pragma once

#include <string>
#include <string_view>

namespace kiln::test::paths {

extern const char* const kEmbed;  ///< the program kiln-embed
extern const char* const kFakeNvrtc;
extern const char* const kPreload;
extern const char* const kProgram;  ///< kiln
extern const char* const kHangingDriver;
extern const char* const kSettingsProbe;
extern const char* const kSimulatedDriver;

// Only where a plan worker is built.
extern const char* const kNoDeviceDriver;
extern const char* const kPlanWorker;
extern const char* const kSimulatedCudnn;

std::string source(std::string_view path);  ///< in the source tree
std::string built(std::string_view path);   ///< in the folder of the build

}  // namespace kiln::test::paths
