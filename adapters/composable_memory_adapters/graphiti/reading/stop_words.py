"""The words that say how a question is asked and not what it is about."""

from collections.abc import Iterable

__all__ = ["ASKING_PAIRS", "stop_words_for"]

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
