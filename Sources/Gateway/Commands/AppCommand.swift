// `push-gateway app add`: adds an app to the configuration file.

import ArgumentParser
import Console
import Dialects
import Foundation
import Runtime
import Settings

struct AppCommand: ParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "app", abstract: "Add an app to the configuration file.",
    discussion: """
      An app is one phone app with its accounts at the providers. Gateways serve the apps of their configuration file, and take over \
      changes of it without a restart. To change or remove an app, edit the file: `push-gateway check-config` checks it.
      """, subcommands: [Add.self])

  /// Writes a stanza that has been checked.
  struct Add: ParsableCommand {
    static let configuration = CommandConfiguration(
      commandName: "add",
      abstract: "Add an app to the configuration file, after checking it.",
      discussion: """
        Writes the app below apps, and leaves all other lines of the file as they are. Before that, it checks the new configuration \
        and every key and certificate, as check-config does; if anything is wrong, the file is not changed. Running gateways that \
        read this file serve the app within two seconds.

        Example:
          push-gateway app add zelador --config gateway.yaml --fcm-service-account-file fcm.json

        Other settings of the app can be edited afterwards: `push-gateway check-config --help` lists them.
        """)

    @Argument(help: "The name of the app, as backends give it.")
    var name: String

    @Option(help: "The format that the phone app understands: \(ShippedDialects.names.joined(separator: ", ")).")
    var dialect: String?

    @Option(help: "The ring window of a call in seconds.")
    var ringSeconds: Int?

    @Option(name: .customLong("apns-team-id"), help: "The Apple team id.")
    var apnsTeamID: String?

    @Option(name: .customLong("apns-key-id"), help: "The id of the .p8 key.")
    var apnsKeyID: String?

    @Option(help: "The file of the .p8 key.")
    var apnsKeyFile: String?

    @Option(help: "The bundle id, without .voip.")
    var apnsTopic: String?

    @Option(help: "The file of Firebase's service account.")
    var fcmServiceAccountFile: String?

    @Flag(help: "Send over Expo.")
    var expo = false

    @Option(help: "The file with Expo's access token, if the project requires one. Implies --expo.")
    var expoAccessTokenFile: String?

    @Option(name: .customLong("webpush-vapid-key-file"), help: "The file of the VAPID key, for web push to browsers.")
    var webPushVAPIDKeyFile: String?

    @Option(
      name: .customLong("webpush-subject"), help: "mailto:ADDRESS or https:// page, for the operators of push services."
    )
    var webPushSubject: String?

    @Flag(help: "Check the app and print its lines, but do not change the file.")
    var dryRun = false

    @OptionGroup var configuration: ConfigurationOptions

    func validate() throws {
      let apns = [apnsTeamID, apnsKeyID, apnsKeyFile, apnsTopic]
      if apns.contains(where: { $0 != nil }), apns.contains(nil) {
        throw ValidationError(
          "APNs needs all of --apns-team-id, --apns-key-id, --apns-key-file and --apns-topic")
      }
      if (webPushVAPIDKeyFile == nil) != (webPushSubject == nil) {
        throw ValidationError("web push needs both --webpush-vapid-key-file and --webpush-subject")
      }
      if apnsTopic == nil, fcmServiceAccountFile == nil, !expo, expoAccessTokenFile == nil, webPushSubject == nil {
        throw ValidationError(
          "an app needs at least one provider: --apns-…, --fcm-service-account-file, --expo or --webpush-…")
      }
      guard name.wholeMatch(of: /[A-Za-z0-9][A-Za-z0-9._-]{0,63}/) != nil else {
        throw ValidationError(
          "the name of an app must begin with a letter or digit and have at most 64 letters, digits, dots, dashes and underscores"
        )
      }
    }

    func run() throws {
      let source = configuration.source
      guard let given = source.path else {
        throw CommandFailure("which file? Give it with --config, or in PUSH_GATEWAY_CONFIG")
      }
      let path = URL(filePath: given).resolvingSymlinksInPath().path
      let text: String
      do {
        text = try String(contentsOfFile: path, encoding: .utf8)
      } catch {
        throw CommandFailure("\(path) cannot be read: \(error.localizedDescription)")
      }
      // Without apps yet, it cannot be loaded. What else is wrong with it is found below.
      if let former = try? source.load(), former.apps.contains(where: { $0.name == name }) {
        throw CommandFailure("\(path) has an app \(name) already: edit its lines there")
      }
      let stanza = stanza(in: path)
      let draft: String
      do throws(ConfigurationStanza.Failure) {
        draft = try stanza.added(to: text)
      } catch {
        throw CommandFailure("\(path): \(error)")
      }
      try replace(path, with: draft, source)
      StandardOutput.write(stanza.lines().joined(separator: "\n"))
      StandardOutput.write(
        dryRun
          ? "the app is good; \(path) was not changed"
          : "the app \(name) was added to \(path); running gateways that read it serve the app within two seconds")
    }

    private func stanza(in path: String) -> ConfigurationStanza {
      let folder = URL(filePath: path).deletingLastPathComponent().standardizedFileURL.path
      // Files are named relative to the configuration where they are beside it.
      let file = { (name: String) in
        let full = URL(filePath: name).standardizedFileURL.path
        return full.hasPrefix(folder + "/") ? String(full.dropFirst(folder.count + 1)) : full
      }
      var settings: [(key: String, value: String)] = []
      if let dialect { settings.append(("dialect", dialect)) }
      if let ringSeconds { settings.append(("ring_seconds", "\(ringSeconds)")) }
      var sections: [(key: String, values: [(key: String, value: String)])] = []
      if let apnsTeamID, let apnsKeyID, let apnsKeyFile, let apnsTopic {
        sections.append(
          (
            "apns",
            [("team_id", apnsTeamID), ("key_id", apnsKeyID), ("key_file", file(apnsKeyFile)), ("topic", apnsTopic)]
          ))
      }
      if let fcmServiceAccountFile {
        sections.append(("fcm", [("service_account_file", file(fcmServiceAccountFile))]))
      }
      if expo || expoAccessTokenFile != nil {
        sections.append(("expo", expoAccessTokenFile.map { [("access_token_file", file($0))] } ?? []))
      }
      if let webPushVAPIDKeyFile, let webPushSubject {
        sections.append(("webpush", [("vapid_key_file", file(webPushVAPIDKeyFile)), ("subject", webPushSubject)]))
      }
      return ConfigurationStanza(app: name, settings: settings, sections: sections)
    }

    /// Writes the text beside the file, checks it there, and puts it into its place in one step.
    private func replace(_ path: String, with text: String, _ source: ConfigurationFile) throws {
      let draft = path + ".draft"
      let manager = FileManager.default
      defer { try? manager.removeItem(atPath: draft) }
      do {
        let attributes = try manager.attributesOfItem(atPath: path)
        let kept: [FileAttributeKey] = [.posixPermissions, .ownerAccountID, .groupOwnerAccountID]
        guard manager.createFile(atPath: draft, contents: nil, attributes: [.posixPermissions: 0o600]) else {
          throw CocoaError(.fileWriteNoPermission)
        }
        try Data(text.utf8).write(to: URL(filePath: draft))
        try manager.setAttributes(attributes.filter { kept.contains($0.key) }, ofItemAtPath: draft)
      } catch {
        throw CommandFailure("\(draft) cannot be written: \(error.localizedDescription)")
      }
      var checked = source
      checked.path = draft
      do throws(ConfigurationError) {
        let configuration = try checked.load()
        try CredentialCheck.require(configuration, from: checked)
      } catch {
        throw CommandFailure(
          "nothing was changed: " + error.description.replacing(draft, with: path))
      }
      guard !dryRun else { return }
      guard unsafe rename(draft, path) == 0 else {
        throw CommandFailure("\(path) cannot be replaced: \(FileDescriptor.SystemError(call: "rename", code: errno))")
      }
    }
  }
}
