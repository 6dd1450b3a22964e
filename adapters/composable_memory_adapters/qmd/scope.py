"""Decides which sessions may search, and tells those that may not why (pure)."""

from dataclasses import dataclass

from composable_memory.session_keys import SessionPlace, place_of, without_agent
from composable_memory_adapters.qmd.settings import ScopeMatch, ScopeSettings

__all__ = ["Denial", "verdict"]

_AGENT = "agent:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Denial:
    """Why a session may not search: where it takes place, and the rule, counted from 1, that decided.

    `rule` is None where no rule matched, and the default decided.
    """

    place: SessionPlace
    rule: int | None = None

    @property
    def reason(self) -> str:
        """Say who may not search, by what, and how to change it."""
        what = "no rule of memory.qmd.scope matches it, and its default is deny"
        if self.rule is not None:
            what = f"rule {self.rule} of memory.qmd.scope denies it"
        return f"{_described(self.place)} may not search here: {what}; {self._way_out}"

    @property
    def _way_out(self) -> str:
        chat_type = self.place.chat_type
        if chat_type is None:
            return "a rule that allows its `keyPrefix` lets it in"
        rule = f"{{action: allow, match: {{chatType: {chat_type}}}}}"
        where = "a rule" if self.rule is None else "a rule before that one"
        return f"{where} such as `{rule}` lets it in, if all who read there may read these notes"


def verdict(scope: ScopeSettings, session_key: str | None) -> Denial | None:
    """Return None if a session may search, or why not: the first rule that matches decides, else the default.

    Who asks without a session, or with a blank key, is at the command line and may search.
    """
    if session_key is None or not session_key.strip():
        return None
    place = place_of(session_key)
    for number, rule in enumerate(scope.rules, start=1):
        if _matches(rule.match, session_key, place):
            return None if rule.action == "allow" else Denial(place=place, rule=number)
    return None if scope.default == "allow" else Denial(place=place)


def _matches(match: ScopeMatch, session_key: str, place: SessionPlace) -> bool:
    """Say whether all that is given in a rule is true; a blank text counts as not given."""
    whole = session_key.strip().lower()
    prefix = _plain(match.key_prefix)
    compared = whole if prefix.startswith(_AGENT) else without_agent(session_key)
    return (
        _plain(match.channel) in ("", place.channel)
        and match.chat_type in (None, place.chat_type)
        and compared.startswith(prefix)
        and whole.startswith(_plain(match.raw_key_prefix))
    )


def _plain(text: str | None) -> str:
    return (text or "").strip().lower()


def _described(place: SessionPlace) -> str:
    kind = {None: "a session of unknown kind", "direct": "a session with one person"}.get(
        place.chat_type, f"a session with a {place.chat_type}"
    )
    return kind if place.channel is None else f"{kind} on {place.channel}"
