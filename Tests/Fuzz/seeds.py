#!/usr/bin/env python3
"""Writes the hand-made seeds of the corpus: Tests/Fuzz/seeds.py. Names say what a seed is about."""

import pathlib

corpus = pathlib.Path(__file__).parent / "corpus"


def seed(target, name, content):
    if isinstance(content, str):
        content = content.encode()
    (corpus / target).mkdir(parents=True, exist_ok=True)
    (corpus / target / name).write_bytes(content)


# MARK: http2-session. The operations of HTTP2SessionFuzz.


def frame(kind, flags, stream, payload=b""):
    return bytes([kind, flags, stream, len(payload)]) + payload


def configuration(requests=1, body=0, small=False, greets=True, cut=0):
    return bytes([(1 if greets else 0) | (2 if small else 0) | requests << 2 | body << 4 | cut << 6])


def field(name, value):
    name, value = name.encode(), value.encode()
    return b"\x10" + bytes([len(name)]) + name + bytes([len(value)]) + value


def request(size=0):
    return bytes([13, size])


def setting(number, value):
    return number.to_bytes(2, "big") + value.to_bytes(4, "big")


data, headers, priority, reset, settings, promise, ping, goaway, window, continuation = range(10)
status200 = b"\x88"
sessions = {
    "answered": configuration() + frame(headers, 5, 1, status200),
    "answered-with-body": configuration(cut=1) + frame(headers, 4, 1, status200 + field("content-length", "5"))
    + frame(data, 0, 1, b"hel") + frame(data, 1, 1, b"lo"),
    "body-shorter-than-said": configuration() + frame(headers, 4, 1, status200 + field("content-length", "5"))
    + frame(data, 1, 1, b"hel"),
    "body-longer-than-said": configuration() + frame(headers, 4, 1, status200 + field("content-length", "2"))
    + frame(data, 0, 1, b"hel") + frame(data, 1, 1, b"lo"),
    "length-said-twice": configuration()
    + frame(headers, 5, 1, status200 + field("content-length", "0") + field("content-length", "0")),
    "padded": configuration() + frame(headers, 0x0D, 1, b"\x03" + status200 + b"\0\0\0"),
    "padded-data": configuration() + frame(headers, 4, 1, status200) + frame(data, 9, 1, b"\x02hi\0\0"),
    "too-much-padding": configuration() + frame(headers, 0x0D, 1, b"\x09" + status200),
    "with-priority": configuration() + frame(headers, 0x25, 1, b"\0\0\0\0\x10" + status200),
    "short-priority": configuration() + frame(headers, 0x25, 1, b"\0\0"),
    "continued": configuration(cut=1) + frame(headers, 1, 1, status200) + frame(continuation, 0, 1, field("a", "b"))
    + frame(continuation, 4, 1, field("c", "d")),
    "continuation-interrupted": configuration() + frame(headers, 1, 1, status200) + frame(ping, 0, 0, b"12345678"),
    "continuation-of-nothing": configuration() + frame(continuation, 4, 1, status200),
    "unfinished-headers-of-idle-stream": configuration() + frame(headers, 0, 7, status200),
    "interim": configuration() + frame(headers, 4, 1, b"\x08\x03103") + frame(headers, 5, 1, status200),
    "status-101": configuration() + frame(headers, 4, 1, b"\x08\x03101") + frame(headers, 5, 1, status200),
    "interim-that-ends": configuration() + frame(headers, 5, 1, b"\x08\x03103"),
    "no-status": configuration() + frame(headers, 5, 1, field("a", "b")),
    "status-twice": configuration() + frame(headers, 5, 1, status200 + status200),
    "status-late": configuration() + frame(headers, 5, 1, field("a", "b") + status200),
    "status-of-letters": configuration() + frame(headers, 5, 1, b"\x08\x032a0"),
    "status-1000": configuration() + frame(headers, 5, 1, b"\x08\x041000"),
    "status-204-with-body": configuration() + frame(headers, 4, 1, b"\x89") + frame(data, 1, 1, b"x"),
    "status-304-with-length": configuration() + frame(headers, 5, 1, b"\x8b" + field("content-length", "7")),
    "request-fields": configuration() + frame(headers, 5, 1, status200 + b"\x83"),
    "connection-field": configuration() + frame(headers, 5, 1, status200 + field("connection", "close")),
    "upper-case-field": configuration() + frame(headers, 5, 1, status200 + field("A", "b")),
    "trailers": configuration() + frame(headers, 4, 1, status200) + frame(data, 0, 1, b"x")
    + frame(headers, 5, 1, field("a", "b")),
    "trailers-without-end": configuration() + frame(headers, 4, 1, status200) + frame(headers, 4, 1, field("a", "b")),
    "pseudo-field-in-trailers": configuration() + frame(headers, 4, 1, status200) + frame(headers, 5, 1, status200),
    "data-before-headers": configuration() + frame(data, 1, 1, b"x"),
    "empty-data-before-headers": configuration() + frame(data, 0, 1),
    "data-of-idle-stream": configuration() + frame(data, 1, 9, b"x"),
    "data-of-stream-0": configuration() + frame(data, 1, 0, b"x"),
    "data-after-end": configuration() + frame(headers, 5, 1, status200) + frame(data, 1, 1, b"x"),
    "even-stream": configuration() + frame(headers, 5, 2, status200),
    "undecodable": configuration() + frame(headers, 5, 1, b"\xff\xff\xff"),
    "undecodable-of-closed-stream": configuration() + frame(headers, 5, 1, status200) + frame(headers, 5, 1, b"\xc0"),
    "table-size": configuration() + frame(headers, 5, 1, b"\x3f\xe1\x1f" + status200),
    "incremental": configuration(2) + frame(settings, 0, 0, setting(3, 5)) + request()
    + frame(headers, 5, 1, status200 + b"\x40\x01a\x01b") + frame(headers, 5, 3, status200 + b"\xbe"),
    "reset": configuration() + frame(reset, 0, 1, b"\0\0\0\x07"),
    "reset-no-error": configuration(1, 3) + frame(reset, 0, 1, b"\0\0\0\0"),
    "reset-of-idle-stream": configuration() + frame(reset, 0, 5, b"\0\0\0\x07"),
    "reset-too-short": configuration() + frame(reset, 0, 1, b"\0\0\x07"),
    "settings": configuration(0) + frame(settings, 0, 0, setting(3, 100) + setting(4, 70000) + setting(5, 16384)),
    "settings-in-between": configuration(2, 3) + frame(settings, 0, 0, setting(4, 10)) + frame(window, 0, 1, b"\0\0\x40\0")
    + frame(settings, 0, 0, setting(4, 100000)) + frame(headers, 5, 1, status200),
    "settings-acknowledged": configuration() + frame(settings, 1, 0),
    "settings-acknowledged-with-payload": configuration() + frame(settings, 1, 0, setting(3, 1)),
    "settings-of-stream": configuration() + frame(settings, 0, 1, setting(3, 1)),
    "settings-of-7-bytes": configuration() + frame(settings, 0, 0, b"1234567"),
    "settings-push": configuration() + frame(settings, 0, 0, setting(2, 1)),
    "settings-window": configuration() + frame(settings, 0, 0, setting(4, 0x80000000)),
    "settings-window-of-stream": configuration(1, 3) + frame(window, 0, 1, b"\x70\0\0\0")
    + frame(settings, 0, 0, setting(4, 0x7FFFFFFF)),
    "settings-frame-size": configuration() + frame(settings, 0, 0, setting(5, 100)),
    "settings-unknown": configuration() + frame(settings, 0, 0, setting(6, 1) + setting(0x1234, 7)),
    "settings-extensions": configuration() + frame(settings, 0, 0, setting(8, 2)),
    "settings-of-table": configuration() + frame(settings, 0, 0, setting(1, 0)) + request() + request(),
    "no-settings": configuration(greets=False) + frame(ping, 0, 0, b"12345678"),
    "settings-first-acknowledge": configuration(greets=False) + frame(settings, 1, 0),
    "late-settings": configuration(3, greets=False) + frame(settings, 0, 0, setting(3, 2)) + bytes([13, 0xE0]),
    "no-streams": configuration(2) + frame(settings, 0, 0, setting(3, 0)) + request() + frame(headers, 5, 1, status200)
    + frame(settings, 0, 0, setting(3, 9)) + bytes([13, 0xE0]),
    "push": configuration() + frame(promise, 4, 1, b"\0\0\0\x02" + b"\x82"),
    "ping": configuration() + frame(ping, 0, 0, b"12345678"),
    "pong": configuration() + bytes([13, 0xA5]) + frame(ping, 1, 0, b"\x05\0\0\0\0\0\0\0"),
    "ping-of-stream": configuration() + frame(ping, 0, 1, b"12345678"),
    "ping-too-short": configuration() + frame(ping, 0, 0, b"1234567"),
    "goaway": configuration(3) + request() + frame(goaway, 0, 0, b"\0\0\0\x01\0\0\0\0max_age")
    + frame(headers, 5, 1, status200) + request(),
    "goaway-twice": configuration(3) + frame(settings, 0, 0, setting(3, 9)) + bytes([13, 0xE0])
    + frame(goaway, 0, 0, b"\x7f\xff\xff\xff\0\0\0\0") + frame(goaway, 0, 0, b"\0\0\0\x03\0\0\0\0"),
    "goaway-grows": configuration(3) + frame(goaway, 0, 0, b"\0\0\0\x01\0\0\0\0") + frame(goaway, 0, 0, b"\0\0\0\x03\0\0\0\0"),
    "goaway-of-stream": configuration() + frame(goaway, 0, 1, b"\0\0\0\x01\0\0\0\0"),
    "goaway-too-short": configuration() + frame(goaway, 0, 0, b"\0\0\0\x01"),
    "window": configuration(1, 3) + frame(settings, 0, 0, setting(4, 100)) + request(3) + frame(window, 0, 1, b"\0\0\x40\0")
    + frame(window, 0, 0, b"\0\1\0\0") + frame(headers, 5, 1, status200),
    "window-of-nothing": configuration(1, 3) + frame(window, 0, 0, b"\0\0\0\0"),
    "window-of-nothing-for-stream": configuration(1, 3) + frame(window, 0, 1, b"\0\0\0\0"),
    "window-too-large": configuration(1, 3) + frame(window, 0, 0, b"\x7f\xff\xff\xff"),
    "window-too-large-for-stream": configuration(1, 3) + frame(window, 0, 1, b"\x7f\xff\xff\xff"),
    "window-of-idle-stream": configuration() + frame(window, 0, 9, b"\0\0\0\1"),
    "two-large-bodies": configuration(2, 0) + frame(settings, 0, 0, setting(3, 100)) + request(4) + request(4)
    + frame(window, 0, 0, b"\0\1\0\0") + frame(window, 0, 5, b"\0\1\0\0") + frame(window, 0, 7, b"\0\1\0\0"),
    "answered-early": configuration(1, 3) + request(4) + frame(headers, 5, 1, status200) + frame(headers, 5, 3, status200)
    + frame(reset, 0, 3, b"\0\0\0\0"),
    "priority": configuration() + frame(priority, 0, 1, b"\0\0\0\0\x10"),
    "priority-of-stream-0": configuration() + frame(priority, 0, 0, b"\0\0\0\0\x10"),
    "priority-too-short": configuration() + frame(priority, 0, 1, b"\0"),
    "unknown-frame": configuration() + b"\x0b" + frame(0x42, 0xFF, 1, b"what") + frame(headers, 5, 1, status200),
    "too-long-frame": configuration() + b"\x0c\x09\0\x40\x01\0\0\0\0\0\1",
    "reserved-bit": configuration() + bytes([headers, 5, 0x80]) + b"\x80\0\0\1" + b"\x01" + status200,
    "small-window": configuration(small=True) + frame(headers, 4, 1, status200) + bytes([10, 0, 1, 15]) + bytes([10, 0, 1, 15])
    + bytes([10, 0, 1, 16]),
    "small-window-at-the-end": configuration(small=True) + frame(headers, 4, 1, status200) + bytes([10, 1, 1, 16]),
    "large-window": configuration() + frame(headers, 4, 1, status200) + bytes([10, 0, 1, 255]) * 9 + bytes([10, 1, 1, 255]),
    "cancelled": configuration(3) + bytes([13, 0x60]) + frame(headers, 5, 1, status200) + bytes([13, 0x61]),
    "raw": configuration(cut=2) + b"\x0c\x14" + b"\0\0\1\1\5\0\0\0\1\x88" * 2,
}
for name, content in sessions.items():
    seed("http2-session", name, content)

