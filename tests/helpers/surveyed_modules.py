"""Small torch modules, one for each layer or operation that networks of fields use.

`surveyed` returns them by name; `as_function` describes one of them for an export.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from scitoolkit.core.traced import ArraySpec, TracedFunction

Modules = dict[str, tuple[nn.Module, tuple[int, ...]]]


class Call(nn.Module):
    """A function of some modules and of the inputs, as a module."""

    def __init__(self, function: Callable, *modules: nn.Module) -> None:
        super().__init__()
        self.function, self.inner = function, nn.ModuleList(modules)

    def forward(self, *inputs: Tensor):
        return self.function(*self.inner, *inputs)


class SpectralLayer(nn.Module):
    """The Fourier layer of an FNO, with complex weights."""

    def __init__(self, channels: int, modes: int) -> None:
        super().__init__()
        size = (channels, channels, 2 * modes, modes)
        self.modes, self.weight = (
            modes,
            nn.Parameter(torch.randn(size, dtype=torch.cfloat) / channels),
        )

    def forward(self, x: Tensor) -> Tensor:
        rows, columns, modes = *x.shape[-2:], self.modes
        waves = torch.fft.rfft2(x)
        low = torch.cat([waves[:, :, :modes, :modes], waves[:, :, -modes:, :modes]], 2)
        mixed = torch.einsum("bixy,ioxy->boxy", low, self.weight)
        out = torch.zeros(*x.shape[:2], rows, columns // 2 + 1, dtype=waves.dtype)
        out[:, :, :modes, :modes], out[:, :, -modes:, :modes] = mixed.split(modes, 2)
        return torch.fft.irfft2(out, s=(rows, columns))


def as_function(module: nn.Module, shape: tuple[int, ...], name: str = "") -> TracedFunction:
    """Return the description of a module of one input, with the shape that it returns."""
    with torch.no_grad():
        out = module.eval()(torch.full((2, *shape), 0.1)).shape[1:]
    inputs = [ArraySpec("x", tuple("abcde"[: len(shape)]), shape)]
    outputs = [ArraySpec("y", tuple("abcdefg"[: len(out)]), tuple(out))]
    return TracedFunction(module, inputs, outputs, name=name)


def surveyed() -> Modules:
    """Return {name: (module, shape of a sample)}."""
    torch.manual_seed(0)
    out: Modules = {}
    for family in (_elementwise, _reductions, _planes, _layers, _indices, _complex, _matrices):
        for name, (module, shape) in family().items():
            assert name not in out, name
            out[name] = (module if isinstance(module, nn.Module) else Call(module), shape)
    return out


def _of(shape: tuple[int, ...], members: Mapping[str, Callable | nn.Module]) -> dict:
    return {name: (member, shape) for name, member in members.items()}


_NAMED = (
    "atan tan asin acos asinh atanh ceil trunc frac exp2 square sinh cosh erfc erfinv sgn isnan "
    "isfinite isinf signbit nan_to_num rad2deg deg2rad relu6 hardswish mish softsign tanhshrink "
    "logsigmoid positive sinc softshrink hardshrink celu selu hardsigmoid hardtanh rrelu tanh "
    "sigmoid relu gelu silu elu softplus leaky_relu sin cos exp expm1 abs neg round floor sign"
).split()
_OF_POSITIVE = "log log2 log10 log1p sqrt rsqrt reciprocal digamma lgamma logit".split()


def _scaled(function: Callable) -> Callable:
    return lambda x: function(0.4 * x).to(x.dtype)


def _of_share(function: Callable) -> Callable:
    return lambda x: function(0.98 * torch.sigmoid(x) + 0.01)


def _function(name: str) -> Callable:
    return getattr(torch, name, None) or getattr(functional, name)


def _elementwise() -> dict:
    return _of(
        (5,),
        {
            **{name: _scaled(_function(name)) for name in _NAMED},
            **{name: _of_share(_function(name)) for name in _OF_POSITIVE},
            "acosh": lambda x: torch.acosh(1 + x.abs()),
            "softmin": lambda x: functional.softmin(x, -1),
            "softmax": lambda x: torch.softmax(x, -1),
            "log_softmax": lambda x: torch.log_softmax(x, -1),
            "threshold": lambda x: functional.threshold(x, 0.1, 0.2),
            "prelu": nn.PReLU(),
            "atan2": lambda x: torch.atan2(x, x + 1),
            "hypot": lambda x: torch.hypot(x, x + 1),
            "fmod": lambda x: torch.fmod(x, 0.3),
            "remainder": lambda x: torch.remainder(x, 0.3),
            "floor_divide": lambda x: x // 0.3,
            "div_trunc": lambda x: torch.div(x, 0.3, rounding_mode="trunc"),
            "fmax": lambda x: torch.fmax(x, -x),
            "fmin": lambda x: torch.fmin(x, -x),
            "copysign": lambda x: torch.copysign(x, -x.flip(-1)),
            "logaddexp": lambda x: torch.logaddexp(x, 2 * x),
            "lerp": lambda x: torch.lerp(x, 2 * x, 0.3),
            "xlogy": lambda x: torch.xlogy(x.abs(), x.abs() + 0.1),
            "addcdiv": lambda x: torch.addcdiv(x, x, x.abs() + 1),
            "clamp_by_arrays": lambda x: x.clamp(x - 1, x + 0.1),
            "where": lambda x: torch.where(x > 0, x, 2.0),
            "masked_fill": lambda x: x.masked_fill(x > 0, 2.0),
            "bool_xor": lambda x: ((x > 0) ^ (x > 1)).float(),
            "bool_not": lambda x: (~(x > 0)).float(),
            "integers": lambda x: ((10 * x).long() % 3 * 2 - 1).float(),
            "shift_left": lambda x: ((10 * x).int() << 1).float(),
            "shift_right": lambda x: ((100 * x).int() >> 2).float(),
            "float_power": lambda x: torch.float_power(x.abs(), 1.5).float(),
            "exponential_of_two": lambda x: 2**x,
            "vandermonde": lambda x: torch.stack([x**k for k in range(4)], -1),
            "bessel_i0": torch.special.i0,
            "zeta": lambda x: torch.special.zeta(x.abs() + 2, 1.0 + 0 * x),
            "ndtr": torch.special.ndtr,
            "soft_cap": lambda x: 30 * torch.tanh(x / 30),
            "heaviside": lambda x: torch.heaviside(x, torch.tensor(0.5, dtype=x.dtype)),
            "dropout": nn.Dropout(),
            "alpha_dropout": nn.AlphaDropout(),
            "fourier_features": lambda x: torch.cos(x[:, :, None] * torch.arange(3.0)).flatten(1),
            "own_gradient": lambda x: torch.func.grad(lambda y: (y**3).sum())(x),
            "condition": lambda x: torch.cond(x.shape[1] > 2, torch.sin, torch.cos, (x,)),
        },
    ) | _of(
        (6,),
        {"glu": lambda x: functional.glu(x, -1), "maxout": lambda x: x.view(-1, 3, 2).amax(-1)},
    )


def _reductions() -> dict:
    return _of(
        (5,),
        {
            "any": lambda x: (x > 0).any(-1, keepdim=True).float(),
            "all": lambda x: (x > 0).all(-1, keepdim=True).float(),
            "prod": lambda x: x.prod(-1, keepdim=True),
            "cumsum": lambda x: x.cumsum(-1),
            "cumprod": lambda x: x.cumprod(-1),
            "cummax": lambda x: x.cummax(-1)[0],
            "logcumsumexp": lambda x: x.logcumsumexp(-1),
            "logsumexp": lambda x: x.logsumexp(-1, keepdim=True),
            "argmax": lambda x: x.argmax(-1, keepdim=True).float(),
            "argmin": lambda x: x.argmin(-1, keepdim=True).float(),
            "sort": lambda x: x.sort(-1)[0],
            "argsort": lambda x: x.argsort(-1).float(),
            "topk": lambda x: x.topk(2, -1)[0],
            "norm": lambda x: x.norm(dim=-1, keepdim=True),
            "vector_norm_1": lambda x: torch.linalg.vector_norm(x, 1, dim=-1, keepdim=True),
            "normalize": lambda x: functional.normalize(x, dim=-1),
            "cosine_similarity": lambda x: functional.cosine_similarity(x, x + 1, -1)[:, None],
            "renorm": lambda x: x / x.norm(dim=1, keepdim=True).clamp(min=1),
            "std": lambda x: x.std(-1, keepdim=True),
            "var_mean": lambda x: torch.cat(torch.var_mean(x, -1, keepdim=True), -1),
            "aminmax": lambda x: torch.stack(torch.aminmax(x, dim=-1), -1),
            "count": lambda x: (x > 0).sum(-1, keepdim=True).float(),
            "nansum": lambda x: x.nansum(-1, keepdim=True),
            "quantile": lambda x: x.quantile(0.3, dim=-1, keepdim=True),
            "double_inside": lambda x: x.double().sum(-1, keepdim=True).to(x.dtype),
            "diff": lambda x: x.diff(dim=1),
            "gradient": lambda x: torch.gradient(x, dim=1)[0],
            "trapezoid": lambda x: torch.trapezoid(x, dim=1)[:, None],
            "histogram": lambda x: torch.histc(x, 5),
        },
    ) | _of(
        (3, 5),
        {
            "max_of_dim": lambda x: x.max(-1)[0],
            "min_of_dim": lambda x: x.min(-1)[1].float(),
            "median": lambda x: x.median(-1)[0],
            "kth_value": lambda x: x.kthvalue(2, -1)[0],
            "cdist": lambda x: torch.cdist(x, x),
            "pairs": lambda x: (x[:, :, None] - x[:, None]).norm(dim=-1),
            "covariance": lambda x: (x - x.mean(1, True)) @ (x - x.mean(1, True)).transpose(1, 2),
            "rms_norm": nn.RMSNorm(5),
            "layer_norm": nn.LayerNorm([3, 5]),
            "instance_norm_1d": nn.InstanceNorm1d(3, affine=True),
            "unbind": lambda x: sum(x.unbind(1)),
        },
    )


def _planes() -> dict:
    return (
        _of(
            (2, 8, 8),
            {
                "pad_values": lambda x: functional.pad(x, (1, 2, 1, 0), value=3.0),
                "pad_zeros": nn.ZeroPad2d(1),
                "pad_negative": lambda x: functional.pad(x, (-1, 2)),
                "pad_reflect": nn.ReflectionPad2d(1),
                "pad_replicate": nn.ReplicationPad2d(1),
                "pad_circular": nn.CircularPad2d(1),
                "max_pool": nn.MaxPool2d(3, 2, 1),
                "max_pool_ceil": nn.MaxPool2d(3, 2, ceil_mode=True),
                "max_pool_dilated": nn.MaxPool2d(2, 1, dilation=2),
                "mean_pool": nn.AvgPool2d(3, 2, 1),
                "mean_pool_inside": nn.AvgPool2d(3, 2, 1, count_include_pad=False),
                "mean_pool_ceil": nn.AvgPool2d(3, 2, ceil_mode=True),
                "adaptive_mean_1": nn.AdaptiveAvgPool2d(1),
                "adaptive_mean_3": nn.AdaptiveAvgPool2d(3),
                "adaptive_max": nn.AdaptiveMaxPool2d(3),
                "power_pool": nn.LPPool2d(2, 2),
                "convolution_same": nn.Conv2d(2, 3, 4, padding="same"),
                "convolution_strided": nn.Conv2d(2, 3, 3, 2, 1),
                "convolution_circular": nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"),
                "convolution_transposed": nn.ConvTranspose2d(2, 3, 3, 2, 1, output_padding=1),
                "convolution_transposed_2": nn.ConvTranspose2d(2, 3, 2, 2),
                "nearest": lambda x: functional.interpolate(x, (9, 7), mode="nearest"),
                "nearest_exact": lambda x: functional.interpolate(x, (9, 7), mode="nearest-exact"),
                "bilinear": lambda x: functional.interpolate(x, (9, 7), mode="bilinear"),
                "bicubic": lambda x: functional.interpolate(x, (9, 7), mode="bicubic"),
                "area": lambda x: functional.interpolate(x, (5, 4), mode="area"),
                "grid_sample": lambda x: functional.grid_sample(
                    x, torch.full((len(x), 3, 3, 2), 0.3, dtype=x.dtype), align_corners=True
                ),
                "pixel_unshuffle": nn.PixelUnshuffle(2),
                "unfold_planes": lambda x: functional.unfold(x, 2),
                "upsample": nn.Upsample(scale_factor=2),
                "spectral_layer": SpectralLayer(2, 3),
            },
        )
        | _of(
            (4, 6, 6),
            {
                "convolution_grouped": nn.Conv2d(4, 6, 3, groups=2, dilation=2),
                "convolution_transposed_grouped": nn.ConvTranspose2d(4, 6, 3, groups=2, dilation=2),
                "convolution_depthwise": nn.Conv2d(4, 4, 3, groups=4, padding=1),
                "instance_norm": nn.InstanceNorm2d(4),
                "group_norm": nn.GroupNorm(2, 4),
                "batch_norm": nn.BatchNorm2d(4),
                "local_response": nn.LocalResponseNorm(2),
                "softmax_2d": nn.Softmax2d(),
                "channel_shuffle": nn.ChannelShuffle(2),
                "pixel_shuffle": nn.PixelShuffle(2),
            },
        )
        | _of(
            (2, 8),
            {
                "pad_1d": lambda x: functional.pad(x, (1, 2)),
                "max_pool_1d": nn.MaxPool1d(2),
                "mean_pool_1d": nn.AvgPool1d(2),
                "adaptive_mean_1d": nn.AdaptiveAvgPool1d(3),
                "convolution_1d": nn.Conv1d(2, 3, 3, padding=1),
                "convolution_transposed_1d": nn.ConvTranspose1d(2, 3, 3, 2, 1, output_padding=1),
                "convolution_function": lambda x: functional.conv1d(
                    x[:, :1], torch.ones(1, 1, 3, dtype=x.dtype)
                ),
                "linear_1d": lambda x: functional.interpolate(
                    x, 9, mode="linear", align_corners=True
                ),
            },
        )
        | _of(
            (2, 4, 4, 4),
            {
                "pad_replicate_3d": nn.ReplicationPad3d(1),
                "max_pool_3d": nn.MaxPool3d(2, padding=1),
                "adaptive_mean_3d": nn.AdaptiveAvgPool3d(3),
                "convolution_3d": nn.Conv3d(2, 3, 3),
                "convolution_transposed_3d": nn.ConvTranspose3d(2, 3, 3, 2, 1, output_padding=1),
                "batch_norm_3d": nn.BatchNorm3d(2),
                "instance_norm_3d": nn.InstanceNorm3d(2, track_running_stats=True),
                "trilinear": lambda x: functional.interpolate(x, scale_factor=2, mode="trilinear"),
            },
        )
    )


def _attention(x: Tensor, **options: object) -> Tensor:
    heads = x.view(-1, 6, 2, 4).transpose(1, 2)
    return functional.scaled_dot_product_attention(heads, heads, heads, **options)


def _layers() -> dict:
    encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)
    out = _of(
        (6, 8),
        {
            "attention": Call(
                lambda a, x: a(x, x, x)[0], nn.MultiheadAttention(8, 2, batch_first=True)
            ),
            "attention_without_weights": Call(
                lambda a, x: a(x, x, x, need_weights=False)[0],
                nn.MultiheadAttention(8, 2, batch_first=True),
            ),
            "encoder_layer": nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
            "encoder": nn.TransformerEncoder(encoder, 2, enable_nested_tensor=False),
            "decoder_layer": Call(
                lambda layer, x: layer(x, 2 * x),
                nn.TransformerDecoderLayer(8, 2, 16, batch_first=True),
            ),
            "transformer": Call(
                lambda t, x: t(x, x), nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
            ),
            "dot_products": _attention,
            "dot_products_causal": lambda x: _attention(x, is_causal=True),
            "dot_products_masked": lambda x: _attention(
                x, attn_mask=torch.ones(6, 6).tril().bool()
            ),
            "causal_softmax": lambda x: (
                torch.softmax(
                    (x @ x.transpose(1, 2)).masked_fill(torch.ones(6, 6).triu(1).bool(), -math.inf),
                    -1,
                )
                @ x
            ),
        },
    )
    for kind in (nn.RNN, nn.LSTM, nn.GRU):
        recurrent = kind(4, 5, 2, batch_first=True, bidirectional=True)
        out[kind.__name__] = (Call(lambda r, x: r(x)[0], recurrent), (6, 4))
    out |= _of(
        (4,),
        {
            "RNNCell": nn.RNNCell(4, 5),
            "GRUCell": nn.GRUCell(4, 5),
            "LSTMCell": Call(lambda cell, x: cell(x)[0], nn.LSTMCell(4, 5)),
            "linear": nn.Linear(4, 3),
            "bilinear_layer": Call(lambda b, x: b(x, x), nn.Bilinear(4, 4, 3)),
            "weight_norm": nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)),
            "spectral_norm": nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)),
        },
    )
    return out


def _indices() -> dict:
    def places(x: Tensor) -> Tensor:
        return (2 * x.abs()).long().clamp(0, 4)

    def zeros(x: Tensor, size: int) -> Tensor:
        return torch.zeros(len(x), size, dtype=x.dtype)

    wide = torch.tensor([[0, 1, 2, 0, 1]])
    return _of(
        (5,),
        {
            "gather": lambda x: x.gather(-1, places(x)),
            "gather_constant": lambda x: x.gather(-1, torch.tensor([[0, 2]]).expand(len(x), 2)),
            "scatter": lambda x: zeros(x, 5).scatter(1, wide[:, :3].expand(len(x), 3), x[:, :3]),
            "scatter_add": lambda x: zeros(x, 3).scatter_add(1, wide.expand(len(x), 5), x),
            "scatter_reduce": lambda x: zeros(x, 3).scatter_reduce(
                1, wide.expand(len(x), 5), x, "amax"
            ),
            "index_select": lambda x: x.index_select(1, torch.tensor([0, 2])),
            "index_add": lambda x: zeros(x, 3).index_add(1, wide[0], x),
            "index_put": lambda x: zeros(x, 7).index_put(
                (torch.arange(len(x))[:, None], torch.tensor([[1, 2, 3, 4, 5]])), x
            ),
            "index_fill": lambda x: x.clone().index_fill(1, torch.tensor([1]), 2.0),
            "take_along_dim": lambda x: torch.take_along_dim(x, x.argsort(-1), -1),
            "embedding": Call(lambda e, x: e(places(x)), nn.Embedding(5, 3)),
            "one_hot": lambda x: functional.one_hot(places(x), 5).float(),
            "slice_scatter": lambda x: torch.slice_scatter(x, 2 * x[:, :2], 1, 1, 3),
            "bucketize": lambda x: torch.bucketize(
                x, torch.tensor([-1.0, 0, 1], dtype=x.dtype)
            ).float(),
            "searchsorted": lambda x: torch.searchsorted(
                torch.tensor([-1.0, 0, 1], dtype=x.dtype), x
            ).float(),
            "repeat": lambda x: x.repeat(1, 2),
            "tile": lambda x: x.tile(2),
            "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
            "roll": lambda x: x.roll(2, 1),
            "flip": lambda x: x.flip(1),
            "stack": lambda x: torch.stack([x, 2 * x], 1),
            "split": lambda x: x.split([2, 3], 1)[1],
            "diagonal_embedding": torch.diag_embed,
            "outer": lambda x: x[:, :, None] * x[:, None],
            "unique": lambda x: x.unique(),
            "nonzero": lambda x: x.nonzero(),
        },
    ) | _of(
        (8,),
        {
            "chunk": lambda x: torch.cat(x.chunk(2, 1)[::-1], 1),
            "windows": lambda x: x.unfold(1, 3, 2),
        },
    )


def _complex() -> dict:
    return _of(
        (8,),
        {
            **{
                name: lambda x, name=name: torch.view_as_real(getattr(torch.fft, name)(x + 0j))
                for name in ("fft", "ifft")
            },
            "rfft": lambda x: torch.view_as_real(torch.fft.rfft(x)),
            "hfft": lambda x: torch.fft.hfft(x + 0j),
            "irfft": lambda x: torch.fft.irfft(2 * torch.fft.rfft(x)),
            "fft_modulus": lambda x: torch.fft.rfft(x).abs(),
            "cosine_transform": lambda x: torch.fft.rfft(torch.cat([x, x.flip(-1)], -1)).real,
            "fftshift": lambda x: torch.fft.fftshift(x, -1),
            "polar": lambda x: torch.polar(x.abs(), x).real,
        },
    ) | _of(
        (4, 4),
        {
            "rfft2": lambda x: torch.fft.irfft2(torch.fft.rfft2(x) * torch.ones(4, 3)),
            "fftn": lambda x: torch.fft.fftn(x, dim=(-2, -1)).real,
            "complex_product": lambda x: torch.view_as_real(
                torch.view_as_complex(x.reshape(-1, 8, 2))
                * torch.view_as_complex(x.reshape(-1, 8, 2))
            ),
        },
    )


def _matrices() -> dict:
    def regular(x: Tensor) -> Tensor:
        return 9 * torch.eye(3, dtype=x.dtype) + x

    return _of(
        (3, 3),
        {
            "matmul": lambda x: x @ x,
            "bmm": lambda x: torch.bmm(x, x),
            "baddbmm": lambda x: torch.baddbmm(x, x, x),
            "einsum": lambda x: torch.einsum("bij,bkj->bik", x, x),
            "matrix_vector": lambda x: x @ torch.ones(3, dtype=x.dtype),
            "matrix_power": lambda x: torch.matrix_power(x, 3),
            "determinant": lambda x: torch.linalg.det(x)[:, None],
            "log_determinant": lambda x: torch.linalg.slogdet(x)[1][:, None],
            "inverse": lambda x: torch.linalg.inv(regular(x)),
            "solve": lambda x: torch.linalg.solve(regular(x), x),
            "solve_triangular": lambda x: torch.linalg.solve_triangular(
                regular(x).triu(), x, upper=True
            ),
            "cholesky": lambda x: torch.linalg.cholesky(9 * torch.eye(3) + x @ x.transpose(1, 2)),
            "matrix_exponential": torch.linalg.matrix_exp,
            "trace": lambda x: x.diagonal(dim1=1, dim2=2).sum(-1, keepdim=True),
            "diagonal": lambda x: x.diagonal(dim1=1, dim2=2),
            "lower_triangle": torch.tril,
            "upper_triangle": lambda x: x.triu(1),
            "rotation": lambda x: x.rot90(1, (1, 2)),
            "cross": lambda x: torch.linalg.cross(x, x + 1),
            "meshgrid": lambda x: (
                x * torch.stack(torch.meshgrid(*[torch.arange(3.0)] * 2, indexing="ij"))[0]
            ),
        },
    ) | {
        "fold": (lambda x: functional.fold(x, (4, 4), 2, stride=2), (8, 4)),
        "kronecker": (lambda x: torch.einsum("bi,bj->bij", x, x).flatten(1), (3,)),
    }
