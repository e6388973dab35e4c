// The simulated driver's own readers of images, and what no file may do to them.

#include "tests/support/simulated_driver/image.h"

#include "tests/support/test.h"
#include "tests/unit/simulated_driver/images.h"

namespace kiln::simulated {
namespace {

TEST(SimulatedImage, ACubinTellsArchitectureToolkitAndEntryPoints) {
  const auto image =
      read_cubin(test::MadeCubin{.arch = "sm_90a", .release = "12.9"}.build());
  ASSERT_TRUE(image) << image.error().why;
  EXPECT_EQ(image->arch.base, (Capability{9, 0}));
  EXPECT_EQ(image->arch.suffix, 'a');
  EXPECT_EQ(image->toolkit, 12090);
  EXPECT_FALSE(image->is_ptx);
  ASSERT_EQ(image->entry_points.size(), 2);
  EXPECT_EQ(image->entry_points[0].name, "k");
  EXPECT_EQ(image->entry_points[0].registers, 24);
  EXPECT_EQ(image->entry_points[0].static_shared_bytes, 512);
  EXPECT_EQ(image->entry_points[0].max_threads, 256);
  EXPECT_EQ(image->entry_points[1].name, "plain");
  ASSERT_EQ(image->globals.size(), 2);
  EXPECT_EQ(image->globals[0].name, "table");
  EXPECT_EQ(as_text(image->globals[0].initial), "contents");
}

TEST(SimulatedImage, TheOldAbiHasItsArchitectureInTheFirstByte) {
  const auto image =
      read_cubin(test::MadeCubin{.sm = 75, .arch = "", .abi_version = 7}.build());
  ASSERT_TRUE(image) << image.error().why;
  EXPECT_EQ(image->arch.base, (Capability{7, 5}));
  EXPECT_EQ(image->toolkit, 0);
}

TEST(SimulatedImage, ACubinWhoseNoteAndHeaderDisagreeIsRefused) {
  const auto image = read_cubin(test::MadeCubin{.arch = "sm_80"}.build());
  ASSERT_FALSE(image);
  EXPECT_EQ(image.error().result, CUDA_ERROR_INVALID_IMAGE);
  EXPECT_THAT(image.error().why, HasSubstr("disagree"));
}

TEST(SimulatedImage, ACubinCutOffAnywhereIsRefused) {
  const Bytes whole = test::MadeCubin().build();
  ASSERT_TRUE(read_cubin(whole));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    // A copy, so that a sanitizer sees what is read behind it.
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(read_cubin(cut)) << "after " << size << " bytes";
  }
}

TEST(SimulatedImage, NoFlippedBitOrByteOfACubinIsACrash) {
  const Bytes whole = test::MadeCubin().build();
  std::size_t refused = 0;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const unsigned mask : {1U, 2U, 4U, 8U, 16U, 32U, 64U, 128U, 255U}) {
      Bytes damaged = whole;
      damaged[at] ^= static_cast<std::byte>(mask);
      refused += read_cubin(damaged) ? 0U : 1U;
    }
  }
  EXPECT_GT(refused, 0U);
}

TEST(SimulatedImage, PtxTellsVersionTargetAndEntryPoints) {
  const auto image = read_ptx(
      "// .version 1.0\n.version 8.7\n/* .target sm_10\n */ .target sm_103f, debug\n"
      ".address_size 64\n.visible .entry first(.param .u64 p)\n{ ret; }\n"
      "// .entry none()\n.weak .entry\tsecond ( )\n{ ret; }\n.func helper() { ret; "
      "}\n.entry own() { ret; }\n");
  ASSERT_TRUE(image) << image.error().why;
  EXPECT_TRUE(image->is_ptx);
  EXPECT_EQ(image->ptx_version, 87);
  EXPECT_EQ(image->toolkit, 12080);
  EXPECT_EQ(image->arch.base, (Capability{10, 3}));
  EXPECT_EQ(image->arch.suffix, 'f');
  ASSERT_EQ(image->entry_points.size(), 3);
  EXPECT_EQ(image->entry_points[0].name, "first");
  EXPECT_EQ(image->entry_points[1].name, "second");
  EXPECT_FALSE(image->entry_points[1].is_local);
  EXPECT_EQ(image->entry_points[2].name, "own");
  EXPECT_TRUE(image->entry_points[2].is_local);
}

TEST(SimulatedImage, PtxThatDoesNotSayWhatItIsIsInvalidPtx) {
  for (const char* text :
       {"", ".target sm_90\n.version 9.0\n", ".version\n.target sm_90\n",
        ".version nine\n.target sm_90\n", ".version 9.0\n.entry k()\n",
        ".version 9.0\n.target hopper\n", ".version 9.0\n.target sm_90b\n",
        ".version 9.0\n.target sm_90\n.entry", "/* .version 9.0"}) {
    const auto image = read_ptx(text);
    ASSERT_FALSE(image) << text;
    EXPECT_EQ(image.error().result, CUDA_ERROR_INVALID_PTX) << text;
  }
}

TEST(SimulatedImage, WithoutASizeTheImageSaysItselfWhereItEnds) {
  const Bytes cubin = test::MadeCubin().build();
  EXPECT_TRUE(read_image(cubin.data()));
  const Bytes ptx = test::ptx_for("sm_90");
  EXPECT_TRUE(read_image(ptx.data()));
  for (const char* neither : {"", "no image", "\1\2\3", "\177EL"}) {
    const auto image = read_image(neither);
    ASSERT_FALSE(image);
    EXPECT_EQ(image.error().result, CUDA_ERROR_INVALID_IMAGE);
  }
}

TEST(SimulatedImage, AnArchitectureIsADigitPairOrTripleAndASuffix) {
  EXPECT_EQ(parse_arch("compute_120f")->base, (Capability{12, 0}));
  EXPECT_EQ(parse_arch("75")->base, (Capability{7, 5}));
  for (const char* text : {"", "sm_", "sm_9", "sm_90x", "sm_90aa", "sm_9000", "sm_-90"})
    EXPECT_FALSE(parse_arch(text)) << text;
}

}  // namespace
}  // namespace kiln::simulated
