// `push-gateway ring`: rings one phone, or shows the request that would.

import ArgumentParser
import Console
import Foundation
import HTTPSurface
import Operations
import Providers
import Queue
import Runtime
import Settings

struct RingCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "ring",
    abstract: "Ring the phones of one user, or one token, and say whether the push was delivered.",
    discussion: """
      Enqueues a call as a backend does, and the running gateway sends it. Examples:

        push-gateway ring --app porteiro --user ana --wait
        push-gateway ring --app porteiro --token TOKEN --provider fcm --platform android --wait
        push-gateway ring --app porteiro --token TOKEN --dry-run --config gateway.yaml

      --wait prints the events of the timeline until every push has ended. The exit code is then

        0  a provider has accepted it in time     2  the provider refused it
        3  it was tried, and the ring window ended   4  nothing took it within the ring window

      and 1 if nothing was enqueued or the command failed, 64 for wrong usage, 78 for a wrong configuration. Without --wait, 0 says \
      that the call was enqueued. No missed call is announced afterwards.

      --dry-run sends nothing and needs no gateway; with --token it needs no database either. It prints the request that would be sent: \
      address, headers without credentials, and body, with the token masked. --show-request prints it for a call that is enqueued. \
      The gateway's own request differs in what counts time: timestamps, and the time to live. Both read the configuration and its \
      key files (--config).

      Needs the database otherwise: DATABASE_URL, or the key database of the configuration. The role must be a member of push_enqueuer \
      and of push_ops, or own the schema push.
      """)

  @Option(help: "The app whose phones ring.")
  var app: String

  @Option(help: "A user with registered devices.")
  var user: String?

  @Option(
    help:
      "A token of a phone, registered or not. For web push, the browser's subscription: JSON, or as push.devices has it."
  )
  var token: String?

  @Option(help: "The token's provider: \(ProviderKind.names()). Default: what its form says.")
  var provider: ProviderKind?

  @Option(help: "The token's platform, ios or android, where the provider reaches both.")
  var platform: RingDevice.Platform?

  @Flag(help: "The token is of APNs' sandbox.")
  var sandbox = false

  @Option(help: "The token's language, for example pt-BR.")
  var locale: String?

  @Option(help: "The caller's name that the phone shows.")
  var name = "push-gateway ring"

  @Option(help: ArgumentHelp("Further members of the payload, if the dialect needs them.", valueName: "json"))
  var payload: String?

  @Option(help: "The ring window in seconds, 1 to 600. Default: the app's.")
  var ringSeconds: Int?

  @Flag(help: "Wait until every push has ended; the exit code says how.")
  var wait = false

  @Flag(help: "Print the request to the provider.")
  var showRequest = false

  @Flag(help: "Print the request that would be sent, and send nothing.")
  var dryRun = false

  @OptionGroup var database: DatabaseOptions

  func validate() throws {
    if user != nil, token != nil {
      throw ValidationError(
        "give --user or --token, not both: --user rings the devices that are registered for a user, --token one phone")
    }
    guard user != nil || token != nil else { throw ValidationError("name the phone with --user or with --token") }
    guard user != "" else { throw ValidationError("--user is empty: give the user id of the registered devices") }
    guard !app.isEmpty else { throw ValidationError("--app is empty: give the name of an app of the configuration") }
    if token == nil, provider != nil || platform != nil || sandbox || locale != nil {
      throw ValidationError("--provider, --platform, --sandbox and --locale describe a --token")
    }
    if wait, dryRun { throw ValidationError("--dry-run sends nothing: there is nothing to --wait for") }
    if let ringSeconds, !(1...600 ~= ringSeconds) { throw ValidationError("--ring-seconds must be from 1 to 600") }
    if let fault = device?.fault {
      let guess = "; that it is one is a guess, and --provider says it: \(ProviderKind.names())"
      throw ValidationError("--token: \(fault)\(provider == nil ? guess : "")")
    }
    _ = try members()
  }

  /// The device of `--token`; nil with `--user`.
  private var device: RingDevice? {
    token.map { RingDevice(token: $0, provider, platform, isSandbox: sandbox, locale: locale) }
  }

  /// The members of `--payload`.
  private func members() throws -> [String: Any] {
    guard let payload else { return [:] }
    guard let members = try? JSONSerialization.jsonObject(with: Data(payload.utf8)) as? [String: Any] else {
      throw ValidationError("--payload must be a JSON object")
    }
    if members["callId"] != nil { throw ValidationError("--payload: callId is made anew for each call") }
    return members
  }

  /// The configuration. For the dry run of a token it needs no database, and any will do.
  private var source: ConfigurationFile {
    var source = database.configuration.source
    if dryRun, token != nil { source.environment["DATABASE_URL"] = "postgres://localhost/none" }
    return source
  }

  func run() async throws {
    // Read first: a wrong configuration must not be found after the phone has rung.
    let preview = dryRun || showRequest ? try RingPreview(app: app, source) : nil
    if dryRun, let preview, let device {
      let callID = UUID().uuidString.lowercased()
      let call = RingCall(
        id: callID, payload: try text(callID: callID), ringSeconds: ringSeconds ?? preview.ringSeconds)
      return try await preview.show([device.delivery(of: call)])
    }
    let connection = try await database.connect(as: "ring")
    do {
      try await ring(RingDatabase(connection: connection, app: app, user: user), preview)
      await connection.close()
    } catch {
      await connection.close()
      if let error = error as? PostgresError { throw CommandFailure(error) }
      throw error
    }
  }

  private func ring(_ database: RingDatabase, _ preview: RingPreview?) async throws {
    try await database.check(needsGateway: !dryRun)
    let callID = try await database.newCallID()
    let entry = device?.recipient ?? RingDevice.recipient(user: user ?? "")
    let call = try await database.enqueue(
      callID, payload: try text(callID: callID), recipients: "[\(entry)]", ringSeconds: ringSeconds, isKept: !dryRun
    ) { try await preview?.show($0) }
    if dryRun { return }
    guard wait else {
      let count = call.deliveries.count
      return StandardOutput.write(
        "enqueued \(callID) for \(count) device\(count == 1 ? "" : "s"); push-gateway timeline \(callID) --app \(app) shows what becomes of it"
      )
    }
    var timeline = TimelineFollower(callID: callID, app: app)
    let ending = try await database.follow(call) {
      for line in try await timeline.news(on: database.connection) { StandardOutput.write(line) }
    }
    guard ending != .delivered else { return }
    StandardError.write("\(callID): \(ending.sentence)")
    throw ExitCode(ending.rawValue)
  }

  /// The payload as JSON.
  private func text(callID: String) throws -> String {
    let payload = ["from": "push-gateway-ring", "fromName": name, "callId": callID].merging(try members()) { $1 }
    return String(decoding: try JSONSerialization.data(withJSONObject: payload, options: [.sortedKeys]), as: UTF8.self)
  }
}
