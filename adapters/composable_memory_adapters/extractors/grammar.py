"""What a sentence must look like to state a relation, in English, German and Spanish (data).

A template is a pattern over a clause whose names and pronouns are single marks: `WHO` is one or several
subjects, or none where the clause goes on about those before; `WHOM` subjects that stand elsewhere; `NAME`
names, `FROM` one that something is taken from, `TRADE` what somebody is by trade, `PET` an animal,
`WORDS` a few words that need be no names. They are
tried in this order, and what one has read no other reads again. What fits none states nothing.
"""

import re
from functools import cache
from typing import Final

from composable_memory_adapters.extractors.word_lists import SPANISH_I
from composable_memory_ops_logs.quick_dataclass import dataclass

EXCLUSIVE: Final = frozenset({"LIVES_IN", "WORKS_AT", "MARRIED_TO", "REPORTS_TO", "LISTENS_ON", "IS"})
"""Relations that an entity has one of at a time."""

ONE_HOLDER: Final = frozenset(
    "LEADS CEO_OF CTO_OF CFO_OF PRESIDENT_OF DIRECTOR_OF HEAD_OF CHAIR_OF MAYOR_OF BOSS_OF MANAGER_OF"
    " CAPTAIN_OF DOCTOR_OF DENTIST_OF LANDLORD_OF ACCOUNTANT_OF PARTNER_OF".split()
)
"""Relations to an entity that one other has at a time."""

MARK: Final = "[\ue000-\uf7ff]"
LIST: Final = rf"{MARK}(?:(?:, (?:and |und |y )?| (?:and|und|y|e|&|sowie) ){MARK})*"
_SUBJECTS: Final = rf"{MARK}(?:(?:, {MARK})*,? (?:and|und|y|e|&|sowie) {MARK})?"
_DET = r"(?:(?:the|an?|my|our|his|her|their|der|die|das|dem|den|ein|eine|einen|el|la|los|las|un|una|mi|su) )?"
_CALLED = r"(?:[a-zäöüñ-]+(?: [a-zäöüñ-]+)? (?:called|named|namens|llamad[oa]|que se llama) )?"
_GOES_ON = r"|(?<=, )(?=(?:is|are|lives|works|speaks|uses|owns) ))"
"""After what was put between commas: "Omar, who leads Falcon, is based in Cairo"."""
_PARTS = {
    "WHO ": rf"(?:(?:^|(?<=\bsince )|(?<=\bbecause )|(?<=, )|(?<=: )|(?<=– )"
    rf"|(?<=\. ))(?P<s>{_SUBJECTS})(?:, (?:who|which|quien|que))? |^" + _GOES_ON,
    "WHOM": rf"(?P<s>{_SUBJECTS})",
    "NAME": rf"{_DET}{_CALLED}(?P<o>{LIST})(?!['’]s)",
    "FROM": rf"{_DET}(?P<f>{MARK})",
    "WORDS": r"(?P<p>[^;:.!?()␣]+)",
}

_OWNED = (
    "dog|cat|car|bike|bicycle|motorcycle|house|flat|apartment|boat|canoe|puppy|kitten|bird|parrot|horse"
    "|rabbit|turtle|hamster"
    "|guitar|piano|violin|garden|farm|shop|van|truck|pet"
)
_BESESSEN = "hund|katze|kater|auto|fahrrad|haus|wohnung|boot|motorrad|klavier|garten|pferd|kaninchen"
_POSEIDO = (
    "perr(?:it)?[oa]|gat(?:it)?[oa]|coche|carro|moto|bici|bicicleta|casa|piso|apartamento|barco|guitarra|piano"
    "|violín|jardín|huerto|finca|tienda|furgoneta|caballo|conejo|loro|tortuga|granja"
)
_BE = r"(?:is|are|am|['’]m|['’]s|['’]re)"
_HAVE = r"(?:(?:has|have|had|['’]s|['’]ve) )"
_HAT = r"(?:hat|habe|haben|ist|bin|sind)"
_HA = r"(?:he|ha|hemos|han)"
_SE_MUDO = (
    r"(?:se (?:mudó|mudaron|trasladó|trasladaron)|me (?:mudé|trasladé)|nos (?:mudamos|trasladamos)"
    r"|(?:me he|nos hemos|se han?) (?:mudado|trasladado))"
)

