// What a missed call says below the caller's name.

enum MissedCallText {
  static func text(in language: Language, isVideo: Bool) -> String {
    let texts = texts(in: language)
    return isVideo ? texts.videoCall : texts.call
  }

  /// The table: a switch, so that no language can be without a text. None of them needs escaping in JSON.
  private static func texts(in language: Language) -> (call: String, videoCall: String) {
    switch language {
    case .dutch: ("Gemiste oproep", "Gemiste video-oproep")
    case .english: ("Missed call", "Missed video call")
    case .german: ("Verpasster Anruf", "Verpasster Videoanruf")
    case .french: ("Appel manqué", "Appel vidéo manqué")
    case .spanish: ("Llamada perdida", "Videollamada perdida")
    case .italian: ("Chiamata persa", "Videochiamata persa")
    case .portuguese: ("Chamada não atendida", "Videochamada não atendida")
    case .brazilianPortuguese: ("Chamada perdida", "Chamada de vídeo perdida")
    case .norwegian: ("Tapt anrop", "Tapt videoanrop")
    case .swedish: ("Missat samtal", "Missat videosamtal")
    case .danish: ("Ubesvaret opkald", "Ubesvaret videoopkald")
    case .polish: ("Nieodebrane połączenie", "Nieodebrane połączenie wideo")
    case .turkish: ("Cevapsız arama", "Cevapsız görüntülü arama")
    }
  }
}
