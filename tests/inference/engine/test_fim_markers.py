from inference.engine.layout import FimMarkers


def test_a_family_without_a_middle_marker_has_two_markers() -> None:
    assert (FimMarkers(1, 2, 3).num_tokens, FimMarkers(1, 2, None).num_tokens) == (3, 2)
