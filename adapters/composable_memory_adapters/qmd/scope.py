"""Decides which sessions may search, and explains a denial (pure)."""

from composable_memory.session_keys import SessionPlace, place_of, without_agent
from composable_memory_adapters.qmd.settings import ScopeMatch, ScopeSettings
from composable_memory_ops_logs.quick_dataclass import dataclass

_AGENT = "agent:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Denial:
    """Why a session may not search: where it takes place, and the rule, counted from 1, that denied it.

    `rule` is None if no rule matched and the default applied.
    """

    place: SessionPlace
    rule: int | None = None

    @property
    def reason(self) -> str:
        """Return a message: who may not search, why, and how to change it."""
        what = "no rule of memory.qmd.scope matches it, and its default is deny"
        if self.rule is not None:
            what = f"rule {self.rule} of memory.qmd.scope denies it"
        return f"{_described(self.place)} may not search here: {what}; {self._fix}"

    @property
    def _fix(self) -> str:
        chat_type = self.place.chat_type
        if chat_type is None:
            return "a rule that allows its `keyPrefix` lets it in"
        rule = f"{{action: allow, match: {{chatType: {chat_type}}}}}"
        where = "a rule" if self.rule is None else "a rule before that one"
        return f"{where} such as `{rule}` lets it in, if all who read there may read these notes"


def denial_of(scope: ScopeSettings, session_key: str | None) -> Denial | None:
    """Return why a session may not search, or None: the first rule that matches decides, or else the default.

    Callers without a session, or with a blank key, are at the command line and may search.
    """
    if session_key is None or not session_key.strip():
        return None
    place = place_of(session_key)
    for number, rule in enumerate(scope.rules, start=1):
        if _matches(rule.match, session_key, place):
            return None if rule.action == "allow" else Denial(place=place, rule=number)
    return None if scope.default == "allow" else Denial(place=place)


def _matches(match: ScopeMatch, session_key: str, place: SessionPlace) -> bool:
    """Return whether a session meets all conditions of a rule; a blank text is no condition."""
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