# MARK: hpack. Pieces of 1, a length of two bytes, the block.


def block(content, pieces=1):
    return bytes([pieces - 1]) + len(content).to_bytes(2, "big") + content


# RFC 7541 appendix C.
seed("hpack", "literal", b"\0" + block(bytes.fromhex("400a637573746f6d2d6b65790d637573746f6d2d686561646572")))
seed("hpack", "never-indexed", b"\0" + block(bytes.fromhex("100870617373776f726406736563726574")))
seed("hpack", "responses", b"\0" + block(bytes.fromhex(
    "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3"), 3)
    + block(bytes.fromhex("4883640effc1c0bf"), 2))
seed("hpack", "table-size", b"\0" + block(bytes.fromhex("3fe11f88")) + block(bytes.fromhex("2088")))
seed("hpack", "no-index", b"\0" + block(b"\xff\xff\xff\xff\x0f") + block(b"\x80"))
seed("hpack", "cut-off", b"\0" + block(b"\x40\x0a"))
seed("hpack", "empty", b"\0" + block(b""))
seed("hpack", "heads", b"\1" + bytes([1, 0, 3, 2, 5, 2, 5, 1, 1, 200, 6, 9, 2, 1, 6, 255]))
seed("hpack", "heads-and-table-sizes", b"\1" + bytes([1, 0, 3, 2, 5, 0, 40, 2, 5, 4, 0, 0, 16, 0, 2, 7, 1, 1, 200, 6, 9]))

