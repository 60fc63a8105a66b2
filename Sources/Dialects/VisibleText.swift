// The texts the gateway writes itself: shown below the name of a caller or sender. None contains the text of a message.

enum VisibleText: CaseIterable, Sendable {
  case incomingCall
  case incomingVideoCall
  case missedCall
  case missedVideoCall
  case newMessage
  case newGroupMessage
  case groupInvitation
  case callEnded

  func text(in language: Language) -> String {
    let texts = Self.texts(in: language)
    return switch self {
    case .incomingCall: Self.incomingTexts(in: language).call
    case .incomingVideoCall: Self.incomingTexts(in: language).videoCall
    case .missedCall: texts.missedCall
    case .missedVideoCall: texts.missedVideoCall
    case .newMessage: texts.newMessage
    case .newGroupMessage: texts.newGroupMessage
    case .groupInvitation: texts.groupInvitation
    case .callEnded: Self.callEnded(in: language)
    }
  }

  private typealias Texts = (
    missedCall: String, missedVideoCall: String, newMessage: String, newGroupMessage: String, groupInvitation: String
  )

  private static func incomingTexts(in language: Language) -> (call: String, videoCall: String) {
    switch language {
    case .dutch: ("Inkomende oproep", "Inkomend videogesprek")
    case .english: ("Incoming call", "Incoming video call")
    case .german: ("Eingehender Anruf", "Eingehender Videoanruf")
    case .french: ("Appel entrant", "Appel vidéo entrant")
    case .spanish: ("Llamada entrante", "Videollamada entrante")
    case .italian: ("Chiamata in arrivo", "Videochiamata in arrivo")
    case .portuguese: ("Chamada recebida", "Videochamada recebida")
    case .brazilianPortuguese: ("Chamada recebida", "Chamada de vídeo recebida")
    case .norwegian: ("Innkommende anrop", "Innkommende videoanrop")
    case .swedish: ("Inkommande samtal", "Inkommande videosamtal")
    case .danish: ("Indgående opkald", "Indgående videoopkald")
    case .polish: ("Połączenie przychodzące", "Przychodzące połączenie wideo")
    case .turkish: ("Gelen arama", "Gelen görüntülü arama")
    }
  }

  /// Replaces an incoming call that is over, for any reason.
  private static func callEnded(in language: Language) -> String {
    switch language {
    case .dutch: "Gesprek beëindigd"
    case .english: "Call ended"
    case .german: "Anruf beendet"
    case .french: "Appel terminé"
    case .spanish: "Llamada finalizada"
    case .italian: "Chiamata terminata"
    case .portuguese: "Chamada terminada"
    case .brazilianPortuguese: "Chamada encerrada"
    case .norwegian: "Anrop avsluttet"
    case .swedish: "Samtalet avslutat"
    case .danish: "Opkald afsluttet"
    case .polish: "Połączenie zakończone"
    case .turkish: "Arama sona erdi"
    }
  }

  /// The table: a switch, so that no language can be without a text. None of them needs escaping in JSON.
  private static func texts(in language: Language) -> Texts {
    switch language {
    case .dutch:
      ("Gemiste oproep", "Gemist videogesprek", "Nieuw bericht", "Nieuw groepsbericht", "Groepsuitnodiging")
    case .english:
      ("Missed call", "Missed video call", "New message", "New group message", "Group invitation")
    case .german:
      ("Verpasster Anruf", "Verpasster Videoanruf", "Neue Nachricht", "Neue Gruppennachricht", "Gruppeneinladung")
    case .french:
      ("Appel manqué", "Appel vidéo manqué", "Nouveau message", "Nouveau message de groupe", "Invitation à un groupe")
    case .spanish:
      ("Llamada perdida", "Videollamada perdida", "Mensaje nuevo", "Mensaje de grupo nuevo", "Invitación a un grupo")
    case .italian:
      ("Chiamata persa", "Videochiamata persa", "Nuovo messaggio", "Nuovo messaggio di gruppo", "Invito a un gruppo")
    case .portuguese:
      (
        "Chamada não atendida", "Videochamada não atendida", "Nova mensagem", "Nova mensagem de grupo",
        "Convite para um grupo"
      )
    case .brazilianPortuguese:
      (
        "Chamada perdida", "Chamada de vídeo perdida", "Nova mensagem", "Nova mensagem no grupo",
        "Convite para um grupo"
      )
    case .norwegian:
      ("Tapt anrop", "Tapt videoanrop", "Ny melding", "Ny gruppemelding", "Gruppeinvitasjon")
    case .swedish:
      ("Missat samtal", "Missat videosamtal", "Nytt meddelande", "Nytt gruppmeddelande", "Gruppinbjudan")
    case .danish:
      ("Ubesvaret opkald", "Ubesvaret videoopkald", "Ny besked", "Ny gruppebesked", "Gruppeinvitation")
    case .polish:
      (
        "Nieodebrane połączenie", "Nieodebrane połączenie wideo", "Nowa wiadomość", "Nowa wiadomość grupowa",
        "Zaproszenie do grupy"
      )
    case .turkish:
      ("Cevapsız arama", "Cevapsız görüntülü arama", "Yeni mesaj", "Yeni grup mesajı", "Grup daveti")
    }
  }
}
