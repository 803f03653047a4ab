"""Parts of text encoders, for fakes."""


class PlainEncoder:
    """What a text encoder without normalizer, dummy prefix and added tokens says of a text. Fakes extend it."""

    start_ids: tuple[int, ...] = ()

    def normalize(self, text: str) -> str:
        return text

    def count_unsettled(self, text: str) -> int:  # noqa: ARG002  # no normalizer
        return 0

    def find_dummy_prefix(self, text: str) -> str:  # noqa: ARG002  # nothing before any text
        return ""

    def is_added_text(self, pre_token: bytes) -> bool:  # noqa: ARG002  # no added tokens
        return False

    def find_openings(self, text: str) -> list[int]:  # noqa: ARG002  # no added tokens
        return []
