"""Finds the relations that a sentence states between its names (pure).

A relation is stated only if a pattern of `grammar` is certain; questions, guesses, wishes and rumours state
none.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from datetime import datetime
from functools import partial
from itertools import product
from typing import Literal

from composable_memory.content import ExtractedRelation
from composable_memory_adapters.extractors import grammar
from composable_memory_adapters.extractors.capitalised_names import UNSURE, Mention
from composable_memory_adapters.extractors.grammar import (
    EXCLUSIVE,
    KIN,
    LANGUAGES,
    LIST,
    MARK,
    ONE_HOLDER,
    ROLES,
    any_of,
)
from composable_memory_adapters.extractors.sentence_times import Validity
from composable_memory_ops_logs.quick_dataclass import dataclass

CONFIDENCE = 0.9
MAX_PHRASE_WORDS = 3
MAX_CLAUSE_CHARS = 300

_QUESTION = re.compile(r"[?？][\"'”’)\]!]*$|[吗嗎呢][。.]?$|^¿|\[ \]")
_TAG = re.compile(r",\s*(?:right|isn['’]t it|don['’]t you think|you know|okay|ok|huh|eh)\?$", re.IGNORECASE)
_CLAUSE = re.compile(
    rf"; |, (?:but|aber|pero) |,? (?:and|und|y|but|pero) (?=(?:then |also |now |auch |jetzt |ahora "
    rf"|también )?(?:{grammar.VERBS})\b)"
    r"|[:,] (?=(?:now|jetzt|ahora) )|(?:,? (?:and|und|y|but)|:) (?=(?:I|we|he|she|they|ich|wir|sie|er)\b)",
)
_VERB = re.compile(rf"\b(?:{grammar.VERBS}|met|got|went|had|switched|[a-z]+ed|[a-z]+[óé])\b", re.IGNORECASE)
_KEEPER = re.compile(rf"^({MARK}) (?:the|der|die|el|la) (?:[a-zäöü-]+ ){{1,2}}(?=(?:{grammar.VERBS})\b)")
_OPENERS = re.compile(
    r"^(?:(?:and|but|so|well|yes|yeah|oh|wow|hey|hi|actually|by the way|btw|anyway|also|plus|und|aber"
    r"|ja|y|pero|bueno|sí)[,!]? |[,–—:-] ?"
    r"|[\"“„'(¡]+)+",
    re.IGNORECASE,
)
_NO_LONGER = re.compile(
    r"\b(?:no longer|any ?more|any longer|used to|formerly|previously|nicht mehr|ya no)\b,? ?", re.IGNORECASE
)
_CONTRAST = re.compile(any_of("contrasts").replace("{MARK}", MARK))
_CORRECTED = re.compile(r"\W*(?:correction|erratum|fix|korrektur|corrección)\b", re.IGNORECASE)
_SINCE_THEN = re.compile(
    r"^(?!.*\b(?:where|who|wo|die|der|donde|que)\b).*\b(?:no longer|any ?more|any longer|nicht mehr|ya no)\b",
    re.IGNORECASE,
)
"""Matches what ended at a time: "since March she no longer lives here", but not "has worked there since"."""
_PLAIN_NOT = re.compile(r"\b(?:not|nicht|no) ", re.IGNORECASE)
_NOT = re.compile(rf"\b(?:{any_of('negations')})\b", re.IGNORECASE)
_DO = re.compile(r"\b(?:do|does|did) (?=\w)", re.IGNORECASE)
_BESIDE = re.compile(r"\b(?:also|too|as well|auch|außerdem|también|además)\b,? ?", re.IGNORECASE)
_ADVERBS = re.compile(rf"(?<![\w-])(?:{any_of('adverbs')})(?![\w-]),? ?", re.IGNORECASE)
_CONTRACTIONS = {
    re.compile(r"\b(I)['’]m\b"): r"\1 am",
    re.compile(r"\b(I|we|they)['’]ve\b", re.IGNORECASE): r"\1 have",
    re.compile(r"\b(we|they)['’]re\b", re.IGNORECASE): r"\1 are",
    re.compile(r"\b(he|she|it)['’]s (?=been\b|got\b|moved\b|joined\b)", re.IGNORECASE): r"\1 has ",
    re.compile(r"\b(he|she|it|that)['’]s\b", re.IGNORECASE): r"\1 is",
    re.compile(
        r"\b(is|are|was|were|does|do|did|has|have|would|could|should)n['’]t\b", re.IGNORECASE
    ): r"\1 not",
    re.compile(r"['’]ll\b"): " will",
    re.compile(
        rf"\b(?!His )([A-ZÄÖÜ]\w+?)s (?={grammar.KIN['SPOUSE'].pattern}|Schwester|Bruder|Chef)"
    ): r"\1's ",
}
_I = re.compile(r"(?<![\w'’])(?:I|[Ww]e|[Ii]ch|[Ww]ir|[Yy]o|[Nn]osotr[oa]s)(?![\w'’])")
_HE = re.compile(r"(?<![\w'’])(?:[Hh]e|[Ss]he|[Ee]r|[Éé]l|[Ee]lla)(?![\w'’])")
_THEY = re.compile(r"(?<![\w'’])(?:[Tt]hey|[Bb]eide|[Ee]llos|[Ee]llas)(?![\w'’])")
_HER = re.compile(
    rf"\b(?:his|her|seine?|ihre?"
    rf"|su)\b(?= (?:\w+ )?(?:{'|'.join(one.pattern for one in KIN.values())})\b)",
    re.I,
)
_CALLED = re.compile(rf"\b(?:called|named|namens|llamad[oa]) ({MARK})", re.IGNORECASE)
_DETERMINER = re.compile(rf"^(?:(?:{any_of('determiners')})\s+)+", re.IGNORECASE)
_AND = re.compile(r",? (?:and|und|y|e|sowie) |, ")
_PHRASE_END = re.compile(rf"\s(?:{any_of('phrase_ends')})\b(?! (?:the )?mer\b).*", re.IGNORECASE)
_NO_PHRASE = re.compile(rf'(?:{any_of("no_phrases")})\b.*|.*[\d%€$␣"“”„].*', re.IGNORECASE)
_OF_HERE = re.compile(rf"\s*(?:{any_of('of_here')})\b", re.IGNORECASE)
"""The start of words that only mean something in context: "I love the color"."""
_LEFT = re.compile(r"(?:left|quit|resigned|retired|moved (?:away|out)|again| )+[.!]?")
_LEAVES = ("WORKS_AT", "LIVES_IN", "STUDIES_AT")
_GONE = re.compile(
    r"\b(?:died|passed away|retired|gestorben|starb|murió|falleció|se jubiló)\b", re.IGNORECASE
)
_CLUB = re.compile(
    r"club|society|association|choir|band|gym|league|party|union|verein|chor|group", re.IGNORECASE
)
_SOFTWARE = ("Technology", "Tool")

_PLACED = frozenset({"LIVES_IN", "BORN_IN", "COMES_FROM", "LOCATED_IN"})
_OF_PEOPLE = frozenset(
    "LIVES_IN WORKS_AT MARRIED_TO REPORTS_TO BORN_IN COMES_FROM STUDIES_AT MEMBER_OF SPEAKS "
    "ALLERGIC_TO".split()
)
_NOT_PEOPLE = ("Location", "Technology", "Tool", "Project", "Event")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The context of a sentence: who "I" is, when it was said, and who the sentence before was about."""

    speaker: str
    observed_at: datetime | None
    previous: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A clause whose names and pronouns are replaced by marks, with the time it refers to."""

    text: str
    labels: dict[str, Mention]
    validity: Validity
    has_ended: bool = False
    is_beside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """A relation as read, before its time is known; `mood` is that of its frame."""

    source: str
    type: str
    target: str
    mood: str = "now"
    is_unique: bool = True


@dataclass(slots=True)
class _Reader:
    """Reads the clauses of one sentence, and tracks who they are about."""

    scene: Scene
    subjects: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()
    corrects: bool = False
    taken: list[tuple[int, int]] = field(default_factory=list)
    goes_on: bool = False


def states_nothing(sentence: str) -> bool:
    """Return whether a sentence is a question, a guess, a hope or hearsay."""
    if _QUESTION.search(sentence) and not _TAG.search(sentence):
        return True
    return grammar.HEDGES.search(sentence) is not None


def clauses_of(sentence: str) -> list[str]:
    """Return the clauses of a sentence, each with its own verb."""
    clauses: list[str] = []
    last = 0
    for match in _CLAUSE.finditer(sentence):
        # "Clara and I live in Ghent" is one clause, as there is no verb before the pronoun.
        if _VERB.search(sentence, last, match.start()):
            clauses.append(sentence[last : match.start()])
            last = match.end()
    return [*clauses, sentence[last:]]


def relations_in(
    clauses: Sequence[tuple[str, Validity, Sequence[Mention]]], fact: str, scene: Scene
) -> list[ExtractedRelation]:
    """Return the relations of a sentence, given its clauses without time expressions, and their names."""
    reader = _Reader(scene, subjects=scene.previous, corrects=_CORRECTED.match(fact) is not None)
    found: dict[tuple[str, str, str], ExtractedRelation] = {}
    for number, (text, validity, mentions) in enumerate(clauses):
        if " " not in text.strip():
            continue
        said = _said(text[:MAX_CLAUSE_CHARS], validity, mentions, reader)
        if said is None:
            continue
        reader.taken, reader.goes_on = [], number > 0
        if begins := re.match(rf"{LIST}(?=,? [a-zä-ü])", said.text):
            reader.subjects, reader.goes_on = _labels(begins[0], said), True
        if (
            (last := [*found.values()][-1:])
            and validity.at
            and _LEFT.fullmatch(said.text)
            and last[0].type in _LEAVES
        ):
            found[_key(last[0])] = replace(last[0], valid_to=validity.at)
        for stated in _stated(said, reader):
            relation = in_time(stated, said, fact, scene.observed_at)
            if relation is not None and relation.source.casefold() != relation.target.casefold():
                found.setdefault(_key(relation), relation)
    return list(found.values())


def _key(relation: ExtractedRelation) -> tuple[str, str, str]:
    return relation.source.casefold(), relation.type, relation.target.casefold()


def in_time(stated: Stated, said: Said, fact: str, observed_at: datetime | None) -> ExtractedRelation | None:
    """Return a relation with its validity; None if it is over but the end is unknown."""
    time = said.validity
    start, end = time.start, time.end
    mood = _mood_without_start(stated, said)
    if stated.mood == "always":
        start, end = None, None
    elif mood in ("ended", "over"):
        since = time.start if stated.mood == "replaced" or _SINCE_THEN.search(fact) else None
        start, end = None, end or time.at or since or observed_at
        if end is None or ((time.at or since) and observed_at and end > observed_at):
            return None
    elif stated.mood == "past" and start is None:
        start, end = (None, end) if end else (time.at, time.until)
        if end is None:
            return None
    elif start is None:
        if time.at and observed_at and time.at > observed_at:
            return None  # a plan
        start = time.at
        if end and observed_at and observed_at < end and stated.mood != "past":
            start = observed_at
    if start and end and end <= start:
        end = None
    return ExtractedRelation(
        source=stated.source,
        target=stated.target,
        type=stated.type,
        fact=fact,
        exclusive=stated.type in EXCLUSIVE and not said.is_beside,
        one_holder=(stated.type in ONE_HOLDER or stated.type == "HAS_ROLE")
        and stated.is_unique
        and not said.is_beside,
        valid_from=start,
        valid_to=end,
        confidence=CONFIDENCE,
        mood=mood if end and not start else None,
    )


def _mood_without_start(stated: Stated, said: Said) -> Literal["ended", "over", "past"]:
    if stated.mood == "over":
        return "over"
    return "ended" if stated.mood in ("ended", "replaced") or said.has_ended else "past"


# --- from clauses to marks ----------------------------------------------------------------------------------


def _said(text: str, validity: Validity, mentions: Sequence[Mention], reader: _Reader) -> Said | None:
    """Return a clause with marks for names and pronouns; None if it is negated."""
    labels: dict[str, Mention] = {}

    def mark(label: str, kind: str = UNSURE) -> str:
        sign = chr(0xE000 + len(labels))
        labels[sign] = Mention(start=0, end=0, label=label, kind=kind)
        return sign

    parts, last = [], 0
    for one in mentions:
        parts += [text[last : one.start], mark(one.label, one.kind)]
        last = one.end
    words = "".join([*parts, text[last:]])
    for pattern, full in _CONTRACTIONS.items():
        words = pattern.sub(full, words)
    people = tuple(one.label for one in labels.values() if one.kind in ("Person", UNSURE))
    words = _I.sub(lambda _: mark(reader.scene.speaker, "Person"), words)
    before = reader.subjects
    if len(before) == 1:
        words = _HE.sub(lambda _: mark(before[0], "Person"), words)
        whose = _HER.match(words) if people else _HER.search(words)  # "Max and his wife" is about Max's
        if whose:
            words = f"{words[: whose.start()]}{mark(before[0], 'Person')}'s{words[whose.end() :]}"
    several = (*before, *reader.objects)
    if len(several) > 1:
        words = _THEY.sub(lambda _: " and ".join(mark(one, "Person") for one in several), words)
    words = _CONTRAST.sub("", words)
    has_ended = bool(_NO_LONGER.search(words)) or bool(
        re.search(r"\b(?:not|kein\w*) .*\b(?:any ?more|any longer|mehr)\b", words)
    )
    if has_ended:
        words = re.sub(r"\b(?:not|mehr|kein\w*)\b ?", "", _NO_LONGER.sub("", words))
        words = re.sub(r"\bused to\b ?", "", words)
    elif _NOT.search(words):
        words, has_ended = _PLAIN_NOT.sub("", words), reader.corrects
        if not has_ended or _NOT.search(words):
            return None
    words = _DO.sub("", words) if has_ended else words
    is_beside = bool(_BESIDE.search(words))
    words = _ADVERBS.sub("", _BESIDE.sub("", words))
    words = re.sub(r"\s+([,.;!])", r"\1", " ".join(words.split()))
    words = _OPENERS.sub("", words.lstrip(", "))
    words = _KEEPER.sub(r"\1 ", words)
    if grammar.FIRST_PERSON.match(words):
        words = f"{mark(reader.scene.speaker, 'Person')} {words}"
    return Said(text=words, labels=labels, validity=validity, has_ended=has_ended, is_beside=is_beside)


# --- from marks to relations --------------------------------------------------------------------------------


def _stated(said: Said, reader: _Reader) -> Iterator[Stated]:
    said, kin = _of_somebody(said, reader)
    said, roles = _of_a_role(said)
    yield from kin
    yield from roles
    for one in (*kin, *roles):
        reader.subjects = (one.source if one.source != reader.scene.speaker else one.target,)
        reader.goes_on = True
    has_port = re.search("port|puerto", said.text, re.IGNORECASE)
    for frame in grammar.frames():
        if frame.type == "LISTENS_ON" and not has_port:
            continue  # these take as long as a dozen others
        for match in frame.pattern.finditer(said.text):
            span = match.span()
            if all(span[1] <= start or span[0] >= end for start, end in reader.taken):
                found = list(_by_frame(frame, match, said, reader))
                yield from found
                if found:
                    reader.taken.append(span)
    yield from _status(said)


def _by_frame(frame: grammar.Frame, match: re.Match[str], said: Said, reader: _Reader) -> Iterator[Stated]:
    groups = match.groupdict()
    if frame.type == "LISTENS_ON":
        yield from _port(groups, said)
        return
    before = reader.subjects if reader.goes_on else ()
    subjects = _labels(groups.get("s"), said) if groups.get("s") else before
    if groups.get("m"):
        subjects = (_plain(groups["m"] or "", said),)
    if frame.mood == "passive":
        reader.subjects = subjects
    if frame.type in _OF_PEOPLE:
        kinds = {one.label: one.kind for one in said.labels.values()}
        subjects = tuple(one for one in subjects if kinds.get(one, UNSURE) not in _NOT_PEOPLE)
    if not subjects:
        return
    if frame.mood == "over":
        yield from map(partial(over, frame.type), subjects)
        return
    if frame.mood in ("parted", "joined"):
        if len(subjects) == 2:
            mood = "ended" if frame.mood == "parted" else "began"
            yield Stated(source=subjects[0], type=frame.type, target=subjects[1], mood=mood)
            yield Stated(source=subjects[1], type=frame.type, target=subjects[0], mood=mood)
        return
    if frame.mood == "gone" and not said.has_ended:
        return
    type_, targets = _targets(frame, groups, said)
    if (
        type_ == "USES"
        and frame.mood == "switched"
        and _changes_jobs(match[0], subjects, groups, said, reader)
    ):
        type_ = "WORKS_AT"
    mood = frame.mood if frame.mood in ("ended", "past") else "now" if frame.mood == "passive" else "began"
    if frame.mood == "passive" and re.search(r"\b(?:was|were)\b", match[0]):
        mood = "past"
    for target, subject in product(targets, subjects):
        yield Stated(source=subject, type=type_, target=target, mood=mood, is_unique=type_ != "HAS_ROLE")
    if (role := groups.get("role")) and targets:
        words = _plain(role, said)
        yield from (Stated(source=one, type="HAS_ROLE", target=words, is_unique=False) for one in subjects)
    if mood == "ended" and type_ == "MARRIED_TO":
        yield from (Stated(source=one, type=type_, target=subjects[0], mood=mood) for one in targets)
    if groups.get("f") and targets and frame.mood in ("moved", "switched"):
        origin = said.labels[groups["f"] or ""].label
        yield from (Stated(source=one, type=type_, target=origin, mood="replaced") for one in subjects)
    reader.subjects = subjects
    reader.objects = tuple(targets) if type_ == "MARRIED_TO" else ()


def over(type_: str, source: str) -> Stated:
    """Return that every relation of this type of a source is over: the text does not say which it was."""
    what = "job" if type_ == "WORKS_AT" else "marriage"
    return Stated(source=source, type=type_, target=f"{source}'s {what}", mood="over")


def _changes_jobs(
    words: str, subjects: tuple[str, ...], groups: dict[str, str | None], said: Said, reader: _Reader
) -> bool:
    """Return whether a person changes companies, rather than tools."""
    kinds = {one.label: one.kind for one in said.labels.values()}
    signs = re.findall(MARK, (groups.get("o") or "") + (groups.get("f") or ""))
    is_software = any(said.labels[sign].kind in _SOFTWARE for sign in signs)
    is_person = all(kinds.get(one) == "Person" and one != reader.scene.speaker for one in subjects)
    changes = re.search("moved|switched|changed|gewechselt|cambi|pas", words) is not None
    return changes and is_person and not is_software


def _targets(frame: grammar.Frame, groups: dict[str, str | None], said: Said) -> tuple[str, list[str]]:
    """Return a frame's relation and its targets: software is used, not lived in."""
    if groups.get("p"):
        return frame.type, _phrases(frame.type, groups["p"] or "", said)
    named = [said.labels[sign] for sign in re.findall(MARK, groups.get("o") or "")]
    type_ = frame.type
    if type_ in _PLACED and ", " in (groups.get("o") or "") and not re.search(r"[a-z]", groups["o"] or ""):
        named = named[:1]  # "in Berlin, Germany"
    if type_ == "LIVES_IN" and any(one.kind in _SOFTWARE for one in named):
        type_ = "USES"
    if type_ == "WORKS_AT" and frame.mood == "began" and any(_CLUB.search(one.label) for one in named):
        type_ = "MEMBER_OF"
    unfit = grammar.UNFIT.get(type_, ())
    return type_, [
        one.label for one in named if one.kind not in unfit and not grammar.IS_KIN.fullmatch(one.label)
    ]


