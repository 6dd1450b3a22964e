"""Natural questions in seven languages find their note through a real keyword index, before other notes."""

from collections.abc import Mapping

import apsw
import pytest

from composable_memory_adapters.builtin.search import keyword_leg
from composable_memory_adapters.builtin.store import schema
from composable_memory_adapters.builtin.store.schema import LIVE
from composable_memory_adapters.text.forms import index_text
from composable_memory_adapters.text.query_terms import analyse

ENGLISH = {
    "bakery": "The bakery on Mill Lane closes at six; Ana buys rye bread there.",
    "deploy": "We deploy staging from the release branch, see scripts/deploy-staging.sh and RETRY_BUDGET=3.",
    "doctor": "Dr. O'Neill moved my appointment to 2026-02-14 at 09:30.",
    "garden": "Planted tomatoes and basil in the re-potted boxes behind the café.",
    "travel": "Tickets to Zürich booked, e-mail confirmation is in the travel folder.",
    "music": "Violin lessons resume in autumn with the new teacher.",
}
SPANISH = {
    "panaderia": "La panadería de la calle Mayor cierra a las seis; Ana compra allí pan de centeno.",
    "despliegue": "Desplegamos desde la rama release con scripts/desplegar.sh, variable MAX_INTENTOS=3.",
    "medico": "La cita con el médico se cambió al 2026-02-14 por la mañana.",
    "jardin": "Sembré tomates y albahaca; los niños regaron las macetas rojas.",
    "viaje": "Billetes a Málaga reservados, la confirmación llegó por correo.",
    "musica": "Las clases de violín empiezan otra vez en otoño con la nueva profesora.",
}
PORTUGUESE = {
    "padaria": "A padaria da rua Direita fecha às seis; a Ana compra lá pão de centeio.",
    "implantacao": "A implantação sai do ramo release com scripts/implantar.sh, variável MAX_TENTATIVAS=3.",
    "medico": "A consulta com o médico mudou para 2026-02-14 de manhã.",
    "jardim": "Plantei tomates e manjericão; as crianças regaram os vasos vermelhos.",
    "viagem": "Bilhetes para São Paulo reservados, a confirmação veio por e-mail.",
    "musica": "As aulas de violino recomeçam no outono com a nova professora.",
}
ARABIC = {
    "makhbaz": "المخبز في شارع النهر يغلق الساعة السادسة وتشتري سلمى الخبز منه.",
    "nashr": "ننشر الخادم التجريبي من الفرع الرئيسي بالملف deploy.sh كل ثلاثاء.",
    "tabib": "تأجل موعد الطبيب إلى ٢٠٢٦-٠٢-١٤ صباحا.",
    "hadiqa": "زرعت الطماطم والريحان في حديقة البيت مع الأولاد.",
    "safar": "حجزنا تذاكر السفر إلى القاهرة ووصل التأكيد بالبريد.",
    "musiqa": "تبدأ دروس الكمان في الخريف مع المعلّمة الجديدة.",
}
CHINESE = {
    "mianbao": "河边的面包店六点关门，小安常去买黑麦面包。",
    "bushu": "昨天讨论了部署方案：测试环境用release分支，脚本在scripts/deploy.sh。",
    "yisheng": "医生的预约改到2026-02-14上午。",
    "huayuan": "在阳台种了番茄和罗勒，孩子们每天浇水。",
    "lvxing": "去苏黎世的机票订好了，确认邮件已收到。",
    "mao": "我家的猫喜欢睡在窗台上。",
}
JAPANESE = {
    "pan": "川沿いのパン屋は六時に閉まる。アンナはライ麦パンを買う。",
    "deploy": "ステージング環境はreleaseブランチからデプロイする。手順はdocs/deploy.mdにある。",
    "isha": "医者の予約は2026-02-14の朝に変わった。",
    "niwa": "庭にトマトとバジルを植えた。子供たちが水をやる。",
    "ryoko": "チューリッヒ行きの切符を予約した。確認メールが届いた。",
    "eki": "駅に着いたら、北口で待ち合わせる。",
}
KOREAN = {
    "ppang": "강변 빵집은 여섯 시에 문을 닫는다. 안나는 호밀빵을 산다.",
    "baepo": "스테이징 서버는 release 브랜치에서 배포한다. 스크립트는 scripts/deploy.sh에 있다.",
    "uisa": "의사 선생님 예약이 2026-02-14 오전으로 바뀌었다.",
    "jeongwon": "정원에 토마토와 바질을 심었고 아이들이 물을 준다.",
    "yeohaeng": "취리히로 가는 표를 예약했고 확인 메일이 왔다.",
    "goyangi": "고양이가 창가에서 잔다. 책이 그 옆에 있다.",
}


