// The settings of the paths that clients of other push servers use: Matrix homeservers and clients of gorush.

internal import Runtime

extension GatewayConfiguration {
  static func matrixNetworks(_ path: [String], _ reader: inout ConfigurationReader) -> [IPRange]? {
    networks(path + ["networks"], &reader)
  }

  static func gorush(_ path: [String], _ reader: inout ConfigurationReader) -> Gorush? {
    let isEnabled = reader.choice(path + ["enabled"], [("true", true), ("false", false)], default: false)
    let gorush = Gorush(
      networks: networks(path + ["networks"], &reader) ?? [], app: reader.text(path + ["app"]),
      hidesTokens: reader.choice(path + ["hide_tokens"], [("true", true), ("false", false)], default: true))
    if gorush.app == nil, !gorush.networks.isEmpty {
      reader.note(path + ["networks"], "needs api.gorush.app: a request without a key does not name its app")
    } else if gorush.app != nil, gorush.networks.isEmpty, !reader.hasProblems(in: path + ["networks"]) {
      reader.note(path + ["app"], "needs api.gorush.networks; with a key, the key determines the app")
    }
    return isEnabled ? gorush : nil
  }

  static func matrix(_ path: [String], _ reader: inout ConfigurationReader) -> MatrixAppIDs? {
    guard reader.source.has(path) else { return nil }
    var patterns: [MatrixAppIDs.TokenKind: [MatrixAppIDs.Pattern]] = [:]
    for kind in MatrixAppIDs.TokenKind.allCases {
      let ids = appIDs(path + [kind.rawValue], &reader)
      guard !ids.isEmpty else { continue }
      patterns[kind] = ids
      let provider = kind == .fcm ? "fcm" : "apns"
      if !reader.source.has(path.dropLast() + [provider]) {
        reader.note(path + [kind.rawValue], "needs the section \(provider), which the app does not have")
      }
    }
    let sandbox = appIDs(path + ["sandbox"], &reader)
    if patterns.isEmpty, !reader.hasProblems(in: path) {
      reader.note(path, "must have at least one of voip, apns and fcm, with the app_id of the app's pushers")
    } else if !sandbox.isEmpty, patterns[.voip] == nil, patterns[.apns] == nil {
      reader.note(path + ["sandbox"], "needs voip or apns: only Apple has a sandbox")
    }
    return MatrixAppIDs(patterns: patterns, sandbox: sandbox)
  }

  /// What can only be seen with all sections together.
  static func checkFronts(_ apps: [App], _ reader: inout ConfigurationReader) {
    let networks = ["api", "matrix", "networks"]
    if reader.source.has(["api", "matrix"]), apps.allSatisfy({ $0.matrix == nil }), !reader.hasProblems(in: ["apps"]) {
      reader.note(
        ["api", "matrix"], "is used by no app: add apps.APP.matrix, with the app_id of the app's pushers, or remove it")
    }
    var owners: [MatrixAppIDs.Pattern: [String]] = [:]
    for app in apps {
      guard let matrix = app.matrix else { continue }
      let path = ["apps", app.name, "matrix"]
      if reader.text(networks) == nil {
        reader.note(path, "needs api.matrix.networks, the addresses of the homeservers")
      }
      for kind in MatrixAppIDs.TokenKind.allCases {
        let here = path + [kind.rawValue]
        for pattern in matrix.patterns[kind] ?? [] {
          if let owner = owners[pattern] {
            reader.note(
              here, "\(pattern) is already in \(owner.joined(separator: ".")): an app_id has one kind of token")
          }
          owners[pattern] = here
        }
      }
    }
    let app = ["api", "gorush", "app"]
    if let name = reader.text(app), !apps.contains(where: { $0.name == name }), !reader.hasProblems(in: ["apps"]) {
      reader.note(app, "there is no app \(name)" + Suggestion.text(for: name, among: apps.map(\.name)))
    }
  }

  /// Nil if the key is missing.
  private static func networks(_ path: [String], _ reader: inout ConfigurationReader) -> [IPRange]? {
    guard reader.text(path) != nil else {
      if path[path.count - 2] == "matrix", reader.source.has(path.dropLast()) {
        reader.note(path, "is missing: the addresses of the homeservers, such as 192.0.2.7, 2001:db8::/48")
      }
      return nil
    }
    let ranges = reader.ranges(path, anyWidth: true)
    if ranges.isEmpty, !reader.hasProblems(in: path) {
      reader.note(path, "must name at least one address or network, or be left out")
    }
    return ranges
  }

  private static func appIDs(_ path: [String], _ reader: inout ConfigurationReader) -> [MatrixAppIDs.Pattern] {
    (reader.text(path) ?? "").split { $0 == "," || $0.isWhitespace }.compactMap { word in
      if let pattern = MatrixAppIDs.Pattern(word) { return pattern }
      reader.note(
        path,
        "must be app ids of at most 64 characters, separated by commas, such as com.example.app.ios or com.example.*: "
          + "an asterisk may stand only at the end")
      return nil
    }
  }
}