# MARK: json
seed("json", "all-kinds", '{"a":[1,-2.5e+3,true,false,null,{}],"b":"text","a":[]}')
seed("json", "escapes", r'["\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00\ud800x\u0000"]')
seed("json", "utf-8", '["é€😀"]')
seed("json", "bad-utf-8", b'["\xc0\x80\xed\xa0\x80\xf5"]')
seed("json", "deep", "[" * 64 + "]" * 64)
seed("json", "too-deep", "[" * 65 + "]" * 65)
seed("json", "numbers", "[0,-0,1.0,1e5,1E-5,9223372036854775807,9223372036854775808,-9223372036854775808]")
seed("json", "bad-numbers", "[01]")
seed("json", "space", " \t\r\n[ 1 , 2 ] \n")
seed("json", "cut-off", '{"data":[{"status":"ok","id":"')
seed("json", "escaped-name", r'{"\u0064ata":1}')

# MARK: answers


def answer(status, body="", *fields):
    return "\n".join([str(status), *fields, "", body])


for status, reason in [(400, "BadDeviceToken"), (400, "IdleTimeout"), (403, "ExpiredProviderToken"),
                       (403, "InvalidProviderToken"), (403, "UnrelatedKeyIdInToken"), (404, "BadPath"),
                       (410, "Unregistered"), (410, "ExpiredToken"), (413, "PayloadTooLarge"), (429, "TooManyRequests"),
                       (429, "TooManyProviderTokenUpdates"), (500, "InternalServerError"), (503, "Shutdown"),
                       (503, "Unregistered")]:
    seed("apns-answer", f"{status}-{reason}", answer(status, f'{{"reason":"{reason}","timestamp":1700000000000}}'))