def _labels(signs: str | None, said: Said) -> tuple[str, ...]:
    return tuple(said.labels[sign].label for sign in re.findall(MARK, signs or ""))


def _plain(words: str, said: Said) -> str:
    """Return words with marks replaced by names."""
    return re.sub(MARK, lambda sign: said.labels[sign[0]].label, words).strip(" ,.;:!\"'–—-")


def _phrases(type_: str, words: str, said: Said) -> list[str]:
    """Return the short phrases after a verb, up to a word that starts something else."""
    called = _CALLED.search(words)
    if called:
        return [said.labels[called[1]].label]
    found: list[str] = []
    for part in _AND.split(words):
        if type_ in ("LIKES", "DISLIKES") and (_OF_HERE.match(part) or (found and _is_called(part, said))):
            break
        bare = _DETERMINER.sub("", part.strip())
        cut = _PHRASE_END.search(f" {bare}")
        if cut and (cut.start() == 0 or cut[0].split()[0] in ("who", "that", "which", "que")):
            break
        if (
            cut
            and re.match(r"\w+ing\b", bare)
            and cut[0].split()[0] not in ("a", "very", "so", "most", "best")
        ):
            break  # "having them around" is not "having"
        if type_ == "OWNS" and cut and cut[0].split()[0] in ("for", "für", "para"):
            break  # "a book for Diego" belongs to him
        phrase = _plain(_PHRASE_END.sub("", bare), said)
        if type_ == "SPEAKS" and phrase.casefold() not in LANGUAGES:
            break
        if (
            not phrase
            or len(phrase.split()) > MAX_PHRASE_WORDS
            or _NO_PHRASE.fullmatch(phrase)
            or len(phrase) < 3
        ):
            break
        if found and re.match(rf"(?:{grammar.VERBS})\b", phrase):
            break
        found.append(phrase)
        if cut:
            break
    return found


