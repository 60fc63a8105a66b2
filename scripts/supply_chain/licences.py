"""Identifies licences from licence files of Swift packages and from Debian's copyright files."""

import re

APACHE = "Apache-2.0"
SWIFT = "Apache-2.0 WITH Swift-exception"

# Phrases that occur in only one licence, in the order of the search.
PHRASES = [
    (SWIFT, r"Apache License.*Version 2\.0.*Runtime Library Exception"),
    (APACHE, r"Apache License.*Version 2\.0"),
    ("MIT", r"Permission is hereby granted, free of charge, to any person obtaining a copy"),
    ("BSD-3-Clause", r"Redistribution and use in source and binary forms.*Neither the name"),
    ("BSD-2-Clause", r"Redistribution and use in source and binary forms"),
    ("ISC", r"Permission to use, copy, modify, and/or distribute this software for any purpose"),
    ("Zlib", r"This software is provided 'as-is', without any express or implied warranty"),
    ("CC0-1.0", r"CC0 1\.0 Universal"),
    ("MPL-2.0", r"Mozilla Public License.*2\.0"),
]


def licence_of_text(text):
    """The SPDX expression of a licence's whole text; None when it is none of those known here."""
    flat = " ".join(text.split())
    return next((name for name, phrase in PHRASES if re.search(phrase, flat, re.IGNORECASE)), None)


# Debian's short names, as copyright files write them, and SPDX's.
SPDX_OF_DEBIAN = {
    "Apache-2.0": APACHE, "BSD-2-Clause": "BSD-2-Clause", "BSD-2-clause": "BSD-2-Clause",
    "BSD-3-Clause": "BSD-3-Clause", "BSD-3-clause": "BSD-3-Clause", "BSD3": "BSD-3-Clause", "Expat": "MIT", "MIT": "MIT", "ISC": "ISC",
    "Zlib": "Zlib", "curl": "curl", "PostgreSQL": "PostgreSQL", "BSD-4-clause": "BSD-4-Clause", "Artistic": "Artistic-1.0",
    "FSFAP": "FSFAP",
    "OpenLDAP-2.8": "OLDAP-2.8", "BSL-1.0": "BSL-1.0", "Unicode-3.0": "Unicode-3.0",
    **{f"{name}-{version}{plus}": f"{name}-{full}-{'or-later' if plus else 'only'}"
       for name, versions in {"GPL": {"1": "1.0", "2": "2.0", "3": "3.0"},
                              "LGPL": {"2": "2.0", "2.0": "2.0", "2.1": "2.1", "3": "3.0"},
                              "GFDL": {"1.3": "1.3"}}.items()
       for version, full in versions.items() for plus in ("", "+")},
}

# Copyright files that are not in Debian's machine-readable format, by source package: the licence of the libraries, and the
# words in the file that state it. If the words are no longer there, the file must be read again.
READ_BY_HAND = {
    "gcc": ("GPL-3.0-or-later WITH GCC-exception-3.1", "GCC Runtime Library Exception"),
    "glibc": ("LGPL-2.1-or-later", "GNU Lesser General Public License"),
    "gnutls28": ("LGPL-2.1-or-later", "LGPL"),
    "krb5": ("MIT", "Massachusetts Institute of Technology"),
    "libtasn1-6": ("LGPL-2.1-or-later", "LGPL"),
    "rtmpdump": ("LGPL-2.1-or-later", "GNU Lesser General Public License"),
}

# Packages in which `Files: *` covers programs and the library has its own paragraph.
LIBRARY_PARAGRAPH = {"keyutils": "keyutils.*", "libidn2": "*.c"}


def licence_of_debian(source, text):
    """The SPDX expression of a Debian package's libraries, else Debian's own name of it; None when nothing is known.

    `source` is the name of the source package, `text` its copyright file.
    """
    family = re.sub(r"^(gcc)-\d+$", r"\1", source)
    if family in READ_BY_HAND:
        expression, words = READ_BY_HAND[family]
        return expression if words in " ".join(text.split()) else None
    if not re.match(r"Format: *https?://", text):
        return None
    wanted = LIBRARY_PARAGRAPH.get(source, "*")
    for paragraph in re.split(r"\n\s*\n", text):
        fields = {name.lower(): value for name, value in re.findall(r"^([A-Za-z-]+):((?:.*\n?)(?:[ \t].*\n?)*)", paragraph, re.M)}
        if wanted in fields.get("files", "").split() and "license" in fields:
            return spdx(fields["license"].strip().splitlines()[0].strip())
    return None


def spdx(debian):
    """Debian's licence, such as `GPL-2+ or Expat`, in SPDX's names if they are known; else unchanged."""
    words = re.findall(r"[^\s,]+", debian)
    operators = {"or": "OR", "and": "AND"}
    if all(word in SPDX_OF_DEBIAN or word in operators for word in words):
        translated = [operators.get(word) or SPDX_OF_DEBIAN[word] for word in words]
        return " ".join(translated)
    return debian
