// `push-gateway-lab simulate`: runs the simulated providers on the loopback, for demos, tests and load tests.

import ArgumentParser
import Foundation
import Phones
import Runtime
import Simulators
import UnixSignals

/// Runs strict stand-ins for APNs, FCM, Expo and a push service of browsers until it is stopped.
struct SimulateCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "simulate",
    abstract: "Run strict stand-ins for APNs, FCM, Expo and web push on this machine.",
    discussion: """
      Starts five servers (APNs production and sandbox, FCM with its OAuth endpoint, Expo, a push service of browsers) that \
      speak TLS and HTTP/2, \
      check every request as the provider would, and answer with the provider's own bodies.

      Writes the files that a gateway needs to use them into the directory: ca.pem, apns-key.p8, \
      fcm-service-account.json, expo-access-token, webpush-key.pem and gateway.yaml. Existing keys are used again. \
      webpush-subscription.json is the subscription of a browser, as a web app would register it.

        push-gateway-lab simulate --directory DIR
        DATABASE_URL=postgres://… push-gateway serve --config DIR/gateway.yaml

      When all of them listen, one line of JSON with "ready":true is printed; SIGTERM or SIGINT ends the run, and the \
      counters are printed as another one.

      FAULTS. A push whose token begins with a certain prefix gets a fault (--list-faults). --faults FILE adds rules for \
      other pushes. The file is a JSON array, for example:

        [{"provider": "apns", "reason": "ServiceUnavailable",
          "share": 0.1, "delay_ms": 50},
         {"provider": "fcm", "reason": "QUOTA_EXCEEDED",
          "retry_after": 2, "after": 100, "count": 20},
         {"provider": "apns", "goaway_every": 1000}]

      Keys of a rule: provider (apns, fcm, oauth, expo, webpush), environment, token_prefix, reason, status, body, receipt, \
      action, timestamp, retry_after (s), delay_ms, share (0 to 1), after, count, goaway_every. Actions: hang, \
      deafen, lose, reset, refuse, close, malformed, html, slow, goaway, cutoff.
      """)

  @Option(
    help: ArgumentHelp("Directory of keys, certificates and gateway.yaml; missing files are created.", valueName: "dir")
  )
  var directory = ".local/simulators"

  @Option(help: "Port of APNs production; 0 takes a free one.")
  var apnsPort: UInt16 = 0

  @Option(help: "Port of APNs sandbox; 0 takes a free one.")
  var apnsSandboxPort: UInt16 = 0

  @Option(help: "Port of FCM and of the OAuth endpoint; 0 takes a free one.")
  var fcmPort: UInt16 = 0

  @Option(help: "Port of Expo; 0 takes a free one.")
  var expoPort: UInt16 = 0

  @Option(name: .customLong("webpush-port"), help: "Port of the push service of browsers; 0 takes a free one.")
  var webPushPort: UInt16 = 0

  @Option(help: "IP address to listen on.")
  var listen = "127.0.0.1"

  @Option(help: "Host name or address by which the gateway finds the simulators.")
  var host = "127.0.0.1"

  @Option(help: ArgumentHelp("Append every accepted push to this file, one JSON line each.", valueName: "file"))
  var log: String?

  @Option(
    help: ArgumentHelp(
      "Serve the log read-only on this port (HTTPS, HTTP/2, no login), for a load test on another machine; 0 takes a free one.",
      valueName: "port"))
  var logPort: UInt16?

  @Flag(help: "Write refused requests to the log too.")
  var logRefused = false

  @Option(
    help: ArgumentHelp(
      "Say on standard error what each phone of this system (\(PhoneSystem.allCases.map(\.rawValue).joined(separator: ", "))) "
        + "does with every accepted push, and where its app's source says so.", valueName: "system"))
  var explain: PhoneSystem?

  @Option(
    help: ArgumentHelp(
      "Which text of the app is read for --explain: its source (today) or its document (seed).", valueName: "which"))
  var explainVariant = PhoneVariant.today

  @Option(help: ArgumentHelp("A fault plan (JSON).", valueName: "file"))
  var faults: String?

  @Option(help: "Maximum concurrent streams of an APNs connection after its first authorised request.")
  var maxStreams: UInt32 = 1_000

  @Option(help: ArgumentHelp("Refuse a second new APNs provider token within this time (Apple: 1200).", valueName: "s"))
  var tokenUpdateInterval: Int64?

  @Option(help: ArgumentHelp("Seconds until an Expo receipt can be read (Expo: about 900).", valueName: "s"))
  var receiptDelay: Int64 = 0

  @Flag(help: "Let Expo accept requests without an access token, as it does unless the project requires one.")
  var expoWithoutAccessToken = false

  @Option(help: "Name of the app in gateway.yaml.")
  var app = "porteiro"

  @Option(help: ArgumentHelp("Postgres URL for gateway.yaml; without it DATABASE_URL is needed.", valueName: "url"))
  var database: String?

  @Flag(help: "Print the token prefixes that have a meaning, and exit.")
  var listFaults = false

  func validate() throws {
    if logPort != nil, log == nil { throw ValidationError("--log-port needs --log, the file that it serves") }
  }

  func run() async throws {
    if listFaults { return print(FaultCatalog.text) }
    let signals = await UnixSignalsSequence(trapping: .sigint, .sigterm)
    let suite = try await SimulatorSuite.start(
      suiteConfiguration(),
      material: SimulatorMaterial(
        directory: directory, identity: .init(app: app), hosts: [host]))
    report(ready: suite)
    for await _ in signals { break }
    report(finished: await suite.stop())
  }

  private func suiteConfiguration() throws -> SimulatorSuite.Configuration {
    var configuration = SimulatorSuite.Configuration()
    configuration.ports.apns = apnsPort
    configuration.ports.apnsSandbox = apnsSandboxPort
    configuration.ports.fcm = fcmPort
    configuration.ports.expo = expoPort
    configuration.ports.webPush = webPushPort
    configuration.ports.log = logPort
    configuration.address = listen
    configuration.host = host
    configuration.apnsStreamsMax = maxStreams
    configuration.journal = .init(
      keepsAccepted: false, logs: log != nil, logsRefused: log != nil && logRefused,
      observer: explain.map { PushExplainer.observer(of: $0, variant: explainVariant) })
    configuration.logFile = log
    configuration.tokenUpdateInterval = tokenUpdateInterval
    configuration.requiresExpoAccessToken = !expoWithoutAccessToken
    configuration.receiptDelay = receiptDelay
    configuration.database = database
    if let faults {
      guard let text = FileManager.default.contents(atPath: faults) else {
        throw ValidationError("--faults \(faults): there is no such file, or it cannot be read")
      }
      do throws(FaultPlanError) {
        configuration.faults = try FaultPlan(json: Array(text))
      } catch {
        throw ValidationError("--faults \(faults): \(error.description)")
      }
    }
    return configuration
  }

  // MARK: - Output

  private func report(ready suite: SimulatorSuite) {
    var writer = JSONWriter()
    writer.beginObject()
    writer.key("ready")
    writer.boolean(true)
    writer.key("ports")
    writer.beginObject()
    for (name, server) in suite.all {
      writer.key(Array(name.utf8))
      writer.integer(Int64(server.port))
    }
    writer.endObject()
    writer.key("config")
    writer.string(suite.material.configurationFile)
    writer.key("ca_file")
    writer.string(suite.material.authorityFile)
    writer.endObject()
    emit(writer)
    let next =
      database == nil
      ? "DATABASE_URL=postgres://… push-gateway serve --config \(suite.material.configurationFile)"
      : "push-gateway serve --config \(suite.material.configurationFile)"
    FileHandle.standardError.write(Data("Next: \(next)\n".utf8))
  }

  private func report(finished all: [(name: String, counters: SimulatorCounters)]) {
    var writer = JSONWriter()
    writer.beginObject()
    for (name, counters) in all {
      writer.key(Array(name.utf8))
      writer.beginObject()
      for (key, number) in [
        ("connections", counters.connections), ("requests", counters.requests), ("accepted", counters.accepted),
      ] {
        writer.key(Array(key.utf8))
        writer.integer(Int64(number))
      }
      for (key, counts) in [("refused", counters.refused), ("violations", counters.violations)] {
        writer.key(Array(key.utf8))
        writer.beginObject()
        for (reason, number) in counts.sorted(by: { $0.key < $1.key }) {
          writer.key(Array(reason.utf8))
          writer.integer(Int64(number))
        }
        writer.endObject()
      }
      writer.endObject()
    }
    writer.endObject()
    emit(writer)
  }

  /// Writes one line to standard output and flushes it, because a reader may wait for it on a pipe.
  private func emit(_ writer: JSONWriter) {
    FileHandle.standardOutput.write(Data(writer.bytes + [0x0A]))
  }
}
