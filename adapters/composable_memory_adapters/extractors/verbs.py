"""The table of verbs that relate two entities, and the search for them in a sentence (pure)."""

import re
from typing import Literal

from composable_memory_ops_logs.quick_dataclass import dataclass

Object = Literal["entity", "phrase", "status", "time", "anything"]
"""The object of a verb: a name; a name or a few words; a state; a time; a name anywhere, or none."""

EXCLUSIVE = frozenset({"LIVES_IN", "WORKS_AT", "MARRIED_TO", "REPORTS_TO", "IS", "SCHEDULED_FOR"})
"""Relations that an entity has one of at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """The relation that a verb states, and its pattern; `asian` is for scripts without spaces between words.

    A verb that `ends` states that the relation no longer holds.
    """

    type: str
    pattern: str
    asian: str = ""
    object: Object = "entity"
    object_kind: str | None = None
    subject_kind: str | None = None
    ends: bool = False


VERBS: tuple[Verb, ...] = (
    # What ends comes first: "moved away from" also holds "moved".
    Verb(
        type="LIVES_IN",
        pattern=r"(?:moved|relocated) (?:away|out)(?: from| of)?|moved from",
        object_kind="Location",
        ends=True,
    ),
    Verb(
        type="WORKS_AT",
        pattern=r"(?:quit|resigned from|was (?:fired|laid off) (?:by|from)|stopped working (?:at|for)"
        r"|retired from"
        r"|left (?:my|his|her|their) job at|leaves|left)",
        object_kind="Organization",
        ends=True,
    ),
    Verb(
        type="USES",
        pattern=r"no longer uses?|(?:has |have )?stopped using|switched (?:away )?from|dropped"
        r"|migrated (?:away )?from"
        r"|gave up(?: on)?",
        ends=True,
    ),
    Verb(type="OWNS", pattern=r"sold|gave away|no longer owns?", object="phrase", ends=True),
    Verb(
        type="MARRIED_TO", pattern=r"divorced|split up with|separated from", object_kind="Person", ends=True
    ),
    Verb(type="LIVES_IN", pattern=r"no longer lives? in", object_kind="Location", ends=True),
    Verb(type="WORKS_AT", pattern=r"no longer works? (?:at|for)", object_kind="Organization", ends=True),
    Verb(
        type="LIVES_IN",
        pattern=r"(?:lives?|lived|living|resides?|resided|residing|settled|based)(?: now| currently"
        r"| happily)? (?:in|at)"
        r"|(?:moved|moves|relocated|emigrated|moving)(?: back)? to|(?:vive|vivo|abita|mora|moro) (?:en|a|em)"
        r"|se mudó a|mudou-se para|(?:lebt|lebe|wohnt|wohne) in|zog nach|(?:habite|vit) à",
        asian="住在|搬到",
        object_kind="Location",
        subject_kind="Person",
    ),
    Verb(
        type="WORKS_AT",
        pattern=r"(?:works?|worked|working)(?: now| currently)? (?:at|for)|(?:is|was|am) (?:employed"
        r"|hired) (?:at|by)"
        r"|(?:got|started|found|accepted|has|have) an? (?:new )?(?:job|position|role) (?:at|with)|interns? at"
        r"|(?:trabaja|trabajo|trabalha) (?:en|para|na|no|em)|arbeitet (?:bei|für)|travaille (?:chez|pour)"
        r"|lavora (?:per|presso)",
        object_kind="Organization",
        subject_kind="Person",
    ),
    Verb(
        type="WORKS_ON",
        pattern=r"(?:works?|worked|working|started(?: work)?|focused|focus(?:es|ing)?) on|maintains?"
        r"|maintained"
        r"|leads?|led|manages?|managed|contributes? to|(?:is|am|are) building|develops?|developed",
    ),
    Verb(
        type="USES",
        pattern=r"(?:uses?|used|using)|switched to|migrated to|(?:is|are|was) (?:built|written"
        r"|implemented) (?:with|in|on)"
        r"|relies on|depends on|runs on|utiliza|usa|verwendet|benutzt|nutzt|utilise",
        asian="使用",
    ),
    Verb(
        type="MEMBER_OF",
        pattern=r"(?:is|was|am|are|became|become) an? (?:\w+ )?member of|joined|joins|belongs to|(?:is|am"
        r"|are) part of"
        r"|volunteers? (?:at|for|with)|plays? for",
    ),
    Verb(
        type="MARRIED_TO",
        pattern=r"(?:is|was|am|got|are)(?: now| happily)? (?:married|engaged) to|married|marries"
        r"|est mariée? à"
        r"|est[áa] casad[oa] con|ist verheiratet mit",
        object_kind="Person",
        subject_kind="Person",
    ),
    Verb(
        type="REPORTS_TO",
        pattern=r"reports? to|reporting to|(?:is|was) managed by",
        object_kind="Person",
        subject_kind="Person",
    ),
    Verb(
        type="OWNS",
        pattern=r"(?:owns?|owned|bought|purchased|inherited)|(?:has|have|got) (?:an?|two|three|four"
        r"|five)(?: new| pet)?"
        r"(?= (?:dog|cat|car|bike|house|boat|puppy|kitten|bird|horse|turtle|guitar|piano|garden|farm|shop"
        r"|flat|pet)s?\b)",
        object="phrase",
    ),
    Verb(
        type="LIKES",
        pattern=r"(?:(?:really |absolutely |also |especially |still )?(?:likes?|loves?|loved|liked|enjoys?"
        r"|enjoyed|adores?"
        r"|prefers?|preferred)|(?:is|am|are) (?:into|fond of|crazy about|a (?:big |huge )?fan of)"
        r"|le gusta|me gusta|mag|aime)",
        asian="喜欢|喜歡",
        object="phrase",
    ),
    Verb(
        type="DISLIKES",
        pattern=r"(?:hates?|hated|dislikes?|disliked|can(?:no|['’])t stand)|(?:is|am) allergic to",
        object="phrase",
    ),
    Verb(
        type="BORN_IN",
        pattern=r"(?:was|were) born in|nació en|wurde geboren in|née? à",
        object_kind="Location",
    ),
    Verb(
        type="COMES_FROM",
        pattern=r"(?:comes?|came|is|am|hails?) (?:originally )?from|grew up in",
        object_kind="Location",
        subject_kind="Person",
    ),
    Verb(
        type="STUDIES_AT",
        pattern=r"(?:stud(?:y|ies|ied)|enrolled|teaches|taught) at|graduated from|attends?|attended",
        object_kind="Organization",
    ),
    Verb(
        type="VISITED",
        pattern=r"visited|visiting|(?:went|travelled|traveled|flew|drove|trip|been) to|(?:returned"
        r"|came back) from",
        object_kind="Location",
    ),
    Verb(
        type="LOCATED_IN",
        pattern=r"(?:is|are|was) (?:located|situated|headquartered) (?:in|at)",
        object_kind="Location",
    ),
    Verb(
        type="KNOWS",
        pattern=r"(?:talk(?:s|ed)?|spoke|speaks?|chatted) (?:to|with)|m[ee]t(?:s)?(?: up)? with|met|knows"
        r"|befriended"
        r"|(?:is|are|am) friends with|had (?:lunch|dinner|coffee) with|called",
        object_kind="Person",
    ),
    Verb(
        type="CREATED",
        pattern=r"(?:founded|co-founded|created|wrote|built|designed|invented|launched|published|released"
        r"|composed)",
    ),
    Verb(
        type="DECIDED",
        pattern=r"(?:has |have )?(?:decided|agreed|chose|chosen|resolved) (?:to|on|that|against)",
        object="anything",
    ),
    Verb(
        type="SCHEDULED_FOR",
        pattern=r"(?:is|are|was|were)(?: now| been)? (?:scheduled|planned|set|due|booked)(?: for| on| by)?"
        r"|takes place(?: on)?"
        r"|(?:will be|is) held on|(?:has been |was |is )?(?:postponed|rescheduled|moved|pushed"
        r"|brought forward) (?:to|until)"
        r"(?= (?:the )?(?:\d|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|mon|tue|wed|thu|fri|sat|sun"
        r"|next))",
        object="time",
    ),
    Verb(
        type="IS",
        pattern=r"(?:is|are|was set to)(?: now| currently)"
        r"(?! (?:in|at|on|to|from|with|working|living|using|married)\b(?! hold| track| progress| review))"
        r"|(?:has|have) (?:the )?status|status(?: is(?: now)?|(?=:))"
        r"|(?:is|are|was|were|has been|got)(?: now| currently| officially)?"
        r"(?= (?:on hold|cancel+ed|done|finished|completed?|blocked|delayed|approved|rejected|deprecated"
        r"|closed|live|in progress|in review|paused|archived|ready|overdue|abandoned|resolved|shipped"
        r"|available|unavailable|retired)\b)",
        object="status",
    ),
)
"""Tried in this order at each place of a sentence; the first that fits counts."""


_ANY = re.compile(
    "|".join(
        rf"(?P<v{n}>\b(?:{verb.pattern})(?![^\W_])" + (f"|{verb.asian})" if verb.asian else ")")
        for n, verb in enumerate(VERBS)
    ),
    re.IGNORECASE,
)


def verbs_in(text: str) -> list[tuple[int, int, Verb]]:
    """Return the verbs of a sentence, each with where it begins and where its object may begin."""
    return [
        (match.start(), match.end(), VERBS[int((match.lastgroup or "v0")[1:])])
        for match in _ANY.finditer(text)
    ]
