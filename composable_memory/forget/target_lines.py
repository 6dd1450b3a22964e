"""Finds the lines that a target refers to: a place, the id of a retained line, or a query (reads notes).

A plan's token names the lines by place and by keyed hashes of their words, so that it confirms exactly what
was shown, and contains none of it.
"""

import base64
import json
import re
from collections.abc import Iterable, Sequence
from hmac import compare_digest
from itertools import chain, repeat
from pathlib import PurePath
from typing import NamedTuple

from composable_memory.citations import read_citation
from composable_memory.errors import InvalidArgument, MemoryPathError
from composable_memory.forget.report import ForgetLine
from composable_memory.forget.statement_matching import Statement, contains, words_of
from composable_memory.forget.tombstones import Tombstones
from composable_memory.forget.workspace_notes import NoteLine, Notes
from composable_memory.paths import is_note
from composable_memory.reflect.entity_pages import is_own_line, own_lines

MOST_CANDIDATES = 20
"""How many candidates get a token of their own; the others can be chosen by place."""
ENOUGH = 0.5
"""The share of a query's words, weighted by length, that a candidate must have."""
NEARLY_AS_GOOD = 0.75
"""The share of the best candidate's score that another one must reach."""
_BEGINNING = "forget1."
_ID = re.compile(r"\^?([A-Za-z0-9-]{2,64})")


class Marked(NamedTuple):
    """A line of a note by its place and the keyed hash of its words, as in tokens and journals."""

    path: str
    start_line: int
    end_line: int
    words: str

    def is_at(self, one: Statement) -> bool:
        """Return whether a statement is at this place."""
        return (one.start_line, one.end_line) == (self.start_line, self.end_line)


class Found(NamedTuple):
    """The lines that a target refers to, or those to choose from."""

    chosen: Sequence[NoteLine] = ()
    candidates: Sequence[NoteLine] = ()


def look_up(notes: Notes, target: str, *, everything: bool) -> Found:
    """Return what a target refers to; with `everything`, all lines that match.

    Raises:
        InvalidArgument: it is an id that no line has.
        MemoryPathError: there is nothing at the place.
    """
    if placed := _at_place(notes, target):
        return Found(placed)
    if is_id := _ID.fullmatch(target.strip()):
        name = is_id[1]
        named = [*notes.saying([name.casefold()], lambda one: one.id == name)]
        if named:
            return _one_or_choice(named, everything)
        if target.strip().startswith("^"):
            raise InvalidArgument("target", "the id of a retained line of the notes", target)
    name = target.strip()
    if " " not in name and (name.startswith("^") or is_note(PurePath(name).name)):
        raise InvalidArgument("target", "a query, a place such as notes.md#L3, or the id of a line", target)
    is_exact, found = _matching(notes, target)
    return _one_or_choice(found, everything) if is_exact or everything else Found((), found)


def lines_in(notes: Notes, path: str, first: int, last: int) -> list[NoteLine]:
    """Return the statements of a note that overlap lines `first` to `last`."""
    return [
        NoteLine(path, one)
        for one in notes.statements(path, first, last)
        if one.start_line <= last and one.end_line >= first
    ]


def copies_of(
    notes: Notes, chosen: Sequence[NoteLine], among: Iterable[NoteLine] | None = None
) -> list[NoteLine]:
    """Return other lines, of all or `among` some, that say the same as chosen ones, or are their copies."""
    wanted = {line.statement.words for line in chosen if line.statement.is_recognisable}
    telling = {max(words, key=len) for words in wanted}
    ids = {line.statement.id for line in chosen if line.statement.id}
    clues = [*telling, *map(str.casefold, ids)]

    def is_copy(one: Statement) -> bool:
        return one.words in wanted or _repeats(one, chosen, ids)

    if among is None:
        among = notes.saying(clues, is_copy) if clues else ()
    places = {(line.path, line.statement.start_line) for line in chosen}
    found = (line for line in among if is_copy(line.statement))
    return [line for line in found if (line.path, line.statement.start_line) not in places]


def _repeats(one: Statement, chosen: Iterable[NoteLine], ids: Iterable[str]) -> bool:
    """Return whether a line written by a reflection was copied from a chosen one."""
    if not is_own_line(one.text):
        return any(re.search(rf"\^{re.escape(id_)}-[0-9a-f]{{4}}\s*$", one.text) for id_ in ids)
    is_cited = any(re.search(rf"\^{re.escape(id_)}(?![A-Za-z0-9])", one.text) for id_ in ids)
    return is_cited or any(contains(one.words, line.statement.said) for line in chosen)


def _at_place(notes: Notes, target: str) -> list[NoteLine]:
    cited = read_citation(target, as_written=True)
    if cited is None:
        return []
    is_noted = is_note(PurePath(cited.path).name)
    if not (is_noted or notes.is_document(cited.path) or notes.transcript(cited.path)):
        return []  # a query may end like a place: "lunch at 12:30"
    if not 1 <= cited.start_line <= cited.end_line:
        expected = "a place whose lines count from 1, the first before the last, such as notes.md#L3-L7"
        raise InvalidArgument("target", expected, target)
    if is_noted and not (notes.has(cited.path) and notes.text(cited.path)):
        raise MemoryPathError(target, f"there is no note {cited.path} with any text")
    found = lines_in(notes, cited.path, cited.start_line, cited.end_line)
    if not found:
        raise MemoryPathError(target, "there is nothing in these lines to forget")
    # What a reflection has copied goes together with its source, or the next one would write it again.
    keys = own_lines("\n".join(line.statement.text for line in found)).keys()
    sources = notes.saying([*map(str.casefold, keys)], lambda one: one.id in keys) if keys else ()
    return [*found, *sources]


