"""What a function may raise, and what the SDK raises at it. Classified by what happens next."""

from __future__ import annotations

ROW_REFUSED = "row.refused"

# Set on what a `dict` function raised: the row it was raised at.
ROW_ATTRIBUTE = "__vitrina_row__"


class Reject(Exception):
    """Refuses one row: it goes to the rejects, the batch goes on. For `dict` functions."""

    def __init__(self, message: str, *, code: str = ROW_REFUSED) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class Retry(Exception):
    """The batch cannot be done now but may be later: the runner tries it again."""


class ContractError(Exception):
    """What a function was given or returned does not fit what was agreed. Trying again is no help."""


class DeclarationError(ContractError):
    """A decorator was used in a way that cannot work. Raised at import, before any row is read."""