seed("apns-answer", "200", answer(200, "", "apns-id: 2CFC6B9A-0E8B-43E3-A6A1-5D4B4FB3B2D5"))
seed("apns-answer", "410-at-the-end-of-time", answer(410, '{"reason":"Unregistered","timestamp":9223372036854775807}'))
seed("apns-answer", "410-before-time", answer(410, '{"reason":"Unregistered","timestamp":-1}'))
seed("apns-answer", "429-retry-after", answer(429, '{"reason":"TooManyRequests"}', "retry-after: 7"))
seed("apns-answer", "502-html", answer(502, "<title>502</title>"))

google = "type.googleapis.com/google."


def error(status, code, message="", *details):
    details = [f'{{"@type":"{google}firebase.fcm.v1.FcmError","errorCode":"{code}"}}', *details]
    return f'{{"error":{{"code":{status},"message":"{message}","status":"X","details":[{",".join(details)}]}}}}'


for status, code in [(400, "INVALID_ARGUMENT"), (401, "THIRD_PARTY_AUTH_ERROR"), (403, "SENDER_ID_MISMATCH"),
                     (404, "UNREGISTERED"), (429, "QUOTA_EXCEEDED"), (500, "INTERNAL"), (503, "UNAVAILABLE")]:
    seed("fcm-answer", f"{status}-{code}", answer(status, error(status, code), "retry-after: 30"))
