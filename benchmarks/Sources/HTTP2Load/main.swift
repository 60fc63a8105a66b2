// The gateway's path to APNs without the rest of the gateway: deliveries are rendered by the dialect, sent by the
// provider, and their answers counted. http2.py compares it with other clients.
//
//   HTTP2Load --port N --ca FILE --key FILE [--requests N] [--streams N] [--connections N] [--devices N] [--one-payload]
//   HTTP2Load --key FILE --print-token
//
// Prints a JSON object. Fails if an answer is not 200.

import Dialects
import Foundation
import Logging
import Providers
import Runtime

do {
  let options = try Options(CommandLine.arguments.dropFirst())
  let credentials = try APNsCredentials(teamID: options.teamID, keyID: options.keyID, keyFile: options.keyFile)
  let tokens = APNsTokenSource(credentials)
  if options.printsToken {
    print(String(decoding: try await tokens.token(replacing: nil).value, as: UTF8.self))
    exit(0)
  }
  let loop = EventLoop(name: "http2-load")
  let endpoint = HTTP2Endpoint(host: "localhost", port: options.port, tls: try .client(caFile: options.caFile))
  var configuration = APNsConfiguration(topic: options.topic, production: endpoint, sandbox: endpoint)
  configuration.pool.connectionsMax = options.connections
  configuration.pool.connection.streamsMax = options.streams
  guard let dialect = try ShippedDialects.named("intercom") else { throw Fault("there is no dialect intercom") }
  let load = HTTP2Load(
    provider: HTTP2Provider(
      configuration, tokens: tokens, loop: loop,
      logger: Logger(label: "http2-load") { StreamLogHandler.standardError(label: $0) }),
    planner: CallPlanner(dialect: dialect, provider: .apns),
    deliveries: (1...min(options.devices, options.requests)).map { Calls.delivery(Int64($0), now: loop.now) },
    requests: options.requests, inFlightMax: options.streams * options.connections,
    hasOnePayload: options.hasOnePayload)

  let start = Usage()
  let counts = await load.run()
  let used = Usage() - start
  guard counts.accepted == options.requests else {
    throw Fault("of \(options.requests) requests \(counts.accepted) were accepted; first failure: \(counts.failure)")
  }
  var json = JSONWriter()
  json.beginObject()
  json.key("requests")
  json.integer(Int64(options.requests))
  json.key("ok")
  json.integer(Int64(counts.accepted))
  json.key("body_bytes")
  json.integer(Int64(counts.bodyBytes / options.requests))
  json.key("microseconds")
  json.integer(used.wall.microseconds)
  json.key("cpu_microseconds")
  json.integer(used.cpu.microseconds)
  json.endObject()
  print(String(decoding: json.bytes, as: UTF8.self))
  await load.stop()
} catch {
  FileHandle.standardError.write(Data("HTTP2Load: \(error)\n".utf8))
  exit(1)
}
