from inference.characters.state_cache import CachedState, StateCache


def test_the_longest_cached_prefix_of_a_text_is_found() -> None:
    cache: StateCache[str] = StateCache(8)
    for text in (b"", b"He", b"Hell", b"Help"):
        cache.put("origin", text, f"after {text!r}")
    assert cache.find("origin", b"Hello") == CachedState("after b'Hell'", 4)


def test_the_state_of_the_whole_text_is_found() -> None:
    cache: StateCache[str] = StateCache(8)
    cache.put("origin", b"He", "state")
    assert cache.find("origin", b"He") == CachedState("state", 2)


def test_a_state_of_another_origin_is_not_found() -> None:
    cache: StateCache[str] = StateCache(8)
    cache.put("origin", b"He", "state")
    assert cache.find("other", b"He") is None


def test_the_least_recently_used_state_is_evicted_first() -> None:
    cache: StateCache[str] = StateCache(2)
    cache.put("origin", b"a", "a")
    cache.put("origin", b"b", "b")
    cache.find("origin", b"a")
    cache.put("origin", b"c", "c")
    assert cache.find("origin", b"a") == CachedState("a", 1)
    assert cache.find("origin", b"b") is None


def test_a_text_that_is_cached_twice_takes_one_entry() -> None:
    cache: StateCache[str] = StateCache(2)
    for text in (b"a", b"b", b"b"):
        cache.put("origin", text, "state")
    assert cache.find("origin", b"a") is not None
