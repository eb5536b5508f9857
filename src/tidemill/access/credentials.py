"""What somebody shows to be let in: an id by which its record is found, and a secret of which the record has
a digest only."""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import NamedTuple

from tidemill.clock import Entropy

TOKEN, LINK, SESSION = "tm", "tml", "tms"
_ID = 12
_SHAPE = re.compile(r"(tm[ls]?)_([a-z2-7]{12})_([a-z2-7]{32})")
LONGEST = 50
"""Characters; whatever is longer is none of ours, and not looked at."""


class Credential(NamedTuple):
    """`kind` says what it opens: a link cannot be shown as a token."""

    kind: str
    id: str
    secret: str

    @property
    def text(self) -> str:
        return f"{self.kind}_{self.id}_{self.secret}"

    @property
    def digest(self) -> str:
        return digest_of(self.secret)

    def opens(self, digest: str) -> bool:
        """Takes as long for a wrong one, wherever it is wrong."""
        return hmac.compare_digest(self.digest, digest)


def issued(kind: str, entropy: Entropy) -> Credential:
    return Credential(kind, entropy.secret()[:_ID], entropy.secret())


def read(kind: str, text: str) -> Credential | None:
    """None when it cannot be one of that kind."""
    found = _SHAPE.fullmatch(text) if len(text) <= LONGEST else None
    return Credential(*found.groups()) if found and found[1] == kind else None


def digest_of(secret: str, what: str = "secret") -> str:
    return hashlib.sha256(f"{what}:{secret}".encode()).hexdigest()
