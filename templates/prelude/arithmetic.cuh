// Arithmetic of floats and indices.

/// a / b for a >= 0 and b > 0. Fast below 2^32; above, a loop instead of a call.
KILN_FUNCTION kiln_i64 kiln_divide(kiln_i64 a, kiln_i64 b) {
  if (((a | b) >> 32) == 0) {
    return static_cast<kiln_u32>(a) / static_cast<kiln_u32>(b);
  }
  kiln_u64 quotient = 0;
  kiln_u64 rest = 0;
#pragma unroll 1
  for (int bit = 63; bit >= 0; --bit) {
    rest = rest << 1 | (static_cast<kiln_u64>(a) >> bit & 1);
    quotient <<= 1;
    if (rest >= static_cast<kiln_u64>(b)) {
      rest -= static_cast<kiln_u64>(b);
      quotient |= 1;
    }
  }
  return static_cast<kiln_i64>(quotient);
}

/// e^(x + rest) to 0.8 ulp, for x up to 87 and a small rest; 0 for x below -87. NaN
/// stays NaN. The same bits on every GPU and CPU.
KILN_FUNCTION float kiln_exp(float x, float rest) {
  // x + rest = n ln 2 + r + low with |r| <= ln 2 / 2; n is in the last bits of
  // `shifted`.
  const float shifted = fmaf(x, 1.4426950408889634f, 12582912.0f);
  const float n = shifted - 12582912.0f;
  const float rough = fmaf(n, -0.693145751953125f, x);  // exact: 15 bits of ln 2
  const float more = fmaf(n, -1.42860682e-6f, rest);
  const float r = rough + more;
  const float low = (rough - r) + more;
  // e^r = 1 + r + r^2 q(r), interpolated; off by 2^-26.5 at most.
  float q = fmaf(0.0013926250394433737f, r, 0.00836323294788599f);
  q = fmaf(q, r, 0.04166655242443085f);
  q = fmaf(q, r, 0.16666576266288757f);
  q = fmaf(q, r, 0.5f);
  const float sum = 1.0f + r;
  const float lost = (1.0f - sum) + r;
  const float mantissa = sum + (lost + fmaf(r * r, q, low));
  const float power = kiln_from_bits((kiln_bits(shifted) << 23) + 0x3f800000u);
  return x < -87.0f ? 0.0f : mantissa * power;
}

/// Sine and cosine of n quarter turns and r + low, |r| up to 0.826 and a small low.
KILN_FUNCTION void kiln_sincos_of(kiln_u32 n, float r, float low, float* sine,
                                  float* cosine) {
  const float z = r * r;
  // sin r = r + r^3 p(z) and cos r = 1 - z/2 + z^2 q(z), interpolated; off by 2^-28.
  float p = fmaf(2.7216665e-06f, z, -0.00019839816f);
  p = fmaf(p, z, 0.008333331f);
  p = fmaf(p, z, -0.16666667f);
  const float s = r + fmaf(r * z, p, fmaf(low, -0.5f * z, low));
  float q = fmaf(2.4520492e-05f, z, -0.0013888169f);
  q = fmaf(q, z, 0.041666664f);
  const float sum = fmaf(-0.5f, z, 1.0f);
  const float c = sum + (fmaf(-0.5f, z, 1.0f - sum) + fmaf(z * z, q, -(r * low)));
  const float a = n % 2 == 0 ? s : c;
  const float b = n % 2 == 0 ? c : s;
  *sine = n & 2 ? -a : a;
  *cosine = (n + 1) & 2 ? -b : b;
}

