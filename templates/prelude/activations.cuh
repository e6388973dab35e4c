// Activations: value and slope at u, as accurate as results of type T can show.

// Of a float, values are good to 3 ulp (kiln_gelu_erf: 4), however small, and slopes to
// that of the larger of the terms they are the sum of; the same bits on every GPU and
// CPU. What rounds to 16 bits is off by 2^-15 at most. Where a sigmoid or a normal
// distribution is below 2^-125 it is 0, and so is what is multiplied by it: no
// inf * 0. NaN stays NaN in a value.

struct kiln_activation {
  float value;
  float slope;
};

/// e^(x + rest) for x <= 0.
template <typename T>
KILN_FUNCTION float kiln_exp_for(float x, float rest) {
  if constexpr (sizeof(T) == 2) {
    return kiln_exp2_approx(x * 1.4426950408889634f);
  } else {
    return kiln_exp(x, rest);
  }
}

/// u * sigmoid(x + rest), where `growth` is u * dx/du.
template <typename T>
KILN_FUNCTION kiln_activation kiln_times_sigmoid(float u, float x, float rest,
                                                 float growth) {
  const float e = kiln_exp_for<T>(-fabsf(x), x < 0.0f ? rest : -rest);
  const float sum = 1.0f + e;
  float large = kiln_reciprocal(sum);
  if constexpr (sizeof(T) == 4) {
    const float lost = e - (sum - 1.0f);
    large = fmaf(-large * lost, large, large);
  }
  const float small = e * large;
  const float at = x < 0.0f ? small : large;
  const float other = x < 0.0f ? large : small;  // 1 - at
  // Where it is cut off, `at` or `other` is 0.
  const float bounded = fminf(fmaxf(growth, -300.0f), 300.0f);
  return {at == 0.0f ? 0.0f : u * at, at * fmaf(other, bounded, 1.0f)};
}

/// u * sigmoid(alpha * u)
template <typename T>
KILN_FUNCTION kiln_activation kiln_silu(float u, float alpha = 1.0f) {
  const float x = alpha * u;
  return kiln_times_sigmoid<T>(u, x, fmaf(alpha, u, -x), x);
}

/// 0.5 u (1 + tanh(sqrt(2/pi) (u + 0.044715 u^3))) = u sigmoid(u (c + d u^2))
template <typename T>
KILN_FUNCTION kiln_activation kiln_gelu_tanh(float u) {
  constexpr float c = 1.5957691669464111f;  // 2 sqrt(2/pi), and what is lost of it
  constexpr float c_lost = -4.534068054340423e-8f;
  constexpr float d = 0.07135481387376785f;  // 0.044715 c
  constexpr float d_lost = 2.3988324659995897e-9f;
  const float square = u * u;
  const float growth = u * fmaf(3.0f * d, square, c);
  if constexpr (sizeof(T) == 2) {
    return kiln_times_sigmoid<T>(u, u * fmaf(d, square, c), 0.0f, growth);
  } else {
    // The tail's relative error is the exponent's absolute one: that goes along. fmaf
    // keeps a product by itself.
    const float cubic = fmaf(d, square, 0.0f);
    const float cubic_lost =
        fmaf(d, square, -cubic) + fmaf(d, fmaf(u, u, -square), d_lost * square);
    const float sum = c + cubic;
    const float back = sum - c;
    const float sum_lost = (c - (sum - back)) + (cubic - back);
    const float x = u * sum;
    const float lost = sum_lost + (cubic_lost + c_lost);
    return kiln_times_sigmoid<T>(u, x, fmaf(u, lost, fmaf(u, sum, -x)), growth);
  }
}

/// u Phi(u) = 0.5 u (1 + erf(u / sqrt(2)))
template <typename T>
KILN_FUNCTION kiln_activation kiln_gelu_erf(float u) {
  const float half = -0.5f * u;
  const float x = half * u;
  const float e = kiln_exp_for<T>(x, fmaf(half, u, -x));
  // Phi(-w) = e^(-w^2/2) p(w) where p is a polynomial in t = 1 / (1 + kw), interpolated
  // up to w = 13.5; off by 2^-18.9 at most for 16 bits, by 2^-25.9 for a float.
  const float w = fminf(fabsf(u), 14.0f);
  float p;
  if constexpr (sizeof(T) == 2) {
    const float t = kiln_reciprocal(fmaf(0.2f, w, 1.0f));
    p = fmaf(0.2815561592578888f, t, -0.396323561668396f);
    p = fmaf(p, t, 0.4617170989513397f);
    p = fmaf(p, t, -0.135015606880188f);
    p = fmaf(p, t, 0.13765732944011688f);
    p = fmaf(p, t, 0.06995922327041626f);
    p = fmaf(p, t, 0.08045011013746262f) * t;
  } else {
    // In z = 1 - t, taken so that it is exact where it is small.
    const float t = kiln_reciprocal(fmaf(0.5f, w, 1.0f));
    const float z = 0.5f * w * t;
    p = fmaf(-0.04479256644845009f, z, 0.18831655383110046f);
    p = fmaf(p, z, -0.2966180443763733f);
    p = fmaf(p, z, 0.24063417315483093f);
    p = fmaf(p, z, -0.14108896255493164f);
    p = fmaf(p, z, 0.03727060183882713f);
    p = fmaf(p, z, 0.01297698263078928f);
    p = fmaf(p, z, 0.053982123732566833f);
    p = fmaf(p, z, 0.042448751628398895f);
    p = fmaf(p, z, -0.09576798975467682f);
    p = fmaf(p, z, -0.2978845536708832f);
    p = fmaf(p, z, 0.5f) * t;
  }
  const float phi = u < 0.0f ? e * p : fmaf(-e, p, 1.0f);
  const float bounded = fminf(fmaxf(u, -14.0f), 14.0f);
  return {phi == 0.0f ? 0.0f : u * phi,
          fmaf(bounded * 0.3989422804014327f, e, phi)};
}

template <typename T>
KILN_FUNCTION kiln_activation kiln_relu(float u) {
  return {u < 0.0f ? 0.0f : u, u <= 0.0f ? 0.0f : 1.0f};
}

/// relu(u)^2
template <typename T>
KILN_FUNCTION kiln_activation kiln_squared_relu(float u) {
  const float positive = u < 0.0f ? 0.0f : u;
  return {positive * positive, 2.0f * positive};
}
