"""What is masked, how, and what is left alone: the two tables say it case by case."""

import hashlib
import inspect
import random
import re
import uuid
from collections.abc import Iterable, Iterator
from re import _parser as re_parser  # type: ignore[attr-defined]  # the only way to see what a pattern repeats
from time import process_time
from typing import Any

import pytest

from composable_memory_ops_logs import redact, redact_value
from composable_memory_ops_logs.lazy import Pattern
from composable_memory_ops_logs.redaction import (
    addresses,
    assignments,
    command_secrets,
    numbers,
    prose,
    redactor,
    secret_names,
    secret_tables,
    secret_values,
    tokens,
)
from composable_memory_ops_logs.redaction.redactor import CleanTexts
from composable_memory_ops_logs.redaction.scanner import Rule
from composable_memory_ops_logs.redaction.secret_names import is_secret_name
from tests.unit.ops_logs.secret_corpora.reading import ordinary_lines, readable, secret_cases

MODULES = (
    *(redactor, addresses, assignments, command_secrets, secret_names, numbers),
    *(prose, secret_tables, tokens, secret_values),
)
BODY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ"
KEY_LINES = f"-----BEGIN RSA PRIVATE KEY-----\n{BODY}\n{BODY}\nQ==\n-----END RSA PRIVATE KEY-----"

