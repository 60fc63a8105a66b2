// Keys made by the openssl command for these tests alone: nothing anywhere accepts them.

enum KeyFixtures {
  /// PKCS#8, as Apple's .p8 files are.
  static let pkcs8 = """
    -----BEGIN PRIVATE KEY-----
    MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg7DgoU35BdDTb7jDX
    /Fq9zF0TYpqn4rQ3IhhjdUNuEuihRANCAASEe4h+VwAfb/hAkQtNV5hBeUBH+kVy
    uUt8ESit5Y+LTydIc/vPocZEsBlFpnxX/M4LAH7MPBWawzQQVpt9u1Jx
    -----END PRIVATE KEY-----
    """

  /// The same key as SEC1.
  static let sec1 = """
    -----BEGIN EC PRIVATE KEY-----
    MHcCAQEEIOw4KFN+QXQ02+4w1/xavcxdE2Kap+K0NyIYY3VDbhLooAoGCCqGSM49
    AwEHoUQDQgAEhHuIflcAH2/4QJELTVeYQXlAR/pFcrlLfBEoreWPi08nSHP7z6HG
    RLAZRaZ8V/zOCwB+zDwVmsM0EFabfbtScQ==
    -----END EC PRIVATE KEY-----
    """

  /// The same key as `openssl ecparam -genkey` writes it: a parameter block comes first.
  static let sec1WithParameters = """
    -----BEGIN EC PARAMETERS-----
    BggqhkjOPQMBBw==
    -----END EC PARAMETERS-----
    -----BEGIN EC PRIVATE KEY-----
    MHcCAQEEIOw4KFN+QXQ02+4w1/xavcxdE2Kap+K0NyIYY3VDbhLooAoGCCqGSM49
    AwEHoUQDQgAEhHuIflcAH2/4QJELTVeYQXlAR/pFcrlLfBEoreWPi08nSHP7z6HG
    RLAZRaZ8V/zOCwB+zDwVmsM0EFabfbtScQ==
    -----END EC PRIVATE KEY-----
    """

  /// Its public half.
  static let ecPublic = """
    -----BEGIN PUBLIC KEY-----
    MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEhHuIflcAH2/4QJELTVeYQXlAR/pF
    crlLfBEoreWPi08nSHP7z6HGRLAZRaZ8V/zOCwB+zDwVmsM0EFabfbtScQ==
    -----END PUBLIC KEY-----
    """

  /// The same key behind a passphrase.
  static let pkcs8Encrypted = """
    -----BEGIN ENCRYPTED PRIVATE KEY-----
    MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAgj9tQXmwhhmQICCAAw
    DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEBQbPa6VrLYSnx0+SxZ6If4EgZA8
    ULmV1pAWtmWhh74nH/Xmm7aUATMXCTQ1G6d4s0wy3cMNFZF3UewvtW/1TBjq+rm9
    XIzudtWo9INBeBzioWVkofSn6DUCpc8rAdaNUGgGlMOrAs+U0xxGk/8Sy8rBwOsK
    mWiCaEiK58N7LUIDI8D/q/H1DmENd3ya0jvTGCbSAJtqMTbtOoFQ+IbvygY4JrU=
    -----END ENCRYPTED PRIVATE KEY-----
    """

  /// The same key behind a passphrase, in the old form.
  static let sec1Encrypted = """
    -----BEGIN EC PRIVATE KEY-----
    Proc-Type: 4,ENCRYPTED
    DEK-Info: AES-128-CBC,B5DC0B140879F5DF5FAEA93D9BB65BB9

    pI0KcVB+EBD168cCl1jOscLj+37O116Uf/xqA86up9tN2TUCX1bJEk0XTDEJz4U0
    X9fku3RtOliZQV+Ow2kUuBU9exPYQ4F+ToQJRVMGntqNiDV6W+XC43XuqmOX09uY
    B1fJ0m/T32DB9qitaGC/MezQ4lE5RdVg+3EPaOLHP4Y=
    -----END EC PRIVATE KEY-----
    """

