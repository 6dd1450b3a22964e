"""Reads a corpus: a case a line, `⟦…⟧` around each secret, `⏎` and `⇥` for breaks and tabs, `{a36}` drawn."""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["SecretCase", "ordinary_lines", "readable", "secret_cases"]

FOLDER = Path(__file__).parent
_DIGITS = "0123456789"
_LOWER = "abcdefghijklmnopqrstuvwxyz"
_UPPER = _LOWER.upper()
_ALPHABETS = {
    "a": _LOWER + _UPPER + _DIGITS,
    "b": _LOWER + _UPPER + _DIGITS + "+/",
    "d": _DIGITS,
    "f": "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz",
    "h": _DIGITS + "abcdef",
    "l": _LOWER + _DIGITS,
    "t": _LOWER + "234567",
    "u": _UPPER + _DIGITS,
    "w": _LOWER + _UPPER + _DIGITS + "-_",
}


@dataclass(frozen=True, slots=True)
class SecretCase:
    """A text and the secrets in it."""

    text: str
    secrets: tuple[str, ...]


def secret_cases(name: str) -> Iterator[SecretCase]:
    draw = random.Random(name)
    for line in _lines(f"{name}_secrets.txt"):
        filled = re.sub(r"\{([abdfhltuw])(\d+)\}", lambda match: _drawn(draw, match), line)
        yield SecretCase(re.sub("[⟦⟧]", "", filled), tuple(re.findall("⟦(.*?)⟧", filled, re.DOTALL)))


def ordinary_lines(name: str) -> Iterator[str]:
    draw = random.Random(name)
    for line in _lines(f"{name}_ordinary.txt"):
        yield re.sub(r"\{([abdfhltuw])(\d+)\}", lambda match: _drawn(draw, match), line)


def readable(case: SecretCase, masked: str) -> list[str]:
    """Return the secrets of a case that its masked text shows, whole or a large part of them in one piece."""
    rest = case.text
    for secret in case.secrets:
        rest = rest.replace(secret, "", 1)
    return [
        secret
        for secret in case.secrets
        if any(masked.count(piece) > rest.count(piece) for piece in _pieces(secret))
    ]


def _pieces(secret: str) -> Iterator[str]:
    size = min(len(secret), max(4, len(secret) * 2 // 5))
    return (secret[start : start + size] for start in range(len(secret) - size + 1))


def _drawn(draw: random.Random, match: re.Match[str]) -> str:
    alphabet, size = _ALPHABETS[match[1]], int(match[2])
    # Enough of each kind, as nearly all random ones have.
    while True:
        drawn = "".join(draw.choice(alphabet) for _ in range(size))
        if size < 12 or match[1] == "d" or (re.search("[0-9]", drawn) and re.search("[A-Za-z]", drawn)):
            return drawn


def _lines(name: str) -> Iterator[str]:
    for line in (FOLDER / name).read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("##"):
            yield line.replace("⏎", "\n").replace("⇥", "\t")
