// Tests of the simulators with curl, nghttp and openssl: real TLS, real HTTP/2, real files.

import Foundation
import Runtime
import TestProcess
import Testing

@testable import Simulators

/// Runs a program to its end and returns its standard output.
func run(_ program: String, _ arguments: [String], input: [UInt8] = []) throws -> [UInt8] {
  let process = Process()
  process.executableURL = URL(fileURLWithPath: program)
  process.arguments = arguments
  let (standardInput, standardOutput) = (Pipe(), Pipe())
  process.standardInput = standardInput
  process.standardOutput = standardOutput
  process.standardError = FileHandle.nullDevice
  try process.start()
  try standardInput.fileHandleForWriting.write(contentsOf: Data(input))
  try standardInput.fileHandleForWriting.close()
  let output = try standardOutput.fileHandleForReading.readToEnd() ?? Data()
  process.waitUntilExit()
  return Array(output)
}

/// A running suite, its files, and curl to talk to it.
struct WireBench {
  let suite: SimulatorSuite
  let logFile: String

  init(_ change: (inout SimulatorSuite.Configuration) -> Void = { _ in }) async throws {
    let material = try SimulatorMaterial()
    logFile = "\(material.directory)/log.jsonl"
    var configuration = SimulatorSuite.Configuration()
    configuration.journal = .init(keepsAccepted: true, logs: true)
    configuration.logFile = logFile
    change(&configuration)
    suite = try await SimulatorSuite.start(configuration, material: material)
  }

  func finish() async throws {
    await suite.stop()
    try FileManager.default.removeItem(atPath: suite.material.directory)
  }

  /// The output of curl: the status code, then the body; `exit` is 0 if there was an answer.
  func curl(_ url: String, _ headers: [String], body: String, more: [String] = []) throws -> (
    status: Int, body: [UInt8]
  ) {
    let fields = headers.flatMap { ["-H", $0] }
    let output = try run(
      "/usr/bin/curl",
      [
        "-s", "--http2", "--max-time", "120", "--cacert", suite.material.authorityFile, "-X", "POST", "-w",
        "\n%{http_code}",
      ]
        + more + fields + ["--data-binary", "@-", url], input: Array(body.utf8))
    let end = output.lastIndex(of: 0x0A) ?? output.startIndex
    return (Int(String(decoding: output[(end + 1)...], as: UTF8.self)) ?? -1, Array(output[..<end]))
  }

  var apnsHeaders: [String] {
    let claims = #"{"iss":"TEAM123456","iat":\#(Int(Date().timeIntervalSince1970))}"#
    return [
      "authorization: bearer \(Fixture.jwt(claims: claims, key: suite.material.apnsKey))",
      "apns-topic: com.example.app.voip", "apns-push-type: voip", "apns-priority: 10", "apns-expiration: 0",
    ]
  }

  func apnsURL(_ token: String = Fixture.token) -> String { "\(suite.endpoints.apnsProduction)/3/device/\(token)" }
}

@Suite("Simulators on the wire", .timeLimit(.minutes(10)))
struct SimulatorWireTests {
  @Test("curl sends a VoIP push, and the log has it as one JSON line")
  func apns() async throws {
    let bench = try await WireBench()
    let answer = try bench.curl(bench.apnsURL(), bench.apnsHeaders, body: APNsBench.payload)
    #expect(answer.status == 200)
    let pushes = try await bench.suite.apnsProduction.waitForAccepted(1)
    #expect(pushes.map(\.token) == [Fixture.token])
    #expect(abs(Double(pushes[0].at) / 1e6 - Date().timeIntervalSince1970) < 60)
    let counters = await bench.suite.apnsProduction.stop()
    #expect(counters.accepted == 1)
    let lines = try String(contentsOfFile: bench.logFile, encoding: .utf8).split(separator: "\n")
    #expect(lines.map { object(Array($0.utf8))["token"] as? String } == [Fixture.token])
    try FileManager.default.removeItem(atPath: bench.suite.material.directory)
  }

