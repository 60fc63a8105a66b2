// What a file holds that should be a key or certificate in PEM form, and how to correct it. Pure. Nothing of the content is repeated.

/// Names the usual mistakes with keys: another kind of file, and line ends that were lost on the way.
public enum PEMDiagnosis {
  /// What the file should hold.
  public enum Expected: Sendable {
    case privateKey, certificate

    fileprivate var name: String { self == .privateKey ? "private key" : "certificate" }
    fileprivate var begin: String { "'-----BEGIN \(self == .privateKey ? "PRIVATE KEY" : "CERTIFICATE")-----'" }

    fileprivate func matches(_ label: Substring) -> Bool {
      switch self {
      case .privateKey: label.hasSuffix("PRIVATE KEY") && !label.hasPrefix("OPENSSH")
      case .certificate: ["CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE"].contains(label)
      }
    }
  }

  /// What is wrong, as the end of a sentence that begins with the file, such as `is a public key: …`.
  ///
  /// - Parameter bytes: the whole file, which OpenSSL could not read.
  public static func text(of bytes: [UInt8], expected: Expected) -> String {
    let form = ": expected a \(expected.name) in PEM form, which begins with \(expected.begin)"
    if bytes.starts(with: [0xFF, 0xFE]) || bytes.starts(with: [0xFE, 0xFF])
      || bytes.prefix(64).contains(0) && bytes.first != 0x30
    {
      return "is UTF-16 text: save it as UTF-8 (iconv -f UTF-16 -t UTF-8)"
    }
    if bytes.first == 0x30, let kind = kind(ofDER: bytes) { return kind + form }
    let text = String(decoding: bytes, as: UTF8.self)
    guard let first = text.first(where: { !$0.isWhitespace }) else { return "is empty" + form }
    // A service account's has a key in PEM form in it.
    if first == "{" { return kind(ofText: text, expected) + form }
    let labels = text.split(separator: "-----BEGIN ").dropFirst(text.hasPrefix("-----BEGIN ") ? 0 : 1)
      .compactMap { $0.contains("-----") ? $0.prefix { $0 != "-" } : nil }
    if labels.contains(where: expected.matches) { return fault(inLinesOf: text, expected) }
    if let label = labels.first { return kind(ofLabel: label) + form }
    return kind(ofText: text, expected) + form
  }

  /// The PEM block is of the right kind, but cannot be read.
  private static func fault(inLinesOf text: String, _ expected: Expected) -> String {
    let asIssued = ": use the file as it was issued, with the line ends that it had"
    let lines = text.split(whereSeparator: \.isNewline)
    if text.contains("\\n") { return #"has \n written out where its lines should end"# + asIssued }
    if !text.contains("-----END ") { return "is cut off, its line -----END … is missing" + asIssued }
    if text.contains("\r"), !text.unicodeScalars.contains("\n") { return "has lines that end with CR only" + asIssued }
    if lines.contains(where: { $0.contains("-----BEGIN ") && ($0.contains("-----END ") || $0.contains("----- ")) }) {
      return "has lost its line ends, they have become blanks or nothing" + asIssued
    }
    if lines.contains(where: { $0.first?.isWhitespace == true }) { return "has indented lines" + asIssued }
    return "holds a \(expected.name) in PEM form that is damaged" + asIssued
  }

  private static func kind(ofLabel label: Substring) -> String {
    switch label {
    case _ where label.hasSuffix("PUBLIC KEY"): "is a public key"
    case "CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST": "is a certificate request"
    case _ where label.hasSuffix("CERTIFICATE"): "is a certificate"
    case "OPENSSH PRIVATE KEY": "is a private key for SSH"
    case _ where label.hasSuffix("PRIVATE KEY"): "is a private key"
    default: "holds a PEM block of another kind"
    }
  }

  private static func kind(ofText text: String, _ expected: Expected) -> String {
    let text = text.drop { $0.isWhitespace }
    let base64 = text.allSatisfy {
      $0.isASCII && ($0.isLetter || $0.isNumber || "+/=-_".contains($0)) || $0.isWhitespace
    }
    return switch text.first {
    case "{": "is JSON (a service account's belongs to fcm.service_account_file)"
    case "<": "is XML or HTML"
    case _ where text.hasPrefix("ssh-") || text.hasPrefix("ecdsa-"): "is a public key for SSH"
    case _ where base64 && text.count > 100: "lacks its first and last line, -----BEGIN … and -----END …"
    default: "holds no \(expected.name) in PEM form"
    }
  }

  /// By the elements with which the outer SEQUENCE begins: the versions of RFC 7292, 5208 and 5915, or the body of a certificate.
  private static func kind(ofDER bytes: [UInt8]) -> String? {
    guard bytes.count > 8 else { return nil }
    let start = bytes[1] < 0x80 ? 2 : 2 + Int(bytes[1] & 0x7F)
    guard start + 3 <= bytes.count else { return nil }
    return switch (bytes[start], bytes[start + 1], bytes[start + 2]) {
    case (0x02, 1, 3): "is a PKCS#12 file (.p12, .pfx); for APNs, Apple issues a .p8 key besides"
    case (0x02, 1, 0), (0x02, 1, 1): "is a private key in DER form (openssl pkey -inform DER converts it)"
    case (0x30, _, _): "is in DER form, perhaps a certificate or a public key"
    default: nil
    }
  }
}
