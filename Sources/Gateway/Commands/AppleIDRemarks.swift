// Warnings about ids of Apple that cannot be right. Apple has the last word: `check-config --connect` asks it.

internal import Settings

enum AppleIDRemarks {
  /// One sentence for each warning. It begins with the key and ends with the remedy.
  static func all(of configuration: GatewayConfiguration) -> [String] {
    configuration.apps.flatMap { app -> [String] in
      guard let apns = app.apns else { return [] }
      let path = "apps.\(app.name).apns"
      var remarks = [("team_id", apns.teamID), ("key_id", apns.keyID)].compactMap { key, id in
        hasForm(id)
          ? nil
          : "\(path).\(key): \(id) is not ten capitals and digits, as every id of Apple is: copy it from developer.apple.com"
      }
      if let named = keyID(inNameOf: apns.keyFile), named != apns.keyID {
        remarks.append(
          "\(path).key_id: is \(apns.keyID), but the name of \(apns.keyFile) says \(named): one of them is of another key"
        )
      }
      return remarks
    }
  }

  private static func hasForm(_ id: some StringProtocol) -> Bool {
    id.utf8.count == 10
      && id.utf8.allSatisfy {
        UInt8(ascii: "A")...UInt8(ascii: "Z") ~= $0 || UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0
      }
  }

  /// The id in a name like that which Apple gives the file: `AuthKey_ABC123DEFG.p8`.
  private static func keyID(inNameOf file: String) -> String? {
    guard let name = file.split(separator: "/").last, name.hasPrefix("AuthKey_"), name.hasSuffix(".p8") else {
      return nil
    }
    let id = name.dropFirst("AuthKey_".count).dropLast(".p8".count)
    return hasForm(id) ? String(id) : nil
  }
}