  /// A curve ES256 does not use.
  static let p384 = """
    -----BEGIN PRIVATE KEY-----
    MIG2AgEAMBAGByqGSM49AgEGBSuBBAAiBIGeMIGbAgEBBDDSUfURLU2szXlUNXfx
    EQldwUbuEwhboLNa8e+qqHjnFR6+0p9ke+1/jyTkbhX/oimhZANiAASV2nlORWOH
    wUREXhFR8Gi6yf6pXpXchJRZp+gkdXvK85ZT+j2dwtH2SBGk2fcj3cHcSTqUIlkQ
    uZijvesfNm6S+Jp4oI5Al7Ev2x1I+sCcUJb85WyH5Yr5GvSGvOCldTo=
    -----END PRIVATE KEY-----
    """

  /// Neither EC nor RSA.
  static let ed25519 = """
    -----BEGIN PRIVATE KEY-----
    MC4CAQAwBQYDK2VwBCIEIK39gaJ4zDiORIQJTKObjIYpkiddhskWhFN4+OKjRkiN
    -----END PRIVATE KEY-----
    """

  /// RSA, PKCS#1.
  static let pkcs1 = """
    -----BEGIN RSA PRIVATE KEY-----
    MIIEogIBAAKCAQEAnQB7M51NF08i5pqfPo0HegNnhk9EN7Zn6zrcUezmD2RgbX2E
    SvxH1x5LbaUpfTl8hKu3l8tJi0HJTHF7P+JptTvg/lP4GLJbAToGNIz2B/fER1PL
    05mkmTXWWL0mmT40jZHRpKSknZi9Gsac++g1T0LHR7ZO78SGlcH/fitvxA13y1VP
    hpdj4j4oYdnCSqkY/iAzDzSaMD7a8hMAFnBtqSyPMti2zqrk2EUHOKXxSIk1CHrb
    U2fMaJY51xju14uVuRdk3kCQpDpw3JiwqSkw0jCB0Gto/5Q4muoJ3GhLPoK+f1ic
    rs0mtcSbIZjgW4ZmC8P3f4DiL4Q7Wba9NITdMwIDAQABAoIBABLAi6E8PjNKL3Kj
    BeF/D2U3t4tnjPqpMxD52cuAjnCeM5Tq81HQKiB7138uxUgrWpUEvDae1ZeSxvag
    w0YmcSvFYs0zEvntgPMiOWWDb0tqViuSyvs+FFZ8WLAGqkU5adDS7tr0aKOuKkAN
    eD3vm+vDSnFlSVkCpx8x/vsp4v05J/wEMaNwk/HXHMT/IVCjWwRlNbDsuhRwpkwy
    E6deDysL5ZEe3DgTgHWVDmZR77R4kN+srcQ9HDo2NwmEguo3S2hCC8G+fEi/WtM8
    wqauS+61Ido6i8L7YArTHxFcN64I3qjjIp3JSayaAKn0cABdBEQDXBSgd5aBAq3q
    s/VcJKkCgYEA0QGs7MjK0ueULKUfihSCiZUKuGjLv80Rf2dFvWcAR6XpzLB7XaYJ
    VXjS+pB3kglfqRXTNyIfO69uC9kZP1RB5nDiHOC0O2WPc4XClUu0k2qT2kaTyWP7
    ECOQUaKRMkGhU0DUUfRlxAhB0/XWowBfZJGbpc5BHuTndAXKxz38Yf8CgYEAwE1w
    sLiPLaRSfV/T/c8Q3dgTWbkdIY7QV/i4ZmJUig1ob+hxeOUjW44kPvoVhAw7hdti
    RYbMg0VsS4WuyESm30YyxfxoEBEwETykh89HoxLJBCKJmgqrUbYBx91gEBKywnQJ
    +LJnwH/ua/LT6ZWjajqPOeqpCBpJzSE6ZrRNnM0CgYAb8xlo4MEeyxEplztMf8ml
    FGVGm90DXS0F2I2e8nM7IZjOYptcvqNo5qtwDnmu8cn1FpIUQV/j32Xb98BEk8Ps
    SRQzwGjZuI8iZ7TJukH/pLT474870z7zvY3DHPZFvjkQpQ6/lus099W1vp5hVd9r
    13z1A0v6EapR/aRMWKGziQKBgBOIijbZOGn5dAuaLU1tuBfgt+54ODZNbGpTMF/u
    AwpW3FHpuYT/OX02TgY7nu3f1Df/ldbcH3ACIEL3nE5pcs3hMo0b23IuXMSTdV76
    Nhuhb9vEqleEV+yf4URs/zICxDeuU8j4TkOmexBqBQ6IDaZftma6qFrTWMXGZ0lB
    bVTNAoGAHme2rhx/eKOi854Rf9iPcuNVaKyeKLvax0YSwdnZHvQwBhmey2T4wF5H
    3EOP0iubgOpGKcaPmnZyJYvplKjlTGr4SGwvuKDviHzxa8zIHb56cxLxFvb+sP6S
    YrlHKHxDm3E2P2bTaHgK5jq+nUbGVOMgYcI0JF0/MUpmDsegLlk=
    -----END RSA PRIVATE KEY-----
    """