_TEMPLATES: Final = rf"""
USES       switched WHO (?:switched|migrated|moved|changed)(?: over)? (?P<m>{MARK}
                    |[\w-]+(?: [\w-]+)?) from FROM to NAME
USES       switched WHO {_HAVE}?(?:switched|migrated|moved|changed)(?: over| away)? from FROM to NAME
USES       switched WHOM replaced FROM with NAME
USES       switched WHO uses? NAME (?:instead of|rather than) FROM
USES       switched ^(?:instead of|statt|en lugar de|en vez de) FROM,? (?:nutzt|nutzen|nutze|verwenden
                    |verwendet|usan?) WHOM NAME
USES       switched ^(?:instead of|en lugar de|en vez de) FROM,? WHOM (?:uses?|usan?) NAME
USES       switched WHO {_HAT} von FROM (?:auf|zu) NAME (?:umgestiegen|gewechselt|umgezogen)
USES       switched WHO (?:cambiaron|cambió|pasó|pasaron|cambiamos|pasamos) de FROM a NAME
USES       ended    WHO {_HAVE}?(?:stopped using|dropped|abandoned|gave up(?: on)?|got rid of) NAME
USES       ended    WHO (?:dejó|dejaron|dejamos) de usar NAME
USES       now      WHO (?:uses?|{_BE} using|relies on|rely on|runs? on|{_BE} (?:built|written
                    |implemented) (?:with|in|on)) (?:[a-z]+ )?NAME
USES       began    WHO {_HAVE}?(?:switched|migrated|upgraded) to NAME
USES       began    WHO {_HAVE}?started using NAME
USES       past     WHO used NAME
USES       now      WHO (?:nutzt|nutzen|nutze|verwendet|verwenden|benutzt|benutzen|setzen auf|setzt auf) NAME
USES       now      NAME (?:nutzen|verwenden|benutzen) WHOM
USES       now      WHO (?:usan?|utilizan?|usamos|utilizamos) NAME
USES       now      ^(?:the|our|der|die|das|el|la|unsere?) (?P<m>[\w-]+(?: [\w-]+)?) (?:uses|runs on
                    |relies on|is (?:built|written) (?:with|in|on)|nutzt|verwendet|läuft auf|usa|utiliza) NAME
REPLACED   began    WHO {_HAVE}?replaced NAME
CREATED    began    WHO {_HAVE}?(?:co-?founded|founded|created|invented|composed|launched) NAME
CREATED    began    WHO (?:fundó|fundaron|creó|gründete) NAME
CREATED    began    WHO (?:hat|haben|habe) NAME gegründet
LISTENS_ON now      (?P<d>the|our|der|die|das|el|la|los)? ?(?P<sp>(?:\w[\w-]*
                    |{MARK})(?: [\w-]+){{0,2}}) (?:listens?|runs?|{_BE}|moved|lauscht|läuft|hört|escucha
                    |corre) (?:to|on|in|at|auf|en) (?:the |dem |el )?(?:port|puerto) (?P<num>\d+)
LISTENS_ON now      (?:moved|changed|switched) (?P<d>the
                    |our) (?P<sp>[\w-]+(?: [\w-]+){{0,2}}?)(?: from port \d+)? to port (?P<num>\d+)
LISTENS_ON now      (?P<d>the|our|der|die|das|el|la|los)? ?(?P<sp>(?:\w[\w-]*
                    |{MARK})(?: [\w-]+){{0,2}}?) port (?:is|=) (?P<num>\d+)
LIVES_IN   moved    WHO {_HAVE}?(?:moved|relocated|emigrated) from FROM to NAME
LIVES_IN   moved    WHO {_HAT} von FROM nach NAME (?:um)?gezogen
LIVES_IN   moved    WHO (?:zog|zogen|zieht) von FROM nach NAME
LIVES_IN   moved    WHO {_SE_MUDO} de FROM a NAME
LIVES_IN   ended    WHO {_HAVE}?moved (?:away|out)(?: from| of) NAME
LIVES_IN   ended    WHO {_HAVE}?moved from NAME
LIVES_IN   now      WHO (?:lives?|resides?|{_BE} (?:based|living)|{_HAVE}(?:been )?(?:living|lived
                    |settled))(?: with [\w ]{{3,25}})? in NAME
LIVES_IN   began    WHO {_HAVE}?(?:moved|relocated|emigrated|settled)(?: back)? (?:to|in) NAME
LIVES_IN   past     WHO (?:lived|live|was living|were living) in NAME
LIVES_IN   began    WHO {_HAT} nach NAME (?:um)?gezogen
LIVES_IN   began    WHO (?:zog|zogen|zieht|ziehen) nach NAME
LIVES_IN   now      WHO (?:wohnt|wohne|wohnen|lebt|lebe|leben) (?:mit [\w ]{{3,25}} )?(?:in|auf) NAME
LIVES_IN   now      (?:wohnt|wohne|wohnen|lebt|lebe|leben) WHOM (?:in|auf) NAME
LIVES_IN   past     WHO (?:wohnten?|lebten?) in NAME
LIVES_IN   past     WHO (?:hat|habe|haben) in NAME (?:gewohnt|gelebt)
LIVES_IN   began    WHO {_SE_MUDO} a NAME
LIVES_IN   now      WHO (?:llev[oa]|llevamos|llevan) (?:[\w ]{{2,15}} )?viviendo en NAME
LIVES_IN   now      WHO (?:vive|viven|vivo|vivimos|reside|residen|resido) (?:con [\w ]{{3,25}} )?en NAME
LIVES_IN   past     WHO (?:vivió|vivía|vivían|vivieron|viví) en NAME
LIVES_IN   now      WHO (?:habite|vit|mora|abita) (?:à|a|em) NAME
WORKS_AT   over     WHO {_HAVE}?(?:quit|left|lost|resigned from|gave up) (?:his|her|their|my
                    |the) job(?! (?:at|with|as) )(?=[ .,;!]|$)
WORKS_AT   over     WHO (?:hat|habe) (?:seinen|ihren|meinen) (?:job|arbeitsplatz) (?:gekündigt
                    |aufgegeben|verloren)
WORKS_AT   over     WHO (?:dejó|dejé|perdió|perdí|renunció a|{_HA} (?:dejado
                    |perdido)) (?:su|mi) (?:trabajo|empleo|puesto)(?! en )
WORKS_AT   ended    WHO {_HAVE}?(?:quit|left|resigned from|retired from|stopped working (?:at|for)
                    |was (?:fired|laid off) (?:by|from)|(?:quit|left|lost|gave up) (?:his|her|their|my
                    |the) job (?:at|with)) NAME(?! (?:at|in|on|with|behind|alone)\b)
WORKS_AT   now      WHO (?:works?|{_BE} (?:working|employed)|{_HAVE}(?:been )?(?:working|worked)
                    |teaches(?: \w+)?|interns) (?:at|for|by) NAME
WORKS_AT   began    WHO {_HAVE}?(?:got|started|found|accepted|took|has|have) (?:an?|the) (?:new )?(?:job
                    |position|role) (?:at|with) NAME
WORKS_AT   began    WHO {_HAVE}?(?:started|began)(?: working)? at NAME
WORKS_AT   began    WHO {_HAVE}?joined (?:the )?(?:[a-z]+ team at )?NAME
WORKS_AT   past     WHO (?:worked|was employed|was working|work) (?:at|for|by) NAME
WORKS_AT   now      WHO (?:works?|{_BE} working|{_HAVE}(?:been )?(?:working
                    |worked)) as (?:an? )?(?P<role>[a-z -]{{3,40}}?) (?:at|for) NAME
WORKS_AT   now      WHO (?:arbeitet|arbeite) als (?P<role>\w+) (?:bei|für) NAME
WORKS_AT   now      WHO (?:trabaja|trabajo) (?:como|de) (?P<role>[\w ]{{3,30}}?) (?:en|para) NAME
WORKS_AT   gone     WHO (?:is|are|am) (?:with|at|part of) NAME
WORKS_AT   now      WHO {_HAVE}been (?:an? )?(?P<role>TRADE) (?:at|for|with) NAME
WORKS_AT   now      WHO (?:soy|es) (?P<role>TRADE) en NAME
WORKS_AT   now      WHO (?:ist|bin) (?P<role>TRADE) (?:am|im|beim|bei) NAME
WORKS_AT   now      WHO (?:arbeitet|arbeite|arbeiten) (?:in|auf) (?:einer|einem) [\w-]+ namens NAME
WORKS_AT   began    WHO (?:hat|habe|haben) bei NAME angefangen
WORKS_AT   ended    WHO (?:hat|habe|haben) bei NAME gekündigt
WORKS_AT   ended    WHO (?:hat|habe) (?:seinen?|ihren?|meinen?) (?:job|arbeitsplatz|arbeit
                    |stelle) bei NAME (?:gekündigt|aufgegeben|verloren)
WORKS_AT   ended    WHO (?:hat|habe|haben) NAME verlassen
WORKS_AT   ended    WHO (?:verließ|verließen|kündigte bei) NAME
WORKS_AT   now      WHO (?:arbeitet|arbeite|arbeiten) (?:bei|für) NAME
WORKS_AT   now      (?:arbeitet|arbeite|arbeiten) WHOM (?:bei|für) NAME
WORKS_AT   past     WHO (?:arbeiteten?) (?:bei|für) NAME
WORKS_AT   past     WHO (?:hat|habe|haben) bei NAME gearbeitet
WORKS_AT   now      WHO (?:llev[oa]|llevamos|llevan) (?:[\w ]{{2,15}} )?trabajando (?:en|para) NAME
WORKS_AT   began    WHO acab[oa] de empezar(?: a trabajar)? en NAME
WORKS_AT   ended    WHO (?:me|nos) (?:despidieron|echaron) de NAME
WORKS_AT   began    WHO (?:empezó|empezaron|empecé|comenzó|comencé|{_HA} (?:empezado
                    |comenzado)) a trabajar (?:en|para) NAME
WORKS_AT   ended    WHO (?:dejó|dejaron|dejé|{_HA} dejado)(?: de trabajar en)? (?!a )NAME(?! (?:en|con)\b)
WORKS_AT   ended    WHO (?:dejó|dejé|perdió|perdí|renunció a|renuncié a|{_HA} (?:dejado
                    |perdido)) (?:su|mi) (?:trabajo|empleo|puesto) en NAME
WORKS_AT   ended    WHO renunció a NAME
WORKS_AT   now      WHO (?:trabajan?|trabajo|trabajamos|trabalha) (?:en|para|na|no|em) NAME
WORKS_AT   past     WHO (?:trabajó|trabajaba|trabajaron|trabajé) (?:en|para) NAME
WORKS_AT   now      WHO (?:travaille (?:chez|pour)|lavora (?:per|presso)) NAME
MARRIED_TO ended    WHO {_HAVE}?(?:(?:got |is )?divorced(?: from)?|split up with|separated from) NAME
MARRIED_TO now      WHO (?:{_BE}|was|got) (?:married|engaged) to NAME
MARRIED_TO began    WHO {_HAVE}?married NAME
MARRIED_TO now      WHO (?:ist|bin) mit NAME (?:verheiratet|verlobt)
MARRIED_TO began    WHO (?:hat|habe) NAME geheiratet
MARRIED_TO now      WHO (?:está|estoy) (?:casad[oa]|comprometid[oa]) con NAME
MARRIED_TO began    WHO (?:se casó|me casé|(?:se ha|me he) casado) con NAME
MARRIED_TO joined   WHO {_HAVE}?(?:got |are |were )?(?:married|engaged)(?=[.,;!]|$)
MARRIED_TO joined   WHO (?:haben|sind) (?:geheiratet|verheiratet)
MARRIED_TO joined   WHO se casaron
MARRIED_TO parted   WHO {_HAVE}?(?:got |are |were )?divorced(?=[.,;!]|$)
MARRIED_TO parted   WHO (?:sind|haben sich|wurden) (?:geschieden|getrennt|scheiden lassen)
MARRIED_TO parted   WHO se (?:divorciaron|separaron)
MARRIED_TO over     WHO {_HAVE}?(?:got |is |was )?divorced(?=[.,;!]|$)
MARRIED_TO over     WHO (?:ist|bin) geschieden(?=[.,;!]|$)
MARRIED_TO over     WHO (?:hat sich|habe mich) scheiden lassen
MARRIED_TO over     WHO (?:se divorció|está divorciad[oa])(?=[.,;!]|$)
REPORTS_TO now      WHO (?:reports?|{_BE} reporting) to NAME
REPORTS_TO now      WHO (?:berichtet|berichte) an NAME
REPORTS_TO now      WHO (?:reporta|responde|reporto) (?:a|ante) NAME
LEADS      now      WHO (?:leads|lead|manages|manage|heads|{_BE} (?:leading|managing)|leitet|leite|dirigen?
                    |dirijo|lidera) (?:(?:das |el |the )?(?:projekt |proyecto |project ))?NAME
LEADS      passive  (?P<o>{MARK}) (?:is|are|was|were|has been|have been) (?:led|managed|headed|run) by WHOM
LEADS      passive  ^(?:the|our) (?P<p>[\w-]+(?: [\w-]+)?) (?:is|are|was|were|has been|have been) (?:led
                    |managed|headed|run) by WHOM
LEADS      now      WHO (?:leads|manages|heads) (?:the|our) WORDS
LEADS      passive  (?P<o>{MARK}) wird von WHOM geleitet
LEADS      past     WHO (?:led|managed|headed|leitete|dirigió) NAME
WORKS_ON   now      WHO (?:works? on|maintains?|{_BE} (?:building|working on)|contributes? to|arbeitet an
                    |trabaja en el proyecto) NAME
MEMBER_OF  now      WHO (?:{_BE}|{_HAVE}been|was) (?:an? )?(?:\w+ )?member of WORDS
MEMBER_OF  now      WHO (?:plays?|volunteers?) (?:for|at|with) (?!(?:fun|free|money|hours)\b)WORDS
MEMBER_OF  now      WHO (?:plays?|sings?|{_BE}) [\w ]{{0,20}}in (?:an?|the) (?:band|choir|orchestra|team
                    |club) (?:called |named )?NAME
MEMBER_OF  now      WHO (?:spielt|spiele|singt|singe|bin|ist) (?:[^,.;]{{1,20}} )?in (?:einer|einem|der
                    |dem) (?:band|chor|orchester|verein) (?:namens )?NAME
MEMBER_OF  now      WHO (?:toco|toca|canto|canta) [\w ]{{0,20}}en (?:una|un|la|el) (?:banda|coro|orquesta
                    |grupo) (?:llamad[oa] )?NAME
MEMBER_OF  now      WHO (?:juego|juega) (?:al? \w+ )?(?:en|con) NAME
MEMBER_OF  now      WHO (?:soy|es) voluntari[oa] en NAME
MEMBER_OF  now      WHO (?:helfe|hilft|arbeite|arbeitet) [\w ]{{0,20}}ehrenamtlich (?:im|in der|beim|bei) NAME
MEMBER_OF  now      WHO (?:ist|bin|sind) mitglied (?:im|in der|beim|bei|von) WORDS
MEMBER_OF  now      WHO (?:es|soy|son) (?:miembro|socia|socio) (?:del|de la|de) WORDS
STUDIES_AT now      WHO attends? NAME
STUDIES_AT now      WHO (?:stud(?:y|ies)|{_BE} (?:studying|enrolled)|enrolled) at NAME
STUDIES_AT began    WHO {_HAVE}?(?:graduated from|enrolled at) NAME
STUDIES_AT now      WHO (?:studies|study|{_BE} studying) [\w ]{{3,30}} at NAME
STUDIES_AT now      WHO (?:studiert|studiere) (?:[^,.;]{{1,30}} )?an NAME
STUDIES_AT now      WHO (?:estudia|estudio|estudian) (?:[^,.;]{{1,30}} )?en NAME
BORN_IN    now      WHO (?:was|were) born in NAME
BORN_IN    now      WHO (?:wurde|bin|ist) in NAME geboren
BORN_IN    now      WHO (?:nació|nací) en NAME
COMES_FROM now      WHO (?:comes?|came|{_BE}|hails?) from NAME
COMES_FROM now      WHO (?:grew up in|creció en|crecí en) NAME
COMES_FROM now      WHO (?:kommt|komme|stammt|stamme) aus NAME
COMES_FROM now      WHO (?:viene|es|soy|proviene) de NAME
LOCATED_IN now      WHO (?:{_BE}|was) (?:located|situated|headquartered) (?:in|at) NAME
LOCATED_IN now      WHO (?:liegt|befindet sich|está situad[oa]|se encuentra) (?:in|en) NAME
VISITED    began    WHO {_HAVE}?(?:visited|travelled to|traveled to|flew to) NAME
SPEAKS     now      WHO (?:speaks?|spricht|spreche|habla|hablan|hablo) WORDS
ALLERGIC_TO now     WHO (?:{_BE}|was) allergic to WORDS
ALLERGIC_TO now     WHO (?:ist|bin|sind) gegen WORDS allergisch
ALLERGIC_TO now     WHO (?:ist|bin|sind) allergisch gegen WORDS
ALLERGIC_TO now     WHO (?:es|soy|son) alérgic[oa]s? al? WORDS
DISLIKES   now      WHO (?:hates?|dislikes?|detests?|can(?:no|['’])t stand|hasst|hasse|odia|odio
                    |detesta) WORDS
LIKES      now      WHO (?:likes?|loves?|enjoys?|adores?|prefers?|{_BE} (?:into|fond of|crazy about
                    |a (?:big |huge )?fan of)) WORDS
LIKES      now      WHO (?:mag|mögen|liebt|liebe) WORDS
LIKES      now      ^a WHOM les? (?:gustan?|encantan?) WORDS
LIKES      now      WHO (?:me|nos) (?:gustan?|encantan?) WORDS
OWNS       ended    WHO {_HAVE}?(?:sold|gave away|hat verkauft|vendió) WORDS
OWNS       ended    WHO (?:vendí|vendimos|{_HA} vendido) WORDS
OWNS       ended    WHO (?:hat|habe|haben) WORDS verkauft
OWNS       now      WHO {_HAVE}?(?:owns?|owned|bought|purchased|inherited|adopted|besitzt|besitze) WORDS
OWNS       now      WHO (?:has|have|got|hat|habe|haben|tengo|tiene|tenemos|adopt(?:ó|é|amos)
                    |{_HA} adoptado) (?:an?|another|two|three|four
                    |eine?n?|zwei|drei|una?|dos|tres) (?:[\w-]+ )?(?:PET)s?(?:,| called| named| namens
                    | llamad[oa]s?|,? (?:que |y )?se llaman?) NAME
OWNS       began    WHO (?:named|called) (?:my|our|his|her|the) (?:new )?(?:PET) NAME
OWNS       now      WHO (?:has|have|got) (?:an?|two|three|four) (?P<p>(?:[\w-]+ ){{0,2}}?(?:{_OWNED})s?)\b
OWNS       now      WHO (?:hat|habe|haben) (?:eine?n?|zwei
                    |drei) (?P<p>(?:\w+ )?(?:{_BESESSEN})e?n?(?: namens {MARK})?)
OWNS       began    WHO (?:hat|habe|haben) WORDS gekauft
OWNS       now      WHO (?:compró|compré|compramos|posee) (?:un|una|dos|tres) WORDS
OWNS       now      WHO (?:tiene|tengo|tenemos) (?:un|una|dos
                    |tres) (?P<p>(?:{_POSEIDO})s?(?: [\w-]+)?)(?= (?:de|con|en|que|muy)\b|[.,;!]|$)
PLAYS      now      WHO plays? the WORDS
PLAYS      now      WHO (?:toca (?:el|la)|spielt) WORDS
HAS_ROLE   now      WHO (?:works?|{_BE} working) as an? WORDS
"""