MASKED: dict[str, list[tuple[str, str]]] = {
    "what a secret is called": [
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
        (
            r'{"kind": "Secret", "data": {"ca": "", "a": null, "b": "Elm\"Tree7", "dsn": "app/Kirsch7@db"}}',
            '{"kind": "Secret", "data": {"ca": "", "a": null, "b": "***", "dsn": "***"}}',
        ),
        ("SECRET_KEY_BASE=abc", "SECRET_KEY_BASE=***"),
        ("TOKEN_2=abc", "TOKEN_2=***"),
        ("token: abc12345, then more", "token: ***, then more"),
        ("(secret=abc)", "(secret=***)"),
        ("**Password:** hunter2", "**Password:** ***"),
        ("**Password**: `hunter2`", "**Password**: `***`"),
        ('{"apiKey": "abc", "x": 1}', '{"apiKey": "***", "x": 1}'),
        ('{"password":"two words"}', '{"password":"***"}'),
        (r'{"password":"a\"b"}', '{"password":"***"}'),
        (r"{\"password\":\"hunter2\"}", r"{\"password\":\"***\"}"),
        ('password: "horse battery sta', 'password: "***'),
        ("""env['API_TOKEN'] = "it's me" """, """env['API_TOKEN'] = "***" """),
        ('key: "the password: hunter2"', 'key: "the password: ***"'),
        ("password=" + "h" * 17, "password=***"),
        ("password=abcdef" + "x" * 8 + "wxyz", "password=***"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "AWS_SECRET_ACCESS_KEY=***"),
        ("Secret Access Key: wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "Secret Access Key: ***"),
        ("key: aB3dE6gH9jK2mN5pQ8", "key: ***"),
        ("my mail password's kolibri42, by the way", "my mail password's ***, by the way"),
        ("the password’s kolibri42", "the password’s ***"),
        ("Azure DevOps PAT: " + "a1b2c3d4e5f6g" * 4, "Azure DevOps PAT: ***"),
        ("AZURE_DEVOPS_EXT_PAT=" + "a1b2c3d4e5f6g" * 4, "AZURE_DEVOPS_EXT_PAT=***"),
        ("TOKEN_GITHUB=aB3dE6gH9jK2mN5pQ8", "TOKEN_GITHUB=***"),
        ("key = 0123456789abcdef0123456789abcdef", "key = ***"),
    ],
    "flags": [
        ("run --api-key abc --user bob", "run --api-key *** --user bob"),
        ("run --apikey=abc", "run --apikey=***"),
        ("run --api_key 'abc'", "run --api_key '***'"),
        ("run --token abc", "run --token ***"),
        ("run --client-secret abc", "run --client-secret ***"),
        ("run --db-password abc", "run --db-password ***"),
        ("run --passwd abc", "run --passwd ***"),
    ],
    "headers and addresses": [
        ("Authorization: Bearer abc", "Authorization: Bearer ***"),
        ("authorization: Basic dXNlcjpwYXNz", "authorization: Basic ***"),
        ('{"Authorization": "token abc"}', '{"Authorization": "token ***"}'),
        ("-H 'Authorization: Bearer abcdefghijklmnopqrstuvwxyz'", "-H 'Authorization: Bearer ***'"),
        ("send Bearer abcdefghijklmnopqrstuvwxyz", "send Bearer ***"),
        ("postgres://user:hunter2@db:5432/x", "postgres://user:***@db:5432/x"),
        ("postgres://user:p@ss@db/x", "postgres://user:***@db/x"),
        ("redis://:hunter2@db", "redis://:***@db"),
        (
            "https://x-access-token:ghs_abcdefghijklmnopqrstuvwxyz@github.com/o/r",
            "https://x-access-token:ghs_ab…wxyz@github.com/o/r",
        ),
    ],
    "what a secret looks like": [
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
        ("xoxe.xoxp-1-abcdefghijkl", "xoxe.***"),
        ("xapp-1-A0123456789-abcdef", "xapp-1…cdef"),
        ("AIzaSyA-abcdefghijklmnopqrstuvwxyz012345", "AIzaSy…2345"),
        ("AKIAIOSFODNN7EXAMPLE", "AKIAIO…MPLE"),
        ("AQ.Ab8RN6abcdefghijklmnopqrstuvwxyz01234", "AQ.Ab8…1234"),
        ("psk_aBcDeFgHiJkLmNoPqRsTuVwXyZ012345", "psk_aB…2345"),
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
    ],
    "private keys": [
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
    ],
    "what is said of one": [
        ("The password is hunter2", "The password is ***"),
        ("The password is hunter2.", "The password is ***."),
        ("the password is Swordfish", "the password is ***"),
        ("my password is swordfish.", "my password is ***."),
        ("my password: X", "my password: ***"),
        ('my password was "two words" once', 'my password was "***" once'),
        ("The password is now `hunter2`, ok", "The password is now `***`, ok"),
        ("the password for the wifi is hunter2", "the password for the wifi is ***"),
        ("password for the wifi: hunter2", "password for the wifi: ***"),
        ("The password to bob@example.com is: hunter2", "The password to bob@example.com is: ***"),
        ("I changed the password to hunter2 today", "I changed the password to *** today"),
        ("your passcode is 493021", "your passcode is ***"),
        ("The token is abc12345", "The token is ***"),
        ("My API key is 3f9a8c7b6d5e4f3a2b1c", "My API key is ***"),
        ("the API key for staging is `k9f8s7d6`", "the API key for staging is `***`"),
        (
            "my secret access key is wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "my secret access key is ***",
        ),
        (
            "aws configure set aws_secret_access_key wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "aws configure set aws_secret_access_key ***",
        ),
    ],
    "in other languages": [
        ("la contraseña es hunter2", "la contraseña es ***"),
        ("CONTRASEÑA: hunter2", "CONTRASEÑA: ***"),
        ("Contrasena: hunter2", "Contrasena: ***"),
        ("la clave es hunter2", "la clave es ***"),
        ("a senha é hunter2", "a senha é ***"),
        ("senha: hunter2", "senha: ***"),
        ("palavra-passe: hunter2", "palavra-passe: ***"),
        ("Passwort: hunter2", "Passwort: ***"),
        ("das Passwort lautet Sommer23", "das Passwort lautet ***"),
        ("Das Kennwort für den Router ist Sommer23!", "Das Kennwort für den Router ist ***"),
        ("mot de passe : hunter2", "mot de passe : ***"),
        ("le mot de passe est hunter2", "le mot de passe est ***"),
        ("MDP: hunter2", "MDP: ***"),
        ("密码：hunter2", "密码：***"),
        ("密码是hunter2", "密码是***"),
        ("密碼為 hunter2。", "密碼為 ***。"),
        ("口令=hunter2", "口令=***"),
        ("令牌: abc12345", "令牌: ***"),
        ("パスワードはhunter2です", "パスワードは***です"),
        ("パスワード：「hunter2」", "パスワード：「***」"),
        ("トークン: abc12345", "トークン: ***"),
        ("비밀번호는 hunter2 입니다", "비밀번호는 *** 입니다"),
        ("비밀번호: hunter2", "비밀번호: ***"),
        ("토큰은 abc12345입니다", "토큰은 ***입니다"),
        ("كلمة المرور: hunter2", "كلمة المرور: ***"),
        ("كلمة السر هي hunter2", "كلمة السر هي ***"),
        ("الرمز السري: hunter2", "الرمز السري: ***"),
        ("пароль: hunter2", "пароль: ***"),
        ("пароль — hunter2", "пароль — ***"),
        ("Het wachtwoord van de printer is Merel-4471.", "Het wachtwoord van de printer is ***."),
        ("Wachtwoord voor mijn laptop: Merel88!", "Wachtwoord voor mijn laptop: ***"),
        ("Hasło do routera w biurze to Zubr#2041.", "Hasło do routera w biurze to ***."),
        ("Das Passwort meiner Mailbox ist Dompfaff#31.", "Das Passwort meiner Mailbox ist ***."),
        ("Die PIN unserer Alarmanlage ist 7731.", "Die PIN unserer Alarmanlage ist ***."),
    ],
    "in a table": [
        ("| password | hunter2 |", "| password | *** |"),
        ("| **Password** | `hunter2` |", "| **Password** | `***` |"),
        ("| DB password | swordfish | prod |", "| DB password | *** | prod |"),
        ("| api key | k9f8s7d6 |", "| api key | *** |"),
    ],
    "on the next line": [
        ("password:\nhunter2", "password:\n***"),
        ("Password:\n\n    hunter2\nthen", "Password:\n\n    ***\nthen"),
        ("**Password:**\n`hunter2`", "**Password:**\n`***`"),
        ("the password:\n```\nhunter2\n```", "the password:\n```\n***\n```"),
        ("API key:\nk9f8s7d6", "API key:\n***"),
    ],
    "further names": [
        ("token for the staging API: k9f8s7d6", "token for the staging API: ***"),
        ("smtp_pass: hunter2", "smtp_pass: ***"),
        ("SMTP_PASS=hunter2", "SMTP_PASS=***"),
        ("Uid=sa;Pwd=hunter2;", "Uid=sa;Pwd=***;"),
        ("pwd: hunter2", "pwd: ***"),
        ("passphrase: correct horse battery staple", "passphrase: ***"),
        (
            "recovery phrase: legal winner thank year wave sausage worth useful legal winner thank yellow",
            "recovery phrase: ***",
        ),
        ("_authToken=abcdef", "_authToken=***"),
        ("passcode: 4711", "passcode: ***"),
    ],
    "words joined by dots": [
        ("user: bob pass: tr4ktor.grün", "user: bob pass: ***"),
        ("password: sommerregen.Dach42", "password: ***"),
        ("db:\n  password: lila.Kuh7", "db:\n  password: ***"),
        ("la contraseña es Perro.Verde8", "la contraseña es ***"),
    ],
    "a password that was changed": [
        ("changed the password from OldPass99! to NewPass7!", "changed the password from *** to ***"),
    ],
    "rows of codes": [
        ("backup codes: 4821-9931 7745-1020", "backup codes: ***"),
        ("backup codes for google 4821 9930 1188 2045 7733 0912", "backup codes for google ***"),
        ("Backup codes:\n4821-9931\n7745-1020", "Backup codes:\n***"),
        ("GitHub recovery codes\na1b2c-d3e4f\n99ab1-11ccd", "GitHub recovery codes\n***"),
        ("Wiederherstellungscodes: 82739182 10293847", "Wiederherstellungscodes: ***"),
        ("codes de secours : 4821-9931 7745-1020", "codes de secours : ***"),
    ],
    "where a secret stands": [
        ("curl -u bob:hunter2 https://x", "curl -u bob:*** https://x"),
        ("curl -sS --user 'bob:hunter2' https://x", "curl -sS --user 'bob:***' https://x"),
        ("curl -X POST \\\n  -u bob:hunter2 \\\n  x", "curl -X POST \\\n  -u bob:*** \\\n  x"),
        ("sshpass -p 'hunter2' ssh x", "sshpass -p '***' ssh x"),
        ("mysql -u root -phunter2 db", "mysql -u root -p*** db"),
        ("machine x login bob password hunter2", "machine x login bob password ***"),
        (
            "AccountName=a;AccountKey=abcdefghijklmnopqrstuvwxyz0123456789==;EndpointSuffix=x",
            "AccountName=a;AccountKey=***;EndpointSuffix=x",
        ),
        (
            "https://x.blob.core.windows.net/c?sv=2022&sig=abcdefghijklmnopqrstuvwx%3D&se=1",
            "https://x.blob.core.windows.net/c?sv=2022&sig=***&se=1",
        ),
        (
            "SharedAccessSignature sr=x&sig=abcdefghijklmnopqrstuvwx%3D&se=1",
            "SharedAccessSignature sr=x&sig=***&se=1",
        ),
        (
            "https://discord.com/api/webhooks/123456789/a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2",
            "https://discord.com/api/webhooks/***",
        ),
        (
            "https://hooks.slack.com/services/T000/B000/abcdefghijklmnopqrstuvwx",
            "https://hooks.slack.com/services/***",
        ),
    ],
    "further shapes": [
        ("ya29.a0AfH6SMBabcdefghijklmnop", "ya29.a…mnop"),
        ("GOCSPX-abcdefghijklmnopqrstuvwxyz12", "GOCSPX…yz12"),
        ("xai-abcdefghijklmnopqrstuvwxyz", "xai-ab…wxyz"),
        ("SK0123456789abcdef0123456789abcdef", "SK0123…cdef"),
        ("MTIzNDU2Nzg5MDEyMzQ1Njc4.GabcDE.abcdefghijklmnopqrstuvwxyz01234567890A", "MTIzND…890A"),
        ("ntn_abcdefghijklmnopqrstuvwxyz0123456789", "ntn_ab…6789"),
        ("secret_abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG", "secret…DEFG"),
        ("lin_api_abcdefghijklmnopqrstuvwxyz", "lin_ap…wxyz"),
        ("dop_v1_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "dop_v1…cdef"),
        ("dapi0123456789abcdef0123456789abcdef", "dapi01…cdef"),
        ("key-0123456789abcdef0123456789abcdef", "key-01…cdef"),
        ("AGE-SECRET-KEY-1QQPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", "AGE-SE…UA7L"),
        ("whsec_abcdefghijklmnopqrstuvwx", "whsec_…uvwx"),
        ("sk-or-v1-0123456789abcdef0123456789abcdef", "sk-or-…cdef"),
        ("vercel_blob_rw_abcdefghijklmnopqrstuvwx", "vercel…uvwx"),
        ("hvs.CAESIJabcdefghijklmnop", "hvs.CA…mnop"),
        (
            KEY_LINES.replace("RSA", "OPENSSH"),
            "-----BEGIN OPENSSH PRIVATE KEY-----\n…redacted…\n-----END OPENSSH PRIVATE KEY-----",
        ),
        (
            "-----BEGIN OPENSSH PRIVATE KEY----- …redacted… -----END OPENSSH PRIVATE KEY-----",
            "-----BEGIN OPENSSH PRIVATE KEY----- …redacted… -----END OPENSSH PRIVATE KEY-----",
        ),
    ],
}

LEFT_ALONE = {
    "words that only look like names or tokens": [
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
    ],
    "prose, code and tables that speak of secrets": [
        "the key: C major",
        "token: about four characters",
        "Token: roughly four characters of text.",
        "secret: the cake is a lie",
        "The password is required",
        "The password is wrong.",
        "the password is stored in the vault",
        "The password is at least 8 characters",
        "The password is 8 characters long",
        "the password is not set",
        "Your password is incorrect!",
        "The password is too short.",
        "password is hashed with bcrypt",
        "the password is case-sensitive",
        "the token is expired",
        "The token is valid for 3600 seconds",
        "the secret is out",
        "the secret is to keep going",
        "The secret is 42",
        "the access key is missing",
        "the API key is optional.",
        "tokens: 400",
        "max_tokens=8192",
        "primary_key: id",
        "secret santa",
        "Secret Santa is Bob",
        "key = value",
        "key: value\nother: 2",
        "d41d8cd98f00b204e9800998ecf8427e",
        "commit 3c8206312ab34cd56ef7890ab12cd34ef56ab789",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
        "palabra clave: gatos",
        "la contraseña es obligatoria",
        "das Passwort ist falsch",
        "Das Passwort meiner Mailbox ist abgelaufen.",
        "Het wachtwoord is verlopen; vraag Sanne om een nieuw.",
        "Het wachtwoord voor de site is te kort.",
        "Hasło do banku to poważna sprawa.",
        "PASSWORD_HASHER=argon2id",
        "le mot de passe est requis",
        "密码学是一门科学",
        "密码是必填的",
        "密码：见保险箱",
        "パスワードは8文字以上",
        "密码是8位",
        "비밀번호는 8자 이상",
        "키: 170cm",
        "كلمة المرور مطلوبة",
        "| password | string | yes |",
        "| password | The user's password |",
        "| user | password |\n|------|------|",
        "| password | token |\n|---|---|",
        "| token | string |",
        "password:\n  valueFrom:\n    x: y",
        "password:\n- one",
        "secrets:\n  - a",
        "token:\n  required",
        "PWD=/home/bob",
        "docker run -u 1000:1000 x",
        "curl -u $USER:$PASS x",
        "token_type: bearer",
        "API_KEY=$API_KEY",
        "api_key = os.environ",
        "the passage: a b c",
        "2 tests pass: 12",
        "the compass: north",
        "password reset link: sent",
        "reset the password to continue",
        "the private key is ed25519",
        "the token is base64",
        "the signature uses sha256",
        "password: required",
        "what is the password?",
        "Is the token fine?",
        "the password was changed yesterday",
        "Passwords are hashed.",
        "the key is to be patient",
        "wallet: secretary",
        "may_pass: bool",
        "login or password is wrong",
        "the pass: 3 of 4",
        "const password = await prompt.askHidden('Password: ')",
        "$password = $_POST['password'];",
        "password: config.smtp1.pass",
        "password = user.password1",
        "zip codes: 10115 10117 20095",
        "the build passes from v1.2 to v1.3",
        "error codes: 404 500 502",
        "pw = 3.2 kW",
        "pw = 12.75kW",
    ],
    "tokens that are masked already": [
        "otp:123456…2345",
        "密码:github…wxyz",
        "密钥:AKIAIO…MPLE",
        "令牌123456…2345",
    ],
}


ORDINARY = [text for texts in LEFT_ALONE.values() for text in texts]


def _within(text: str) -> str:
    return f"Mia wrote:\n{text}\nand left."


def _differing(cases: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return what the texts become that do not become what they should."""
    return {text: redact(text) for text, expected in cases if redact(text) != expected}


@pytest.mark.parametrize("kind", MASKED)
def test_secrets_of_a_kind_are_masked(kind: str) -> None:
    assert _differing(MASKED[kind]) == {}


@pytest.mark.parametrize("kind", MASKED)
def test_secrets_of_a_kind_are_masked_in_the_middle_of_a_text(kind: str) -> None:
    cases = [(_within(text), _within(expected)) for text, expected in MASKED[kind]]

    # A quoted value without an end takes what follows.
    assert _differing(case for case in cases if 'password: "horse' not in case[0]) == {}


@pytest.mark.parametrize("kind", MASKED)
def test_masking_twice_is_masking_once(kind: str) -> None:
    assert _differing((redact(text), redact(text)) for text, _ in MASKED[kind]) == {}


@pytest.mark.parametrize("kind", LEFT_ALONE)
def test_ordinary_text_is_left_alone(kind: str) -> None:
    within = [_within(text) for text in LEFT_ALONE[kind] if not text.endswith(("=", "--token"))]

    assert _differing((text, text) for text in (*LEFT_ALONE[kind], *within)) == {}


def test_a_secret_that_begins_like_the_name_of_a_cipher_is_masked() -> None:
    for start in ("ed3f", "hs83", "sha8", "base7"):
        secret = f"{start}0b7d4e5f8a9b1c2d3e4f"

        assert redact(f"API_KEY={secret}") == "API_KEY=***"
    for method in ("ed25519", "hs256", "aes-256-gcm", "base64url", "argon2id"):
        assert redact(f"encryption_key={method}") == f"encryption_key={method}"


def test_names_of_secrets_are_known() -> None:
    names = ["token", "OPENAI_API_KEY", "api-key", "accessToken", "client_secret", "dbPassword", "PASSWD"]
    abroad = ["contraseña", "Passwort", "密码", "パスワード", "SMTP_PASS", "dbPwd"]

    assert [name for name in names + abroad if not is_secret_name(name)] == []


def test_other_names_are_not() -> None:
    names = ["", "key", "monkey", "keyboard", "tokens", "tokenCount", "session_key", "publicKey"]

    assert [name for name in names if is_secret_name(name)] == []


def test_a_password_that_begins_with_a_percent_sign_is_no_placeholder() -> None:
    for password in ("%sfec43H7Hx4m7", "%vm%uBuhtahgGk", "%DFhcb6a9tgtwm"):
        assert password not in redact(f"name,password\nana,{password}\n")
    for placeholder in ("%s", "%(password)s", "%{password}", "%PASSWORD%"):
        assert placeholder in redact(f"password={placeholder}")


def test_a_table_after_much_text_about_secrets_is_masked_and_the_text_is_left() -> None:
    text = '"auth.password.reset": "Reset your password"\n' * 900
    redacted = redact(f"{text}\nname,password\nana,tr4ktorGruen!7\n")

    assert redacted.startswith(text)
    assert "tr4ktorGruen" not in redacted


def test_a_masked_key_stays_masked_when_its_lines_are_joined() -> None:
    joined = " ".join(redact(KEY_LINES).split())

    assert joined == "-----BEGIN RSA PRIVATE KEY----- …redacted… -----END RSA PRIVATE KEY-----"
    assert redact(joined) == joined


def test_the_names_of_texts_beside_each_other_are_no_lines_of_one() -> None:
    """A preview that ends with a name says nothing of the next preview."""
    assert CleanTexts().covers(["the password:", "hunter2"])


def test_the_password_of_an_address_is_seen_whatever_text_comes_next() -> None:
    assert not CleanTexts().covers(["reason=login failed for postgres://me:hunter2@db", "path=a.md"])


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

    assert clean.covers(ORDINARY)
    assert clean.covers(ORDINARY)
    assert not clean.covers([*ORDINARY, "password: hunter2"])
    assert not clean.covers(["password: hunter2"])


def test_clean_texts_forgets_instead_of_growing() -> None:
    clean = CleanTexts(capacity=2)

    assert all(clean.covers([f"text {number}"]) for number in range(10))
    assert len(clean._known) <= 2


HOSTILE = [
    *(
        "password is ",
        "password for a ",
        "| password | ",
        "password:\n",
        "set password ",
        "curl -u ",
        "mysql ",
    ),
    *("passphrase: a b ", "token for a b ", "密码是a", "senha para a ", "secret_", "M.", "sk-", "aA0", "|a|"),
    *("secret access key ", "machine a login ", "?sig=", "recovery phrase is ab "),
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


@pytest.mark.timeout(120)
def test_long_hostile_texts_come_to_an_end() -> None:
    """Anything worse than linear would take hours on these."""
    every_hint = (
        "\npassword=hunter2 curl mysql machine login sshpass set to is ist | es 密码 @ :// -- eyj sk-"
        " -----begin bearer authorization: :aa sg. ghp_ xox"
    )
    texts = {piece: piece * (200_000 // len(piece)) + every_hint for piece in HOSTILE}

    assert [piece for piece, text in texts.items() if "hunter2" in redact(text)] == []


def test_each_secret_of_a_flood_is_masked_and_nothing_beside_it() -> None:
    """A stretch that repeats itself is judged once for all of it; at its ends each word is looked at."""
    pieces = {
        "密码是a1b2c3d4 ": "密码是*** ",
        "see notes, password: hunter2\n": "see notes, password: ***\n",
        "key=a curl -u bob:hunter2 http://x ": "key=a curl -u bob:*** http://x ",
        "token_type=a password=hunter2; monkey=1 ": "token_type=a password=***; monkey=1 ",
        "postgres://bob:hunter2@host/x ": "postgres://bob:***@host/x ",
        "key=": "key=",
    }
    parts = [
        ("We met. " * 9 + piece * (60_000 // len(piece)), piece, masked) for piece, masked in pieces.items()
    ]
    text = "\n\nA line between. password=hunter2\n\n".join(flood for flood, _, _ in parts)
    expected = "\n\nA line between. password=***\n\n".join(
        flood.replace(piece, masked) for flood, piece, masked in parts
    )

    assert redact(text) == expected
    assert redact(text[7:-7]) == expected[7:-7]


def test_a_secret_is_masked_also_where_its_name_stands_across_two_looks() -> None:
    """A long text is looked at in steps of 16,384 characters."""
    lines = " ".join(f"line {number} of a long report" for number in range(1000))
    texts = [f"{lines[:place]} password: tr4ktorGruen!7" for place in range(16_370, 16_390)]

    assert [place for place, text in enumerate(texts) if "tr4ktor" in redact(text)] == []


# What a reader sees from the context alone; a rule for these would mask ordinary lines as well.
NOT_FOUND = (
    "Le code wifi",
    "Server=db;Database=x",
    "wifi: Home",
    "u: bob",
    "hba:",
    # Behind a value, without a sign, joined from strings, or in other words.
    *("export REDIS_AUTH", "rsync --password-file", "curl --data-urlencode", '{"value":', "1. 4821"),
    *('password = "Kirsch" \\', "new password: Kirsch", "Temporary password", "Als Passwort nehmen"),
    *('{"credentials": {"bob"', "our backup passphrase is seven", "The passphrase of the disk"),
)
CORPORA = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")


@pytest.mark.parametrize("corpus", CORPORA)
def test_secrets_of_a_corpus_are_not_readable(corpus: str) -> None:
    leaking = [case.text for case in secret_cases(corpus) if readable(case, redact(case.text))]

    assert [text for text in leaking if not text.startswith(NOT_FOUND)] == []


@pytest.mark.parametrize("corpus", CORPORA)
def test_ordinary_lines_of_a_corpus_are_left_alone(corpus: str) -> None:
    assert [line for line in ordinary_lines(corpus) if redact(line) != line] == []


@pytest.mark.parametrize("corpus", CORPORA)
def test_secrets_of_a_corpus_are_seen_among_other_texts(corpus: str) -> None:
    dirty = [case.text for case in secret_cases(corpus) if redact(case.text) != case.text]

    assert [one for one in dirty if CleanTexts().covers([one, "path=a.md"])] == []
    assert [one for one in dirty if CleanTexts().covers(["path=a.md", one])] == []


@pytest.mark.parametrize("corpus", CORPORA)
def test_a_masked_corpus_stays_as_it_is(corpus: str) -> None:
    once = [redact(case.text) for case in secret_cases(corpus)]

    assert [redact(text) for text in once] == once


@pytest.mark.parametrize("corpus", CORPORA)
def test_secrets_of_a_corpus_are_found_in_a_long_text(corpus: str) -> None:
    """Neither the lines around nor the length of the text hide what is masked in a line alone."""
    around = "We met on Monday and decided to keep the parser.\n" * 40
    lines = [case.text for case in secret_cases(corpus) if "\n" not in case.text]
    masked = redact(around + "\n\n".join(lines) + "\n" + around)

    assert [line for line in lines if redact(line) not in masked] == []


def test_random_hashes_are_left_alone() -> None:
    draw = random.Random(7)
    kinds = ("md5", "sha1", "sha256")
    sums = [hashlib.new(kind, draw.randbytes(8)).hexdigest() for kind in kinds for _ in range(2_000)]
    ids = [str(uuid.UUID(int=draw.getrandbits(128))) for _ in range(2_000)]

    assert [text for text in sums + ids if redact(f"see {text} there") != f"see {text} there"] == []


def test_no_human_password_shows_a_part_of_itself() -> None:
    assert redact("the password is correct-horse-battery-staple-2026!") == "the password is ***"
    assert redact_value({"password": "correct-horse-battery-staple-2026!"}) == {"password": "***"}


def _repeats(parsed: Any, *, depth: int = 0) -> list[int]:
    """Return how deep each repetition without an end stands within others."""
    found: list[int] = []
    for kind, value in parsed:
        name = str(kind)
        if name in {"MAX_REPEAT", "MIN_REPEAT"}:
            _, most, inner = value
            is_endless = most >= 1_000_000
            if is_endless:
                found.append(depth)
            found += _repeats(inner, depth=depth + is_endless)
        elif name == "SUBPATTERN":
            found += _repeats(value[-1], depth=depth)
        elif name == "BRANCH":
            found += [one for branch in value[1] for one in _repeats(branch, depth=depth)]
        elif name in {"ASSERT", "ASSERT_NOT"}:
            found += [one + 100 for one in _repeats(value[1])]
        elif name == "GROUPREF_EXISTS":
            found += [one for branch in value[1:] if branch for one in _repeats(branch, depth=depth)]
    return found


def _patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    """Yield every pattern that the rules use: in modules, in tables of theirs, and in rules."""
    for module in MODULES:
        for name, value in vars(module).items():
            yield from _patterns_in(f"{module.__name__}.{name}", value)
    yield from (("shape " + shape.literal, shape.pattern.compiled) for shape in tokens.SHAPES)
    for rule in redactor.RULES:
        yield str(rule.words), rule.pattern.compiled
        closure = inspect.getclosurevars(rule.secrets).nonlocals if inspect.isfunction(rule.secrets) else {}
        for name, value in closure.items():
            yield from _patterns_in(f"{rule.words} {name}", value)


def _patterns_in(name: str, value: object) -> Iterator[tuple[str, re.Pattern[str]]]:
    if isinstance(value, Pattern):
        yield name, value.compiled
    elif isinstance(value, re.Pattern):
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _patterns_in(f"{name} {key}", item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _patterns_in(name, item)


def test_no_pattern_repeats_without_an_end_twice_over() -> None:
    """A run within a run, or one that is looked ahead for, could take more than linear time."""
    patterns = list(_patterns())
    nested = [
        name for name, pattern in patterns if any(_repeats(re_parser.parse(pattern.pattern, pattern.flags)))
    ]

    assert nested == []
    assert len(patterns) > 150


BEHIND_A_WORD = (
    *(
        "",
        " ",
        "=",
        ": ",
        "=a",
        " is ",
        "(",
        '="',
        "='\\",
        "/",
        "@",
        "-",
        ".",
        ",",
        "|",
        "://a:b@",
        " -p ",
        "<",
    ),
    *(" for a b c ", ":a:b:", " a/b c ", "  ", "\\", "…", "是", "\t", "aA1", "; ", "a=b; "),
)


@pytest.mark.thorough
@pytest.mark.parametrize("rule", redactor.RULES, ids=lambda rule: rule.words[0])
def test_the_time_of_a_rule_grows_no_faster_than_the_text(rule: Rule) -> None:
    """Quadratic time would be sixteen times as much. No piece comes again soon: that would be a flood."""
    draw = random.Random(0)
    pieces = (
        f"{draw.choice(rule.words)}{draw.choice(BEHIND_A_WORD)}{draw.choice(['', draw.randrange(10**6)])}"
        for _ in range(6_000)
    )
    text = "".join(pieces)
    redact(text[:1_000])

    # Other work on the machine may take a measurement apart, but not one after the other.
    assert any(_cpu_s(text) < 8 * _cpu_s(text[: len(text) // 4]) for _ in range(5))


def _cpu_s(text: str) -> float:
    start = process_time()
    redact(text)
    return process_time() - start
