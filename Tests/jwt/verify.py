"""Verifies JSON Web Tokens with PyJWT, a library that shares nothing with ours.

Standard input has one JSON object a line: {"token", "publicKey" (PEM), "algorithm", "header", "claims"}.
Each token must be signed by that key with that algorithm and hold exactly that header and those claims.
Exit status 0 when all do; otherwise 1, with a line for each that does not. No token is printed.
"""

import json
import sys

import jwt


def check(expected: dict) -> str | None:
    """What is wrong with one token, or None."""
    options = {"verify_exp": False, "verify_iat": False, "verify_aud": False}
    try:
        claims = jwt.decode(
            expected["token"], expected["publicKey"], algorithms=[expected["algorithm"]], options=options
        )
        header = jwt.get_unverified_header(expected["token"])
    except jwt.PyJWTError as error:
        return f"{type(error).__name__}: {error}"
    if claims != expected["claims"]:
        return f"its claims are {sorted(claims)}, expected {sorted(expected['claims'])} with the given values"
    if header != expected["header"]:
        return f"its header is {header}, expected {expected['header']}"
    return None


def main() -> int:
    failures = 0
    count = 0
    for count, line in enumerate(sys.stdin, start=1):
        problem = check(json.loads(line))
        if problem is not None:
            failures += 1
            print(f"token {count}: {problem}")
    if count == 0:
        print("no token was given")
        return 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
