// The languages of the texts the gateway writes itself, and how a locale chooses one.

/// A language of the gateway's texts. The raw values are BCP 47 tags.
public enum Language: String, CaseIterable, Sendable {
  case dutch = "nl"
  case english = "en"
  case german = "de"
  case french = "fr"
  case spanish = "es"
  case italian = "it"
  case portuguese = "pt"
  case brazilianPortuguese = "pt-BR"
  case norwegian = "no"
  case swedish = "sv"
  case danish = "da"
  case polish = "pl"
  case turkish = "tr"

  /// The language of a locale, or nil if it is not supported.
  ///
  /// Only the language counts (`de-AT` is `de`), except for Brazil; both written forms of Norwegian are `no`. Phones also
  /// report the POSIX form, `pt_BR.UTF-8`.
  /// - Parameter locale: BCP 47 in UTF-8, in any case.
  public init?(locale: some Collection<UInt8>) {
    let tag = locale.prefix { $0 != UInt8(ascii: ".") && $0 != UInt8(ascii: "@") }
    let subtags = tag.split { $0 == UInt8(ascii: "-") || $0 == UInt8(ascii: "_") }
      .map { String(decoding: $0, as: UTF8.self).lowercased() }
      .prefix { $0.count > 1 }  // a single letter starts an extension, which has another meaning
    switch subtags.first {
    case nil: return nil
    case "nb", "nn": self = .norwegian
    case "pt" where subtags.contains("br"): self = .brazilianPortuguese
    case let language?: self.init(rawValue: language)
    }
  }
}
