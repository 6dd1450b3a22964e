"""What a memory made of parts answers with: matches of vectors and facts of a graph as results (pure)."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote, unquote

from composable_memory.content import GraphEdge, GraphNode, GraphQueryResult, VectorMatch
from composable_memory.errors import MemoryPathError
from composable_memory.ingest.lifetimes import Lifetime
from composable_memory.ingest.normalize import origin_of_provenance
from composable_memory.ingest.records import lifetime_in, origin_in
from composable_memory.paths import is_markdown
from composable_memory.types import MAX_SNIPPET_CHARS, JsonValue, MemorySearchResult, Origin

__all__ = ["PathKey", "QueryWords", "from_graph", "from_vectors", "joined_text", "path_key"]

LIKENESS_SHARE = 0.7
"""How much of a passage's score is its likeness to the question; the words they share are the rest."""

ORDER_SHARE = 0.4
"""How much of a fact's score is its place in the graph's answer; the words it shares are the rest."""

RANK_HALF = 8
PAST_FACTOR = 0.5
LEAST_LETTERS = 3
FACT_MARK = "@"
CONTEXT_CHARS = 200

_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_RUN = re.compile(f"[{_CJK}]+|[^\\W_{_CJK}]+")
_IS_CJK = re.compile(f"[{_CJK}]")


