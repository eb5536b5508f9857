"""Finds the site of a URL, which is the key of its rate limit, and masks URLs for logs."""

from __future__ import annotations

from collections.abc import Sequence


def site_of(url: str, independent_sites: Sequence[str] = ()) -> str:
    """Returns the site of a URL: its registrable domain, such as example.co.uk.

    `independent_sites` are domains, such as blogspot.com, whose subdomains are sites of their own. An IP
    address, localhost or a name without a dot is a site of its own for each port."""
    raise NotImplementedError


def mask_url(url: str) -> str:
    """Returns the URL with its query values masked, for logs, webhooks and alerts."""
    raise NotImplementedError