STATUS: Final = re.compile(
    rf"^(?:(?P<d>the|our|my|der|die|das|unser\w*|el|la|los|las) )?(?P<sp>{MARK}"
    rf"|(?<= )(?:[\w-]+)(?: [\w-]+){{0,2}}?) "
    r"(?:is|are|was set to|ist|sind|está|están) (?P<p>on hold|cancel+ed|done|finished|completed?"
    r"|blocked|delayed|approved"
    r"|rejected|deprecated|closed|live|in progress|in review|paused|archived|overdue|abandoned|shipped"
    r"|unavailable"
    r"|retired|pausiert|fertig|abgeschlossen|abgesagt|blockiert|genehmigt|abgelehnt|archiviert|überfällig"
    r"|en pausa|terminad[oa]|cancelad[oa]|bloquead[oa]|aprobad[oa]|rechazad[oa]|archivad[oa])\b",
    re.IGNORECASE,
)

# --- who somebody is to somebody else -----------------------------------------------------------------------

_KIN = {
    "SISTER": "sister|schwester|hermana", "BROTHER": "brother|bruder|hermano",
    "MOTHER": "mother|mom|mum|mutter|mama|madre|mamá", "FATHER": "father|dad|vater|papa|padre|papá",
    "SON": "son|sohn|hijo", "DAUGHTER": "daughter|tochter|hija",
    "COUSIN": "cousin|cousine|primo|prima", "UNCLE": "uncle|onkel|tío", "AUNT": "aunt|tante|tía",
    "NIECE": "niece|nichte|sobrina", "NEPHEW": "nephew|neffe|sobrino",
    "GRANDMOTHER": "grandmother|grandma|großmutter|oma|abuela",
    "GRANDFATHER": "grandfather|grandpa|großvater|opa|abuelo",
    "SPOUSE": "wife|husband|frau|ehefrau|mann|ehemann|mujer|esposa|marido|esposo",
    "PARTNER": "partner|girlfriend|boyfriend|fiancée?|partnerin|verlobte|novia|novio|pareja",
    "FRIEND": "(?:best |good |old |close )?friend|(?:beste[rn]? )?freund(?:in)?|(?:mejor )?amig[oa]",
    "COLLEAGUE": "colleague|coworker|co-worker|teammate|kolleg(?:e|in)|colega|compañer[oa]",
    "NEIGHBOUR": "neighbou?r|nachbar(?:in)?|vecin[oa]",
    "ROOMMATE": "roommate|flatmate|housemate|mitbewohner(?:in)?|compañer[oa] de piso",
    "MANAGER": "manager|boss|supervisor|chefin|chef|vorgesetzter?|jef[ea]",
    "DOCTOR": "doctor|gp|arzt|ärztin|hausarzt|médic[oa]|doctora", "DENTIST": "dentist|zahnarzt|dentista",
    "THERAPIST": "therapist|therapeut(?:in)?|terapeuta", "LAWYER": "lawyer|anwalt|anwältin|abogad[oa]",
    "ACCOUNTANT": "accountant|steuerberater(?:in)?|contable", "LANDLORD": "landlord|landlady"
        "|vermieter(?:in)?|caser[oa]",
    "TEACHER": "teacher|lehrer(?:in)?|maestr[oa]|profesora?", "COACH": "coach|trainer(?:in)?|entrenadora?",
    "MENTOR": "mentor(?:in)?|mentora", "ASSISTANT": "assistant|assistent(?:in)?|asistente",
    "PET": "dog|cat|puppy|kitten|guinea pig|hamster|rabbit|parrot|horse|pony|turtle|hund|katzen?|kater"
           "|kaninchen|pferd|perr(?:it)?[oa]"
           "|gat(?:it)?[oa]|caballo|conejo|loro|tortuga|hámster",
}  # fmt: skip
KIN: Final = {word: re.compile(pattern, re.IGNORECASE) for word, pattern in _KIN.items()}
_KIN_WORD = "|".join(_KIN.values())
IS_KIN: Final = re.compile(_KIN_WORD, re.IGNORECASE)

