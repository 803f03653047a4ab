import torch

from inference.model.pytorch.scoring import Level, _build_words, build_gumbels, build_uniforms

# The authors' known answers for Philox 4x32-10: counter, key, first word of the result.
_KNOWN = [
    ((0, 0, 0, 0), (0, 0), 0x6627E8D5),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, 0x408F276D),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0), 0xD16CFE09),
]


def _to_int64(value: int) -> torch.Tensor:
    return torch.tensor([value - 2**64 if value >= 2**63 else value])


def test_words_are_those_of_philox() -> None:
    for (index, offset, stream, level), (low, high), word in _KNOWN:
        seeds, indices, offsets, streams = (_to_int64(value) for value in (low + (high << 32), index, offset, stream))

        words = _build_words(seeds, indices, offsets, streams, level)  # type: ignore[arg-type]  # no level is so great

        assert words.tolist() == [word]


def test_uniform_numbers_are_never_zero_and_have_the_moments_of_their_law() -> None:
    zero = torch.zeros(1, dtype=torch.long)

    uniforms = build_uniforms(zero, torch.arange(100_000), zero, zero, Level.TOKEN).double()

    assert 0 < uniforms.min() < 1e-4
    assert 1 - 1e-4 < uniforms.max() <= 1
    assert abs(uniforms.mean().item() - 1 / 2) < 0.005
    assert abs(uniforms.var().item() - 1 / 12) < 0.002


def test_gumbel_noise_has_the_moments_of_its_law() -> None:
    zero = torch.zeros(1, dtype=torch.long)

    noise = build_gumbels(zero, torch.arange(100_000), zero, zero, Level.CHUNK).double()

    assert noise.isfinite().all()
    assert abs(noise.mean().item() - 0.5772) < 0.02
    assert abs(noise.var().item() - torch.pi**2 / 6) < 0.05


def test_every_argument_changes_the_noise() -> None:
    base = {"seeds": 5, "indices": 6, "offsets": 7, "streams": 8}
    changed = [base, *({**base, name: 9} for name in base), {**base, "seeds": 5 + 2**40}]

    numbers = {
        build_uniforms(**{name: torch.tensor([value]) for name, value in each.items()}, level=level).item()
        for each in changed
        for level in Level
    }

    assert len(numbers) == len(changed) * len(Level)
