// Versions of cuDNN, in both of their forms.

#include "attention/cudnn_version.h"

#include <gtest/gtest.h>

namespace kiln::attention {
namespace {

TEST(CudnnVersion, IsWrittenForPeopleAndEncodedAsTheLibraryDoes) {
  struct Row {
    const char* read;
    const char* written;
    long number;
  };
  for (const auto& [read, written, number] :
       {Row{"8.9.6", "8.9.6", 8906}, Row{"9.5", "9.5.0", 90500},
        Row{"9.10.2", "9.10.2", 91002}, Row{"9.0.0", "9.0.0", 90000}}) {
    const CudnnVersion version = parse_cudnn_version(read).value();
    EXPECT_EQ(to_string(version), written);
    EXPECT_EQ(encoded(version), number);
    EXPECT_EQ(decoded(number), version);
  }
}

TEST(CudnnVersion, RefusesWhatIsNone) {
  for (const char* const text : {"", "9", "9.", ".9", "9.5.0.1", "9.5.", "-9.5", "9.-5",
                                 "x", "9.x", "9,5", "9.100", "0.1", "8.10.0", " 9.5"})
    EXPECT_FALSE(parse_cudnn_version(text)) << text;
}

}  // namespace
}  // namespace kiln::attention