_ROLES = {
    "CEO": "ceo|chief executive(?: officer)?", "CTO": "cto", "CFO": "cfo|coo",
    "PRESIDENT": "president|präsident(?:in)?|president[ea]",
    "DIRECTOR": "director|managing director|direktor(?:in)?|geschäftsführer(?:in)?|directora",
    "HEAD": "head|leiter(?:in)?", "CHAIR": "chair|chair(?:man|woman|person)|vorsitzende[rn]?|presidenta",
    "FOUNDER": "founder|co-founder|gründer(?:in)?|fundadora?", "MAYOR": "mayor|bürgermeister(?:in)?"
        "|alcalde|alcaldesa",
    "BOSS": "boss|chef(?:in)?|jef[ea]", "MANAGER": "(?:project |product |office |store )?manager|gerente",
    "CAPTAIN": "captain|kapitän(?:in)?|capitana?", "COACH": "coach|trainer(?:in)?|entrenadora?",
    "LEAD": "(?:tech(?:nical)? |team )lead|team leader|teamleiter(?:in)?|jef[ea] de(?:l)? (?:equipo"
            "|taller|proyecto)",
    "OWNER": "product owner|owner", "TREASURER": "treasurer|kassenwart(?:in)?|tesorer[oa]",
    "EDITOR": "editor|redakteur(?:in)?|editora", "PRINCIPAL": "principal|rektor(?:in)?",
    "SECRETARY": "secretary|sekretär(?:in)?|secretari[oa]",
    "WORKER": "nurse|(?:software |data |civil )?engineer|arzt|ärztin|doctor|teacher|architect|lawyer"
              "|designer|developer|chef|pilot|ingenieur(?:in)?|architekt(?:in)?"
              "|krankenschwester|ingenier[oa]|arquitect[oa]|enfermer[oa]"
              "|baker|banker|barista|carpenter|cashier|cook|counsell?or|electrician|journalist|lecturer"
              "|librarian|mechanic|paramedic|pharmacist|plumber|professor|researcher|scientist"
              "|social worker|therapist|waiter|waitress"
              "|(?:bäcker|bibliothekar|elektriker|erzieher|forscher|journalist|kellner|krankenpfleger"
              "|lehrer|mechaniker|pfleger|tischler|verkäufer)(?:in)?|koch|köchin"
              "|abogad[oa]|camarer[oa]|cociner[oa]|contable|electricista|investigadora?|maestr[oa]"
              "|mecánic[oa]|médic[oa]|panader[oa]|periodista|profesora?",
}  # fmt: skip
ROLES: Final = {word: re.compile(pattern, re.IGNORECASE) for word, pattern in _ROLES.items()}
ROLE: Final = "|".join(_ROLES[name] for name in sorted(_ROLES, key=lambda one: one != "LEAD"))