  /// The same RSA key as PKCS#8, as in a Google service account.
  static let rsaPKCS8 = """
    -----BEGIN PRIVATE KEY-----
    MIIEvAIBADANBgkqhkiG9w0BAQEFAASCBKYwggSiAgEAAoIBAQCdAHsznU0XTyLm
    mp8+jQd6A2eGT0Q3tmfrOtxR7OYPZGBtfYRK/EfXHkttpSl9OXyEq7eXy0mLQclM
    cXs/4mm1O+D+U/gYslsBOgY0jPYH98RHU8vTmaSZNdZYvSaZPjSNkdGkpKSdmL0a
    xpz76DVPQsdHtk7vxIaVwf9+K2/EDXfLVU+Gl2PiPihh2cJKqRj+IDMPNJowPtry
    EwAWcG2pLI8y2LbOquTYRQc4pfFIiTUIettTZ8xoljnXGO7Xi5W5F2TeQJCkOnDc
    mLCpKTDSMIHQa2j/lDia6gncaEs+gr5/WJyuzSa1xJshmOBbhmYLw/d/gOIvhDtZ
    tr00hN0zAgMBAAECggEAEsCLoTw+M0ovcqMF4X8PZTe3i2eM+qkzEPnZy4COcJ4z
    lOrzUdAqIHvXfy7FSCtalQS8Np7Vl5LG9qDDRiZxK8VizTMS+e2A8yI5ZYNvS2pW
    K5LK+z4UVnxYsAaqRTlp0NLu2vRoo64qQA14Pe+b68NKcWVJWQKnHzH++yni/Tkn
    /AQxo3CT8dccxP8hUKNbBGU1sOy6FHCmTDITp14PKwvlkR7cOBOAdZUOZlHvtHiQ
    36ytxD0cOjY3CYSC6jdLaEILwb58SL9a0zzCpq5L7rUh2jqLwvtgCtMfEVw3rgje
    qOMinclJrJoAqfRwAF0ERANcFKB3loECreqz9VwkqQKBgQDRAazsyMrS55QspR+K
    FIKJlQq4aMu/zRF/Z0W9ZwBHpenMsHtdpglVeNL6kHeSCV+pFdM3Ih87r24L2Rk/
    VEHmcOIc4LQ7ZY9zhcKVS7STapPaRpPJY/sQI5BRopEyQaFTQNRR9GXECEHT9daj
    AF9kkZulzkEe5Od0BcrHPfxh/wKBgQDATXCwuI8tpFJ9X9P9zxDd2BNZuR0hjtBX
    +LhmYlSKDWhv6HF45SNbjiQ++hWEDDuF22JFhsyDRWxLha7IRKbfRjLF/GgQETAR
    PKSHz0ejEskEIomaCqtRtgHH3WAQErLCdAn4smfAf+5r8tPplaNqOo856qkIGknN
    ITpmtE2czQKBgBvzGWjgwR7LESmXO0x/yaUUZUab3QNdLQXYjZ7yczshmM5im1y+
    o2jmq3AOea7xyfUWkhRBX+PfZdv3wESTw+xJFDPAaNm4jyJntMm6Qf+ktPjvjzvT
    PvO9jcMc9kW+ORClDr+W6zT31bW+nmFV32vXfPUDS/oRqlH9pExYobOJAoGAE4iK
    Ntk4afl0C5otTW24F+C37ng4Nk1salMwX+4DClbcUem5hP85fTZOBjue7d/UN/+V
    1twfcAIgQvecTmlyzeEyjRvbci5cxJN1Xvo2G6Fv28SqV4RX7J/hRGz/MgLEN65T
    yPhOQ6Z7EGoFDogNpl+2ZrqoWtNYxcZnSUFtVM0CgYAeZ7auHH94o6LznhF/2I9y
    41VorJ4ou9rHRhLB2dke9DAGGZ7LZPjAXkfcQ4/SK5uA6kYpxo+adnIli+mUqOVM
    avhIbC+4oO+IfPFrzMgdvnpzEvEW9v6w/pJiuUcofEObcTY/ZtNoeArmOr6dRsZU
    4yBhwjQkXT8xSmYOx6AuWQ==
    -----END PRIVATE KEY-----
    """

