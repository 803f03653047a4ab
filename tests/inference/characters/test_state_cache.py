from inference.characters.state_cache import Known, StateMemory


def test_the_longest_text_that_the_new_one_begins_with_is_found() -> None:
    memory: StateMemory[str] = StateMemory(8)
    for text in (b"", b"He", b"Hell", b"Help"):
        memory.keep("opening", text, f"after {text!r}")
    assert memory.find("opening", b"Hello") == Known("after b'Hell'", 4)


def test_a_text_that_is_known_as_a_whole_is_found() -> None:
    memory: StateMemory[str] = StateMemory(8)
    memory.keep("opening", b"He", "state")
    assert memory.find("opening", b"He") == Known("state", 2)


def test_another_opening_finds_nothing() -> None:
    memory: StateMemory[str] = StateMemory(8)
    memory.keep("opening", b"He", "state")
    assert memory.find("other", b"He") is None


def test_what_was_used_longest_ago_goes_first() -> None:
    memory: StateMemory[str] = StateMemory(2)
    memory.keep("opening", b"a", "a")
    memory.keep("opening", b"b", "b")
    memory.find("opening", b"a")
    memory.keep("opening", b"c", "c")
    assert memory.find("opening", b"a") == Known("a", 1)
    assert memory.find("opening", b"b") is None


def test_a_text_that_is_kept_again_takes_one_place() -> None:
    memory: StateMemory[str] = StateMemory(2)
    for text in (b"a", b"b", b"b"):
        memory.keep("opening", text, "state")
    assert memory.find("opening", b"a") is not None
