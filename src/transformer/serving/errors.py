"""Errors that the server reports to clients."""

from typing import Any, Final, Literal

Code = Literal[
    "invalid_request", "unauthorized", "forbidden", "not_found", "method_not_allowed", "too_large", "unsupported",
    "rate_limited", "queue_full", "internal", "not_implemented", "unavailable", "timeout",
]  # fmt: skip
STATUS: Final[dict[str, int]] = {
    "invalid_request": 400, "unauthorized": 401, "forbidden": 403, "not_found": 404, "method_not_allowed": 405,
    "too_large": 413, "unsupported": 415, "rate_limited": 429, "queue_full": 429, "internal": 500,
    "not_implemented": 501, "unavailable": 503, "timeout": 504,
}  # fmt: skip
"""HTTP status of each code. Each interface has its own form of the body."""


class ServiceError(Exception):
    """An error with a message for the client.

    Args:
        code: Kind of error, which determines the HTTP status.
        message: What is wrong and what to do; it contains no text of the client's request beyond a few characters.
        param: Name of the field of the request that is wrong; None if several fields or none is.
        retry_after: Seconds after which a request may succeed; None if time does not help.
    """

    def __init__(self, code: Code, message: str, *, param: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code: Code = code
        self.message, self.param, self.retry_after = message, param, retry_after

    @property
    def status(self) -> int:
        """HTTP status."""
        return STATUS[self.code]

    def to_json(self) -> dict[str, Any]:
        """Returns the error as workers send it."""
        return {"code": self.code, "message": self.message, "param": self.param}
