#!/usr/bin/env python3
"""Encrypts web push messages with Python's cryptography: the expected values of Tests/ProvidersTests/WebPushEncryptionTests.swift.

The keys and the salt are those of RFC 8291, Appendix A, so that the first message can be compared with the RFC.
"""
import base64
import hashlib

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


def decode(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def encode(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


SENDER = ec.derive_private_key(int.from_bytes(decode("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"), "big"), ec.SECP256R1())
BROWSER = ec.derive_private_key(int.from_bytes(decode("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"), "big"), ec.SECP256R1())
AUTH = decode("BTBZMqHH6r4Tts7J_aSIgg")
SALT = decode("DGv6ra1nlYgDCS1FRnbzlw")


def point(key):
    return key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def derive(secret, salt, info, length):
    return HKDF(algorithm=hashes.SHA256(), length=length, salt=salt, info=info).derive(secret)


def encrypt(plaintext, padding=0):
    secret = SENDER.exchange(ec.ECDH(), BROWSER.public_key())
    material = derive(secret, AUTH, b"WebPush: info\0" + point(BROWSER) + point(SENDER), 32)
    key = derive(material, SALT, b"Content-Encoding: aes128gcm\0", 16)
    nonce = derive(material, SALT, b"Content-Encoding: nonce\0", 12)
    header = SALT + (4096).to_bytes(4, "big") + bytes([65]) + point(SENDER)
    return header + AESGCM(key).encrypt(nonce, plaintext + b"\2" + bytes(padding), None)


if __name__ == "__main__":
    print("rfc", encode(encrypt(b"When I grow up, I want to be a watermelon")))
    print("empty", encode(encrypt(b"")))
    print("json", encode(encrypt(b'{"callId":"c1","from":"\xc3\xa4"}')))
    print("padded", encode(encrypt(b'{"callId":"c1"}', padding=30)))
    largest = encrypt(bytes(i % 251 for i in range(3993)))
    print("largest", len(largest), hashlib.sha256(largest).hexdigest())
