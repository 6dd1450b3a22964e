"""Names of secrets, what is said about secrets without revealing them, and similar harmless names.

All words are in lower case: they are looked up in the simplified text.
"""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FAR_NAMES = tuple(
    word.replace("_", " ")
    for word in (
        "密码 密碼 口令 pin码 pin碼 密钥 密鑰"
        " 私钥 私鑰 令牌 访问令牌 秘钥 パスワード パスフレーズ トークン 秘密鍵 シークレット"
        " apiキー 暗証番号 合言葉"
        " 비밀번호 비번 패스워드 암호 토큰 비밀키 시크릿 api키 كلمة_المرور كلمة_مرور كلمة_السر الرمز_السري"
        " الرمز رمز_الدخول رمز_المرور"
        " رمز_التحقق المفتاح_السري المفتاح التوكن 验证码 驗證碼 認証コード 인증번호"
        " סיסמה รหัสผ่าน κωδικός"
    ).split()
)
"""Names in languages that do not separate words by spaces, or have no capitals."""

KEYS_ABROAD = _words("clave jeton schlüssel api-schlüssel chiave chave clé")

KEY_QUALIFIERS = _words(
    """
    access account acl admin api app application auth authorization bearer bot client consumer crypt
    deploy deployment dsn genie encryption hmac integration jwt license live master oauth personal
    private privkey prod production project recovery refresh root salt secret secure security service
    shared signing ssh staging storage subscription test user wallet webhook write
    """
)
"""Before `key`, `token` or `secret`: these make it a secret, whatever the value looks like."""

HARMLESS_QUALIFIERS = _words(
    """
    alt answer any arrow artifact bos bucket cache candidate chart columns composite continuation count
    ctrl cursor data dedup dedupe delete dict discriminator eos enter entry escape event every fallback
    feature field fill first foreign from function group hash header hot idempotency index input item
    join json lang last legend locale lookup major map mask max memo message metadata metric min minor
    natural next node num object open order other output pad page parent partition path pin place
    placeholder prefix primary prompt property public pub queue range react record row routing s3 same
    schema search separator sequence settings shard shift sort space special state stop storage_cache
    str suffix super surrogate sync tab template test_case text toggle total tracking translation tree
    trigger typed unique unk unlock variable vocab which word words
    """
)
"""Before `key`, `token` or `secret`: then the name is harmless."""

HARMLESS_ENDINGS = _words(
    """
    algorithm age alias arn auth_method bits budget changed charset class code codes confirm
    confirmation cost count counts created date default description digest dir directory encoding
    endpoint error errors exists expired expires expiration expiry field fields file filename folder
    format generator guard handler hash hasher header help hint id ids index info input invalid issuer kind
    label last_four len length lengths level limit limits link list locked location manager map max mask
    masked metadata method min minimum missing mode name names needed never nonce now number object ok
    only ops page parser param params path pattern per phrase_count placeholder plain policy position prefix
    price prompt provider ref reference refs regex renewed required requirement requirements reset
    resource result role rotated rotation rule rules scope scopes selector set size sizes source
    splitter state status store strategy strength style suffix table template text times ttl type types
    updated uri url usage user username users validator validation valid vault version visible window
    """
)
"""After a name, joined to it: `token_type`, `password_policy`, `keyFile`."""

PLACEHOLDERS = _words(
    """
    none null nil true false undefined str string bytes bool boolean int integer number secretstr
    required optional any text varchar char redacted masked hidden removed n/a na tbd todo empty unset
    missing unknown default changeme disabled enabled yes no on off void object self function lambda
    const let var new await continue return break raise yield password passwd pass secret token key apikey
    api_key value float double struct type
    """
)

PREDICATES = _words(
    """
    a about again all almost already also always an and any are as asks at auto available back bad be
    because been before being best between blank both broken but by can cannot case-sensitive clear
    cleartext complex compromised confidential correct could current default dead different does done
    due each easy eight either empty encoding enough enter entered even exactly expires expiry fine
    first five for forever four free from generated given gone good half hard has have her here hers
    hidden his history how if important in incorrect inside into invalid irrelevant is it its just kept
    key known last lost long longer made managed managers mandatory matched may me mine minimum minutes
    missing more most much must my necessary needs never new next nine no none nobody nor not nothing
    now null obsolete obvious of off often ok okay old on once one only open opaque optional or our out
    over overdue part per permanent plain plaintext please policy possible printed private probably
    public put quite random rather read really required reset right rotated roughly safe same saved
    saves secret secure see seen sensitive sent separate set seven several shared short should show
    shown shows simple six so some something somewhere soon stale still stored strong such supposed sure
    taken ten temporary tested than that the their them then there these they this those three to too
    twelve two typed typically under unique unknown unsafe unset until up updated upper use used useful
    user usually valid very via visible was weak welcome well were what when where which while who why
    will with within without would written wrong yes yet you your yours zero
    erforderlich obligatorisch notwendig ungültig vergessen unbekannt geändert siehe case
    obligatorio requerida requerido necesaria inválida obrigatório necessária inválido requise
    nécessaire oublié     obbligatorio richiesta necessaria vedi voir ver auch auf aus bei
    bekannt das dass dein der die ein eine einem einen falsch für gesetzt geheim im immer ist kein mein
    mit muss nicht noch nur oder ohne richtig sicher sie und unser veraltet vom von war wird zu zum zur
    algo al como con correcta de del demasiado el en era esa ese esta este fue incorrecta la las lo los
    mi muy nueva obligatoria para pero por que se secreta segura ser si sin su también tu un una vieja y
    ya ce ces cette dans des du elle est et être faux il le les mais mauvais mon non notre obligatoire
    ou par pas pour qui requis sa ses son sur ton trop très une votre ao com correta da deve do dos e
    ela ele em errada essa foi incorreta isso mas mesma muito na não nova o obrigatória os pela sem sua
    também tem uma che chi cui della di è errata gli i inserire ma nel nella obbligatoria più sbagliata
    scaduta sicura sono sulla troppo tua
    aangepast al alleen belangrijk bij deze dezelfde dit een eens fout geheim geldig geweigerd gewijzigd goed
    hetzelfde hier jouw juist kort kwijt lang leeg maar minstens naar niet nodig nog ongeldig onjuist op
    opgeslagen slecht te uit van vanaf veilig verkeerd verlopen verplicht vergeten voor waarschijnlijk
    zwak zijn
    """
)
"""Words more often said about a password than used as one."""

FUNCTION_WORDS = _words(
    """
    the and for how it is at to in of on with from was are but not or by as an be my your his her our
    their never keep write them down home paper stored safe somewhere each every words word twelve
    backup a i
    """
)
"""Common words of sentences, none of which occurs in seed phrases."""

CIPHERS = tuple("aes argon base bcrypt ecdsa ed erc hmac hs md oauth rs rsa sha utf".split())

VERBS = (
    "is now|is set to|was set to|has been changed to|has been set to|has been reset to|was changed to"
    "|was reset to|changed to|geändert auf|wurde auf|cambiada a|is|was|are|will be|set to|equals|es|es ahora"
    "|era|será|é|agora é|ist|ist jetzt|lautet|war"
    "|er|är|heißt|heisst|est|était|sera|c'est|è|è:|was:|remains|became"
)

CODES_AFTER = _words(
    """
    access activation admin alarm auth authentication backup bank card confirmation door emergency entry
    garage gate keypad lock login mfa onetime one-time otp parental passcode pin recovery safe scratch
    security sicherheits sms unlock vault verification voicemail 2fa two-factor 2-step wifi
    """
)
"""Before `code`: one that opens something."""