_MY = rf"(?P<mine>my|our|mein(?:e[rn]?)?|unser(?:e[rn]?)?|mi|nuestr[oa])|(?P<of>{MARK})['’]s"
_NEW = r"(?:(?:new|older|younger|big|little|old|neue[rn]?|ältere[rn]?|jüngere[rn]?|nuev[oa]) )?"
OF_SOMEBODY: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?:{_MY}) {_NEW}(?P<kin>{_KIN_WORD})(?P<apposed>,? )(?P<n>{MARK})(?:,(?= ))?",
        (
            rf"(?:{_MY}) {_NEW}(?P<kin>{_KIN_WORD})(?:['’]s name)? (?:is|is called|is named|heißt|ist|es"
            rf"|se llama) (?P<n>{MARK})"
        ),
        rf"(?P<n>{MARK}) (?:is|ist|es) (?:{_MY}) {_NEW}(?P<kin>{_KIN_WORD})\b",
        (
            rf"\b(?:el|la|der|die|das|the) (?P<kin>{_KIN_WORD}) (?:de|von|of) (?P<of>{MARK}) (?:es|se llama"
            rf"|heißt|ist|is) (?P<n>{MARK})"
        ),
        rf"(?P<n>{MARK}), (?:{_MY}) {_NEW}(?P<kin>{_KIN_WORD})(?P<apposed>,)",
    )
)
"""Who somebody is to the one who speaks, or to somebody else: "my sister Ellen", "Tom's wife is Rosa"."""

