"""Operations on gridded fields that several domains share: padding of periodic dims, spectra.

Without weights and settings: layers and their configuration belong to the domains.
"""

from scitoolkit.fields.padding import wrapped
from scitoolkit.fields.spectra import decades_apart, line_power

__all__ = ["decades_apart", "line_power", "wrapped"]
