"""Extracts names and relations from Chinese, which has neither capitals nor word spaces (pure)."""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product

from composable_memory.content import ExtractedRelation
from composable_memory.data_files import tables
from composable_memory_adapters.extractors.capitalised_names import LETTER, UNSURE, Mention, mentions_in
from composable_memory_adapters.extractors.grammar import any_of
from composable_memory_adapters.extractors.relations import Said, Scene, Stated, in_time, over
from composable_memory_adapters.extractors.sentence_times import Validity, without_times

_TABLES = tables(__package__, "chinese.toml")

_HAN = "[\u3400-\u9fff]"
_KANA = re.compile("[\u3040-\u30ff\uac00-\ud7af]")
_SURNAMES = (
    "王李张刘陈杨黄赵吴周徐孙马朱胡郭何高林罗郑梁谢宋唐许韩冯邓曹彭曾肖田董袁潘于蒋蔡余杜叶程苏魏吕丁任沈姚卢"
    "姜崔钟谭陆汪范金石廖贾夏韦付方白邹孟熊秦邱江尹薛闫段雷侯龙史陶黎贺顾毛郝龚邵万钱严覃武戴莫孔向汤"
)
_AFTER_NAME = (
    "在|住|是|和|与|跟|、|的|喜|讨|爱|对|来自|出生|嫁|娶|负|养|创|使|用|会|想|现|从|搬|离|加|不|已|也"
    "|还|没|自|可|去|叫|说|要|终|批|今|昨|周|订|带"
    "|于|人[很真特超]|很|真|特别|非常|每|整天|总|担|毕|打算|希望|以前|曾|结|有|买|卖|把|被|给|换|[12]\\d{3}年|五月|[，。；！？\\s]|$"
)
_GIVEN = "[^\\W\\da-zA-Z了没的是在不内后再务量色灯序路名年月日上下中个种些两么什标称于和与跟有会用已也还都]"
_NICKNAME = rf"[小阿老]{_GIVEN}(?={_AFTER_NAME})"
_PERSON = rf"(?:[{_SURNAMES}]{_GIVEN}{{1,2}}?(?={_AFTER_NAME}))"
_PLACES = _TABLES["places"].split()
_COMPANIES = _TABLES["companies"].split()
_MENTION = re.compile(
    rf"(?P<Organization>(?:{'|'.join(_COMPANIES)})(?:公司|集团)?|(?:(?<=[在去到从的为，和。])"
    rf"|^)[^\W在去到从的为和我你他她们\da-zA-Z]{{2,6}}?(?:公司|大学|银行|医院|集团|中学))"
    rf"|(?:(?<=负责)|(?<=参与)|(?<=推进)|^)(?P<Project>{_HAN}{{2,4}}(?=项目))"
    rf"|(?P<Location>{'|'.join(_PLACES)})"
    rf"|(?:(?<=[和与跟找给由问对的叫是让请、事妹弟姐哥任长友子果说许诉])|(?<![\w]))(?P<Person>{_PERSON})"
    rf"|(?P<Title>[《「“](?P<t>[^》」”]{{2,30}})[》」”])"
)
_NO_PERSON = re.compile(any_of("no_persons", _TABLES))
_LATIN = re.compile(rf"[{LETTER}][{LETTER} .+#_-]*[{LETTER}]")
_WE = re.compile("^(?:我们?|咱们|俺)$")
_I_AM = re.compile("^我们?(?=[是在从出来有])")
_SHE = re.compile("^[他她]$")
_NO_SUBJECT = re.compile(any_of("no_subjects", _TABLES))
_HEDGES = re.compile(any_of("hedges", _TABLES))
_ENDED = re.compile("不再|已经不|再也不|(?<=[\u3400-\u9fff])不(?=[^，。]*了[。！]?$)|以前|曾经|过去|原来")
_NOT = re.compile("不(?!错|同)|没|未|无|(?<![特区分个差])别")
_OPENERS = re.compile("^(?:其实|不过|但是|但|而且|所以|哈哈|嗯|恩|是的|对了|当然)+")
_BESIDE = re.compile("也|还(?=[在是有会用])|同时|另外")
_ADVERBS = re.compile(
    f"现在|目前|如今|已经|刚刚|(?<![{_SURNAMES}])刚(?!人)|最近|这个月|这周|本周|本月|也|还(?=[在是有会用])|同时|另外|一直|仍然|仍|非常|特别|很"
    "|(?<![成首])都|主要|最|曾经|曾|以前|过去|原来|终于|正式|正在"
)

