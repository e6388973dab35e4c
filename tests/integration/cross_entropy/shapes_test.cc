// Every shape against the reference: vocabularies around every boundary of the kernel,
// rows at every distance from a vector's boundary, strides, padding.

#include "tests/integration/cross_entropy/problem.h"

namespace kiln::cross_entropy_test {
namespace {

template <typename T>
class CrossEntropyShapes : public testing::Test {
 protected:
  void TearDown() override {
    this->RecordProperty("worst_dx_ulp", std::to_string(worst_.dx_ulp));
    this->RecordProperty("worst_loss", std::to_string(worst_.loss));
  }
  void check(const Setting& setting) {
    Problem<T> problem(setting);
    const Output<T> fused = problem.fused();
    note(problem.check(fused));
    const Output<T> separate = problem.forward_and_backward();
    EXPECT_TRUE(same_bits(fused.loss, separate.loss)) << setting;
    EXPECT_TRUE(same_bits(fused.lse, separate.lse)) << setting;
    EXPECT_TRUE(same_bits(fused.dlogits, separate.dlogits)) << setting;
  }
  void note(const Errors& errors) {
    worst_.loss = std::max(worst_.loss, errors.loss);
    worst_.dx_ulp = std::max(worst_.dx_ulp, errors.dx_ulp);
  }

 private:
  Errors worst_;
};
TYPED_TEST_SUITE(CrossEntropyShapes, ElementTypes, TypeNames);

// Each is computed by the fused operation, and by the two others with the same bits.
TYPED_TEST(CrossEntropyShapes, OfEveryVocabularyUpTo70AreRightOnBothSidesOfTheMemory) {
  for (I64 vocabulary = 1; vocabulary <= 70; ++vocabulary) {
    for (const Side exact : {Side::kBegin, Side::kEnd}) {
      this->check({.vocabulary = vocabulary,
                   .smoothing = vocabulary % 2 == 0 ? 0.0F : 0.1F,
                   .scale = 0.125F,
                   .exact = exact});
    }
  }
}

TYPED_TEST(CrossEntropyShapes, AroundWhatABlockKeepsAndOfRealVocabulariesAreRight) {
  for (const I64 vocabulary : {255, 256, 257, 1000, 1023, 1025, 4096, 4099, 16383,
                               16384, 16385, 32000, 32767, 32768, 32769, 50257}) {
    this->check({.rows = 2,
                 .vocabulary = vocabulary,
                 .smoothing = vocabulary % 2 == 0 ? 0.0F : 0.1F,
                 .scale = 1.0F / 3});
  }
}

TYPED_TEST(CrossEntropyShapes, LongerThanABlockKeepsAreRight) {
  this->check({.rows = 2, .vocabulary = 128256, .smoothing = 0.05F, .scale = 0.01F});
  this->check({.rows = 1, .vocabulary = 262144 + 5, .scale = 0.5F});
}

TYPED_TEST(CrossEntropyShapes, AtEveryDistanceFromAVectorsBoundaryAreRight) {
  constexpr std::size_t kVector = 16 / sizeof(TypeParam);
  for (std::size_t logits = 0; logits < kVector; ++logits) {
    for (std::size_t dlogits = 0; dlogits < kVector; ++dlogits) {
      for (const I64 vocabulary : {3, 37, 300}) {
        this->check({.rows = 2,
                     .vocabulary = vocabulary,
                     .smoothing = 0.2F,
                     .logits_offset = logits,
                     .dlogits_offset = dlogits});
      }
    }
  }
}

// Guards against vectors that assume rows to begin where vectors do.
TYPED_TEST(CrossEntropyShapes, WithStridesOfTheirOwnAndPaddingAreRight) {
  for (const I64 vocabulary : {1, 7, 40, 1001}) {
    for (const I64 more : {0, 1, 3, 8, 64}) {
      this->check({.rows = 5,
                   .vocabulary = vocabulary,
                   .padded_vocabulary = vocabulary + more,
                   .logits_stride = vocabulary + 5,
                   .dlogits_stride = vocabulary + more + 3,
                   .smoothing = 0.1F});
      this->check({.rows = 5,
                   .vocabulary = vocabulary,
                   .padded_vocabulary = vocabulary + more,
                   .scale = -2});
    }
  }
}

TYPED_TEST(CrossEntropyShapes, OfAnyNumberOfRowsWithAScaleOfTheirOwnAreRight) {
  for (const I64 rows : {1, 2, 31, 33, 100}) {
    this->check(
        {.rows = rows,
         .vocabulary = 33,
         .smoothing = 0.1F,
         .scale = 0.25F,
         .row_scale = true,
         .target_type = rows % 2 == 0 ? TargetType::kInt64 : TargetType::kInt32});
  }
}

}  // namespace
}  // namespace kiln::cross_entropy_test
