"""Issues JSON Web Tokens as an identity-aware proxy would, and as a forger would, with PyJWT, which shares nothing with ours.

Standard input: {"now": seconds since 1970}. Standard output: {"jwks": a JWK Set with an EC and an RSA key, "tokens": {name: token}}.
"""

import base64
import hashlib
import hmac
import json
import sys

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

ISSUER, AUDIENCE = "https://proxy.example", "/projects/1/apps/push"


def jwk(algorithm, key, name, kind):
    """The public half, as a member of a JWK Set."""
    return json.loads(algorithm.to_jwk(key.public_key())) | {"kid": kind, "alg": name, "use": "sig"}


def encoded(part):
    return base64.urlsafe_b64encode(part).rstrip(b"=")


def unchecked(header, claims, sign):
    """A token that PyJWT would refuse to make."""
    signed = encoded(json.dumps(header).encode()) + b"." + encoded(json.dumps(claims).encode())
    return (signed + b"." + encoded(sign(signed))).decode()


def main():
    now = json.load(sys.stdin)["now"]
    own, other = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    rsa_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    claims = {"iss": ISSUER, "aud": AUDIENCE, "exp": now + 600, "iat": now, "email": "alice@example.com", "sub": "1234"}
    good = lambda changes=None, without=(), key=own, algorithm="ES256", kid="ec", headers=None: jwt.encode(
        {k: v for k, v in (claims | (changes or {})).items() if k not in without}, key, algorithm=algorithm,
        headers={"kid": kid} | (headers or {}))
    public = own.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    hs256 = lambda secret: lambda signed: hmac.new(secret, signed, hashlib.sha256).digest()
    whole = good()
    head, body, signature = whole.split(".")
    forged = json.loads(base64.urlsafe_b64decode(body + "=="))
    tokens = {
        "es256": whole,
        "rs256": good(key=rsa_key, algorithm="RS256", kid="rsa"),
        "audiences": good({"aud": ["other", AUDIENCE]}),
        "fractions": good({"exp": now + 0.5, "nbf": now - 0.5}),
        "verified": good({"email_verified": True}),
        "by sub": good({"sub": "bob"}),
        "by domain": good({"email": "Bob@Example.com"}),
        # What must be refused.
        "alg none": unchecked({"alg": "none", "kid": "ec"}, claims, lambda signed: b"x"),
        "alg none, unsigned": f'{encoded(json.dumps({"alg": "none", "kid": "ec"}).encode()).decode()}.{body}.',
        "hs256 with the public key": unchecked({"alg": "HS256", "kid": "ec"}, claims, hs256(public)),
        "es256 header over hs256": unchecked({"alg": "ES256", "kid": "ec"}, claims, hs256(public)),
        "another key": good(key=other),
        "rs256 under the ec key's id": good(key=rsa_key, algorithm="RS256", kid="ec"),
        "unknown kid": good(kid="gone"),
        "no kid": jwt.encode(claims, own, algorithm="ES256"),
        "crit": good(headers={"crit": ["x"], "x": 1}),
        "changed claims": ".".join((head, encoded(json.dumps(forged | {"email": "mallory@example.com"}).encode()).decode(), signature)),
        "another issuer": good({"iss": "https://evil.example"}),
        "no issuer": good(without=["iss"]),
        "another audience": good({"aud": AUDIENCE + "2"}),
        "other audiences": good({"aud": ["a", "b"]}),
        "no audience": good(without=["aud"]),
        "expired": good({"exp": now - 31}),
        "no end": good(without=["exp"]),
        "an end that is text": unchecked({"alg": "ES256", "kid": "ec"}, claims | {"exp": "later"},
            lambda signed: ECAlgorithm(ECAlgorithm.SHA256).sign(signed, own)),
        "not yet": good({"nbf": now + 31}),
        "issued later": good({"iat": now + 31}),
        "no name": good(without=["email"]),
        "a name that is a number": good({"email": 7}),
        "not verified": good({"email_verified": False}),
        "somebody else": good({"email": "mallory@example.com"}),
        "nearly the domain": good({"email": "mallory@evil-team.example"}),
        "two ats": good({"email": "mallory@evil.example@team.example"}),
        "three parts of nothing": "..",
        "not a token": "alice@example.com",
        "a part too many": whole + ".x",
    }
    print(json.dumps({"jwks": {"keys": [jwk(ECAlgorithm, own, "ES256", "ec"), jwk(RSAAlgorithm, rsa_key, "RS256", "rsa"),
                                        {"kty": "oct", "k": "c2VjcmV0", "kid": "oct"}]}, "tokens": tokens}))


main()
