"""The word lists behind the rules: common first names, known products, and words that are no names."""

from typing import Final

from composable_memory_adapters.extractors.sentence_times import DAY_NAMES, DAYS_BACK, MONTH_NAMES


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


TITLES: Final = _words("mr mrs ms miss dr prof professor sir madam herr herrn frau señor señora doña madame")

GREETINGS: Final = _words(
    """hallo hola
    hey hi hello thanks thank bye goodbye wow yeah yes yep yup no nope nah ok okay sure cool great
    awesome nice congrats congratulations sorry oh ah aww haha lol omg btw well please cheers
    absolutely definitely totally exactly right alright welcome ps fyi asap ugh phew yay woah whoa
    hmm"""
)
"""What opens a remark and names nobody."""

LANGUAGES: Final = _words(
    """arabic bengali cantonese catalan chinese croatian czech danish dutch english esperanto estonian
    farsi finnish flemish french gaelic german greek hebrew hindi hungarian icelandic irish italian
    japanese korean latin latvian lithuanian mandarin norwegian persian polish portuguese punjabi
    romanian russian serbian spanish swahili swedish tagalog tamil thai turkish ukrainian urdu
    vietnamese welsh arabisch chinesisch dänisch deutsch englisch finnisch französisch griechisch
    italienisch japanisch koreanisch niederländisch norwegisch polnisch portugiesisch rumänisch
    russisch schwedisch spanisch tschechisch türkisch ukrainisch ungarisch árabe alemán catalán
    chino coreano danés español euskera finlandés francés gallego griego holandés inglés italiano
    japonés latín mandarín noruego polaco portugués ruso sueco turco vasco"""
)
"""What people speak, and where things are from: "Italian food" has no name in it."""

NOT_NAMES: Final = (
    GREETINGS
    | LANGUAGES
    | frozenset(MONTH_NAMES)
    | frozenset(DAY_NAMES)
    | frozenset(DAYS_BACK)
    | _words(
        """a about above after again all almost also although always am an and another any anyone anything are
    around as at back be because been before being below between both but by can can't could
    couldn't day did didn't do does doesn't doing don't done down during each either else even ever
    every everyone everything few finally first for from further get getting give given go goes
    going gone got had has hasn't have haven't having he he'd he's her here here's hers herself him
    himself his how however i i'd i'll i'm i've if in indeed inside instead into is isn't it it'd
    it'll it's its itself just keep last later least less let let's like lots made make many may
    maybe me meanwhile might more most much must my myself near nearly need neither never next
    nobody none nor not note nothing now of off often on once one only onto or other others our ours
    out outside over overall own perhaps possibly put quite rather recently same see seems seen
    several shall she she's should since so some someone something sometimes soon speaking still
    such take than that that's the their them themselves then there there's therefore these they
    they'd they'll they're they've thing things this those though three through thus till to today
    tomorrow tonight too two under unless until up upon us use used using usually very via was
    wasn't way we we'd we'll we're we've went were weren't what what's whatever when whenever where
    wherever whether which while who who's whoever whom whose why will with within without won't
    would wouldn't yesterday yet you you'd you'll you're you've your yours yourself decided decision
    todo fixme status update updates question answer example image photo bought talked met moved
    spoke told asked said saw found left sent tried wrote ran mon tue tues wed thu thur fri sat sun
    jan feb el la los las un una de del que en y es por para con se su al lo como más pero sus le ya
    este der die das und ist nicht ein eine einen dem den des mit für auf von zu im wir ich sie er
    es le les des une ceo cto cfo coo hr it ok faq mein meine meinen meinem meiner mi mis nuestro
    nuestra unser unsere unserem unseren wer wo wie was wann warum welche welcher jetzt ahora quien
    desde hasta cuando nunca noch nie auch nur bei nach aus ab bis seit statt falls wenn vielleicht
    angeblich port puerto et est pas dans sur avec pour nous vous je il elle ce cette"""
    )
)
"""Words that begin with a capital only where a sentence does."""