_THE = r"(?P<the>the|der|die|el|la|our|unser\w*|nuestr[oa])"
_OF_ORG = r"(?: (?:of|at|for|von|bei|del|de|der|des) " + _DET + r"(?:(?:firma|company|empresa|compañía) )?"
_AT = rf"{_OF_ORG}(?P<org>{MARK}|[\w-]+))?"
OF_A_ROLE: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?P<n>{MARK}), (?:(?:{_THE}|an?|eine?|una?) )?(?P<role>{ROLE}){_AT}(?P<apposed>,(?= )|$|\.$)",
        (
            rf"(?:^|, )(?P<n>{MARK}) (?:is|became|was|(?P<was>ex-)|ist|wurde|es"
            rf"|fue nombrad[oa]) (?:(?:{_THE}|an?|eine?|una?) )?"
            rf"{_NEW}(?P<role>{ROLE}){_AT}(?=[ ,.;!]|$)"
        ),
        rf"\b{_THE} {_NEW}(?P<role>{ROLE}){_AT} (?:is|ist|es|is called|heißt|se llama) (?P<n>{MARK})",
        rf"(?P<n>{MARK}) \((?P<role>{ROLE})(?P<the>){_AT}(?P<apposed>)\)",
        rf"(?P<org>{MARK})['’]s {_NEW}(?P<role>{ROLE})(?P<the>) (?:is|ist) (?P<n>{MARK})",
        rf"^ist (?P<n>{MARK}) {_THE} {_NEW}(?P<role>{ROLE}){_AT}(?=[ ,.;!]|$)",
        (
            rf"(?P<n>{MARK}) (?:replaced {MARK}"
            rf"|took over(?: from {MARK})?) as (?:the )?(?P<role>{ROLE})(?P<the>){_AT}"
        ),
        rf"(?P<n>{MARK}) (?:was|got|has been) promoted to (?P<role>{ROLE})(?P<the>){_AT}",
    )
)
"""What somebody is by trade or in an organisation: "Ana, CEO of Acme", "the tech lead is Lena"."""

