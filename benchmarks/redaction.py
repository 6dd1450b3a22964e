"""What masking costs: CPU time by size for the worst texts known of each rule, and for ordinary texts.

Each text repeats a piece that starts a rule again and again, before a line that holds the words of all rules,
so that none of them is left out. Linear: the last column, the time for four times the text, stays near 4.
"""

import argparse
import base64
import random
from time import process_time

from composable_memory_ops_logs.redaction.redactor import RULES, redact
from composable_memory_ops_logs.redaction.tokens import SHAPES

EVERY_HINT = "\n" + " ".join(sorted({word for rule in RULES for word in rule.words}))
ORDINARY = (
    "We decided that the port of the staging database stays 5433 and Anna owns the review of the parser, see"
    " memory/2026-01-05.md. The key of the API stays small: one token, no secret, and notes in plain text.\n"
)
PIECES = (
    *(
        "key=",
        "key=a ",
        "key= ",
        "key: a\n",
        'key="',
        "api_key=abc ",
        "token ",
        "token is ",
        "token for a b c d ",
    ),
    *(
        "password ",
        "password is ",
        "password:\n",
        "password: |\n",
        "passwords:\n- a\n",
        'passwords: ["a", ',
        'password = """a\n',
        'form-data; name="password"\n\na\n',
        '"kind": "Secret", "data": {"a": "b", ',
        "kind: Secret\ndata:\n  a: b\n",
        "1234 is your ",
        "password='\\",
        "passwd:,,,,,,",
        "pass:a ",
        "pw ",
    ),
    *(
        "secret",
        "secret_",
        "secret\\\\\\",
        "token_token_",
        "--token ",
        "--a-",
        "set password to ",
        "| password | ",
    ),
    *(
        "<password>",
        "<",
        "password\tb\n",
        "password|b\n|a|b",
        "pin: 1",
        "pin ",
        "code: a1b2-",
        "backup codes: 1a-2b ",
    ),
    *("密码是a", "密码:", "密码 a1", "パスワードは", "密码（a）", "كلمة المرور: a", "비밀번호는 a "),
    *(
        "machine a login b password ",
        "curl -u a:b ",
        "curl -u ",
        "mysql -p",
        "docker login -p ",
        "echo a:b|",
        "echo ",
    ),
    *(
        "://a:b",
        "://a:b@",
        "://a@",
        "://",
        "://a:b@c@",
        "a@b@://",
        "@",
        "/webhooks/1/",
        "?sig=",
        "&code=a",
        "otpauth://",
    ),
    *(
        "authorization: ",
        "authorization: bearer ",
        "bearer ",
        "cookie: a=b; ",
        "cookie: ",
        "cookie a=",
        "sessionid=",
    ),
    *("-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\nAAAAAAAAAAAAAAAAA"),
    *(
        "private-lines: 1\na\n",
        "eyJ",
        "eyJ-",
        "eyJaaaaaaaa.",
        "sk-",
        " sk-",
        "sk-a-",
        "ghp_",
        "SG.aaaaaaaaaa",
        "AKIA",
    ),
    *(
        "1:AA",
        "123456:AA",
        "M.",
        ".abcdef.",
        "Q~",
        "s.",
        "s.a",
        "pat",
        "AKIA1234567890123456 ",
        "AC" + "0" * 32 + " ",
    ),
    *(
        "$",
        "$1$",
        "$6$a ",
        "{sha}",
        "pbkdf2:a",
        "1",
        "1 ",
        "4111 ",
        "4111-1111-1111-1111 ",
        "de00 ",
        "de44 5001 ",
        "a1b2",
    ),
    *(
        "seed ",
        "seed a b c ",
        "seed phrase: abc def ",
        "passphrase: ab cd ",
        "login: a / b ",
        "login ",
        "admin:",
        "user a ",
    ),
    *(
        "user: a pass: b ",
        "a,b\n",
        "key,token\na,b\n",
        "a|b\n",
        "=",
        ":",
        "=:",
        " ",
        "\n",
        "a",
        "a ",
        "a-",
        "a_",
        "A1",
        '"',
    ),
    *("'", "`", "\\", "…", "***", "\u200b", "\u200b=", "字", "é", "İ", "():", "{{", "<your", "x" * 200 + " "),
)
WORST_STARTS = (
    *(
        "curl -u bob:",
        "machine a login b password ",
        "password=",
        'password="',
        "api_key: ",
        "://a:",
        "Bearer ",
    ),
    *("Cookie: a=", "-----BEGIN PRIVATE KEY-----\n", "eyJ", "sk-", "seed phrase: "),
)


def texts(size: int, draw: random.Random) -> dict[str, str]:
    """Return texts of `size` characters by what they repeat."""
    cases = {repr(piece[:24]): piece * (size // len(piece) + 1) for piece in PIECES}
    noise = base64.b64encode(draw.randbytes(size)).decode()
    cases |= {f"{start!r} and base64": start + noise for start in WORST_STARTS}
    words = [piece.strip() for piece in PIECES[:60]]
    cases["words of the rules, mixed"] = " ".join(draw.choice(words) for _ in range(size // 4))
    cases["random names and values"] = " ".join(f"key={draw.getrandbits(48):x}" for _ in range(size // 15))
    cases["random prefixes"] = " ".join(draw.choice(SHAPES).literal for _ in range(size // 4))
    cases["ordinary"] = ORDINARY * (size // len(ORDINARY) + 1)
    return {name: text[:size] + EVERY_HINT for name, text in cases.items()}


def cpu_s(text: str) -> float:
    start = process_time()
    redact(text)
    return process_time() - start


def main() -> None:
    """Print a row for each text, the slowest last."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--size", type=int, default=400_000, help="characters of the longest text")
    parser.add_argument("--only", default="", help="texts whose name holds this")
    options = parser.parse_args()
    sizes = (options.size // 4, options.size)
    made = [texts(size, random.Random(0)) for size in sizes]
    rows = []
    for name in made[0]:
        if options.only in name:
            small, large = (cpu_s(cases[name]) for cases in made)
            rows.append((large, f"{name:40} {small:8.3f} {large:8.3f} {large / max(small, 1e-6):6.1f}"))
    print(f"{'text':40} {sizes[0]:>8} {sizes[1]:>8}  ratio")
    for _, row in sorted(rows):
        print(row)
    one = ORDINARY * 5
    rounds = 2_000
    start = process_time()
    for _ in range(rounds):
        redact(one[:1_000])
    print(f"an ordinary text of 1,000 characters: {(process_time() - start) / rounds * 1e6:.1f} µs")


if __name__ == "__main__":
    main()
