"""Keeps the secrets that a foreign memory is given out of what it answers."""

from collections.abc import Iterable

from pydantic import JsonValue

MIN_SECRET = 6
"""Shorter values stand in too many harmless texts to be replaced."""


class Secrets:
    """Replaces secrets in texts and answers: a service may repeat what it was given."""

    def __init__(self, values: Iterable[str]) -> None:
        known = {value for value in values if len(value) >= MIN_SECRET}
        self._values = sorted(known, key=len, reverse=True)

    def hidden(self, text: str) -> str:
        """Return a text without the secrets."""
        for value in self._values:
            text = text.replace(value, "***")
        return text

    def hidden_in(self, answer: JsonValue) -> JsonValue:
        """Return an answer without the secrets, the names of its fields included."""
        if not self._values:
            return answer
        if isinstance(answer, str):
            return self.hidden(answer)
        if isinstance(answer, list):
            return [self.hidden_in(one) for one in answer]
        if isinstance(answer, dict):
            return {self.hidden(name): self.hidden_in(one) for name, one in answer.items()}
        return answer