/// The same of a large finite x, which is m * 2^e: of 2/pi the 96 bits are taken whose
/// products with m matter modulo four quarter turns (Payne and Hanek, 1983).
KILN_FUNCTION void kiln_sincos_of_large(float x, float* sine, float* cosine) {
  const kiln_u32 bits = kiln_bits(x);
  const kiln_u64 m = (bits & 0x7fffffu) | 0x800000u;
  const kiln_u32 skipped = (bits >> 23 & 0xffu) - 150 + 30;  // 32 zeros stand in front
  kiln_u32 word[4] = {0, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u};
  const kiln_u32 more[4] = {0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu};
#pragma unroll
  for (kiln_u32 i = 0; i < 4; ++i) {
    if (i < skipped / 32) {
      word[0] = word[1];
      word[1] = word[2];
      word[2] = word[3];
      word[3] = more[i];
    }
  }
  const auto window = [&](int i) {
    const kiln_u64 both = static_cast<kiln_u64>(word[i]) << 32 | word[i + 1];
    return both << skipped % 32 >> 32;
  };
  const kiln_u64 last = m * window(2);
  const kiln_u64 middle = m * window(1) + (last >> 32);
  const kiln_u64 turns = (m * window(0) << 32) + middle;  // in 2^-62 quarter turns
  const kiln_u64 quarters = (turns + (1ull << 61)) >> 62;
  const kiln_i64 rest = static_cast<kiln_i64>(turns - (quarters << 62));
  const float high = static_cast<float>(rest);
  const float low = static_cast<float>(rest - static_cast<kiln_i64>(high));
  // Times pi/2, in two floats.
  const float r = high * 3.4061217e-19f;
  const float lost = fmaf(high, 3.4061217e-19f, -r);
  kiln_sincos_of(static_cast<kiln_u32>(quarters), r,
                 fmaf(low, 3.4061217e-19f, fmaf(high, -9.4783964e-27f, lost)), sine,
                 cosine);
  *sine = bits >> 31 != 0 ? -*sine : *sine;
}

/// Sines and cosines of kCount angles in radians, to 0.83 ulp for every float; NaN for
/// infinities. The same bits on every GPU and CPU. It takes several at once because
/// what the rare large ones need is code enough to be there once.
template <int kCount>
KILN_FUNCTION void kiln_sincos(const float* x, float* sine, float* cosine) {
  constexpr float kLarge = 1.0e6f;  // n is off by 0.526 there at most
  float largest = 0.0f;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float shifted = fmaf(x[i], 0.63661975f, 12582912.0f);  // 1.5 * 2^23
    const float n = shifted - 12582912.0f;
    // x - n pi/2 with pi/2 in three floats. The first difference is exact; of the
    // second, what rounding takes goes along. fmaf keeps a product by itself.
    const float first = fmaf(n, -1.5707964f, x[i]);
    const float by = fmaf(n, 4.371139e-08f, 0.0f);
    const float by_low = fmaf(n, 4.371139e-08f, -by);
    const float r = first + by;
    const float back = r - first;
    const float lost = (first - (r - back)) + (by - back);
    kiln_sincos_of(kiln_bits(shifted), r, fmaf(n, 1.7151245e-15f, lost + by_low),
                   &sine[i], &cosine[i]);
    largest = fmaxf(largest, fabsf(x[i]));
  }
  if (largest > kLarge) {
#pragma unroll 1
    for (int large = 0; large < kCount; ++large) {
      float angle = 0.0f;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        angle = i == large ? x[i] : angle;
      }
      const float size = fabsf(angle);
      if (size > kLarge && size < kiln_infinity) {
        float s = 0.0f;
        float c = 0.0f;
        kiln_sincos_of_large(angle, &s, &c);
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          sine[i] = i == large ? s : sine[i];
          cosine[i] = i == large ? c : cosine[i];
        }
      }
    }
  }
}

/// 1 / sqrt(x), the nearest float but for rare ties, for x from 2^-126; infinity for 0, 0
/// for infinity; NaN stays NaN.
KILN_FUNCTION float kiln_rsqrt(float x) {
  const float guess = kiln_rsqrt_approx(x);
  const float root = x * guess;
  const float lost = fmaf(x, guess, -root);
  // Of 0 and infinity it is NaN, which fminf drops: the guess stays.
  const float error = fminf(fmaf(-lost, guess, fmaf(-root, guess, 1.0f)), 1.0f);
  return fmaf(0.5f * guess, error, guess);
}
