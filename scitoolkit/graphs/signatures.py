"""Names of the parameters of torch functions, so that a rule sees one form of each call.

`x.sum(0)`, `x.sum(dim=0)` and `x.sum(axis=0)` are the same call: rules read the first form.
"""

from __future__ import annotations

from typing import Any

# Functions by their parameters; those after `*` are keywords in some overload, and stay keywords.
_FUNCTIONS = {
    "input dim": """unsqueeze unsqueeze_ squeeze squeeze_ unbind size select narrow glu softmax
        log_softmax softmin cumsum cumprod cumsum_ cumprod_ logcumsumexp cummax cummin
        count_nonzero take_along_dim""",
    "input dim keepdim": """sum mean nansum nanmean amax amin prod any all max min median argmax
        argmin logsumexp mode""",
    "input dim unbiased keepdim": "var std var_mean std_mean",
    "input dim index": """index_select gather scatter scatter_ scatter_add scatter_add_
        scatter_reduce scatter_reduce_ index_add index_add_ index_reduce index_reduce_""",
    "input p dim keepdim": "norm",
    "A ord dim keepdim": "linalg_norm",
    "x ord dim keepdim": "linalg_vector_norm",
    "input q dim keepdim": "quantile",
    "input k dim": "kthvalue topk",
    "input p dim": "normalize",
    "input n dim": "diff fft_fft fft_ifft fft_rfft fft_irfft fft_hfft fft_ihfft",
    "input chunks dim": "chunk",
    "input dimension size step": "unfold",
    "input * dim": "sort argsort tensor_split",
    "input other * dim": "cross linalg_cross",
    "input dims": "flip permute",
    "input dim0 dim1": "transpose transpose_ swapdims swapdims_",
    "input axis0 axis1": "swapaxes swapaxes_",
    "input source destination": "movedim moveaxis",
    "tensors dim": "cat concat concatenate stack",
    "input other": "div div_ true_divide matmul",
    "input mat2": "mm bmm",
    "input vec": "mv",
    "input mat1 mat2": "addmm",
    "input p": "bernoulli bernoulli_",
}
_PARAMETERS: dict[str, list[str]] = {
    name: parameters.split() for parameters, names in _FUNCTIONS.items() for name in names.split()
}
# Torch takes the names of NumPy as well.
_NUMPY = {"axis": "dim", "keepdims": "keepdim", "x": "input", "a": "input", "x1": "input"}
_NUMPY["x2"] = "other"


def positional(name: str, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return the arguments of a call, with keywords at their positions as far as all are present.

    Args:
        name: of the torch function; the arguments of one that is not in the table stay.
        args, kwargs: its arguments.

    Example:
        >>> positional("transpose", ("x",), {"dim1": 2, "dim0": 0}), positional("sum", ("x",), {})
        ((('x', 0, 2), {}), (('x',), {}))
        >>> positional("norm", ("x",), {"axis": 1})
        (('x',), {'dim': 1})
    """
    parameters = _PARAMETERS.get(name)
    if parameters is None or not kwargs:
        return args, kwargs
    named = {
        _NUMPY[key] if key not in parameters and _NUMPY.get(key) in parameters else key: value
        for key, value in kwargs.items()
    }
    args = list(args)
    for parameter in parameters[len(args) :]:
        if parameter not in named:
            break
        args.append(named.pop(parameter))
    return tuple(args), named
