// Packs: what one instruction loads or stores.

/// 4, 8 or 16 bytes, moved by one instruction at an address that is a multiple of them.
template <int kBytes>
struct alignas(kBytes) kiln_words {
  kiln_u32 word[kBytes / 4];
};

template <int kBytes>
KILN_FUNCTION kiln_words<kBytes> kiln_load(const void* at) {
  return *static_cast<const kiln_words<kBytes>*>(at);
}
template <int kBytes>
KILN_FUNCTION void kiln_store(void* at, const kiln_words<kBytes>& words) {
  *static_cast<kiln_words<kBytes>*>(at) = words;
}
/// The same, of 16 bytes, for what nobody reads soon: it is the first to leave the
/// caches again.
template <int kBytes>
KILN_FUNCTION void kiln_store_streaming(void* at, const kiln_words<kBytes>& words) {
  static_assert(kBytes == 16);
  asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(at), "r"(words.word[0]), "r"(words.word[1]), "r"(words.word[2]),
                 "r"(words.word[3])
               : "memory");
}
KILN_FUNCTION bool kiln_is_aligned(const void* at, kiln_u64 bytes) {
  return reinterpret_cast<kiln_u64>(at) % bytes == 0;
}

/// The `at`-th element of type T in `words`.
template <typename T, int kBytes>
KILN_FUNCTION float kiln_get(const kiln_words<kBytes>& words, int at) {
  constexpr int kPerWord = kiln_element<T>::kPerWord;
  return kiln_element<T>::get(words.word[at / kPerWord], at % kPerWord);
}
/// Makes `bits` the `at`-th element of type T.
template <typename T, int kBytes>
KILN_FUNCTION void kiln_set_bits(kiln_words<kBytes>& words, int at, kiln_u32 bits) {
  constexpr int kPerWord = kiln_element<T>::kPerWord;
  kiln_u32& word = words.word[at / kPerWord];
  if constexpr (kPerWord == 1) {
    word = bits;
  } else {
    word = at % 2 == 0 ? (word & 0xffff0000u) | bits : (word & 0xffffu) | bits << 16;
  }
}
/// The `at`-th byte.
template <int kBytes>
KILN_FUNCTION kiln_u32 kiln_byte(const kiln_words<kBytes>& words, int at) {
  return words.word[at / 4] >> 8 * (at % 4) & 0xffu;
}

/// `values` rounded to T.
template <typename T, int kBytes>
KILN_FUNCTION kiln_words<kBytes> kiln_pack(const float* values) {
  kiln_words<kBytes> words;
#pragma unroll
  for (int i = 0; i < kBytes / 4; ++i) {
    words.word[i] = kiln_element<T>::put(values + i * kiln_element<T>::kPerWord);
  }
  return words;
}

/// kCount elements of type E, a multiple of 16 bytes, in registers.
template <typename E, int kCount>
struct kiln_vector {
  static constexpr int kPerWords = 16 / sizeof(E);
  kiln_words<16> words[kCount / kPerWords];

  KILN_FUNCTION float get(int at) const {
    return kiln_get<E>(words[at / kPerWords], at % kPerWords);
  }
  /// `values` rounded to E.
  KILN_FUNCTION void set(const float* values) {
#pragma unroll
    for (int i = 0; i < kCount / kPerWords; ++i) {
      words[i] = kiln_pack<E, 16>(values + i * kPerWords);
    }
  }

  /// It stays as it is in registers, and not as the floats that were made of it.
  KILN_FUNCTION void keep_packed() {
#pragma unroll
    for (int i = 0; i < kCount / kPerWords; ++i) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        kiln_forget(words[i].word[k]);
      }
    }
  }

  /// Those at `at`, 16-byte aligned; zeros where they are not there.
  KILN_FUNCTION void load(const E* at, bool are_there) {
#pragma unroll
    for (int i = 0; i < kCount / kPerWords; ++i) {
      words[i] = {};
      if (are_there) {
        words[i] = kiln_load<16>(at + i * kPerWords);
      }
    }
  }
  KILN_FUNCTION void store(E* at) const {
#pragma unroll
    for (int i = 0; i < kCount / kPerWords; ++i) {
      kiln_store(at + i * kPerWords, words[i]);
    }
  }
};