  /// Too short.
  static let rsa1024 = """
    -----BEGIN PRIVATE KEY-----
    MIICdgIBADANBgkqhkiG9w0BAQEFAASCAmAwggJcAgEAAoGBAMkkgSLm/tuDVZlF
    ujZvL/T4Sqj6Xjp6p+tkb/ADeKx0ZIiwn30T+LBFryRCcGklHSvc+iPFzJreMGvc
    4szMTsVHXovlFuSVgw70GePE2nLQwgDChaP2AA2yYHhhPdGsHoXHF3U78yua1ktU
    gANxuVwCQzrC3wgRglL793GEKk1nAgMBAAECgYBOWWHT7paneukE4xw9x+GuUmkC
    mUPLE6wFDQJtQ2zmABCJDgOR/Q2J3Br0zMxsqIBMba8h8BJa4OGLombVz19+2AHn
    HeoUr1T+noj2k4kAQ5JfMcm7hzP94/R1Niwn5UmX9NiISItSjQ1OqwHbGa5RnGYT
    1TXcfYq1FHwOFq0bAQJBAOsE6PoiTKZGZ+obYbMDlgrUylJNUeYDs/lOMvOdW3gw
    N5eJJea4TIx3PNsAPk3nZb2dOMbhoQY5HHtgJNY/r3ECQQDbGWJrEFNT0rHqEYzv
    bT9TGOhq1ekeMMRX5QMirq5YqMcFbrrTEV0WPB7/eH0P1Gp848d3hTUcD6oyHnQ0
    BY5XAkEAzAdMNvMV9fgDeJLi42VGmgqXxpGHexdV5CZGR4YhhZreeDjBZaY0FnHh
    rAJvFHTBt7ZJNydkAqIMHvOdpz5MkQJAQUSfl+tGF2tliqftxwlRWuzJl8Hfbxnx
    84kKVROaZljo6Mpipyu+Ajiot0vqXYPWsRuduRIajyBvf/yoezLIgwJAZT6i9a/3
    FsW0KwiXzuKUqwLLu9RekVytDsfDlbsuJy76osDmmj04lJCvZKX0npXo8vnFTy7i
    52ZF/BiPO7F1vw==
    -----END PRIVATE KEY-----
    """
}
