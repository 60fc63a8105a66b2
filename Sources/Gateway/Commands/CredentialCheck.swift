// Checks every credential of a configuration without connecting to anything.

internal import Console
internal import Dialects
internal import HTTPSurface
internal import Providers
internal import Runtime
internal import Settings
internal import Webhooks

/// The result for one credential.
struct CredentialCheck {
  /// The configuration key that the result is about. For a failure it is the key of the file; otherwise it may be that
  /// of the section.
  var subject: String
  /// What was found; or what is wrong, with the name of the file but nothing of its content.
  var result: Result<String, CommandFailure>

  /// Refuses a configuration whose files cannot be used, before the gateway starts.
  ///
  /// An expired certificate is not refused, because calls that are enqueued with SQL do not need it.
  ///
  /// - Parameter source: the sources of the configuration.
  /// - Throws: all problems, each with its key, and the line or variable that sets it.
  static func require(_ configuration: GatewayConfiguration, from source: ConfigurationFile) throws(ConfigurationError)
  {
    let problems = all(of: configuration, wallMilliseconds: .min).compactMap { check -> ConfigurationProblem? in
      guard case .failure(let failure) = check.result else { return nil }
      return ConfigurationProblem(
        origin: source.origin(of: check.subject), path: check.subject, message: failure.description)
    }
    guard problems.isEmpty else { throw ConfigurationError(file: source.path, problems: problems) }
  }

  /// - Parameter wallMilliseconds: the current time, for expired certificates.
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
          check("\(path).apns", file: "key_file") {
            let credentials = try APNsCredentials(
              teamID: apns.teamID, keyID: apns.keyID, keyFile: apns.keyFile, privacy: privacy)
            _ = try credentials.mint(issuedAtSeconds: SystemClock().wallMilliseconds() / 1000)
            return
              "signed an ES256 token with key \(apns.keyID) from \(apns.keyFile), for \(apns.productionURL) and \(apns.sandboxURL)"
          })
      }
      if let fcm = app.fcm {
        checks.append(
          check("\(path).fcm", file: "service_account_file") {
            let account = try FCMServiceAccount.load(file: fcm.serviceAccountFile, privacy: privacy)
            _ = try account.assertion(issuedAtSeconds: SystemClock().wallMilliseconds() / 1000)
            return
              "signed an RS256 assertion for project \(account.projectID) from \(fcm.serviceAccountFile), for \(fcm.url)"
          })
      }
      if let expo = app.expo {
        checks.append(
          check("\(path).expo", file: "access_token_file") {
            guard let file = expo.accessTokenFile else { return "no access token, for \(expo.url)" }
            _ = try ExpoConfiguration.readAccessToken(file: file, privacy: privacy)
            return "access token in \(file), for \(expo.url)"
          })
      }
      if let webhook = app.webhook {
        checks.append(
          check("\(path).webhook", file: "secret_file") {
            _ = try WebhookSecrets.load(file: webhook.secretFile, privacy: privacy)
            return "a signing secret in \(webhook.secretFile), for \(webhook.host)"
          })
      }
      if let webPush = app.webPush {
        checks.append(
          check("\(path).webpush", file: "vapid_key_file") {
            let credentials = try WebPushCredentials(
              keyFile: webPush.vapidKeyFile, subject: webPush.subject, privacy: privacy)
            return
              "VAPID key in \(webPush.vapidKeyFile), whose public key web apps subscribe with: \(credentials.publicKey)"
          })
      }
    }
    return checks
  }

  private static func opsAccess(_ access: GatewayConfiguration.OpsAccess) -> [CredentialCheck] {
    var holders: [[UInt8]: String] = [:]
    var checks: [CredentialCheck] = []
    for (path, key) in access.keys {
      checks.append(
        check(path) {
          if let holder = holders.updateValue(path, forKey: try key.digest()) {
            throw OpsKey.Fault.sameKey(key.file, as: holder)
          }
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
        throw ListenerCertificate.Fault(
          .certificate, "\(tls.certificateFile) expired on \(certificate.expiry): renew it")
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
    guard let proxy else { return check(path) { "none, connections go directly to the providers" } }
    guard let file = proxy.credentialsFile else { return check(path) { "\(proxy), without a password" } }
    return check("\(path).credentials_file") {
      _ = try ProxyCredentials.load(file: file, privacy: privacy)
      return "a user and password in \(file), for \(proxy)"
    }
  }

  /// - Parameter file: the key within the section `subject` that an error is reported for, unless the error names
  ///   another; nil: `subject` itself.
  private static func check(
    _ subject: String, file: String? = nil, _ body: () throws -> String
  ) -> CredentialCheck {
    do {
      return CredentialCheck(subject: subject, result: .success(try body()))
    } catch {
      let key =
        (error as? ListenerCertificate.Fault)?.file.rawValue ?? (error as? WebPushCredentials.Fault)?.key ?? file
      return CredentialCheck(
        subject: key.map { "\(subject).\($0)" } ?? subject, result: .failure(CommandFailure("\(error)")))
    }
  }
}

extension WebPushCredentials.Fault {
  /// The key of the section that is at fault.
  fileprivate var key: String {
    switch self {
    case .key: "vapid_key_file"
    case .subject: "subject"
    }
  }
}
