"""The words that say how a question is asked and not what it is about.

The lists are short on purpose: articles, pronouns, prepositions, auxiliaries, question words, and what people
say to an assistant ("please tell me"). Long lists also hold words that a note is about, such as "computer",
"group" or "novel", and cost more answers than they save time (figures: docs/retrieval-measurements.md).
"""

__all__ = ["ALWAYS", "BY_LANGUAGE", "CJK_CHARACTERS", "CJK_PAIRS", "INFLECTING", "KANA_PARTICLES"]

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

BY_LANGUAGE = {"en": ENGLISH, "es": SPANISH, "pt": PORTUGUESE}
"""Languages that share an alphabet: only the list of the one that the question is in may be used.

Words are in lower case and without accents."""

INFLECTING = frozenset({"es", "pt"})
"""Languages of those whose endings the stemmer of the index, which is for English, does not know."""

ALWAYS = ARABIC | KOREAN
"""Words of languages with a script of their own; Arabic ones as `forms.plain` writes them."""

CJK_PAIRS = frozenset(
    """
    什么 怎么 么样 怎样 多少 哪些 哪个 哪里 哪儿 如何 是否 可以 但是 因为 所以 如果 还是 或者 以及 没有
    请问 告诉 关于 什麼 怎麼 麼樣 怎樣 哪裡 哪兒 們的 這些 那些 這個 那個 因為 沒有 還是 請問 告訴
    關於 何が 何を 何で 何の 誰が 誰の 教え
    """.split()
)
"""Pairs of neighbouring characters that only ask."""

CJK_CHARACTERS = frozenset("的了是在有和与及吗呢吧啊么这那哪谁我你他她它们个为被把从到于之與嗎麼這誰們個從於")
"""Chinese characters that only join; a pair of nothing but these, or of hiragana, says nothing."""

KANA_PARTICLES = frozenset("はがをにのでともへやか")
"""Japanese characters that join a word to the next."""