# --- words that take what is said back ----------------------------------------------------------------------

HEDGES: Final = re.compile(
    r"(?<![\w'’-])(?:if|unless|whether|suppos\w+|would|could|might|should|must|may(?= (?:be|have|not"
    r"|[a-z]+)\b)|maybe|perhaps"
    r"|possibly|probably|likely|apparently|allegedly|reportedly|rumou?rs?|heard|hears?(?= that)|seems?"
    r"|seemed|guess|doubts?"
    r"|(?:they|people|some|somebody|someone|everybody) sa(?:y|ys|id)|supposedly|unclear|unsure|not sure"
    r"|wonders?|thinks?"
    r"|thought|believes?|imagines?|wish(?:es|ed)?|wants?|wanted|wanna|hop(?:es?|ed|ing)|dreams?|dreamt"
    r"|dreaming"
    r"|plans?(?= to)|plan(?:ning|ned)?(?= (?:to|on|for))|intends?|considers?|considering|going to|gonna"
    r"|will|shall|tr(?:y|ies|ied|ying) to"
    r"|tempted|almost|nearly(?= \w+ed)|asked|asks|pretends?|need(?:s|ed)? to|ought|let['’]?s|love to"
    r"|like to|thinking|I['’]ll"
    r"|you|your"
    r"|wenn|falls|ob|vielleicht|eventuell|womöglich|möglicherweise|wahrscheinlich|vermutlich|angeblich"
    r"|anscheinend|offenbar"
    r"|scheinbar|gerüchte?|gehört(?=, dass| dass)|man sagt|es heißt|soll|sollen|sollten?|könnten?"
    r"|würden?|wäre[nt]?|hätten?"
    r"|möchten?|wollen|wollten?|träum\w*|hoff\w*|wünsch\w*|plan(?:t|en)(?= )|glaub\w*|dürften?"
    r"|überleg\w*|sagte?"
    r"|si|quizás?|tal vez|a lo mejor|puede que|podr[ií]a\w*|posiblemente|probablemente|al parecer|dicen"
    r"|dice que|se dice|según"
    r"|supuestamente|presuntamente|rumor\w*|oí|he oído|quier\w+|quisiera\w*|gustaría\w*|ojalá"
    r"|esper[ao]\w*|dese\w+|sueñ\w+"
    r"|planea\w*|piensa\w*|v(?:a|oy|amos|an) a|cre[eo]\w{0,2}|parece\w*|hay que|debe\w*|tendría\w*"
    r"|intenta\w*)(?![\w'’])",
    re.IGNORECASE,
)
FIRST_PERSON: Final = re.compile(rf"^(?:{'|'.join(SPANISH_I)}|me|nos|he|hemos)\b", re.IGNORECASE)
VERBS: Final = "|".join(SPANISH_I) + (
    r"|lives?|works?|moved|joined|owns?|uses?|likes|loves|hates|speaks?|plays?|reports?|is|are|was"
    r"|has|have|leads?|manages?|left"
    r"|quit|bought|sold|studies|studied|comes|wohn(?:t|en|e)|leb(?:t|e)|arbeite[tn]?|mag|spricht|nutzt"
    r"|ist|hat|leitet|zog|kommt"
    r"|viven?|trabajan?|usan?|habla|tiene|es|está|dirige|viene|se|le"
)


@dataclass(frozen=True, slots=True)
class Frame:
    """A pattern, the relation that it states, and whether that holds, began, is over, or replaces another."""

    type: str
    mood: str
    pattern: re.Pattern[str]


@cache
def frames() -> tuple[Frame, ...]:
    """Return all patterns in the order in which they are tried."""
    whole = re.sub(r"\n +", "", _TEMPLATES)  # a line that begins with spaces goes on with the one before
    lines = (line.split(maxsplit=2) for line in whole.strip().splitlines())
    return tuple(
        Frame(type_, mood, re.compile(_expanded(template), re.IGNORECASE)) for type_, mood, template in lines
    )


def _expanded(template: str) -> str:
    parts = {**_PARTS, "TRADE": _ROLES["WORKER"], "PET": _KIN["PET"]}
    return re.sub("|".join(parts), lambda found: parts[found[0]], template)