_X = rf"(?:我们?|咱们|[他她]|(?:{_HAN}{{2,8}}?)|[{LETTER}][{LETTER} .-]*?)"
_S = rf"^(?P<s>{_X}(?:[和与跟、]{_X})*?)??"
_O = r"(?P<o>[^，。；！？,.!?了]{1,24}?)"
_END = r"了?(?=[，。；！？,.!?]|$)"
_FOR = r"(?:了?快?[\d一二两三四五六七八九十几半多]+(?:年|个月|天|周)多?了)?"
"""How long something has been the case; without a final 了 it may be over."""
_A_PET = r"(?:[一两三四]|\d)[只条个匹](?:小|大|母|公)?(?:[狗猫龟兔鸟马]|鹦鹉|仓鼠|乌龟|兔子|猫咪|狗狗)"
_PARTS = {
    "{A_PET}": _A_PET,
    "{END}": _END,
    "{FOR}": _FOR,
    "{HAN}": _HAN,
    "{LETTER}": LETTER,
    "{O}": _O,
    "{PLACES}": "|".join(_PLACES),
    "{S}": _S,
    "{X}": _X,
}
_FRAMES = tuple(
    (type_, mood, re.compile(re.sub(r"\{[A-Z_]+\}", lambda found: _PARTS[found[0]], template)))
    for type_, mood, template in (line.split(maxsplit=2) for line in _TABLES["frames"].strip().splitlines())
)
_KIN: Mapping[str, str] = _TABLES["kin"]
_KIN_WORDS = frozenset("|".join(_KIN.values()).replace("小?狗|小?猫", "狗|猫").split("|"))
_NAMED_PET = re.compile(rf"({_A_PET})，(?:(?:它|取名|起名|名字)?叫)")
_IS_KIN = re.compile(rf"^(?P<n>{_PERSON})是(?P<of>我|{_PERSON})的(?P<kin>{'|'.join(_KIN.values())})$")
_KIN_OF = re.compile(
    rf"^(?P<of>我们家?|我家?|{_PERSON}|[他她])(?:的|养的|有[一两]个)?新?(?P<kin>{'|'.join(_KIN.values())})(?P<is>是|叫"
    rf"|名叫)?(?P<n>{_PERSON}|{_NICKNAME}|(?<=叫){_HAN}{{2,3}}(?=[，。]|$))"
)
_ROLES: Mapping[str, str] = _TABLES["roles"]
_ROLE = "|".join(_ROLES.values())
_ROLE_OF = tuple(
    map(
        re.compile,
        (
            rf"^(?P<org>[^，。；的]{{2,10}}?)的(?:新任|新)?(?P<role>{_ROLE})(?:是|叫|由)(?P<n>{_PERSON})",
            (
                rf"^(?P<n>{_PERSON}|{_HAN}{{2,3}}?)(?:是|担任"
                rf"|成为)了?(?:(?P<org>[^，。；的是]{{2,10}}?)的?)?(?:新任"
                rf"|新)?(?P<role>[^\W的]{{0,2}}?(?:{_ROLE})){_END}"
            ),
        ),
    )
)
_UNIQUE = {"CEO", "PRESIDENT", "CHAIR", "LEAD", "HEAD", "MANAGER"}
_UNFIT = {type_: re.compile(pattern) for type_, pattern in _TABLES["unfit"].items()}
"""Patterns that the object of a relation must not match."""
_OF_MINE = re.compile("[我你他她们]")


