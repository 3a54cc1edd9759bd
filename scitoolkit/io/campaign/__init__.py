"""Campaigns: many simulations in many files as one set of rows, with an index over them."""

from scitoolkit.io.campaign.campaign import Campaign, open_campaign
from scitoolkit.io.campaign.index import SampleIndex
from scitoolkit.io.campaign.layouts import Options

__all__ = ["Campaign", "Options", "SampleIndex", "open_campaign"]