def best(notes: Mapping[str, str], question: str) -> str | None:
    """Return the name of the note that keyword search puts first."""
    connection = apsw.Connection(":memory:")
    keyword_leg.prepare(connection)
    connection.execute(LIVE.sql(schema.KEYWORDS))
    rows = [(number, index_text(text)) for number, text in enumerate(notes.values())]
    connection.executemany("INSERT INTO chunks_fts (rowid, text) VALUES (?, ?)", rows)
    hits = keyword_leg.search(connection, analyse(question)).hits
    return list(notes)[hits[0].id] if hits else None


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("When does the bakery close?", "bakery"),
        ("who's buying bread, and where?", "bakery"),
        ("What is the retry_budget for staging?", "deploy"),
        ("where is deploy-staging.sh", "deploy"),
        ("scripts/deploy-staging.sh", "deploy"),
        ("What happens on 2026-02-14?", "doctor"),
        ("Did O'Neill change the appointments?", "doctor"),
        ("what did I plant behind the cafe?", "garden"),
        ("repotted or re-potted?", "garden"),
        ("Have we booked the ticket to Zurich yet?", "travel"),
        ("VIOLIN LESSON", "music"),
    ],
)
def test_english(question: str, name: str) -> None:
    assert best(ENGLISH, question) == name


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("¿A qué hora cierra la panadería?", "panaderia"),
        ("quien compra el pan de centeno?", "panaderia"),
        ("¿Desde qué rama hacemos el despliegue?", "despliegue"),
        ("¿Cuánto vale max_intentos?", "despliegue"),
        ("scripts/desplegar.sh", "despliegue"),
        ("¿Cuándo es la cita del medico?", "medico"),
        ("¿Qué plantas regó la niña, una maceta roja?", "jardin"),
        ("¿Está reservado el billete a Malaga?", "viaje"),
        ("¿Quién es el nuevo profesor del violín?", "musica"),
        ("otoño", "musica"),
    ],
)
def test_spanish(question: str, name: str) -> None:
    assert best(SPANISH, question) == name


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("A que horas fecha a padaria?", "padaria"),
        ("Quem compra o pao de centeio?", "padaria"),
        ("De que ramo sai a implantação?", "implantacao"),
        ("Quanto vale max_tentativas?", "implantacao"),
        ("scripts/implantar.sh", "implantacao"),
        ("Quando é a consulta com a médica?", "medico"),
        ("A criança regou o vaso vermelho?", "jardim"),
        ("Onde está o bilhete para Sao Paulo?", "viagem"),
        ("Quem é o novo professor de violino?", "musica"),
        ("outono", "musica"),
    ],
)
def test_portuguese(question: str, name: str) -> None:
    assert best(PORTUGUESE, question) == name


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("متى يغلق المخبز؟", "makhbaz"),
        ("أين نشتري الخبز؟", "makhbaz"),
        ("أين الخادم التجريبي؟", "nashr"),
        ("ما هو deploy.sh؟", "nashr"),
        ("متى موعد طبيب؟", "tabib"),
        ("ماذا يحدث في 2026-02-14؟", "tabib"),
        ("ماذا زرعت في الحديقة؟", "hadiqa"),
        ("وريحان", "hadiqa"),
        ("هل حجزنا تذكرة للقاهرة؟", "safar"),
        ("مُعَلِّمَة", "musiqa"),
        ("الدرس والكمان", "musiqa"),
        ("كـــمان", "musiqa"),
    ],
)
def test_arabic(question: str, name: str) -> None:
    assert best(ARABIC, question) == name


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("面包店几点关门？", "mianbao"),
        ("谁去买黑麦面包？", "mianbao"),
        ("我们昨天讨论的部署方案是什么？", "bushu"),
        ("release分支", "bushu"),
        ("scripts/deploy.sh在哪里", "bushu"),
        ("医生的预约是什么时候？", "yisheng"),
        ("2026-02-14", "yisheng"),
        ("阳台种了什么？", "huayuan"),
        ("机票订好了吗？", "lvxing"),
        ("猫在哪里？", "mao"),
        ("猫", "mao"),
    ],
)
def test_chinese(question: str, name: str) -> None:
    assert best(CHINESE, question) == name


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("パン屋は何時に閉まりますか？", "pan"),
        ("ライ麦パンを買うのは誰？", "pan"),
        ("ステージングのデプロイはどのブランチから？", "deploy"),
        ("ﾃﾞﾌﾟﾛｲ", "deploy"),
        ("docs/deploy.mdはどこ", "deploy"),
        ("医者の予約はいつですか", "isha"),
        ("2026-02-14の予定は？", "isha"),
        ("庭には何を植えましたか？", "niwa"),
        ("チューリッヒ行きの切符は予約した？", "ryoko"),
        ("駅はどこですか？", "eki"),
        ("「北口」", "eki"),
    ],
)
def test_japanese(question: str, name: str) -> None:
    assert best(JAPANESE, question) == name


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("빵집은 언제 문을 닫아요?", "ppang"),
        ("누가 호밀빵을 사나요?", "ppang"),
        ("서버를 어느 브랜치에서 배포합니까?", "baepo"),
        ("release브랜치", "baepo"),
        ("scripts/deploy.sh는 어디에 있나요?", "baepo"),
        ("의사와의 예약은 언제인가요?", "uisa"),
        ("2026-02-14", "uisa"),
        ("정원에는 무엇을 심었나요?", "jeongwon"),
        ("취리히행 표는 예약했어?", "yeohaeng"),
        ("고양이는 어디서 자나요?", "goyangi"),
        ("책을 찾아줘", "goyangi"),
    ],
)
def test_korean(question: str, name: str) -> None:
    assert best(KOREAN, question) == name