def _is_called(words: str, said: Said) -> bool:
    """Return whether words address somebody by name: "sounds fun, Nate"."""
    mention = said.labels.get(words.strip(" .!"))
    return mention is not None and mention.kind == "Person"


def _port(groups: dict[str, str | None], said: Said) -> Iterator[Stated]:
    subject = _plain(groups["sp"] or "", said)
    has_name = re.search(MARK, groups["sp"] or "") is not None
    if (groups.get("d") or has_name) and not re.search(r"\b(?:it|they|and|or)\b", subject):
        yield Stated(source=subject, type="LISTENS_ON", target=f"port {groups['num']}")


def _status(said: Said) -> Iterator[Stated]:
    match = grammar.STATUS.match(said.text)
    if match is None or said.has_ended:
        return
    named = said.labels.get(match["sp"])
    if named is not None and named.kind in ("Person", "Location"):
        return
    if named is not None or match["d"]:
        yield Stated(
            source=_plain(match["sp"], said), type="IS", target=(match["p"] or match["settled"]).casefold()
        )


def _of_somebody(said: Said, reader: _Reader) -> tuple[Said, list[Stated]]:
    """Return who is whose sister or boss, and the clause reduced to the name if it said both."""
    found: list[Stated] = []
    for pattern in grammar.OF_SOMEBODY:
        while match := pattern.search(said.text):
            groups = match.groupdict()
            of = said.labels[groups["of"] or ""] if groups.get("of") else None
            whose = of.label if of else reader.scene.speaker
            of_company = of is not None and of.kind != "Person" and match.re is grammar.OF_SOMEBODY[3]
            kin = list(_kin(said.labels[match["n"]].label, match["kin"], whose, of_company=of_company))
            # "My dog Rex ran away yesterday" says when he ran, not since when I have had him.
            is_over = _GONE.search(said.text) and kin[0].type in (*ONE_HOLDER, "OWNS")
            mood = "ended" if is_over else "always"
            found += [replace(one, mood=mood) for one in kin] if groups.get("apposed") else kin
            rest = match["n"] if groups.get("apposed") else "␣"
            said = replace(said, text=f"{said.text[: match.start()]}{rest}{said.text[match.end() :]}")
    return said, found


