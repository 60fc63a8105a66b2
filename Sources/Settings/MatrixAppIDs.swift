// Which pushers of Matrix clients belong to an app, and which kind of token they have.

/// The app ids of an app's pushers. Matrix calls the token of a phone its push key, and says of its kind nothing but the
/// `app_id` that the client has chosen.
package struct MatrixAppIDs: Sendable, Equatable {
  /// The kinds of tokens, as the configuration names them.
  package enum TokenKind: String, Sendable, CaseIterable {
    /// A PushKit token of APNs, which rings.
    case voip
    /// An ordinary token of APNs, which shows alerts.
    case apns
    /// A registration token of FCM, which does both.
    case fcm
  }

  /// One app id, or all that begin alike.
  package struct Pattern: Sendable, Hashable, CustomStringConvertible {
    /// The app id, or what stands before the asterisk.
    package let text: String
    /// Whether it stands for every app id that begins with `text`.
    package let isPrefix: Bool

    /// - Parameter word: 1 to 64 characters, the last of which may be an asterisk. The initializer returns nil for anything
    ///   else. An asterisk alone would take the pushers of every app.
    package init?(_ word: some StringProtocol) {
      isPrefix = word.last == "*"
      text = String(isPrefix ? word.dropLast() : word[...])
      guard 1...64 ~= text.unicodeScalars.count, !text.contains("*") else { return nil }
    }

    package func matches(_ appID: String) -> Bool {
      isPrefix ? appID.utf8.starts(with: text.utf8) : appID.utf8.elementsEqual(text.utf8)
    }

    package var description: String { isPrefix ? text + "*" : text }
  }

  package var patterns: [TokenKind: [Pattern]]
  /// The app ids whose tokens are of Apple's sandbox.
  package var sandbox: [Pattern]

  package init(patterns: [TokenKind: [Pattern]], sandbox: [Pattern] = []) {
    self.patterns = patterns
    self.sandbox = sandbox
  }
}
