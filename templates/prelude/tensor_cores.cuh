// Tensor cores: products of small matrices of 16-bit elements, which the 32 lanes of a
// warp hold together. The whole warp calls each of these at once. A word holds two
// elements, in its lower half that of the lower column or k. With g = lane / 4 and
// t = lane % 4 an m16n8k16 fragment is (PTX ISA, "Matrix Fragments for mma.m16n8k16"):
//   a, 16x16   a[0]: row g, k 2t and 2t + 1;  a[1]: row g + 8;  a[2], a[3]: k + 8
//   b, 16x8    b0: k 2t and 2t + 1, column g;  b1: k + 8
//   d, 16x8    d[0], d[1]: row g, columns 2t and 2t + 1;  d[2], d[3]: row g + 8
// and of m16n8k8 those with k below 8. kiln_matrix_load() of a row-major a gives it,
// its four matrices being: rows 0 to 7, rows 8 to 15, and both again 8 columns on. Of a
// b whose columns lie in rows (b[n][k]), kiln_matrix_load() gives b0 and b1; of
// b[k][n], kiln_matrix_load_transposed().

/// Whether the architecture that is compiled for has what came with `kSince`; T makes
/// it an error of who uses it, and nobody else's.
template <typename T, int kSince>
constexpr bool kiln_is_since = __CUDA_ARCH__ >= kSince;
template <typename T>
struct kiln_tensor_core;
template <>
struct kiln_tensor_core<kiln_f16> {
  static constexpr bool kIsF16 = true;
};
template <>
struct kiln_tensor_core<kiln_bf16> {
  static constexpr bool kIsF16 = false;
};

/// Four 8x8 matrices of 16-bit elements from shared memory: lane l gives the address of
/// row l % 8 of matrix l / 8: 16 bytes, 16-byte aligned. words[m]: of matrix m the
/// elements (row lane / 4, columns 2 (lane % 4) and the next).
template <typename Row = void>
KILN_FUNCTION void kiln_matrix_load(kiln_u32 (&words)[4], const void* row) {
  static_assert(kiln_is_since<Row, 750>, "kiln_matrix_load: from 7.5 on");
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(kiln_shared_address(row))
               : "memory");
}
/// The same transposed: words[m] has of matrix m the elements (row 2 (lane % 4), column
/// lane / 4) and (the next row, the same column).
template <typename Row = void>
KILN_FUNCTION void kiln_matrix_load_transposed(kiln_u32 (&words)[4], const void* row) {
  static_assert(kiln_is_since<Row, 750>, "kiln_matrix_load_transposed: from 7.5 on");
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(kiln_shared_address(row))
               : "memory");
}

/// d += a b, m16n8k8, of T kiln_f16 or kiln_bf16 with sums in float.
template <typename T>
KILN_FUNCTION void kiln_multiply_k8(float (&d)[4], kiln_u32 a0, kiln_u32 a1,
                                    kiln_u32 b) {
  if constexpr (kiln_tensor_core<T>::kIsF16) {
    static_assert(kiln_is_since<T, 750>, "kiln_multiply_k8 of kiln_f16: from 7.5 on");
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
        "{%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(b));
  } else {
    static_assert(kiln_is_since<T, 800>, "kiln_multiply_k8 of kiln_bf16: from 8.0 on");
    asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(b));
  }
}
/// d += a b, m16n8k16; on 7.5 two of the above.
template <typename T>
KILN_FUNCTION void kiln_multiply_k16(float (&d)[4], const kiln_u32 (&a)[4], kiln_u32 b0,
                                     kiln_u32 b1) {
  if constexpr (!kiln_is_since<T, 800>) {
    kiln_multiply_k8<T>(d, a[0], a[1], b0);
    kiln_multiply_k8<T>(d, a[2], a[3], b1);
  } else if constexpr (kiln_tensor_core<T>::kIsF16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}
