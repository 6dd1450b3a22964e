"""What is masked, how, and what is left alone."""

from typing import Any

import pytest

from composable_memory_ops_logs import redact, redact_value
from composable_memory_ops_logs.redaction import CleanTexts, is_secret_name

BODY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ"
KEY_LINES = f"-----BEGIN RSA PRIVATE KEY-----\n{BODY}\n{BODY}\nQ==\n-----END RSA PRIVATE KEY-----"

MASKED = [
    # what a secret is called
    ("OPENAI_API_KEY=sk-abcdefghijklmnopqrstuv", "OPENAI_API_KEY=sk-abc…stuv"),
    ("password: hunter2", "password: ***"),
    ("Password=hunter2;Server=db", "Password=***;Server=db"),
    ("PGPASSWORD=hunter2 psql", "PGPASSWORD=*** psql"),
    ("DB_PASSWD: hunter2", "DB_PASSWD: ***"),
    ("my passphrase: correct-horse", "my passphrase: ***"),
    ("api-key: abc", "api-key: ***"),
    ("X-Api-Key: abc", "X-Api-Key: ***"),
    ("apikey=abc", "apikey=***"),
    ("API key: abc", "API key: ***"),
    ("accessToken=abc&x=1", "accessToken=***&x=1"),
    ("refresh_token => abc", "refresh_token => ***"),
    ("client_secret := abc", "client_secret := ***"),
    ("clientSecret: abc", "clientSecret: ***"),
    ("SECRET_KEY_BASE=abc", "SECRET_KEY_BASE=***"),
    ("TOKEN_2=abc", "TOKEN_2=***"),
    ("token: abc, then more", "token: ***, then more"),
    ("(secret=abc)", "(secret=***)"),
    ("**Password:** hunter2", "**Password:** ***"),
    ("**Password**: `hunter2`", "**Password**: `***`"),
    ('{"apiKey": "abc", "x": 1}', '{"apiKey": "***", "x": 1}'),
    ('{"password":"two words"}', '{"password":"***"}'),
    (r'{"password":"a\"b"}', '{"password":"***"}'),
    (r"{\"password\":\"hunter2\"}", r"{\"password\":\"***\"}"),
    ('password: "cut off by the limit', 'password: "cut of…imit'),
    ("""env['API_TOKEN'] = "it's me" """, """env['API_TOKEN'] = "***" """),
    ('key: "the password: hunter2"', 'key: "the password: ***"'),
    ("password=" + "x" * 17, "password=***"),
    ("password=abcdef" + "x" * 8 + "wxyz", "password=abcdef…wxyz"),
    ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "AWS_SECRET_ACCESS_KEY=wJalrX…EKEY"),
    ("Secret Access Key: wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "Secret Access Key: wJalrX…EKEY"),
    ("key: aB3dE6gH9jK2mN5pQ8", "key: aB3dE6…5pQ8"),
    ("TOKEN_GITHUB=aB3dE6gH9jK2mN5pQ8", "TOKEN_GITHUB=aB3dE6…5pQ8"),
    ("key = 0123456789abcdef0123456789abcdef", "key = 012345…cdef"),
    # flags
    ("run --api-key abc --user bob", "run --api-key *** --user bob"),
    ("run --apikey=abc", "run --apikey=***"),
    ("run --api_key 'abc'", "run --api_key '***'"),
    ("run --token abc", "run --token ***"),
    ("run --client-secret abc", "run --client-secret ***"),
    ("run --db-password abc", "run --db-password ***"),
    ("run --passwd abc", "run --passwd ***"),
    # headers and addresses
    ("Authorization: Bearer abc", "Authorization: Bearer ***"),
    ("authorization: Basic dXNlcjpwYXNz", "authorization: Basic ***"),
    ('{"Authorization": "token abc"}', '{"Authorization": "token ***"}'),
    ("-H 'Authorization: Bearer abcdefghijklmnopqrstuvwxyz'", "-H 'Authorization: Bearer abcdef…wxyz'"),
    ("send Bearer abcdefghijklmnopqrstuvwxyz", "send Bearer abcdef…wxyz"),
    ("postgres://user:hunter2@db:5432/x", "postgres://user:***@db:5432/x"),
    ("postgres://user:p@ss@db/x", "postgres://user:***@db/x"),
    ("redis://:hunter2@db", "redis://:***@db"),
    (
        "https://x-access-token:ghs_abcdefghijklmnopqrstuvwxyz@github.com/o/r",
        "https://x-access-token:ghs_ab…wxyz@github.com/o/r",
    ),
    # what a secret looks like
    ("sk-abc12345", "***"),
    ("sk-proj-abcdefghijklmnopqrst", "sk-pro…qrst"),
    ("sk-ant-api03-abcdefghijklmnop", "sk-ant…mnop"),
    ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "ghp_ab…6789"),
    ("gho_abcdefghijklmnopqrstuvwxyz0123456789", "gho_ab…6789"),
    ("ghu_abcdefghijklmnopqrstuvwxyz0123456789", "ghu_ab…6789"),
    ("ghs_abcdefghijklmnopqrstuvwxyz0123456789", "ghs_ab…6789"),
    ("ghr_abcdefghijklmnopqrstuvwxyz0123456789", "ghr_ab…6789"),
    ("github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz", "github…wxyz"),
    ("glpat-abcdefghijklmnopqrst", "glpat-…qrst"),
    ("xoxb-123456789012-abcdefghijkl", "xoxb-1…ijkl"),
    ("xoxe.xoxp-1-abcdefghijkl", "xoxe.xoxp-1…ijkl"),
    ("xapp-1-A0123456789-abcdef", "xapp-1…cdef"),
    ("AIzaSyA-abcdefghijklmnopqrstuvwxyz012345", "AIzaSy…2345"),
    ("AKIAIOSFODNN7EXAMPLE", "AKIAIO…MPLE"),
    ("ASIAIOSFODNN7EXAMPLE", "ASIAIO…MPLE"),
    ("sk_live_abcdefghijklmnop", "sk_liv…mnop"),
    ("rk_live_abcdefghijklmnop", "rk_liv…mnop"),
    ("npm_abcdefghijklmnopqrstuvwxyz0123456789", "npm_ab…6789"),
    ("pypi-AgEIcHlwaS5vcmcCJDAwMDAwMDAwLTAwMDAt", "pypi-A…MDAt"),
    ("hf_abcdefghijklmnopqrstuvwxyzABCDEFGH", "hf_abc…EFGH"),
    ("gsk_abcdefghijklmnopqrstuvwxyz", "gsk_ab…wxyz"),
    ("pplx-abcdefghijklmnopqrstuvwxyz", "pplx-a…wxyz"),
    ("SG.abcdefghijklmnopqrstuv.abcdefghijklmnopqrstuvwxyz", "SG.abc…wxyz"),
    ("123456789:AAFabcdefghijklmnopqrstuvwxyz12345", "123456…2345"),
    ("/bot123456789:AAFabcdefghijklmnopqrstuvwxyz12345/getMe", "/bot123456…2345/getMe"),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N", "eyJhbG…0w5N"),
    ("see ghp_abcdefghijklmnopqrst, and xoxb-1234567890", "see ghp_ab…qrst, and ***"),
    # private keys
    (KEY_LINES, "-----BEGIN RSA PRIVATE KEY-----\n…redacted…\n-----END RSA PRIVATE KEY-----"),
    (KEY_LINES.replace("\n", " "), "***"),
    ('{"private_key": "' + KEY_LINES.replace("\n", "\\n") + '"}', '{"private_key": "***"}'),
    (KEY_LINES[:120], "-----BEGIN RSA PRIVATE KEY-----\n…redacted…"),
    (
        KEY_LINES.replace(
            f"\n{BODY}\n", f"\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n{BODY}\n", 1
        ),
        "-----BEGIN RSA PRIVATE KEY-----\n…redacted…\n-----END RSA PRIVATE KEY-----",
    ),
    (
        KEY_LINES.replace("RSA PRIVATE KEY", "PGP PRIVATE KEY BLOCK"),
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\n…redacted…\n-----END PGP PRIVATE KEY BLOCK-----",
    ),
]

