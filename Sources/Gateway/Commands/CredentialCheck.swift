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

  /// - Parameter wallMilliseconds: now; tells certificates that have ended.
  static func all(
    of configuration: GatewayConfiguration, wallMilliseconds: Int64 = SystemClock().wallMilliseconds()
  ) -> [CredentialCheck] {
    var checks: [CredentialCheck] = []
    if let file = configuration.caFile {
      checks.append(
        check("tls.ca_file") {
          _ = try TLSContext.client(caFile: file)
          return "certificates in \(file)"
        })
    }
    let privacy = configuration.secretPrivacy
    for (name, tls) in configuration.listenerTLS {
      checks.append(check("\(name).tls", tls, privacy, wallMilliseconds / 1000))
    }
    checks += opsAccess(configuration.opsAccess)
    if let proxy = configuration.proxy { checks.append(check(proxy, privacy, at: "proxy")) }
    for app in configuration.apps {
      let path = "apps.\(app.name)"
      checks.append(check(path) { "dialect \(app.dialect.name), calls ring for \(app.ringSeconds) s" })
      if app.proxy != configuration.proxy { checks.append(check(app.proxy, privacy, at: "\(path).proxy")) }
      if let apns = app.apns {
        checks.append(
          check("\(path).apns") {
            let credentials = try APNsCredentials(
              teamID: apns.teamID, keyID: apns.keyID, keyFile: apns.keyFile, privacy: privacy)
            _ = try credentials.mint(issuedAtSeconds: SystemClock().wallMilliseconds() / 1000)
            return
              "signed an ES256 token with key \(apns.keyID) from \(apns.keyFile), for \(apns.productionURL) and \(apns.sandboxURL)"
          })
      }
      if let fcm = app.fcm {
        checks.append(
          check("\(path).fcm") {
            let account = try FCMServiceAccount.load(file: fcm.serviceAccountFile, privacy: privacy)
            _ = try account.assertion(issuedAtSeconds: SystemClock().wallMilliseconds() / 1000)
            return
              "signed an RS256 assertion for project \(account.projectID) from \(fcm.serviceAccountFile), for \(fcm.url)"
          })
      }
      if let expo = app.expo {
        checks.append(
          check("\(path).expo") {
            guard let file = expo.accessTokenFile else { return "no access token, for \(expo.url)" }
            _ = try ExpoConfiguration.readAccessToken(file: file, privacy: privacy)
            return "access token in \(file), for \(expo.url)"
          })
      }
    }
    return checks
  }

  private static func opsAccess(_ access: GatewayConfiguration.OpsAccess) -> [CredentialCheck] {
    var holders: [[UInt8]: String] = [:]
    var checks: [CredentialCheck] = []
    for key in access.opsKeys {
      let isOnly = key.name == GatewayConfiguration.onlyOpsKey
      let subject = isOnly ? "dashboard.ops_key_file" : "dashboard.ops_keys.\(key.name)"
      checks.append(
        check(subject) {
          let digest = try key.digest()
          if let holder = holders[digest] { throw CommandFailure("\(key.file): holds the same key as \(holder)") }
          holders[digest] = subject
          return "a key in \(key.file)"
        })
    }
    if let key = access.metricsKey {
      checks.append(
        check("http.metrics_key_file") {
          let digest = try key.digest()
          if let holder = holders[digest] { throw CommandFailure("\(key.file): holds the same key as \(holder)") }
          return "a key in \(key.file)"
        })
    }
    if let identity = access.identity {
      checks.append(
        check("dashboard.identity.jwks_file") {
          let count = try IdentityVerifier.read(identity.keysFile).count
          return "\(count) public keys in \(identity.keysFile), for \(identity.header) of \(identity.rules.issuer)"
        })
    }
    return checks
  }

  private static func check(
    _ name: String, _ tls: GatewayConfiguration.ListenerTLS, _ privacy: SecretFile.Privacy, _ now: Int64
  ) -> CredentialCheck {
    check(name) {
      let certificate = try ListenerCertificate(tls, privacy: privacy)
      guard certificate.expiresAtSeconds > now else {
        throw CommandFailure("\(tls.certificateFile) has expired on \(certificate.expiry): renew it")
      }
      let clients =
        tls.clientCAFile.map { ", clients' certificates (\(tls.clientCertificates.rawValue)) by \($0)" } ?? ""
      return
        "certificate in \(tls.certificateFile) with its key in \(tls.keyFile), good until \(certificate.expiry)\(clients)"
    }
  }

  private static func check(
    _ proxy: GatewayConfiguration.Proxy?, _ privacy: SecretFile.Privacy, at path: String
  ) -> CredentialCheck {
    guard let proxy else { return check(path) { "none, its connections go to the providers themselves" } }
    guard let file = proxy.credentialsFile else { return check(path) { "\(proxy), without a password" } }
    return check("\(path).credentials_file") {
      _ = try ProxyCredentials.load(file: file, privacy: privacy)
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