for status, code in [(400, "INVALID_ARGUMENT"), (401, "UNAUTHENTICATED"), (403, "PERMISSION_DENIED"), (404, "NOT_FOUND"),
                     (429, "RESOURCE_EXHAUSTED")]:
    seed("fcm-answer", f"{status}-{code}-of-google", answer(status, f'{{"error":{{"status":"{code}"}}}}'))
seed("fcm-answer", "200", answer(200, '{"name":"projects/p/messages/0:1"}'))
seed("fcm-answer", "400-token-by-message", answer(400, error(
    400, "INVALID_ARGUMENT", "The registration token is not a valid FCM registration token")))
seed("fcm-answer", "400-token-by-field", answer(400, error(
    400, "INVALID_ARGUMENT", "",
    f'{{"@type":"{google}rpc.BadRequest","fieldViolations":[{{"field":"message.token"}}]}}')))
seed("fcm-answer", "429-of-device", answer(429, error(
    429, "QUOTA_EXCEEDED", "",
    f'{{"@type":"{google}rpc.QuotaFailure","violations":[{{"subject":"device:1","description":"d"}}]}}')))
seed("fcm-answer", "429-of-project", answer(429, error(
    429, "QUOTA_EXCEEDED", "",
    f'{{"@type":"{google}rpc.QuotaFailure","violations":[{{"subject":"project:1"}},{{}}]}}'),
    "retry-after: Sun, 06 Nov 2044 08:49:37 GMT", "date: Sun, 06 Nov 2044 08:49:07 GMT"))
seed("fcm-answer", "502-html", answer(502, "<title>502</title>"))

ticket = '{"status":"ok","id":"XXXXXXXX-XXXX-XXXX-XXXX-XXXXXXXXXXXX"}'
codes = ["DeviceNotRegistered", "MessageTooBig", "MessageRateExceeded", "MismatchSenderId", "InvalidCredentials",
         "DeveloperError", "ExpoError", "ProviderError", "Undocumented"]
bad = [f'{{"status":"error","message":"m","details":{{"error":"{code}"}}}}' for code in codes]
seed("expo-tickets", "ok", answer(200, f'{{"data":[{ticket}]}}'))
seed("expo-tickets", "ok-even", answer(200, f'{{"data":[{ticket}]}} '))
for code, content in zip(codes, bad):
    seed("expo-tickets", f"error-{code}", answer(200, f'{{"data":[{ticket},{content},7]}}'))
    seed("expo-receipts", f"error-{code}", answer(200, f'{{"data":{{"a":{content},"b":{{"status":"ok"}},"c":{content}}}}}'))