SPANISH_I: Final = _words(
    """acabo adoptamos adopté canto comencé compramos compré crecí dejamos dejé detesto dirijo empecé
    empezamos estamos estoy estudiamos estudio estudié hablamos hablo juego jugamos llevamos llevo
    nací odio perdimos perdí prefiero renuncié reporto resido somos soy tenemos tengo toco
    trabajamos trabajo trabajé usamos uso utilizamos vendimos vendí vengo visitamos visité vivimos
    vivo viví cambiamos pasamos"""
)
"""What begins a sentence in Spanish whose subject is who speaks."""

OPENERS: Final = SPANISH_I | _words(
    """sounds looks feels seems sound nature worries themes dedication rest man nos new old big good
    bad best poor dear great actually agree amazing apparently allegedly bring congrats dead dinner
    excited flight follow friend fun glad hear heard help hope idea imagine interesting invoices
    know launch let look looks lot love lunch matter mean meeting nearly painting people posted
    pretty proud read ready reading really rebuild riders routing rumour rumor say seem sentence
    share shop shops short somebody someone sound starting station stay suppose supposing sweet talk
    tell think thought time trip true try understand unfortunately wait walked walking want wear
    wish wonderful words work working worry writing see send set show stop call check clean cut day
    days give hold take turn move open close write wrote release bread bikes water weather evening
    morning night today staging anniversary birthday dentist doctor workshop side everything
    everyone nobody nothing ring measure change fixed opened released arrived operates pays runs
    present older likely correct nearest sixteen seven eight nine ten twelve twenty hundred none
    several cause effect risk option verdict reasons costs nadie qué tenía después antes última
    último primera primero hay todo todos toda esta este dicen según quizás quizá tal ojalá vuelo
    reunión cumpleaños dentista gracias hoy ayer mañana ver también desde bernardo alle bitte heute
    gestern morgen flug zahnarzt donnerstag angeblich vielleicht falls wenn statt siehe seit tenemos
    busca llama pide compra además pero así luego siempre nunca jamás me te se a le les si sí cuando
    donde dónde cómo quién qué cuál por para sobre entre sin hasta hacia durante"""
)
"""Words that are no names where they open a sentence."""

GERMAN_NOUNS: Final = _words(
    """bruder brüder onkel tante oma opa neffe nichte arzt ärztin anwalt anwältin vermieter nachbar
    nachbarin mitbewohner mitbewohnerin ingenieur ingenieurin gründer gründerin krankenhaus server
    datenbank rechner vegetarier vegetarierin bergsteigen abend abends ampel ampeln anfang angst
    anzeigen arbeit auto bahn bar bericht bett bild boden brot buch chef chefin dach dank datum
    dienst dinge eis ende erde essen fahrrad fall familie farbe fenster ferien feuer fisch flug
    folge frage frau freitag freund freundin frühjahr frühling garten gast geburtstag geld gerücht gerüchte
    geschichte
    glück grün grund gruppe haus hause heft herbst herz hilfe hof holz hund hunger idee jahr jahre job
    kaffee kasse katze keller kind kinder kirche klasse klavier kollege kollegin kompressor kopf
    kraft küche lampe land landkarten leben lehrer leiter leiterin leute licht liebe liste luft mal
    mann markt mensch menschen milch minute minuten mitglied mittag monat morgen musik mutter nacht
    nachmittag name natur norden notizen oliven opern ort osten paket papier pause plan platz
    polizei port post preis projekt quelle rad raum recht regen reihe reise rente rezept ruhe sache
    schiff schlaf schnee schule schwester see seite sicht sohn sommer sonne spaß spiel sport stadt
    stelle straße strom stück stunde süden tag tage tee teil tisch tochter tod trompete tür uhr
    urlaub vater verein versand vormittag wagen wald wand wasser weg wein welt werkstatt westen
    wetter winter winterreifen woche wochen wohnung wort zahl zahlen zahnarzt zeit zeitung zimmer
    zug zukunft treffen testdatenbank team arabisch französisch portugiesisch englisch deutsch
    spanisch italienisch russisch chinesisch katzen hunde entscheidungen erdnüsse penicillin jazz
    teamleiter teamleiterin geschäftsführer geschäftsführerin"""
)
"""Frequent German nouns, which have a capital as names have."""

