"""Stop words: words that shape a question rather than name its topic, also used to detect the language.

The lists are deliberately short: articles, pronouns, prepositions, auxiliaries, question words, and what
people say to an assistant ("please tell me"). Longer lists would include topics of notes, such as "computer",
"group" or "novel", and lose more answers than they save time (figures: docs/retrieval-measurements.md).
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from composable_memory_adapters.text.forms import folded, plain, words_of
from composable_memory_ops_logs.lazy import Pattern

ENGLISH = frozenset(
    """
    a about above after again against all am an and any are aren as at be because been before being
    below between both but by can cannot could couldn d did didn do does doesn doing don down during
    each else ever few for from further had hadn has hasn have haven having he her here hers herself him
    himself his how i if in into is isn it its itself just let ll m may me might more most must my
    myself no nor not now of off on once only or other our ours ourselves out over own re s same shall
    shan she should shouldn so some such t than that the their theirs them themselves then there these
    they this those through to too under until up upon us ve very was wasn we were weren what when where
    which while who whom whose why will with won would wouldn yet you your yours yourself yourselves
    anyone anything find get give help know please recall remember show someone something stuff tell
    thing things
    """.split()
)
SPANISH = frozenset(
    """
    a al algo alguien algun alguna algunas alguno algunos ante antes aquel aquella aquellas aquello
    aquellos aqui asi aun aunque bajo bien cada como con contra cual cuales cualquier cuando cuanta
    cuantas cuanto cuantos cuya cuyo de del desde donde dos durante e el ella ellas ello ellos en entre
    era eran es esa esas ese eso esos esta estaba estan estas este esto estos fue fueron fui ha habia
    han has hasta hay he hemos hube hubo la las le les lo los mas me mi mia mio mis mucha muchas mucho
    muchos muy nada ni no nos nosotros nuestra nuestras nuestro nuestros o os otra otras otro otros para
    pero poco por porque pues que quien quienes se sea segun ser sera si sido sin sino sobre son soy su
    sus suya suyo tal tambien tan tanto te ti tiene tienen toda todas todo todos tras tu tus u un una
    unas uno unos usted ustedes vosotros y ya yo busca dame dime favor muestra muestrame recuerda
    recuerdas
    """.split()
)
PORTUGUESE = frozenset(
    """
    a ao aos algo alguem algum alguma algumas alguns ante antes ainda aquela aquelas aquele aqueles
    aquilo as assim ate bem cada com como contra cuja cujo da das de dela delas dele deles depois desde
    do dos durante e ela elas ele eles em entre era eram essa essas esse esses esta estao estar estas
    estava este estes estou eu foi fomos for foram ha isso isto ja la lhe lhes mais mas me mesmo meu
    meus minha minhas muita muitas muito muitos na nao nas nem nenhum nessa nesse nesta neste no nos
    nossa nossas nosso nossos num numa o onde os ou outra outras outro outros para pela pelas pelo pelos
    pode por porque pouco pra qual quais qualquer quando quanta quantas quanto quantos que quem se seja
    sem sempre sendo ser sera seu seus si sido sob sobre sou sua suas tal tambem tao te tem temos tenho
    ter teu teus teve ti tinha toda todas todo todos tu tua tuas tudo um uma umas uns voce voces diga
    favor lembra mostra mostre
    """.split()
)
ARABIC = frozenset(
    """
    من في علي الي عن مع هذا هذه ذلك تلك هناك هنا التي الذي الذين اللذين اللاتي ما ماذا متي اين كيف لماذا لم
    لما لن لا ليس ليست هل ان او ام ثم قد كان كانت كانوا يكون تكون كل بعض غير بين عند عندما بعد قبل حتي اي
    ايه كم هو هي هم هن انا نحن انت انتم اذا لو لكن بل منذ خلال حول ضد دون فقط ايضا به بها فيه فيها له لها
    لهم منه منها عليه عليها اليه اليها عنه عنها وهو وهي وفي ومن وما وقد لدي كما مما بما نعم كنت كنا لي لك
    لنا يا و ف ب ل اخبرني ارجوك اذكر
    """.split()
)
FRENCH = frozenset(
    """
    a ai ait alors as au aucun aucune aussi autre autres aux avait avec avez avoir avons c ca car ce
    ceci cela celle celles celui ces cet cette ceux chaque chez comme comment d dans de depuis des deux
    doit donc du elle elles en encore entre es est et etaient etais etait ete etes etre eu eux fait faut
    il ils j je jusque l la laquelle le lequel les lesquels leur leurs lors lui m ma mais me meme memes
    mes moi moins mon n ne ni non nos notre nous on ont ou par parce pas pendant peu peut peux plus pour
    pourquoi pres qu quand que quel quelle quelles quels qui quoi s sa sans se sera ses si soit son sont
    sous suis sur t ta te tes toi ton tous tout toute toutes tres tu un une vers vos votre vous y
    combien faire avant apres dis dites donne moi montre rappelle
    """.split()
)
GERMAN = frozenset(
    """
    aber alle allem allen aller alles als also am an ander andere anderen auch auf aus bei beim bin bis
    bist da damit dann das dass dein deine deinem deinen deiner dem den denn der des dessen dich die
    dies diese diesem diesen dieser dieses dir doch dort du durch ein eine einem einen einer eines er es
    etwas euch euer eure fur gegen habe haben hat hatte hatten hier hin hinter ich ihm ihn ihnen ihr
    ihre ihrem ihren ihrer im in ins ist ja jede jedem jeden jeder jedes jene kann kein keine keinem
    keinen keiner konnen konnte mal man mein meine meinem meinen meiner mich mir mit muss mussen nach
    neben nicht noch nun nur ob oder ohne schon sehr sein seine seinem seinen seiner seit sich sie sind
    so soll sollen sollte solange uber um und uns unser unsere unserem unseren unserer unter vom von vor
    wann war waren warum was weil welche welchem welchen welcher welches wem wen wenn wer werde werden
    wessen wie wieder wieso will wir wird wo wofur wogegen woher wohin womit worin wovon wozu woran
    worauf woraus woruber worum wobei weshalb wurde wurden zu zum zur zwischen viel viele bitte sag
    zeig zeige finde erinnere
    """.split()
)
DUTCH = frozenset(
    """
    aan al alle alleen als altijd andere ben bij daar dan dat de deze die dit doe doen door dus een en
    er gaan gaat geen geweest gewoon haar had hadden heb hebben heeft hem hen het hier hij hoe hoeveel
    hun iemand iets ik in is je jij jou jouw jullie kan kon kunnen maar mag me meer men met mij mijn
    moet moeten na naar naast niet niets nog nu of om omdat onder ons onze ook op over te tegen toch
    toen tot u uit uw van vanaf veel voor waar waarheen waarin waarmee waarom waarvoor want waren was
    wat we weer wel welk welke wie wiens wij wil worden wordt zal ze zei zich zij zijn zo zonder zou
    lang vaak laat wanneer vertel toon zoek
    """.split()
)
RUSSIAN = frozenset(
    """
    а без более бы был была были было быть в вам вас весь во вот все всего всех вы где да даже для до
    его ее ей ему если есть еще же за зачем здесь и из или им их к как какая какие каким каких какого
    какое какой какую когда кого ком кому кто куда ли либо мне можно мой моя мои моего моей моих мы на
    над надо нам нас наш наша наше наши нашего нашей нашу не него нее ней нельзя нем нет ни них но ну о
    об один он она они оно от откуда очень по под после почему при про раз с сам свой своя свои своего
    своей скольки сколько со так также там те тем то того тоже той только том тот ты у уже хочет чего
    чей чем что чтобы чье эта эти это этого этой этом этот эту я самая самые самый будет будут скажи
    покажи найди напомни
    """.split()
)
KOREAN = frozenset(
    """
    그리고 그러나 하지만 그런데 그래서 그러면 그럼 또는 또한 및 즉 만약 왜냐하면 때문에 대해 대한 대해서
    관한 관해 무엇 무엇을 무엇이 뭐 뭘 뭐가 무슨 어떤 어떻게 어디 어디에 어디서 언제 누구 누가 왜 얼마
    얼마나 몇 어느 이 그 저 이것 그것 저것 여기 거기 저기 나 나는 내 내가 너 너는 네가 우리 우리는 저는
    제가 당신 그는 그녀 그들 것 것을 것은 것이 수 등 더 잘 안 못 매우 아주 다시 있는 있다 있나요 있어
    있었 있습니까 없는 없다 했던 했어 했나요 합니까 하는 한 할 하고 인가요 이다 입니다 입니까 였나요
    알려줘 말해줘 찾아줘 보여줘 알려 주세요
    """.split()
)

BY_LANGUAGE = {
    "en": ENGLISH,
    "es": SPANISH,
    "pt": PORTUGUESE,
    "fr": FRENCH,
    "de": GERMAN,
    "nl": DUTCH,
    "ru": RUSSIAN,
}
"""Stop words of languages that share an alphabet: only the list for the question's own language applies.

