"""The words of questions and facts: which to look up, in which forms, and when two are the same (pure).

Full-text indexes differ in what they take for a word. FalkorDB's divides text at white space and ASCII marks
alone, folds the case of ASCII letters alone, and stems English; Chinese, Japanese and Thai, which have no
spaces, are one long word to it. So a word is looked up in each case that it may have, and of a text without
spaces the pairs of neighbouring characters are looked for as parts of facts."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

from composable_memory_ops_logs.quick_dataclass import dataclass

_ENGLISH = frozenset(
    "a about all am an and any anyone anything are as at be because been before being but by can "
    "could did do does doing each ever for from get give had has have having he her hers him his "
    "how i if in into is it its just know let like me more most my no nor not now of on only or "
    "other our ours please recall remember she should show so some someone something such than "
    "that the their theirs them then there these they this those to too us very was we were what "
    "when where which while who whom whose why will with would you your yours find tell".split()
)
_OTHERS = {
    "de": frozenset(
        "aber alle als am an auch auf aus bei bin bist da das dass dem den der des die doch du "
        "ein eine einem einen einer er es für gibt hat hatte haben ich ihr im in ist ja kann man "
        "mein mich mir mit nach nicht noch nur ob oder sein seine sie sind so über um und uns "
        "unser von vom war waren warum was welche welcher welches wann wem wen wer wie wir wird "
        "wo woher wohin zu zum zur".split()
    ),
    "es": frozenset(
        "a al algo como con cual cuales cuando cuanto de del desde donde dónde el él ella ellos "
        "en entre era es esa ese eso esta está este esto fue ha han hay la las le lo los más me "
        "mi mis muy no nos o para pero por porque que qué quien quién se ser si sin sobre son su "
        "sus también te tiene tu un una uno y ya yo cómo cuál cuándo".split()
    ),
    "fr": frozenset(
        "à au aux avec ce ces cette comment d dans de des du elle elles en est et été être eu il "
        "ils j je l la le les leur leurs lui ma mais me mes mon n ne nos notre nous on ont ou où "
        "par pas pour pourquoi qu quand que quel quelle quels quelles qui quoi s sa se ses son "
        "sont sur ta te tes ton tu un une vos votre vous".split()
    ),
    "it": frozenset(
        "a ai al alla che chi ci come con cosa così cui da dal dalla de dei del della delle di "
        "dove e è ed era gli ha hanno ho i il in io la le lei lo loro lui ma mi mia mio nel nella "
        "non o per perché più quale quali quando quanto questa questo se si sono su sua suo ti "
        "tra un una uno".split()
    ),
    "nl": frozenset(
        "aan als bij dan dat de den der deze die dit door een en er haar had heeft hem het hij "
        "hoe ik in is je kan maar met mijn naar niet nog of om ons onze ook op over te tot uit "
        "van voor waar waarom wanneer was wat we welke werd wie wij wordt ze zij zijn".split()
    ),
    "pt": frozenset(
        "a à ao aos as às com como da das de dela dele do dos e é ela ele em era essa esse esta "
        "está este eu foi há isso isto já lhe mais mas me meu minha na não nas no nos o onde os "
        "ou para pela pelo por porque qual quais quando quanto que quem se sem ser seu são sobre "
        "sua também te tem tu um uma você vocês".split()
    ),
    "ru": frozenset(
        "а бы был была были было в вам вас во вот все вы где да для до его ее если есть ещё еще "
        "же за и из или им их к как какая какие какой ко когда кого кто ли мне мой моя мы на над "
        "не нет но ну о об он она они от по почему при с сколько со так там то только ты у уже "
        "чего чей чем что это я".split()
    ),
}

ASKING_PAIRS = frozenset(
    "什么 怎么 么样 怎样 多少 哪些 哪个 哪里 哪儿 如何 是否 可以 请问 告诉 关于 什麼 怎麼 麼樣 "
    "怎樣 哪裡 哪兒 是誰 請問 告訴 關於 是谁 在哪 何が 何を 何で 何の 誰が 誰の ます です ました "
    "でし すか ませ いま した どこ いつ なに だれ 무엇 무슨 어디 언제 누구 어떤 어떻 떻게 입니 "
    "니까 인가 가요 나요 어요 습니 있습 하는".split()
)
"""Pairs of neighbouring characters that ask, or end a sentence, in Chinese, Japanese and Korean."""


def stop_words_for(words: Iterable[str]) -> frozenset[str]:
    """Return the stop words of the language that words in lower case are in.

    That is English, unless more of them, and at least two or one with letters of its own, are stop words of
    another language.
    """
    found = set(words)
    best = max(_OTHERS.values(), key=lambda language: _weight(found & language))
    return best if _weight(found & best) > max(1, len(found & _ENGLISH)) else _ENGLISH


def _weight(words: Iterable[str]) -> int:
    return sum(1 if word.isascii() else 2 for word in words)


MAX_WORDS = 32
"""Words that facts are looked for with."""

MAX_READ = 128
"""Words that are counted in the graph, to know which of a long question are worth looking for."""

MAX_CHARACTERS = 20_000
"""More of a question is not read."""

MIN_OPEN_LETTERS = 5
OPEN_LETTERS = 2
"""Outside English, the last two letters of a word of at least five may differ: it may be inflected."""

# Han, kana, Hangul, Thai, Lao, Burmese and Khmer.
_UNSPACED = (
    "\u0e01-\u0e4e\u0e81-\u0ece\u1000-\u109d\u1100-\u11ff\u1780-\u17d3\u3005-\u3007\u3041-\u309f\u30a1-\u30fa"
    "\u30fc-\u30ff\u3131-\u318e\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
# Marks that belong to the letter before them, which Python does not count among the letters.
_MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1-\u05c2\u0610-\u061a\u064b-\u065f\u0670"
    "\u0900-\u0903\u093a-\u094f\u0951-\u0957\u0962-\u0963\u0981-\u0983\u09bc-\u09d7\u0a01-\u0a03\u0a3c-\u0a51"
    "\u0a81-\u0a83\u0abc-\u0acd\u0b01-\u0b03\u0b3c-\u0b57\u0b82\u0bbe-\u0bd7\u0c00-\u0c04\u0c3c-\u0c56"
    "\u0c81-\u0c83\u0cbc-\u0cd6\u0d00-\u0d03\u0d3b-\u0d57"
)
_PARTS = re.compile(f"[{_UNSPACED}]+|(?:[^\\W_{_UNSPACED}][{_MARKS}]*)+")
_WHOLE = re.compile(f"[{_UNSPACED}]+|(?:[^\\W{_UNSPACED}][{_MARKS}]*)+")
_ASCII_WORD = re.compile("[a-z0-9]+")
_CLITIC = re.compile(r"(?<=\w)['\u2019](?:s|ll|re|ve|d|m|t)\b", re.IGNORECASE)
_RUN = re.compile(f"[{_UNSPACED}]")
_ENGLISH_ENDINGS = {
    "ies": ("y",),
    "ied": ("y",),
    "ing": ("", "e"),
    "ed": ("", "e"),
    "es": ("", "e"),
    "ss": ("ss",),
    "s": ("",),
    "ly": ("",),
}
"""The first ending that a word has, and what the word may have in its place elsewhere."""

_SHORTEST_STEM = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionWord:
    """One content word of a question, or a pair of characters of a text without spaces.

    `text` is in lower case and without accents. `lookups` are the forms to ask a full-text index for; none
    for a pair, which is to be looked for as a part of a text. If `is_open`, facts may end it otherwise.
    """

    text: str
    lookups: tuple[str, ...] = ()
    is_open: bool = False

    @property
    def is_pair(self) -> bool:
        """Return whether a full-text index cannot know it."""
        return not self.lookups

    @property
    def beginning(self) -> str:
        """Return what all forms of the word begin with, if it is open."""
        return _beginning(self.text)


@dataclass(frozen=True, slots=True)
class FactWords:
    """The words of a fact and of the names that belong to it."""

    words: frozenset[str]

    @classmethod
    def of(cls, texts: Iterable[str]) -> "FactWords":
        """Read them out of texts."""
        return cls(frozenset(_all_words("\n".join(texts))))

    def hold(self, word: QuestionWord) -> bool:
        """Return whether a word of a question is among them, in whichever form."""
        if word.text in self.words:
            return True
        if word.is_open and any(held.startswith(word.beginning) for held in self.words):
            return True
        first, stems = word.text[0], _stems(word.text)
        alike = [held for held in self.words if held[0] == first]
        return any(not stems.isdisjoint(_stems(held)) for held in alike)


@lru_cache(maxsize=16)  # the graph of each group asks for those of the same question
def question_words(question: str) -> tuple[QuestionWord, ...]:
    """Return the different content words in their order; at most 128.

    Of more, the names, numbers and longest words are kept. A question of nothing but stop words is looked up
    as it is; one without letters and digits has no words.
    """
    text = _CLITIC.sub(" ", unicodedata.normalize("NFC", question[:MAX_CHARACTERS]))
    written = [(part, whole) for whole in _WHOLE.findall(text) for part in _PARTS.findall(whole)]
    stops = stop_words_for(part.lower() for part, _ in written)
    is_english = "the" in stops
    content = [(part, whole) for part, whole in written if part.lower() not in stops] or written
    found = {
        word.text: (word, part)
        for part, whole in reversed(content)
        for word in reversed([*_words_in(part, whole, is_english=is_english)])
    }
    first_to_last = [*reversed(found.values())]
    kept = sorted(first_to_last, key=lambda one: _selectivity(*one), reverse=True)[:MAX_READ]
    return tuple(word for word, part in first_to_last if (word, part) in kept)


def most_selective(words: Sequence[QuestionWord], frequencies: Mapping[str, int]) -> tuple[QuestionWord, ...]:
    """Return at most 32 of the words, in their order: those that fewest facts hold, then those in no fact."""
    if len(words) <= MAX_WORDS:
        return tuple(words)

    def rank(word: QuestionWord) -> tuple[bool, int]:
        frequency = frequencies.get(word.text, 1 if word.is_pair else 0)  # pairs were not counted
        return not frequency, frequency

    kept = {word.text for word in sorted(words, key=rank)[:MAX_WORDS]}
    return tuple(word for word in words if word.text in kept)


def _words_in(part: str, whole: str, *, is_english: bool) -> Iterator[QuestionWord]:
    if _RUN.match(part):
        pairs = _pairs(_folded(part))
        yield from (QuestionWord(text=pair) for pair in [p for p in pairs if p not in ASKING_PAIRS] or pairs)
        return
    text = _folded(part)
    is_open = not (is_english and part.isascii()) and len(text) >= MIN_OPEN_LETTERS and text.isalpha()
    lookups = [*_cases(part)]
    if is_open:
        lookups += [f"{form}*" for form in _cases(_beginning(part))]
    if whole != part:
        lookups += _cases(whole)  # a_name is one word to an index
    yield QuestionWord(text=text, lookups=tuple(dict.fromkeys(lookups)), is_open=is_open)


def _cases(word: str) -> Iterator[str]:
    """Yield the forms in which an index that folds ASCII alone may hold a word."""
    yield word.lower()
    if not word.isascii():
        yield from (word, word.capitalize(), word.upper())


def _selectivity(word: QuestionWord, written: str) -> tuple[bool, int]:
    """Return how selective a word is likely to be, without knowing the facts: rare words are long."""
    is_name = any(char.isdigit() or char.isupper() for char in written)
    return is_name, len(word.text) + (2 if word.is_pair else 0)


def _all_words(text: str) -> Iterator[str]:
    if text.isascii():
        yield from _ASCII_WORD.findall(_CLITIC.sub(" ", text).lower())
        return
    for part in _PARTS.findall(_CLITIC.sub(" ", unicodedata.normalize("NFC", text))):
        folded = _folded(part)
        if _RUN.match(part):
            yield from folded
            yield from _pairs(folded)
        else:
            yield folded


def _pairs(run: str) -> list[str]:
    return [first + second for first, second in pairwise(run)] or [run]


def _folded(word: str) -> str:
    """Return a word in lower case, in ordinary width and without accents."""
    if word.isascii():
        return word.lower()
    bare = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", word).casefold())
    return unicodedata.normalize("NFC", "".join(char for char in bare if not "\u0300" <= char <= "\u036f"))


@lru_cache(maxsize=16_384)
def _stems(word: str) -> frozenset[str]:
    """Return a word and the words it may be an English form of; of other scripts, the word alone."""
    if not word.isascii() or not word.isalpha():
        return frozenset((word,))
    return frozenset((word, *_without_ending(word)))


def _without_ending(word: str) -> Iterator[str]:
    for ending, bases in _ENGLISH_ENDINGS.items():
        stem = word.removesuffix(ending)
        if stem != word and len(stem) >= _SHORTEST_STEM:
            yield from (stem + base for base in bases)
            if "" in bases and stem[-1] == stem[-2]:
                yield stem[:-1]
            return


def _beginning(word: str) -> str:
    return word[: max(MIN_OPEN_LETTERS - 1, len(word) - OPEN_LETTERS)]
