// Tries every credential of a configuration without calling anybody.

internal import Dialects
internal import Providers
internal import Runtime

/// What became of one credential.
struct CredentialCheck {
  /// The key of the configuration it belongs to.
  var subject: String
  /// What was found; or what is wrong, naming the file and never its content.
  var result: Result<String, CommandFailure>

  static func all(of configuration: GatewayConfiguration) -> [CredentialCheck] {
    var checks: [CredentialCheck] = []
    if let file = configuration.caFile {
      checks.append(
        check("tls.ca_file") {
          _ = try TLSContext.client(caFile: file)
          return "certificates in \(file)"
        })
    }
    if let file = configuration.dashboard?.opsKeyFile {
      checks.append(
        check("dashboard.ops_key_file") {
          _ = try DashboardKey(file: file).digest()
          return "a key in \(file)"
        })
    }
    if let proxy = configuration.proxy { checks.append(check(proxy, at: "proxy")) }
    for app in configuration.apps {
      let path = "apps.\(app.name)"
      checks.append(check(path) { "dialect \(app.dialect.name), calls ring for \(app.ringSeconds) s" })
      if app.proxy != configuration.proxy { checks.append(check(app.proxy, at: "\(path).proxy")) }
      if let apns = app.apns {
        checks.append(
          check("\(path).apns") {
            let credentials = try APNsCredentials(teamID: apns.teamID, keyID: apns.keyID, keyFile: apns.keyFile)
            _ = try credentials.mint(issuedAtSeconds: SystemClock().wallMilliseconds() / 1000)
            return
              "signed an ES256 token with key \(apns.keyID) from \(apns.keyFile), for \(apns.productionURL) and \(apns.sandboxURL)"
          })
      }
      if let fcm = app.fcm {
        checks.append(
          check("\(path).fcm") {
            let account = try FCMServiceAccount.load(file: fcm.serviceAccountFile)
            _ = try account.assertion(issuedAtSeconds: SystemClock().wallMilliseconds() / 1000)
            return
              "signed an RS256 assertion for project \(account.projectID) from \(fcm.serviceAccountFile), for \(fcm.url)"
          })
      }
      if let expo = app.expo {
        checks.append(
          check("\(path).expo") {
            guard let file = expo.accessTokenFile else { return "no access token, for \(expo.url)" }
            _ = try ExpoConfiguration.readAccessToken(file: file)
            return "access token in \(file), for \(expo.url)"
          })
      }
    }
    return checks
  }

  private static func check(_ proxy: GatewayConfiguration.Proxy?, at path: String) -> CredentialCheck {
    guard let proxy else { return check(path) { "none, its connections go to the providers themselves" } }
    guard let file = proxy.credentialsFile else { return check(path) { "\(proxy), without a password" } }
    return check("\(path).credentials_file") {
      _ = try ProxyCredentials.load(file: file)
      return "a user and password in \(file), for \(proxy)"
    }
  }

  private static func check(_ subject: String, _ body: () throws -> String) -> CredentialCheck {
    do {
      return CredentialCheck(subject: subject, result: .success(try body()))
    } catch {
      return CredentialCheck(subject: subject, result: .failure(CommandFailure("\(error)")))
    }
  }
}
