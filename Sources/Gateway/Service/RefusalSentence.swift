// One sentence for credentials that a provider refuses: who refuses which, the provider's reason, and what to check. /readyz,
// push.health, the dashboard and check-config say the same. It has names of files without their folders, and no secrets.

import Dispatching
import Providers
import Queue
import Settings

enum RefusalSentence {
  /// The sentence of a lane, for an extent and a reason.
  static func of(
    _ lane: LaneName, in app: GatewayConfiguration.App
  ) -> @Sendable (LaneRefusal.Extent, String) -> String {
    { extent, reason in
      let (subject, remedy) = parts(lane, app, reason, isNew: extent == .newCredentials)
      let code = ProviderReasons.status(of: reason).map { "\($0) \(reason)" } ?? reason
      return "\(subject) (\(code)): \(remedy)" + (extent == .newCredentials ? "; the former one is still used" : "")
    }
  }

  private static func parts(
    _ lane: LaneName, _ app: GatewayConfiguration.App, _ reason: String, isNew: Bool
  ) -> (subject: String, remedy: String) {
    let the = isNew ? "the new" : "the"
    switch lane.provider {
    case .apns: return ("Apple refuses \(the) key of \(app.name)", apns(app.apns, reason))
    case .fcm where reason == "THIRD_PARTY_AUTH_ERROR":
      return (
        "Apple, or a browser's push service, refuses the key that Firebase holds for \(app.name)",
        "upload a valid one in the Firebase console, Project settings, Cloud Messaging"
      )
    case .fcm: return ("Google refuses \(the) service account of \(app.name)", fcm(app.fcm, reason))
    case .expo where ProviderReasons.ofSomeCredentials.contains(reason):
      return (
        "Apple or Google refuses the credentials that Expo holds for \(app.name)",
        "correct them at expo.dev, Credentials"
      )
    case .expo:
      guard let file = app.expo?.accessTokenFile else {
        return ("Expo wants an access token of \(app.name)", "set access_token_file")
      }
      return ("Expo refuses \(the) access token of \(app.name)", "check access_token_file \(name(file))")
    case .webpush:
      return (
        "The push service \(lane.channel) refuses \(the) VAPID key of \(app.name)",
        "check vapid_key_file \(name(app.webPush?.vapidKeyFile)), subject, and this machine's clock"
      )
    }
  }

  private static func apns(_ apns: GatewayConfiguration.APNs?, _ reason: String) -> String {
    switch reason {
    case "ExpiredProviderToken": "this machine's clock is wrong: correct it"
    case "BadEnvironmentKeyInToken", "BadEnvironmentKeyIdInToken":
      "key_id \(apns?.keyID ?? "") is for one environment only, production or sandbox, and phones of the other do not ring: use a key for both"
    case "BadTopic", "TopicDisallowed", "MissingTopic", "DeviceTokenNotForTopic":
      "check topic \(apns?.topic ?? ""), and whether key_id \(apns?.keyID ?? "") may send to it"
    default:
      "check team_id \(apns?.teamID ?? ""), key_id \(apns?.keyID ?? ""), key_file \(name(apns?.keyFile))"
    }
  }

  private static func fcm(_ fcm: GatewayConfiguration.FCM?, _ reason: String) -> String {
    let file = "service_account_file \(name(fcm?.serviceAccountFile))"
    return switch reason {
    case "PERMISSION_DENIED":
      "in the project of \(file), switch on the Firebase Cloud Messaging API, and give the account a role that may send"
    case "NOT_FOUND": "Google knows no project like project_id in \(file)"
    default: "check \(file), whether its key still exists, and this machine's clock"
    }
  }

  /// The file's name without its folder.
  private static func name(_ path: String?) -> String { path?.split(separator: "/").last.map(String.init) ?? "" }
}