  @Test("curl exchanges an assertion for a token and sends an FCM message with it")
  func fcm() async throws {
    let bench = try await WireBench()
    let account = object(try Array(Data(contentsOf: URL(fileURLWithPath: bench.suite.material.serviceAccountFile))))
    let uri = try #require(account["token_uri"] as? String)
    let now = Int(Date().timeIntervalSince1970)
    let claims =
      #"{"iss":"\#(account["client_email"] ?? "")","scope":"\#(OAuthSimulator.scope)","aud":"\#(uri)","iat":\#(now),"exp":\#(now + 3600)}"#
    let key = try SigningKey(
      pem: Array((account["private_key"] as? String ?? "").utf8), for: .rs256, source: "the service account")
    let assertion = try JSONWebToken.sign(
      header: Array(#"{"alg":"RS256"}"#.utf8), claims: Array(claims.utf8), with: key)
    let grant = try bench.curl(
      uri, ["content-type: application/x-www-form-urlencoded"],
      body: "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion="
        + String(decoding: assertion, as: UTF8.self))
    let token = try #require(object(grant.body)["access_token"] as? String)
    let answer = try bench.curl(
      "\(bench.suite.endpoints.fcm)/v1/projects/simulated-project/messages:send",
      ["authorization: Bearer \(token)", "content-type: application/json"], body: FCMBench.message())
    #expect(answer.status == 200)
    #expect(await bench.suite.fcm.counters.accepted == 1)
    try await bench.finish()
  }

  @Test("curl sends an Expo batch with the required access token")
  func expo() async throws {
    let bench = try await WireBench { $0.requiresExpoAccessToken = true }
    let url = bench.suite.endpoints.expo + ExpoSimulator.sendPath
    let headers = ["content-type: application/json"]
    #expect(try bench.curl(url, headers, body: "[\(ExpoBench.message())]").status == 401)
    let authorization = "authorization: Bearer \(bench.suite.material.expoAccessToken)"
    let answer = try bench.curl(url, headers + [authorization], body: "[\(ExpoBench.message())]")
    #expect(answer.status == 200)
    #expect(await bench.suite.expo.counters.accepted == 1)
    try await bench.finish()
  }

  @Test("a client that does not speak h2 is refused in the handshake")
  func refusesHTTP1() async throws {
    let bench = try await WireBench()
    let answer = try bench.curl(bench.apnsURL(), bench.apnsHeaders, body: "{}", more: ["--http1.1"])
    #expect(answer.status == 0)
    #expect(await bench.suite.apnsProduction.counters.requests == 0)
    try await bench.finish()
  }

  @Test("the certificate is valid for its addresses and no other name")
  func certificate() async throws {
    let bench = try await WireBench()
    let material = bench.suite.material
    for (flag, name, isValid) in [("-verify_ip", "127.0.0.1", true), ("-verify_hostname", "example.com", false)] {
      let output = try run(
        "/usr/bin/openssl", ["verify", "-CAfile", material.authorityFile, flag, name, material.certificateFile])
      #expect(String(decoding: output, as: UTF8.self).contains("OK") == isValid)
    }
    try await bench.finish()
  }

  @Test("one stream is allowed until a request is authorised, then the configured number")
  func streams() async throws {
    let bench = try await WireBench { $0.apnsStreamsMax = 321 }
    let body = "\(bench.suite.material.directory)/body"
    try Data(APNsBench.payload.utf8).write(to: URL(fileURLWithPath: body))
    let headers = bench.apnsHeaders.flatMap { ["-H", $0] }
    func limits(_ headers: [String]) throws -> [String] {
      let output = try run("/usr/bin/nghttp", ["-v", "-d", body] + headers + [bench.apnsURL()])
      let pattern = /SETTINGS_MAX_CONCURRENT_STREAMS\(0x03\):(\d+)/
      // nghttp lists its own SETTINGS first, then what it received.
      return String(decoding: output, as: UTF8.self).split(separator: "recv SETTINGS frame").dropFirst()
        .compactMap { $0.firstMatch(of: pattern).map { String($0.1) } }
    }
    #expect(try limits([]).first == "1")
    #expect(try !limits([]).contains("321"))
    let authorised = try limits(headers)
    #expect(authorised.first == "1")
    #expect(authorised.contains("321"))
    try await bench.finish()
  }

  @Test("the plan can be changed at run time; a reset fails the request, a delay delays the answer")
  func faults() async throws {
    let bench = try await WireBench()
    func send() throws -> (status: Int, body: [UInt8]) {
      try bench.curl(bench.apnsURL(), bench.apnsHeaders, body: APNsBench.payload)
    }
    await bench.suite.setFaults(
      FaultPlan([FaultRule(provider: .apns, fault: .reason("ServiceUnavailable", retryAfter: 9))]))
    let refused = try send()
    #expect(refused.status == 503)
    #expect(object(refused.body)["reason"] as? String == "ServiceUnavailable")
    for effect in [Fault.Effect.reset, .close] {
      await bench.suite.setFaults(FaultPlan([FaultRule(provider: .apns, fault: Fault(effect))]))
      #expect(try send().status == 0)
    }
    await bench.suite.setFaults(
      FaultPlan([FaultRule(provider: .apns, fault: Fault(.accept, delay: .milliseconds(200)))]))
    let start = ContinuousClock.now
    #expect(try send().status == 200)
    #expect(ContinuousClock.now - start >= .milliseconds(200))
    await bench.suite.setFaults(FaultPlan())
    #expect(try send().status == 200)
    #expect(await bench.suite.apnsProduction.counters.accepted == 2)
    try await bench.finish()
  }

  @Test("GOAWAY carries Apple's reason, and the answer still arrives")
  func goAway() async throws {
    let bench = try await WireBench {
      $0.faults = FaultPlan([FaultRule(provider: .apns, fault: Fault(.accept, goesAway: true))])
    }
    let body = "\(bench.suite.material.directory)/body"
    try Data(APNsBench.payload.utf8).write(to: URL(fileURLWithPath: body))
    let headers = bench.apnsHeaders.flatMap { ["-H", $0] }
    let output = try run("/usr/bin/nghttp", ["-v", "-d", body] + headers + [bench.apnsURL()])
    let text = String(decoding: output, as: UTF8.self)
    #expect(text.contains(":status: 200"))
    #expect(text.contains(#"opaque_data(21)=[{"reason":"Shutdown"}]"#))
    try await bench.finish()
  }

  @Test("restarted on its directory, a suite uses the same keys and certificates")
  func keepsMaterial() async throws {
    let first = try SimulatorMaterial()
    let files = [first.authorityFile, first.certificateKeyFile, first.apnsKeyFile, first.expoAccessTokenFile]
    let before = try files.map { try Data(contentsOf: URL(fileURLWithPath: $0)) }
    _ = try SimulatorMaterial(directory: first.directory)
    #expect(try files.map { try Data(contentsOf: URL(fileURLWithPath: $0)) } == before)
    for file in [first.certificateKeyFile, first.apnsKeyFile, first.expoAccessTokenFile] {
      let mode = try FileManager.default.attributesOfItem(atPath: file)[.posixPermissions] as? Int
      #expect(mode == 0o600)
    }
    try FileManager.default.removeItem(atPath: first.directory)
  }

  @Test("an occupied port is an error that names it")
  func portTaken() async throws {
    let bench = try await WireBench()
    var configuration = SimulatorSuite.Configuration()
    configuration.ports.fcm = bench.suite.fcm.port
    do {
      await (try SimulatorSuite.start(configuration, material: bench.suite.material)).stop()
      Issue.record("a second simulator got the same port")
    } catch {
      #expect("\(error)".contains("127.0.0.1:\(bench.suite.fcm.port)"))
    }
    try await bench.finish()
  }
}