def _one_or_choice(found: Sequence[NoteLine], everything: bool) -> Found:
    """Return the lines as chosen if all of them are wanted, or all say the same."""
    if everything or len({line.statement.words for line in found}) == 1:
        return Found(found)
    return Found((), found)


def _matching(notes: Notes, query: str) -> tuple[bool, list[NoteLine]]:
    """Return the lines that match a query, best first, and whether they have all of its words."""
    asked = words_of(query)
    weight = sum(map(len, asked))
    if not asked:
        raise InvalidArgument("target", "a query, a place such as notes.md#L3, or the id of a line", query)

    def share(one: Statement) -> float:
        return sum(len(word) for word in asked if word in one.words) / weight

    found = [*notes.saying(asked, lambda one: one.is_recognisable and share(one) >= ENOUGH)]
    ids = {line.statement.id for line in found if line.statement.id}
    own = [line for line in found if not is_own_line(line.statement.text)]
    # What a reflection has copied is no separate candidate: it goes together with its source.
    found = [line for line in found if line in own or not _repeats(line.statement, own, ids)]
    exact = [line for line in found if asked in (line.statement.words, line.statement.said)]
    best = max((share(line.statement) for line in found), default=0.0)
    least = 1.0 if best == 1.0 else best * NEARLY_AS_GOOD
    near = [line for line in found if share(line.statement) >= least]
    return best == 1.0, exact or sorted(near, key=lambda line: -share(line.statement))


# --- tokens -------------------------------------------------------------------------------------------------


def marked(lines: Iterable[NoteLine], hashing: Tombstones) -> list[Marked]:
    """Return lines as named in tokens and journals."""
    return [
        Marked(path, one.start_line, one.end_line, hashing.hash(one.words or (one.text,)))
        for path, one in lines
    ]


def token_of(notes: Notes, lines: Sequence[Marked], hashing: Tombstones) -> str:
    """Return a signed token that confirms forgetting these lines as they are now."""
    wire = json.dumps([digest_of(notes, lines, hashing), *lines], separators=(",", ":"))
    body = base64.urlsafe_b64encode(wire.encode()).decode().rstrip("=")
    return f"{_BEGINNING}{body}.{hashing.hash([body])}"


def read_token(token: str, hashing: Tombstones) -> tuple[str, list[Marked]]:
    """Return the digest and the lines in a token.

    Raises:
        InvalidArgument: it is not a token, or of another workspace, or was changed.
    """
    body, _, seal = token.strip().removeprefix(_BEGINNING).rpartition(".")
    if not compare_digest(seal.encode(errors="replace"), hashing.hash([body]).encode()):
        expected = "the token of a plan for this workspace"
        raise InvalidArgument("token", expected, token)
    digest, *lines = json.loads(base64.urlsafe_b64decode(f"{body}=="))
    return digest, [Marked(*line) for line in lines]


def standing_lines(notes: Notes, lines: Sequence[Marked], hashing: Tombstones) -> list[NoteLine]:
    """Return the lines of a token or journal that are still in their notes, wherever they are now."""
    return [
        NoteLine(path, one)
        for path in dict.fromkeys(line.path for line in lines)
        for one in standing(notes.statements(path), path, lines, hashing)
    ]


def standing(
    every: Sequence[Statement], path: str, lines: Sequence[Marked], hashing: Tombstones
) -> list[Statement]:
    """Return the statements of a note, which may have been edited since, that are chosen lines.

    A line that says nothing, such as a heading, is only recognised at its old place; any other wherever it is
    now, but never more often than it was chosen.
    """
    names = marked([NoteLine(path, one) for one in every], hashing)
    found, left = dict[int, Statement](), [line for line in lines if line.path == path]
    for is_exact in (True, False):
        for at, (one, name) in enumerate(zip(every, names, strict=True)):
            fits = (
                name in left
                if is_exact
                else one.is_recognisable and any(name.words == it.words for it in left)
            )
            if fits and at not in found:
                found[at] = one
                left.remove(
                    next(it for it in left if it.words == name.words and (it == name or not is_exact))
                )
    return [found[at] for at in sorted(found)]


def digest_of(notes: Notes, lines: Sequence[Marked], hashing: Tombstones) -> str:
    """Return a hash of the present content of some places."""
    first = min((one.start_line for one in lines), default=1)
    last = max((one.end_line for one in lines), default=1)
    said = {path: notes.statements(path, first, last) for path in dict.fromkeys(line.path for line in lines)}
    texts = (one.text for line in lines for one in said[line.path] if line.is_at(one))
    return hashing.hash(text.encode("utf-8", "surrogatepass").hex() for text in texts)


def forget_lines(
    notes: Notes, lines: Iterable[NoteLine], tokens: Iterable[str] = (), *, is_copy: bool = False
) -> list[ForgetLine]:
    """Return lines as shown in a plan; the first of them have tokens."""
    shown = [*lines]
    stays = {path: notes.why_uncut(path) for path in dict.fromkeys(line.path for line in shown)}
    return [
        ForgetLine(
            path=path,
            start_line=one.start_line,
            end_line=one.end_line,
            text=one.text,
            is_copy=is_copy,
            token=token,
            stays=stays[path],
        )
        for (path, one), token in zip(shown, chain(tokens, repeat("")), strict=False)
    ]