def test_a_question_with_words_of_two_languages_finds_notes_in_both() -> None:
    notes = {"english": ENGLISH["garden"], "japanese": JAPANESE["niwa"], "other": ENGLISH["music"]}

    assert best(notes, "トマトは tomatoes のこと？") in ("english", "japanese")


def test_a_word_is_found_in_its_other_forms() -> None:
    for question, note in (
        ("¿Dónde están las casas blancas?", "una casa blanca"),
        ("¿Quién habló con la directora?", "el director habló"),
        ("¿Qué es el Academic de los lunes?", "The academic meeting"),  # stemmed to less than its beginning
        ("Onde estão as casas brancas?", "uma casa branca"),
        ("Wer hat die Pumpen gewechselt?", "Die Pumpe im Keller"),
        ("Wann kündigen wir die Verträge?", "Der Vertrag ist gekündigt"),
        ("Was ist mit den Brillen?", "Brillengläser"),
        ("Wie heißen die Straßen am Park?", "eine Straße"),
        ("Quelles sont les pompes de la cave ?", "une pompe neuve"),
        ("Qui a remplacé les pneus ?", "il faut remplacer ça"),
        ("Welke ramen sluiten niet goed?", "het raam aan de hofkant"),
        ("Waar zijn de brieven van Anna?", "een brief"),
        ("Wie heeft het huis gezien?", "twee huizen"),
        ("Кто заменил насосы?", "водяной насос"),
        ("Где лежат зимние шины?", "зимним шинам нужно давление"),
    ):
        assert best({"other": "nothing of it", "note": note}, question) == "note", question


def test_in_an_english_question_words_are_not_cut() -> None:
    assert analyse("What did the director say about the plant?").language == "en"
