"""Finds in what a user says the sentences that are worth remembering, by rules in five languages.

Sure things only: preferences, who somebody is, what was decided, lasting orders, what is to be remembered.
Questions, guesses, code, quotes, what an agent was told, and attempts to steer the agent are passed over.
"""

import asyncio
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from composable_memory.hooks.fencing import own_words
from composable_memory.retain.retained_lines import MemoryType
from composable_memory_ops_logs.quick_dataclass import dataclass

if TYPE_CHECKING:
    from composable_memory.retain.remember import Remembered
    from composable_memory.runtime.memory import Memory

MOST_PER_TURN = 3
LEAST_CHARS = 4
MOST_EMOJI = 3

_CODE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]*`", re.DOTALL)
_QUOTED = re.compile(r"^[ \t]*(?:>|at |File \"|\|).*$|^Traceback.*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
_EMOJI = re.compile("[\U0001f300-\U0001faff\u2600-\u27bf]")
_SENTENCE = re.compile(r"[^.!?。！？\n]+(?:[.!?](?!\s|\Z)[^.!?。！？\n]*)*[.!?。！？]*")
_CJK = re.compile("[\u3040-\u30ff\u3400-\u9fff]")


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_INJECTION = _any(
    r"\b(?:ignore|disregard|forget|override)\b.{0,40}\b(?:instructions?|rules|prompts?|messages)\b",
    r"\bsystem ?prompt|\bdeveloper message|\byou are now\b",
    r"</?(?:system|assistant|developer|tool|user)\b",
    r"\b(?:run|execute|call|invoke)\b.{0,40}\b(?:tool|command|function)\b",
    r"\b(?:vergiss|ignoriere)\b.{0,40}\b(?:anweisungen|regeln|befehle)",
    r"\b(?:ignora|olvida)\b.{0,40}\b(?:instrucciones|reglas)|\bejecuta\b.{0,30}\bherramienta",
    "(?:忽略|无视|忘记|忘掉).{0,12}(?:指令|指示|提示|规则)|系统提示",
    "(?:指示|命令|ルール).{0,6}(?:無視|忘れ)|システムプロンプト",
)
_UNSURE = _any(
    r"[?？]|\b(?:maybe|perhaps|might|hypothetically|suppose|some ?day)\b",
    r"\b(?:if|when) (?:I|we|you)\b",
    r"\b(?:vielleicht|eventuell|irgendwann|angenommen|womöglich)\b|^(?:wenn|falls) ",
    r"\b(?:quiz[áa]s?|tal vez|a lo mejor|alg[úu]n d[íi]a)\b|^si ",
    r"\bright now\b|\bat the moment\b|\b(?:gerade|momentan)\b|\bahora mismo\b|^今(?!後)",
    r"[こそあ]の.{1,10}(?:好き|嫌い)",
    "也许|可能会|或许|说不定|如果|[吗呢]。?$|かもしれ|もし|たら|でしょうか|ますか|ですか",
)
_KIN = (
    "(?:wife|husband|partner|sister|brother|mother|father|mum|mom|dad|son|daughter|boss|dog|cat|name"
    "|birthday)"
)
_KIN_DE = (
    "(?:Frau|Mann|Partner(?:in)?|Schwester|Bruder|Mutter|Vater|Sohn|Tochter|Chef(?:in)?|Hund|Katze|Name"
    "|Geburtstag)"
)
_KIN_ES = (
    r"(?:mujer|marido|pareja|hermano|hermana|madre|padre|hijo|hija|jefe|jefa|perro|gata?|nombre|cumpleaños)"
)
_KIN_ZH = (
    "(?:妻子|老婆|丈夫|老公|妹妹|姐姐|弟弟|哥哥|妈妈|母亲|爸爸|父亲|儿子|女儿|老板|狗|猫|名字|生日"
    "|邮箱|电话|地址)"
)
_KIN_JA = "(?:妻|夫|妹|姉|弟|兄|母|父|息子|娘|上司|犬|猫|名前|誕生日|住所)"

_OPINION = _any(
    r"\bI (?:\w+ )?(?:prefer|like|love|hate|dislike|enjoy|can't stand)\b"
    r"(?! (?:it|this|that|to see|where|how|what|the way)\b)",
    r"\bI (?:never|always|don't|do not) (?:drink|eat|smoke|use|work|take|read)\b",
    r"\bich (?:trinke|esse|rauche|nehme|benutze) (?:keine?n?|nie|nur|kaum)\b",
    r"\b(?:no|nunca) (?:bebo|como|fumo|tomo|uso)\b",
    r"\bmy favou?rite\b",
    r"\bich (?:bevorzuge|mag|liebe|hasse|hätte (?:lieber|gern immer)|arbeite (?:nie|lieber))\b",
    r"\bmein(?:e|en)? liebste",
    r"\b(?:prefiero|me (?:gustan?|encantan?|molestan?)|odio|no soporto)\b(?! (?:c[óo]mo|esto|eso|as[íi])\b)",
    "我(?:很|非常|最|也|更|不太|不)*(?:喜欢|偏好|讨厌|习惯|爱吃|爱喝)(?![这那])|我不(?:吃|喝|抽|用)",
    "(?:飲|食べ|吸い|吸|使い|使)(?:みま|いま|ま)せん|(?:好き|嫌い|苦手|好み)(?:です|だ|ではありません|じゃない)",
)
_WORLD = _any(
    rf"\bmy {_KIN}(?:'s)?(?: (?:[A-Z]\w+|name))?"
    r" (?:was|has|(?!(?:does|says|thinks|wants|asks|asked)\b)\w+(?:s|ed))\b",
    r"\bI(?:'m| am) (?:allergic|intolerant|(?:a )?(?:vegetarian|vegan)|diabetic|married|born|from|based)\b",
    r"\bI(?:'m| am) an? \w+er\b",
    r"\bI (?:live|work|moved|grew up|was born|study) (?:in|at|for|to|as|on)\b|\bmy name is\b",
    r"\b(?:we|I)(?:'ve| have)? (?:decided|agreed|settled on|chose|switched to|will go with)\b",
    r"(?<![\w.])[\w.+-]+@[\w-]+\.[a-z]{2,}\b|\+\d[\d ()/-]{8,}\d",
    rf"\bmeine? {_KIN_DE}(?: [A-ZÄÖÜ]\w+)? (?:ist|\w+t)\b|\bich heiße\b",
    r"\bich (?:wohne|lebe|arbeite|vertrage|studiere)\b",
    r"\bich bin (?:\w+ )?(?:allergisch|vegetarier|veganer|verheiratet)",
    r"\b(?:wir haben|ich habe)\b.{0,60}\b(?:beschlossen|entschieden|geeinigt|vereinbart)\b",
    rf"\bmi {_KIN_ES}(?: [A-ZÁÉÍÓÚ]\w+)? (?:se llama|es|\w+[ae])\b|\bme llamo\b",
    r"\bsoy (?:al[ée]rgic|vegetarian|vegan|intolerante|de )",
    r"\b(?:vivo|trabajo|nac[íi]) (?:en|para|como)\b",
    r"\b(?:hemos|he) (?:decidido|acordado)\b|\b(?:decidimos|acordamos|quedamos en)\b",
    f"我(?:的)?{_KIN_ZH}(?!怎|什)|我对.{{1,12}}过敏|我(?:住在|来自|出生|叫)|我在.{{1,12}}(?:工作|上班|当|做)",
    "我们?(?:已经)?(?:决定|约定|商定|说好)",
    f"{_KIN_JA}(?:の名前)?は|アレルギー|(?:ベジタリアン|ヴィーガン)です|(?:住んで|働いて|勤めて)い?ます|出身です|と申します",
    "こと(?:に(?:しました|した|決めた|決めました|なりました)|を決めました)",
)
_ORDER = _any(
    r"\b(?:remember|don't forget) (?:that|to|this|:)|\bnote (?:that|this:|:)",
    r"\b(?:keep|bear) (?:that |this |it )?in mind\b|\bfor the record\b",
    r"\b(?:call me|ll[áa]mame|nenn(?:e|t)? mich) (?!when\b|if\b)",
    r"^(?:please )?don't (?:call|write|email|ask)\b|叫我|提醒(?:你)?一下",
    r"\bfrom now on\b|\bin future\b|^(?:please )?(?:always|never)\b|^important\b",
    r"\b(?:merk(?:e)? dir|denk(?:e)? daran|vergiss nicht|notier(?:e)? dir|behalte)\b",
    r"\bab (?:sofort|jetzt)\b|\bkünftig\b",
    r"^(?:bitte )?(?:immer|nie|niemals)\b|^wichtig\b",
    r"\b(?:recuerda|apunta|ten en cuenta|no olvides) (?:que|esto|:)",
    r"\b(?:a partir de|desde) ahora\b|\ben adelante\b",
    r"^(?:por favor,? )?(?:siempre|nunca|jam[áa]s)\b|^importante\b",
    "记住|记下|别忘了|不要忘记|(?:从)?(?:以后|今后|现在起)|^重要|^注意|^(?:请)?(?:永远|总是)|(?:一定|千万|务必)(?:要|不要|别)|(?:一定|务必)",
    "(?:覚えて|忘れないで|メモして)(?:おいて)?(?:ください|ね)?|(?:これから|今後)は|必ず|絶対に|決して|^重要",
)
_LEAD_IN = re.compile(
    r"^(?:please |bitte |por favor,? )?(?:remember|note|don't forget|merke? dir(?: bitte)?|denke? daran|"
    r"recuerda|apunta|ten en cuenta|no olvides)(?: that| que|,? dass)?[:,]? +|"
    "^请?(?:记住|记下)[，,：:] *|^(?:覚えておいてください|メモしてください)[、,：:] *",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A sentence that is worth remembering, and of which type it is."""

    text: str
    type: MemoryType


def worth_remembering(message: str, *, max_chars: int = 500) -> list[Candidate]:
    """Return the sentences of a user's message that are worth remembering, at most three (pure).

    A message of more than `max_chars` characters is a document and not something said; it has none.
    """
    own = own_words(message)
    if len(own) > max_chars or _INJECTION.search(own) or len(_EMOJI.findall(own)) > MOST_EMOJI:
        return []
    said = _QUOTED.sub("\n", _CODE.sub("\n", own))
    found = (_candidate(" ".join(sentence.split())) for sentence in _SENTENCE.findall(said))
    return [one for one in found if one is not None][:MOST_PER_TURN]


def _candidate(sentence: str) -> Candidate | None:
    least = LEAST_CHARS if _CJK.search(sentence) else 3 * LEAST_CHARS
    if len(sentence) < least or _UNSURE.search(sentence):
        return None
    is_order = _ORDER.search(sentence) is not None
    if _OPINION.search(sentence):
        kind: MemoryType = "opinion"
    elif is_order or _WORLD.search(sentence):
        kind = "world"
    else:
        return None
    text = _LEAD_IN.sub("", sentence)
    return Candidate(text=text[:1].upper() + text[1:], type=kind)


async def capture_turn(
    memory: "Memory", messages: Iterable[str], *, session_key: str | None = None, max_chars: int = 500
) -> "Sequence[Remembered]":
    """Remember what a user said in a turn, at most three sentences, unless it is known or was forgotten.

    Raises:
        NoteNotWritten: the day's note cannot be written.
    """
    found = [one for message in messages for one in worth_remembering(message, max_chars=max_chars)]
    new = [one for one in found if not await asyncio.to_thread(memory.forgotten.holds, one.text)]
    unique = list({one.text: one for one in new}.values())[:MOST_PER_TURN]
    return [await memory.remember(one.text, type=one.type, session_key=session_key) for one in unique]