LEFT_ALONE = [
    "",
    "monkey: banana",
    "turkey=roast",
    "keyboard: qwerty",
    "Key: C major",
    "key: user:12:profile",
    "tokens: 4096",
    "max_tokens=4096",
    "token_limit: 4000",
    "passwords: see the vault",
    "secretary: Anna",
    "the secret of life",
    "public_key=ssh-ed25519",
    "publicKey: abc",
    "foreign_key: user_id",
    "primaryKey: id",
    "sessionKey: agent:main:main",
    "api_key: str | None = None",
    "password: null",
    "token=${TOKEN}",
    "password: {{ vault }}",
    "secret = <your secret>",
    "if token == other:",
    "Token::new()",
    "token://abc",
    "password=",
    'password=""',
    "Basic authorization is simple",
    "the bearer of good news",
    "sk-SK and sk-learn",
    "task-management-2024 disk-encryption-2024 risk-assessment-2024",
    "memory/2026-01-05-sk-chase-dot.md",
    "npm_config_registry hf_hub_download_files",
    "pplx-70b-online pypi-attestations-and-signatures",
    "Asia and AKIA",
    "http://localhost:8080/@user",
    "https://example.com/a?b=c and me@example.com",
    "2026-01-01T10:00:00Z",
    "graphiti/4f1c7a9e-1111-4222-8333-444455556666",
    "-----BEGIN PUBLIC KEY-----\n" + BODY,
    "it begins with -----BEGIN PRIVATE KEY----- and then the body",
    "--token",
    "--token --verbose",
    "私たちの鍵: とても大事",
]


