// Single steps of the hot path, each compared with a loop of known work in the same process. micro.py compares the
// figures with committed thresholds.
//
//   Micro [MILLISECONDS]       for each step; default 500
//
// Prints a JSON object: for each step, nanoseconds, the same as a multiple of the calibration, and allocations.

import Runtime

let budget = CommandLine.arguments.dropFirst().first.flatMap { Int64($0) } ?? 500
let steps = PayloadSteps.all + HTTP2Steps.all + RowSteps.all + QueueSteps.all
var json = JSONWriter()
json.beginObject()
for step in steps {
  let figure = Stopwatch.measure(step, for: .milliseconds(budget))
  json.key(Array(step.name.utf8))
  json.beginObject()
  json.key("nanoseconds")
  json.raw(Array("\(figure.nanoseconds)".utf8))
  json.key("ratio")
  json.raw(Array("\(figure.ratio)".utf8))
  json.key("allocations")
  json.raw(Array("\(figure.allocations)".utf8))
  json.endObject()
}
json.endObject()
print(String(decoding: json.bytes, as: UTF8.self))
