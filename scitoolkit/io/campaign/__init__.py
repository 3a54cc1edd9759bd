"""Campaigns: simulations in many files as one indexed set of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scitoolkit.core.lazy import lazy_names, public_dir

if TYPE_CHECKING:
    from scitoolkit.io.campaign.campaign import Campaign as Campaign
    from scitoolkit.io.campaign.campaign import open_campaign as open_campaign
    from scitoolkit.io.campaign.campaign_layout import CampaignOptions as CampaignOptions
    from scitoolkit.io.campaign.index import SampleIndex as SampleIndex

_HOMES = {
    "Campaign": "campaign",
    "CampaignOptions": "layouts",
    "SampleIndex": "index",
    "open_campaign": "campaign",
}
__all__ = ["Campaign", "CampaignOptions", "SampleIndex", "open_campaign"]

__getattr__: Callable[[str], Any] = lazy_names(__name__, _HOMES)
__dir__: Callable[[], list[str]] = public_dir(globals())
