"""The check of a number in a request."""

from inference.errors import InvalidRequestError


def check_range(name: str, value: float, low: float, high: float) -> None:
    """Raises InvalidRequestError for a value outside the range, NaN included."""
    if not low <= value <= high:
        raise InvalidRequestError(f"{name} must be between {low} and {high}, not {value}")