def is_chinese(text: str) -> bool:
    """Return whether a sentence is in Chinese."""
    return not text.isascii() and len(re.findall(_HAN, text)) > 2 and not _KANA.search(text)


def chinese_mentions(text: str) -> list[Mention]:
    """Return the names in a sentence in their order."""
    found: list[Mention] = []
    for match in _MENTION.finditer(text):
        kind = match.lastgroup or UNSURE
        label = match["t"] if match["Title"] else match[kind if kind != "t" else "Title"]
        if match["Person"] and (_NO_PERSON.match(text, match.start()) or _NO_SUBJECT.search(label)):
            continue
        kind = UNSURE if match["Title"] else kind
        found.append(Mention(start=match.start(), end=match.end(), label=label, kind=kind))
    for run in _LATIN.finditer(text):
        found += [
            one for one in mentions_in(run[0] + " 。") if one.sure or one.kind != UNSURE or len(one.label) > 2
        ]
    return found


def chinese_relations(sentence: str, fact: str, scene: Scene) -> list[ExtractedRelation]:
    """Return the relations that a sentence states."""
    if _HEDGES.search(sentence):
        return []
    found: dict[tuple[str, str, str], ExtractedRelation] = {}
    subjects = scene.previous
    text, whole = without_times(_NAMED_PET.sub(r"\1叫", sentence), scene.observed_at)
    for clause in re.split("[，；;]", text):
        has_ended = _ENDED.search(clause) is not None
        bare = _ENDED.sub("", clause) if has_ended else clause
        if not has_ended and _NOT.search(bare):
            continue
        is_beside = _BESIDE.search(bare) is not None
        bare = _OPENERS.sub("", bare)
        said = Said(
            text=bare, labels={}, validity=whole or Validity(), has_ended=has_ended, is_beside=is_beside
        )
        if _I_AM.match(bare):
            subjects = (scene.speaker,)
        for one in _stated(bare, scene, subjects):
            subjects = (one.source,)
            relation = in_time(one, said, fact, scene.observed_at)
            if relation and relation.source != relation.target:
                found.setdefault((relation.source, relation.type, relation.target), relation)
    return list(found.values())


def _stated(said: str, scene: Scene, subjects: tuple[str, ...]) -> Iterator[Stated]:
    said = re.sub(r"[。！!.]$", "", said.strip())
    clause = _ADVERBS.sub("", said).strip()
    # In "陈磊很高", the adverb marks the end of the name.
    if kin := _KIN_OF.match(said) or _KIN_OF.match(clause):
        of = scene.speaker if kin["of"].startswith("我") else _subject(kin["of"], scene)
        if of:
            yield from _kin(kin["n"], kin["kin"], of)
        clause = kin["n"] + _ADVERBS.sub("", kin.string[kin.end() :])
        if kin["is"]:
            return
    if kin := _IS_KIN.match(clause):
        yield from _kin(kin["n"], kin["kin"], scene.speaker if kin["of"] == "我" else kin["of"])
        return
    for pattern in _ROLE_OF:
        if role := pattern.match(clause):
            name = _subject(role["n"], scene)
            if name and not any(name.endswith(kin) for kin in _KIN_WORDS):
                yield from _role(name, role["role"], role["org"])
            return
    for type_, mood, pattern in _FRAMES:
        if match := pattern.search(clause):
            found = list(_by_frame(type_, mood, match, scene, subjects))
            yield from found
            if found:
                return


