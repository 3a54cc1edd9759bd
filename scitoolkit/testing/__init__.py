"""Contract suites to inherit in tests, and helpers of tests: `class TestX(CodecContract): ...`."""

from scitoolkit.core.lazy import lazy_names

_HOMES = {
    "CodecContract": "codec",
    "EnhancerContract": "codec",
    "FormatContract": "format",
    "StrategyContract": "strategy",
}
__all__ = ["CodecContract", "EnhancerContract", "FormatContract", "StrategyContract"]
__getattr__ = lazy_names(__name__, _HOMES)