@pytest.mark.parametrize(("text", "expected"), MASKED)
def test_secrets_are_masked(text: str, expected: str) -> None:
    assert redact(text) == expected


@pytest.mark.parametrize("text", LEFT_ALONE)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("text", [text for text, _ in MASKED])
def test_masking_twice_is_masking_once(text: str) -> None:
    assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize(("text", "expected"), MASKED)
def test_secrets_are_found_in_the_middle_of_a_text(text: str, expected: str) -> None:
    if not text.startswith('password: "cut'):  # it has no end
        assert redact(f"Mia wrote:\n{text}\nand left.") == f"Mia wrote:\n{expected}\nand left."


@pytest.mark.parametrize(
    "name", ["token", "OPENAI_API_KEY", "api-key", "accessToken", "client_secret", "dbPassword", "PASSWD"]
)
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["", "key", "monkey", "keyboard", "tokens", "tokenCount", "session_key", "publicKey"]
)
def test_other_names_are_not(name: str) -> None:
    assert not is_secret_name(name)


def test_data_is_walked_and_named_secrets_are_masked_whole() -> None:
    data: dict[str, Any] = {
        "api_key": "two words",
        "note": "password: hunter2",
        "list": ["ghp_abcdefghijklmnopqrst", 1, None, True],
        "deep": {"token": "abc", "count": 3, "key": "C major"},
    }

    assert redact_value(data) == {
        "api_key": "***",
        "note": "password: ***",
        "list": ["ghp_ab…qrst", 1, None, True],
        "deep": {"token": "***", "count": 3, "key": "C major"},
    }


def test_a_private_key_under_its_name_keeps_its_first_and_last_line() -> None:
    masked = redact_value({"private_key": KEY_LINES})

    assert masked == {
        "private_key": "-----BEGIN RSA PRIVATE KEY-----\n…redacted…\n-----END RSA PRIVATE KEY-----"
    }


def test_clean_texts_covers_what_redact_would_not_change() -> None:
    clean = CleanTexts()

    assert clean.covers(LEFT_ALONE)
    assert clean.covers(LEFT_ALONE)
    assert not clean.covers([*LEFT_ALONE, "password: hunter2"])
    assert not clean.covers(["password: hunter2"])


def test_clean_texts_forgets_instead_of_growing() -> None:
    clean = CleanTexts(capacity=2)

    assert all(clean.covers([f"text {number}"]) for number in range(10))
    assert len(clean._known) <= 2


HOSTILE = [
    *("key=", "key=)", 'api_key="', "token: ", "-----BEGIN PRIVATE KEY-----", "eyJ", "eyJ-", "eyJaaaaaaaa."),
    *("://a:", " sk-", "--a-", "--token ", "a-a_", "a_token_b", "SG.aaaaaaaaaa", "bearer ", "123456:AA"),
    *(
        "password='\\",
        "Aa1",
        "secret\\\\\\",
        "token_token_",
        "passwd:,,,,,,",
        "):",
        "-----BEGIN PRIVATE KEY-----\nAAAA",
    ),
]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("piece", HOSTILE)
def test_long_hostile_texts_come_to_an_end(piece: str) -> None:
    """Anything worse than linear would take hours on these."""
    every_hint = "\npassword=hunter2 @ :// -- eyj sk- -----begin bearer authorization: :aa sg. ghp_ xox"

    assert "hunter2" not in redact(piece * (300_000 // len(piece)) + every_hint)