def _by_frame(
    type_: str, mood: str, match: re.Match[str], scene: Scene, before: tuple[str, ...]
) -> Iterator[Stated]:
    groups = match.groupdict()
    people = type_ not in ("USES", "LISTENS_ON", "LEADS")
    parts = re.split("[和与跟、]", groups["s"]) if groups.get("s") else []
    named = [_subject(part, scene, is_person=people) for part in parts]
    if parts and not all(named):
        return
    subjects = [one for one in named if one] or [*before]
    if groups.get("port"):
        yield from (Stated(source=one, type=type_, target=f"port {groups['port']}") for one in subjects)
        return
    if mood == "over":
        yield from map(partial(over, type_), subjects)
        return
    objects = map(_object, re.split("[和与跟、]", groups["o"] or groups.get("o2") or ""))
    targets = [one for one in objects if one and not _is_unfit(type_, one)]
    if type_ == "MARRIED_TO" and mood == "parted":
        for one, other in product(subjects, targets):
            yield Stated(source=one, type=type_, target=other, mood="ended")
            yield Stated(source=other, type=type_, target=one, mood="ended")
        return
    kind = "ended" if mood == "ended" else "began"
    for subject, target in product(subjects, targets):
        yield Stated(source=subject, type=type_, target=target, mood=kind)
        if origin := _object(groups.get("f") or ""):
            yield Stated(source=subject, type=type_, target=origin, mood="ended")
        if role := groups.get("role"):
            yield Stated(source=subject, type="HAS_ROLE", target=role, is_unique=False)


def _subject(words: str, scene: Scene, *, is_person: bool = True) -> str | None:
    """Return the subject named before a verb: the person at the end, or all the words if they are few."""
    words = words.strip()
    if _WE.match(words):
        return scene.speaker
    if _SHE.match(words):
        return scene.previous[0] if len(scene.previous) == 1 else None
    named = re.search(rf"[{_SURNAMES}]{_HAN}{{1,2}}$", words)
    if named and len(words) != 4:
        return words if len(words) <= 3 else named[0]
    if _NO_SUBJECT.search(words) or len(words) < 2 or words[0] in "我你他她" or words in _KIN_WORDS:
        return None
    return words if len(words) <= (4 if is_person else 8) or words.isascii() else None


def _object(words: str) -> str | None:
    """Return the object after a verb, without measure word and possessor.

    For "the Tencent in Beijing" it is Tencent.
    """
    words = re.sub(r"^(?:了|着|过)|(?:了|啊|呀|吧)$", "", words.strip())
    words = re.sub(r"^(?:[一两三四几]|\d)[只条辆台套匹个家座]", "", words)
    words = re.sub(r"[里内]$", "", words)
    words = words.rpartition("的")[2] if "的" in words else words
    if (
        not words
        or len(words) > 16
        or re.search(r"[他她它这那我你\d]|^[在去和跟]", words)
        or (len(words) < 2 and words not in "狗猫车船")
    ):
        return None
    return words


def _is_unfit(type_: str, words: str) -> bool:
    """Return whether something cannot be the object of a relation: nobody works at a city."""
    unfit = _UNFIT.get(type_)
    return (type_ == "WORKS_AT" and words in _PLACES) or (
        unfit is not None and unfit.search(words) is not None
    )


def _kin(name: str, word: str, of: str) -> Iterator[Stated]:
    kind = next(kind for kind, pattern in _KIN.items() if re.fullmatch(pattern, word))
    types = {"PET": "OWNS", "SPOUSE": "MARRIED_TO", "MANAGER": "REPORTS_TO"}
    if kind in types:
        yield Stated(source=of, type=types[kind], target=name)
    else:
        yield Stated(source=name, type=f"{kind}_OF", target=of, mood="always")


def _role(name: str, word: str, org: str | None) -> Iterator[Stated]:
    kind = next((kind for kind, pattern in _ROLES.items() if re.search(f"(?:{pattern})$", word)), "WORKER")
    is_whole = re.fullmatch(_ROLES[kind], word) is not None
    org = None if org and _OF_MINE.search(org) else org
    if org and is_whole and kind != "WORKER":
        yield Stated(source=name, type=f"{kind}_OF", target=org)
        return
    yield Stated(source=name, type="HAS_ROLE", target=word, is_unique=not org and kind in _UNIQUE)
    if org:
        yield Stated(source=name, type="WORKS_AT", target=org)