Words are in lower case and without accents."""

ASKS_FOR_NOTES = frozenset(
    """
    note notes entry entries memory memories information info detail details everything anything search
    look looking learn mention mentioned say says said write wrote written
    notiz notizen eintrag eintrage information informationen infos alles steht stand suche suchen
    weiss weisst wissen gesagt geschrieben notiert
    apunte apuntes nota notas entrada entradas informacion sabe sabes sabemos dice dicen escribi escrito
    buscar busco sei anotacao anotacoes informacao informacoes diz escrevi procura
    informations sais sait savons dit ecrit cherche
    notitie notities aantekening aantekeningen informatie weet weten staat geschreven
    заметка заметки заметок запись записи записей информация информацию знаю знаем написал писал
    """.split()
)
LEADS_TO_TOPIC = frozenset(
    """
    about on regarding concerning for up mention mentions mentioning
    uber zu zum zur sobre acerca sur concernant over о об про
    """.split()
)
"""Words that ask for notes ("find my notes", "what do I know"), and words that then lead to the topic.

They only count at the beginning of a question, among nothing but stop words (`query_terms.topic_of`)."""

ALWAYS = ARABIC | KOREAN
"""Stop words of languages with a script of their own; Arabic ones as normalised by `forms.plain`."""

CJK_PAIRS = frozenset(
    """
    什么 怎么 么样 怎样 多少 哪些 哪个 哪里 哪儿 如何 是否 可以 但是 因为 所以 如果 还是 或者 以及 没有
    请问 告诉 关于 什麼 怎麼 麼樣 怎樣 哪裡 哪兒 們的 這些 那些 這個 那個 因為 沒有 還是 請問 告訴
    關於 何が 何を 何で 何の 誰が 誰の 教え
    """.split()
)
"""Pairs of adjacent characters that only ask."""

CJK_CHARACTERS = frozenset("的了是在有和与及吗呢吧啊么这那哪谁我你他她它们个为被把从到于之與嗎麼這誰們個從於")
"""Chinese function characters; a pair of only these, or of hiragana, carries no meaning."""

KANA_PARTICLES = frozenset("はがをにのでともへやか")
"""Japanese particles, which join a word to the next."""

MAX_CHARACTERS = 2_000
"""How much of a text is used to detect its language."""
ENOUGH = 4
"""How many stop words of a language a text must have to be recognised as being in it."""

# Japanese (kana) comes before Chinese, with which it shares characters: a text with some kana is Japanese.
_SCRIPTS = {
    "ja": Pattern("[\u3040-\u30ff]"),
    "zh": Pattern("[\u4e00-\u9fff]"),
    "ko": Pattern("[\uac00-\ud7af]"),
    "ru": Pattern("[\u0400-\u04ff]"),
    "ar": Pattern("[\u0600-\u06ff]"),
    "he": Pattern("[\u0590-\u05ff]"),
    "hi": Pattern("[\u0900-\u097f]"),
    "th": Pattern("[\u0e00-\u0e7f]"),
    "el": Pattern("[\u0370-\u03ff]"),
}
ANY_LATIN_OR_CYRILLIC = frozenset[str]().union(*BY_LANGUAGE.values())
_LATIN = Pattern("[A-Za-z\u00c0-\u024f]")
# A Chinese character counts as two and a half letters; five percent of kana make a text Japanese.
_LETTERS = {"zh": 2.5, "ja": 20.0}


def language_of(text: str) -> str | None:
    """Return the ISO 639-1 code of the language of most of a text; None if it cannot be detected.

    A script stands for its most common language; among those in Latin script, only languages with a list of
    stop words are detected.
    """
    text = text[:MAX_CHARACTERS]
    if text.isascii():
        words = Counter(words_of(text.lower()))
    else:
        text = plain(text)
        letters = {
            code: len(script.findall(text)) * _LETTERS.get(code, 1) for code, script in _SCRIPTS.items()
        }
        code = max(letters, key=lambda each: letters[each])
        if letters[code] > len(_LATIN.findall(text)):
            return code
        words = Counter(map(folded, words_of(text)))
    said = words.keys() & ANY_LATIN_OR_CYRILLIC
    counts = {code: sum(words[word] for word in said & stops) for code, stops in BY_LANGUAGE.items()}
    code = max(counts, key=lambda each: counts[each])
    return code if counts[code] >= ENOUGH else None


def language_shares(texts: Iterable[str]) -> Mapping[str, float]:
    """Return each language's share of the texts whose language is detected, largest first."""
    counts = Counter(filter(None, map(language_of, texts)))
    return {code: round(count / counts.total(), 2) for code, count in counts.most_common()}