ARTICLES: Final = _words(
    """der die das den dem des ein eine einen einem einer eines kein keine keinen keinem keiner mein meine
    meinen meinem meiner unser unsere unseren unserem unserer dein deine sein seine seinen seinem
    seiner ihr ihre ihren ihrem ihrer dieser diese dieses diesem diesen jeder jede jedes alle alten
    im am zum zur vom beim ins ans gegen"""
)

PLACES: Final = _words(
    """africa america asia europe england scotland wales ireland britain france germany spain portugal
    italy austria switzerland netherlands belgium denmark norway sweden finland iceland poland
    greece turkey russia ukraine china japan korea india vietnam thailand australia canada mexico
    brazil argentina chile peru cuba egypt morocco kenya nigeria usa uk london paris berlin hamburg
    munich münchen köln vienna wien zürich zurich amsterdam brussels oslo stockholm copenhagen
    helsinki dublin edinburgh madrid barcelona lisbon lisboa porto rome rom milan turin venice
    athens prague warsaw budapest moscow istanbul tokyo kyoto beijing shanghai singapore sydney
    melbourne toronto vancouver chicago boston seattle denver austin texas california florida
    deutschland österreich schweiz frankreich spanien italien españa francia alemania italia méxico
    bergen malta cork bremen bonn kassel graz sevilla valencia bilbao granada murcia"""
)
OF_A_PLACE: Final = _words(
    "street road lane square hill island islands bay beach lake river straße platz calle"
)

LABELS: Final = _words(
    """action actions agenda answer attendees author category caution context contact created date deadline
    decision decisions description due email example fix goal hint host idea image important info
    issue item link links location name next note notes number outcome owner phone place port plan
    price priority problem question reason result risk risks source status step steps subject
    summary tag tags time tip title todo topic type update url version warning website what when
    where who why"""
)
"""Words before a colon that name a field, not somebody who speaks."""

ABBREVIATIONS: Final = _words(
    "mr mrs ms dr prof sr jr st vs etc e.g i.e approx ca cf no nr vol fig inc ltd co corp dept est al z.b bzw"
)
"""Words whose full stop ends no sentence."""

ORGANISATION_WORDS: Final = _words(
    """inc ltd llc gmbh ag corp corporation company co plc sa bv ab oy foundation university college
    institute institut universität academy school hospital clinic bank ministry department agency
    association society committee council museum library labs lab laboratories laboratory group
    holdings partners studios studio systems solutions industries airlines church club team verein
    universidad université"""
)

EVENT_WORDS: Final = _words(
    """conference summit festival marathon meetup workshop hackathon fair expo tournament championship
    olympics wedding party concert ceremony gala parade race cup retreat symposium convention"""
)

TECHNOLOGIES: Final = _words(
    """python javascript typescript java kotlin swift rust go golang ruby php scala haskell elixir erlang
    c++ c# .net node node.js deno react vue angular svelte django flask fastapi rails spring laravel
    postgres postgresql mysql mariadb sqlite redis mongodb cassandra kafka rabbitmq nats
    elasticsearch opensearch neo4j falkordb clickhouse duckdb snowflake bigquery docker kubernetes
    k8s terraform ansible helm linux debian ubuntu fedora macos windows ios android aws azure gcp
    graphql grpc http websocket oauth openai gpt llama claude gemini mistral pytorch tensorflow
    numpy pandas cuda wasm webassembly html css sql nginx apache prometheus grafana opentelemetry
    celery airflow spark hadoop pydantic sqlalchemy pytest"""
)

