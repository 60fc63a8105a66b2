// The language of a text, and the text in each language.

import DialectsTestSupport
import Foundation
import Providers
import PushModel
import Queue
import Testing

@testable import Dialects

@Suite struct DialectLanguageTests {
  private static let texts: [(tag: String, call: String, videoCall: String)] = [
    ("nl", "Gemiste oproep", "Gemist videogesprek"),
    ("en", "Missed call", "Missed video call"),
    ("de", "Verpasster Anruf", "Verpasster Videoanruf"),
    ("fr", "Appel manqué", "Appel vidéo manqué"),
    ("es", "Llamada perdida", "Videollamada perdida"),
    ("it", "Chiamata persa", "Videochiamata persa"),
    ("pt", "Chamada não atendida", "Videochamada não atendida"),
    ("pt-BR", "Chamada perdida", "Chamada de vídeo perdida"),
    ("no", "Tapt anrop", "Tapt videoanrop"),
    ("sv", "Missat samtal", "Missat videosamtal"),
    ("da", "Ubesvaret opkald", "Ubesvaret videoopkald"),
    ("pl", "Nieodebrane połączenie", "Nieodebrane połączenie wideo"),
    ("tr", "Cevapsız arama", "Cevapsız görüntülü arama"),
  ]

  @Test(arguments: texts) func `every language has a text for calls and for video calls`(
    tag: String, call: String, videoCall: String
  ) throws {
    let language = try #require(Language(locale: tag.utf8))
    #expect(language.rawValue == tag)
    #expect(VisibleText.missedCall.text(in: language) == call)
    #expect(VisibleText.missedVideoCall.text(in: language) == videoCall)
  }

  private static let chatTexts = [
    "nl": ["Nieuw bericht", "Nieuw groepsbericht", "Groepsuitnodiging"],
    "en": ["New message", "New group message", "Group invitation"],
    "de": ["Neue Nachricht", "Neue Gruppennachricht", "Gruppeneinladung"],
    "fr": ["Nouveau message", "Nouveau message de groupe", "Invitation à un groupe"],
    "es": ["Mensaje nuevo", "Mensaje de grupo nuevo", "Invitación a un grupo"],
    "it": ["Nuovo messaggio", "Nuovo messaggio di gruppo", "Invito a un gruppo"],
    "pt": ["Nova mensagem", "Nova mensagem de grupo", "Convite para um grupo"],
    "pt-BR": ["Nova mensagem", "Nova mensagem no grupo", "Convite para um grupo"],
    "no": ["Ny melding", "Ny gruppemelding", "Gruppeinvitasjon"],
    "sv": ["Nytt meddelande", "Nytt gruppmeddelande", "Gruppinbjudan"],
    "da": ["Ny besked", "Ny gruppebesked", "Gruppeinvitation"],
    "pl": ["Nowa wiadomość", "Nowa wiadomość grupowa", "Zaproszenie do grupy"],
    "tr": ["Yeni mesaj", "Yeni grup mesajı", "Grup daveti"],
  ]

  @Test(arguments: Language.allCases) func `messages and invitations have a text in every language`(
    language: Language
  ) throws {
    for (index, kind) in ["message", "group_message", "group_invite"].enumerated() {
      var fixture = DeliveryFixture()
      (fixture.kind, fixture.callKind) = (.notification, kind)
      fixture.payload["chatId"] = "room"
      (fixture.locale, fixture.appLocale) = (language.rawValue, "nl")
      let aps = try fixture.body("commeazy", .apns)["aps"] as! [String: Any]
      #expect((aps["alert"] as! [String: Any])["body"] as? String == Self.chatTexts[language.rawValue]?[index])
    }
  }

  @Test func `there are thirteen languages, and no text needs escapes in JSON`() {
    #expect(Set(Language.allCases.map(\.rawValue)) == Set(Self.texts.map(\.tag)))
    #expect(Language.allCases.count == 13)
    for language in Language.allCases {
      for text in VisibleText.allCases.map({ $0.text(in: language) }) {
        #expect(text.utf8.allSatisfy { $0 >= 0x20 && $0 != UInt8(ascii: "\"") && $0 != UInt8(ascii: "\\") })
      }
    }
  }

  private static let locales: [(locale: String, tag: String?)] = [
    ("nl-BE", "nl"), ("EN-us", "en"), ("de-AT", "de"), ("de-Latn-DE-1996", "de"), ("zh-Hans-CN", nil), ("ja", nil),
    ("pt-PT", "pt"), ("pt-br", "pt-BR"), ("pt_BR", "pt-BR"), ("pt-Latn-BR", "pt-BR"), ("pt_BR.UTF-8", "pt-BR"),
    ("pt-AO", "pt"), ("pt-PT-x-br", "pt"), ("en-BR", "en"), ("pt@currency=BR", "pt"),
    ("nb", "no"), ("nb-NO", "no"), ("nn-NO", "no"), ("no-NO", "no"), ("nb_NO.UTF-8", "no"),
    ("", nil), ("-", nil), ("C", nil), ("POSIX", nil), ("*", nil), ("x-nl", nil), ("english", nil), ("n\u{0}l", nil),
  ]

  @Test(arguments: locales) func `a locale selects its exact language first, then the language alone`(
    locale: String, tag: String?
  ) {
    #expect(Language(locale: locale.utf8)?.rawValue == tag)
  }

  @Test func `bytes that are not valid text select no language`() {
    #expect(Language(locale: [0xFF, 0xFE, 0x2D]) == nil)
  }

  @Test(
    arguments: [
      ("de-CH", "nl", "Verpasster Anruf"),
      ("ja-JP", "pt-BR", "Chamada perdida"),
      (nil, "nn", "Tapt anrop"),
      ("", "tr-TR", "Cevapsız arama"),
      ("ja-JP", "zh", "Missed call"),
      ("ja-JP", nil, "Missed call"),
      (nil, nil, "Missed call"),
      ("en-GB", "nl", "Missed call"),
    ] as [(String?, String?, String)])
  func `the device's locale is used first, then the app's, then English`(device: String?, app: String?, text: String)
    throws
  {
    var fixture = DeliveryFixture()
    fixture.kind = .missedCall
    (fixture.locale, fixture.appLocale) = (device, app)
    let aps = try fixture.body("commeazy", .apns)["aps"] as! [String: Any]
    #expect((aps["alert"] as! [String: Any])["body"] as? String == text)
  }
}
