"""Finds the site of a URL, which is the key of its rate limit, and masks URLs for logs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from urllib.parse import urlsplit

from publicsuffixlist import PublicSuffixList

from tidemill_apps.feeds.addresses import parse_feed_url

MASK = "***"


def site_of(url: str, independent_sites: Sequence[str] = ()) -> str:
    """Returns the site of a URL: its registrable domain, such as example.co.uk.

    `independent_sites` are domains, such as github.io, whose subdomains are sites of their own. An IP
    address, localhost or a name without a dot is a site of its own for each port. Raises InvalidFeedUrl."""
    target = parse_feed_url(url)
    if target.is_ip or "." not in target.host:
        return target.host_and_port
    for domain in sorted(independent_sites, key=len, reverse=True):
        below, found, rest = target.host.rpartition(f".{domain.lower().strip('.')}")
        if found and not rest:
            return below.rpartition(".")[2] + found
    return _public_suffixes().privatesuffix(target.host) or target.host


@cache
def _public_suffixes() -> PublicSuffixList:
    # The private section would make a site of each blog of a host that limits all of them together.
    return PublicSuffixList(only_icann=True)


def mask_url(url: str) -> str:
    """Returns the URL with its query values masked, for logs, webhooks and alerts.

    User information is masked too, and the fragment is dropped."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return MASK
    user, at, host = parts.netloc.rpartition("@")
    netloc = f"{MASK}@{host}" if at and user else host
    query = "&".join(_mask_parameter(parameter) for parameter in parts.query.split("&"))
    return parts._replace(netloc=netloc, query=query if parts.query else "", fragment="").geturl()


def _mask_parameter(parameter: str) -> str:
    name, equals, _ = parameter.partition("=")
    return f"{name}={MASK}" if equals else MASK