TOOLS: Final = _words(
    """slack notion jira confluence trello asana linear figma miro github gitlab bitbucket jenkins vscode
    vim emacs intellij pycharm xcode excel powerpoint outlook gmail zoom teams discord telegram
    whatsapp signal dropbox airtable obsidian evernote photoshop blender zapier salesforce hubspot
    stripe shopify spotify netflix youtube instagram facebook twitter reddit tiktok linkedin google
    wikipedia strava"""
)

FIRST_NAMES: Final = _words(
    """aaron abby abdul abigail adam adrian agnes ahmed aisha alan albert alejandro alex alexander
    alexandra ali alice alicia alison allison amanda amber amelia amir amy ana anastasia anders
    andre andrea andreas andrew andy angela anita ann anna anne annie anthony antonio anya arthur
    ashley astrid audrey ava barbara beatrice ben benjamin bernard beth betty bill bob boris brandon
    brenda brian bruce bruno calvin carl carla carlos carmen carol caroline catherine cecilia
    charles charlie charlotte chen chloe chris christian christina christine christopher claire
    clara clark claudia clemens colin connor craig cynthia daisy dan daniel daniela david deborah
    deepak dennis diana diane diego dieter dmitri dominic donald donna dorothy doug douglas duncan
    dylan eddie edgar edith edward eileen elena eleanor eli elias elisa elisabeth elizabeth ella
    ellen emil emilia emily emma eric erik erika ernst esther ethan eva evan eve evelyn fatima
    felipe felix fernando fiona florian frances francis francisco frank franz fred frederick frida
    gabriel gabriela gary george georgia gerald gina giovanni giulia gloria grace graham greg
    gregory greta gustav hannah hans harold harry hassan heather heidi helen helena helga henry
    hiroshi hugo ian ibrahim igor ines ingrid irene iris isaac isabel isabella ivan jack jackie
    jacob jacqueline jake james jamie jan jana jane janet jasmine jason javier jean jeff jennifer
    jenny jeremy jerry jesse jessica jill jim joan joanna joe johan johanna john johnny jon jonas
    jonathan jordan jorge jose josef joseph joshua joyce juan judith judy julia julian julie julio
    jun jürgen justin kai karen karin karl kate katherine kathleen kathryn katie keith kelly ken
    kenji kenneth kevin kim klaus kristin kurt kyle lars laura lauren laurent lea leah lee lena leo
    leon leonard leonardo lewis li liam lily lina linda lisa liz lopez louis louise luca lucas lucia
    lucy luis luisa luke magnus malik marc marco marcus margaret maria marie marina mario marion
    mark marta martha martin mary mateo mathias matt matthew max maya mei mel melanie melissa mia
    michael michelle miguel mike milan miriam mohamed mohammed molly monica monika nadia nancy naomi
    natalia natalie natasha nate nathan neil nicholas nick nicole nikolai nils nina noah noel nora
    norman olaf oleg olga oliver olivia omar oscar otto pablo pamela patricia patrick paul paula
    pedro peter petra phil philip philipp pia pierre priya rachel rafael rahul raj ralph ramon
    raymond rebecca regina renate rené ricardo richard rick rita robert roberto robin roger roland
    ron rosa rose roy ruth ryan sabine sally sam samantha samuel sandra sara sarah sasha scott sean
    sebastian sergei sergio sharon sheila sherry silvia simon sofia sonia sophia sophie stefan
    stella stephanie stephen steve steven susan susanne sven sylvia takashi tamara tanya tara ted
    teresa terry theo theresa thomas tim tina tobias todd tom tomas tony tracy ulrich ursula
    valentina vanessa vera veronica victor victoria vincent viktor viola virginia vivian vladimir
    walter wang wendy wei werner william wolfgang xavier yan yasmin yuki yusuf yuri yvonne zach
    zhang zoe zoë"""
)