for code in ["TOO_MANY_REQUESTS", "PUSH_TOO_MANY_NOTIFICATIONS", "UNAUTHORIZED", "PUSH_TOO_MANY_RECEIPTS"]:
    for target in ["expo-tickets", "expo-receipts"]:
        seed(target, code, answer(400, f'{{"errors":[{{"code":"{code}","message":"m"}}],"x":[{{}},{{}}]}}'))
seed("expo-tickets", "PUSH_TOO_MANY_EXPERIENCE_IDS", answer(400, (
    '{"errors":[{"code":"PUSH_TOO_MANY_EXPERIENCE_IDS","details":{"@a/b":["ExponentPushToken[1]"],"@c/d":'
    '["ExponentPushToken[2]",7]}}],"x":[{}]}')))
seed("expo-tickets", "429", answer(429, "", "retry-after: 5"))
seed("expo-receipts", "429", answer(429, "", "retry-after: 5"))
seed("expo-receipts", "data-array", answer(200, '{"data":[]}'))
seed("oauth-answer", "granted", answer(200, '{"access_token":"ya29.abc","expires_in":3599,"token_type":"Bearer"}'))
seed("oauth-answer", "no-bearer", answer(200, '{"access_token":"ya29.abc","expires_in":3599,"token_type":"mac"}'))
seed("oauth-answer", "for-ever", answer(200, '{"access_token":"a","expires_in":9223372036854775807}'))
for code in ["invalid_grant", "invalid_client", "invalid_scope"]:
    seed("oauth-answer", code, answer(400, f'{{"error":"{code}","error_description":"d"}}'))
seed("oauth-answer", "long-error", answer(400, '{"error":"' + "x" * 500 + '"}'))
seed("oauth-answer", "404", answer(404, "<title>404</title>"))

# MARK: dates and fields
for name, date in [("imf", "Sun, 06 Nov 1994 08:49:37 GMT"), ("rfc850", "Sunday, 06-Nov-94 08:49:37 GMT"),
                   ("asctime", "Sun Nov  6 08:49:37 1994"), ("leap-day", "Thu, 29 Feb 2024 23:59:60 GMT"),
                   ("no-leap-day", "Sat, 31 Feb 2026 00:00:00 GMT"), ("year-9999", "Fri, 31 Dec 9999 23:59:59 GMT")]:
    seed("http-dates", name, f"{date}\n{date}\n12345678")
for name, seconds in [("seconds", "120"), ("zero", "0"), ("many", "999999999999999999"), ("too-many", "9" * 30),
                      ("negative", "-1"), ("fraction", "1.5"), ("empty", "")]:
    seed("http-dates", name, f"{seconds}\n\n\0\0\0\1\0\0\0\0")
seed("answer-fields", "answer", "HTTP/2 429\nRetry-After: 5\ndate:Sun, 06 Nov 1994 08:49:37 GMT \nother: x")
seed("answer-fields", "interim", "HTTP/1.1 103\nretry-after: 1\nHTTP/1.1 200\ndate:\n")
seed("answer-fields", "no-colon", "retry-after\nretry\rafter: 5\nRETRY-AFTER:\t\n")
seed("answer-fields", "word", "max_age")
seed("answer-fields", "reason", '{"reason":"Shutdown"}')
seed("answer-fields", "no-word", '{"reason":"device token abc"}')


# MARK: connect-answer. The size of the pieces less one, then the answer.

for name, answer in {
    "squid": "HTTP/1.1 200 Connection established\r\n\r\n",
    "tinyproxy": "HTTP/1.0 200 Connection established\r\nProxy-agent: tinyproxy/1.11.1\r\n\r\n",
    "interim": "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200\n\n",
    "login": 'HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="x"\r\n\r\n',
    "body": "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "upgrade": "HTTP/1.1 101 Switching Protocols\r\n\r\n",
    "banner": "SSH-2.0-OpenSSH_9.2\r\n",
}.items():
    seed("connect-answer", name, b"\x02" + answer.encode())
