"""What the replaced extensions compute, as formulas of torch: the path where Kiln
cannot compute, and the extension was never built. In float32, rounded once."""

from __future__ import annotations

import torch

# ---- Softmax


def plain_softmax(x, scale):
    return torch.softmax(x.float() * float(scale), -1).to(x.dtype)


def masked_softmax(x, mask, scale):
    """A row without an element is 0."""
    mask = mask.bool()
    scores = (x.float() * float(scale)).masked_fill(mask, float("-inf"))
    return torch.softmax(scores, -1).masked_fill(mask, 0).to(x.dtype)


def uniform_masked_softmax(x, mask, scale):
    """The elements of a row that is masked as a whole are equal."""
    lowest = torch.finfo(torch.float32).min
    scores = (x.float() * float(scale)).masked_fill(mask.bool(), lowest)
    return torch.softmax(scores, -1).to(x.dtype)


def causal_softmax(x, scale):
    queries, keys = x.shape[-2:]
    later = torch.ones(queries, keys, dtype=torch.bool, device=x.device)
    return masked_softmax(x, later.triu(keys - queries + 1), scale)


def softmax_gradient(dy, y, scale):
    y_32, dy_32 = y.float(), dy.float()
    dx = float(scale) * y_32 * (dy_32 - (y_32 * dy_32).sum(-1, keepdim=True))
    return dx.to(y.dtype)


# ---- Rope. ``sign`` -1 is the gradient.


def _rotate(t, cos, sin, sign):
    """The first elements of each head by halves."""
    columns = cos.shape[-1]
    (a, b), rest = t[..., :columns].float().chunk(2, -1), t[..., columns:]
    (cos_a, cos_b), (sin_a, sin_b) = cos.float().chunk(2, -1), sin.float().chunk(2, -1)
    if sign > 0:
        rotated = torch.cat([a * cos_a - b * sin_a, b * cos_b + a * sin_b], -1)
    else:
        rotated = torch.cat([a * cos_a + b * sin_b, b * cos_b - a * sin_a], -1)
    return torch.cat([rotated.to(t.dtype), rest], -1)


def rope_cached(sign, t, cos, sin, transpose_output=False):
    out = _rotate(t, cos, sin, sign)
    return out.transpose(0, 1).contiguous().transpose(0, 1) if transpose_output else out


def rope(sign, t, freqs, transpose_output=False):
    return rope_cached(sign, t, freqs.cos(), freqs.sin(), transpose_output)


def rope_thd(sign, t, cu_seqlens, freqs):
    """The angles are those of each token's position in its sequence."""
    at = torch.arange(t.shape[0], device=freqs.device, dtype=cu_seqlens.dtype)
    begins = cu_seqlens[torch.searchsorted(cu_seqlens, at, right=True) - 1]
    angles = freqs[(at - begins).long().clamp(max=freqs.shape[0] - 1)]
    return rope(sign, t, angles.squeeze(1))


def rope_2d(sign, t, cos_h, sin_h, cos_w, sin_w):
    _, height, width, _, dim = t.shape
    rows = [each[0, :height, None] for each in (cos_h, sin_h)]
    columns = [each[0, :width] for each in (cos_w, sin_w)]
    top, bottom = t[..., : dim // 2], t[..., dim // 2 :]
    halves = _rotate(top, *rows, sign), _rotate(bottom, *columns, sign)
    return torch.cat(halves, -1).flatten(1, 2)


# ---- Norms. Rows are the last dimensions of x; without a mean, an RMSNorm. The weight
# and the bias may be None.


def norm(x, shape, eps, has_mean, weight=None, bias=None):
    """[y, mean, 1 / deviation], y of the type of the weight or of x."""
    rows = x.float().reshape(-1, torch.Size(shape).numel())
    statistics = []
    if has_mean:
        statistics.append(rows.mean(-1))
        rows = rows - statistics[0][:, None]
    statistics.append(torch.rsqrt(rows.square().mean(-1) + eps))
    y = (rows * statistics[-1][:, None]).view(x.shape)
    y = y if weight is None else y * weight.float()
    y = y if bias is None else y + bias.float()
    return [y.to(x.dtype if weight is None else weight.dtype), *statistics]


def normalized(y, weight, bias, eps):
    """x as it was normalized, from y, in float32. A weight below eps counts as eps."""
    y = y.float() if bias is None else y.float() - bias.float()
    if weight is None:
        return y
    weight = weight.float()
    return y / torch.where(weight >= 0, weight.clamp(min=eps), weight.clamp(max=-eps))


def norm_gradients(
    dy, rstd, x, shape, eps, from_y, has_mean, mean=None, weight=None, bias=None
):
    """[dx, dweight, dbias], as far as there are weights. x is y if ``from_y``."""
    size = torch.Size(shape).numel()
    if from_y:
        rows = normalized(x, weight, bias, eps).reshape(-1, size)
    else:
        rows = x.float().reshape(-1, size)
        rows = (rows - mean[:, None] if has_mean else rows) * rstd[:, None]
    dy = dy.float().reshape(-1, size)
    scaled = dy if weight is None else dy * weight.float().reshape(-1)
    dx = scaled - rows * (scaled * rows).mean(-1, keepdim=True)
    if has_mean:
        dx = dx - scaled.mean(-1, keepdim=True)
    dx = (dx * rstd[:, None]).view(x.shape).to(x.dtype)
    if weight is None:
        return [dx]
    others = [(dy * rows).sum(0), dy.sum(0)][: 2 if has_mean else 1]
    return [dx, *(each.view(weight.shape).to(weight.dtype) for each in others)]


# ---- Cross-entropy of [rows, classes]. A label below 0 counts nothing.


def xentropy(logits, labels, smoothing, half_to_float):
    logits_32 = logits.float()
    lse = logits_32.logsumexp(-1)
    of_label = logits_32.gather(-1, labels.clamp(min=0).long()[:, None])[:, 0]
    losses = lse - (1 - smoothing) * of_label - smoothing * logits_32.mean(-1)
    return [losses * (labels >= 0), lse if half_to_float else lse.to(logits.dtype)]


def xentropy_gradient(grad_loss, logits, max_log_sum_exp, labels, smoothing):
    gradient = torch.softmax(logits.float(), -1) - smoothing / logits.shape[-1]
    rows = torch.arange(logits.shape[0], device=logits.device)
    gradient[rows, labels.clamp(min=0).long()] -= 1 - smoothing
    factor = grad_loss.float() * (labels >= 0)
    return (gradient * factor[:, None]).to(logits.dtype)