class QueryWords:
    """The words of a question, to tell how many of them a text holds."""

    def __init__(self, query: str) -> None:
        words = frozenset(_words(query))
        self._words = frozenset(word for word in words if _counts(word)) or words

    def share(self, text: str) -> float:
        """Return the share of the words that `text` holds, in [0, 1]."""
        return len(self._words.intersection(_words(text))) / len(self._words) if self._words else 0.0

    def first_in(self, text: str) -> int:
        """Return where the first of the words stands in `text`, 0 if none does."""
        found = (match.start() for match in _RUN.finditer(text) if match[0].casefold() in self._words)
        return next(found, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PathKey:
    """What a path asks a store of vectors for: the records in which `key` is `value`.

    One that `may_be_missing` is well formed, so that nothing found is an empty file and no error.
    """

    key: str
    value: str
    may_be_missing: bool


def path_key(path: str, backend_id: str) -> PathKey:
    """Return what to look for to read `path`.

    Raises:
        MemoryPathError: the path names nothing that a memory can hold.
    """
    own = path.removeprefix(f"{backend_id}/")
    if own != path and own:
        return PathKey(key="content_id", value=unquote(own.partition(FACT_MARK)[0]), may_be_missing=True)
    if not path or "\0" in path or "\\" in path or path.startswith("/"):
        raise MemoryPathError(path, "it is not a path of this memory", allowed=(f"{backend_id}/*", "*.md"))
    is_plain = is_markdown(path) and ".." not in path.split("/") and path[0] != "~" and ":" not in path
    return PathKey(key="path", value=path, may_be_missing=is_plain)


def joined_text(records: Iterable[Mapping[str, JsonValue]]) -> str:
    """Return the texts of records as one, each at its line; what lies between is empty."""
    rows: list[str] = []
    for record in sorted(records, key=_first_line):
        text = str(record.get("text") or "")
        rows += [""] * (_first_line(record) - 1 - len(rows))
        rows += text.split("\n")
    return "\n".join(rows)


def from_vectors(
    matches: Sequence[VectorMatch], words: QueryWords, *, now: datetime, backend_id: str
) -> list[MemorySearchResult]:
    """Return contents as results, best first: those that have not expired and say something."""
    results = (_from_match(match, words, now, backend_id) for match in matches)
    return sorted((one for one in results if one is not None), key=_best_first)


def from_graph(
    found: GraphQueryResult, words: QueryWords, *, now: datetime, backend_id: str
) -> list[MemorySearchResult]:
    """Return facts and described entities as results, best first: those that have not expired."""
    labels = {node.id: node.label for node in found.nodes}
    facts = [
        _from_edge(edge, place, labels, words, now, backend_id)
        for place, edge in enumerate(found.edges)
        if not _lifetime(edge).is_over(now)
    ]
    told = [
        _from_node(node, text, place, words, backend_id)
        for place, node in enumerate(found.nodes)
        if (text := str(node.properties.get("text") or "").strip()) and not _lifetime(node).is_over(now)
    ]
    return sorted([*facts, *told], key=_best_first)


def _from_match(
    match: VectorMatch, words: QueryWords, now: datetime, backend_id: str
) -> MemorySearchResult | None:
    lifetime, text = lifetime_in(match.metadata), str(match.metadata.get("text") or "")
    if lifetime.is_over(now) or not text.strip():
        return None
    origin = _citable(origin_in(match.metadata))
    shared = words.share(f"{match.metadata.get('title') or ''}\n{text}")
    score = LIKENESS_SHARE * min(1.0, max(0.0, match.score)) + (1 - LIKENESS_SHARE) * shared
    holds = lifetime.holds_at(now)
    return MemorySearchResult(
        path=origin.path if origin else _own_path(backend_id, match.id),
        start_line=origin.start_line if origin else 0,
        end_line=origin.end_line if origin else 0,
        score=score if holds else score * PAST_FACTOR,
        snippet=_snippet(text, words.first_in(text), _validity(lifetime, now)),
        exact=shared == 1.0,
        metadata={"content": match.id, **_times(lifetime, now)},
    )


def _from_edge(
    edge: GraphEdge,
    place: int,
    labels: Mapping[str, str],
    words: QueryWords,
    now: datetime,
    backend_id: str,
) -> MemorySearchResult:
    said = str(edge.properties.get("fact") or "").strip()
    subject, target = (labels.get(end) or _label_in(said, end) for end in (edge.source_id, edge.target_id))
    fact = said or f"{subject} {_in_words(edge.type)} {target}"
    shared, lifetime, episode = words.share(fact), _lifetime(edge), _episode(edge)
    score = _score(shared, place)
    known: dict[str, JsonValue] = {
        "fact": edge.id,
        "relation": edge.type,
        "subject": subject,
        "object": target,
        "confidence": edge.properties.get("confidence"),
        "episode": episode,
    }
    return MemorySearchResult(
        path=f"{_own_path(backend_id, episode or 'fact')}{FACT_MARK}{quote(edge.id, safe='')[:32]}",
        start_line=0,
        end_line=0,
        score=score if lifetime.holds_at(now) else score * PAST_FACTOR,
        snippet=_snippet(fact, 0, _validity(lifetime, now)),
        exact=shared == 1.0,
        origin=_citable(origin_of_provenance(edge.provenance)),
        metadata={key: value for key, value in known.items() if value is not None} | _times(lifetime, now),
    )


def _from_node(
    node: GraphNode, text: str, place: int, words: QueryWords, backend_id: str
) -> MemorySearchResult:
    shared = words.share(f"{node.label} {text}")
    return MemorySearchResult(
        path=_own_path(backend_id, node.id),
        start_line=0,
        end_line=0,
        score=_score(shared, place),
        snippet=_snippet(text, 0, ""),
        exact=shared == 1.0,
        origin=_citable(origin_of_provenance(node.provenance)),
        metadata={"entity": node.label},
    )


def _score(shared: float, place: int) -> float:
    return (1 - ORDER_SHARE) * shared + ORDER_SHARE * RANK_HALF / (RANK_HALF + place)


def _own_path(backend_id: str, id_: str) -> str:
    return f"{backend_id}/{quote(id_, safe='')}"


def _citable(origin: Origin | None) -> Origin | None:
    """Return an origin whose path can stand in a result: relative, with `/`."""
    is_fit = origin is not None and not origin.path.startswith("/") and "\\" not in origin.path
    return origin if is_fit else None


def _lifetime(part: GraphEdge | GraphNode) -> Lifetime:
    times = part.temporal
    if times is None:
        return Lifetime()
    return Lifetime(valid_from=times.valid_from, valid_to=times.valid_to, expires_at=times.expires_at)


def _validity(lifetime: Lifetime, now: datetime) -> str:
    """Return why something does not hold now, in words; nothing for what does."""
    if lifetime.holds_at(now):
        return ""
    if lifetime.valid_to is not None and lifetime.valid_to <= now:
        return f" (until {lifetime.valid_to.date()}; no longer holds)"
    return f" (from {lifetime.valid_from.date()})" if lifetime.valid_from else ""


def _times(lifetime: Lifetime, now: datetime) -> dict[str, JsonValue]:
    known = {"valid_at": lifetime.valid_from, "invalid_at": lifetime.valid_to}
    told: dict[str, JsonValue] = {name: moment.isoformat() for name, moment in known.items() if moment}
    return {"current": lifetime.holds_at(now)} | told


def _snippet(text: str, at: int, tail: str) -> str:
    """Return as much of a text as fits with its tail, from a little before `at` on."""
    room = MAX_SNIPPET_CHARS - len(tail)
    if len(text) > room:
        start = min(max(0, at - CONTEXT_CHARS), len(text) - room)
        text = text[start : start + room]
    return text.strip() + tail


def _episode(edge: GraphEdge) -> str | None:
    episodes = edge.properties.get("episodes")
    return (
        next((one for one in episodes if isinstance(one, str)), None) if isinstance(episodes, list) else None
    )


def _label_in(fact: str, node_id: str) -> str:
    """Return how a fact writes the entity whose node did not come along."""
    plain = node_id.removeprefix("entity:")
    found = re.search(re.escape(plain), fact, re.IGNORECASE)
    return found[0] if found else plain


def _in_words(relation: str) -> str:
    return relation.replace("_", " ").lower()


def _first_line(record: Mapping[str, JsonValue]) -> int:
    line = record.get("start_line")
    return max(1, line) if isinstance(line, int) else 1


def _words(text: str) -> Iterator[str]:
    """Yield folded words; of a run of Chinese, Japanese or Korean its pairs of characters."""
    for run in _RUN.findall(text.casefold()):
        if len(run) > 1 and _IS_CJK.match(run):
            yield from (run[at : at + 2] for at in range(len(run) - 1))
        else:
            yield run


def _counts(word: str) -> bool:
    return len(word) >= LEAST_LETTERS or not word.isalpha() or not word.isascii()


def _best_first(result: MemorySearchResult) -> tuple[float, str, int]:
    return -result.score, result.path, result.start_line