def _kin(name: str, word: str, of: str, *, of_company: bool) -> Iterator[Stated]:
    kind = next(kind for kind, pattern in KIN.items() if pattern.fullmatch(word))
    if kind == "PET":
        yield Stated(source=of, type="OWNS", target=name)
    elif kind == "SPOUSE":
        yield Stated(source=of, type="MARRIED_TO", target=name)
    elif kind == "MANAGER" and of_company:
        yield Stated(source=name, type="BOSS_OF", target=of)
    elif kind == "MANAGER":
        yield Stated(source=of, type="REPORTS_TO", target=name)
    else:
        yield Stated(source=name, type=f"{kind}_OF", target=of, mood="always")


def _of_a_role(said: Said) -> tuple[Said, list[Stated]]:
    """Return who is what, or what of whom, and the clause without it if it was an aside."""
    found: list[Stated] = []
    for pattern in grammar.OF_A_ROLE:
        match = pattern.search(said.text)
        if match is None:
            continue
        groups = match.groupdict()
        name, org, the = said.labels[match["n"]].label, groups.get("org"), groups.get("the") is not None
        kind = next(kind for kind, one in reversed(ROLES.items()) if one.fullmatch(match["role"]))
        mood = "past" if re.search(rf"{match['n']} was ", match[0]) else "now"
        mood = "ended" if groups.get("over") else mood
        if org in said.labels and kind == "WORKER":
            employer = said.labels[org or ""]
            found.append(
                Stated(source=name, type="HAS_ROLE", target=match["role"], mood=mood, is_unique=False)
            )
            if employer.kind != "Location":
                found.append(Stated(source=name, type="WORKS_AT", target=employer.label, mood=mood))
        elif org in said.labels:
            target = said.labels[org or ""].label
            found.append(Stated(source=name, type=f"{kind}_OF", target=target, mood=mood))
        else:
            role = said.text[match.start("role") : match.end("org" if org else "role")]
            found.append(
                Stated(
                    source=name, type="HAS_ROLE", target=role, mood=mood, is_unique=the and kind != "WORKER"
                )
            )
        rest = match["n"] if groups.get("apposed") is not None else "␣"
        end = match.end()
        if groups.get("apposed") == ",":
            rest, end = match["n"], end + 1
            rest += " "
        said = replace(said, text=f"{said.text[: match.start()]}{rest}{said.text[end:]}")
    return said, found
