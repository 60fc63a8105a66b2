// The report as one HTML file that loads no other file. It has a dark style if the reader's system has one.

internal import Foundation

/// The page of one run.
struct LoadPage: Sendable {
  let report: LoadReport

  var html: String {
    let verdict = report.verdict
    let notes = report.notes.map { "<li>\(LineChart.escaped($0))</li>" }.joined()
    return """
      <!DOCTYPE html>
      <html lang="en">
      <head>
      <meta charset="utf-8">
      <meta name="viewport" content="width=device-width, initial-scale=1">
      <meta name="color-scheme" content="light dark">
      <meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
      <title>Load test \(LineChart.escaped(report.shape.run))</title>
      <style>
      \(Self.style)
      </style>
      </head>
      <body>
      <h1>push-gateway load test</h1>
      <p class="load">Run \(LineChart.escaped(report.shape.run)): \(LineChart.escaped(report.loadText))</p>
      <p class="verdict \(verdict.result.rawValue)">\(LineChart.escaped(verdict.line))</p>
      \(conditions)
      \(notes.isEmpty ? "" : "<ul class=\"notes\">\(notes)</ul>")
      <p>Settled \(verdict.settled) of \(verdict.enqueued) deliveries at \(Int(report.throughput.rounded()))/s, from the first \
      commit to the last settlement.</p>
      \(percentileChart.figure)
      \(latencyChart.figure)
      \(throughputChart.figure)
      \(table)
      </body>
      </html>

      """
  }

  /// Why the run is not GOOD, and what was measured for each condition.
  private var conditions: String {
    let lines = report.verdict.reasons + report.verdict.requirements.map(\.line)
    return lines.isEmpty ? "" : "<ul class=\"notes\">\(lines.map { "<li>\(LineChart.escaped($0))</li>" }.joined())</ul>"
  }

  private static let milliseconds: @Sendable (Double) -> String = { value in
    value < 1_000 ? "\(LoadReport.number(value)) ms" : "\(LoadReport.number(value / 1_000)) s"
  }

  /// The whole distribution of each stage, with a stretched tail.
  private var percentileChart: LineChart {
    let series = report.latencies[0].stages.map { stage, histogram in
      LineChart.Series(
        name: stage.title(isBulk: report.arrivals.isBulk),
        points: histogram.curve.map { (Self.nines($0.percentile), Double($0.microseconds) / 1_000) })
    }
    let end = series.flatMap(\.points).reduce(1) { max($0, $1.x) }
    let marks: [(Double, String)] = [
      (0, "0 %"), (50, "50 %"), (90, "90 %"), (99, "99 %"), (99.9, "99.9 %"), (99.99, "99.99 %"), (99.999, "99.999 %"),
    ]
    return LineChart(
      title: "Latency by percentile", series: series, scale: .logarithmic,
      ticks: marks.map { .init(x: Self.nines($0), text: $1) }.filter { $0.x <= end + 1e-9 }, label: Self.milliseconds)
  }

  /// 0 for 0 %, 1 for 90 %, 2 for 99 %.
  private static func nines(_ percentile: Double) -> Double { -log10(max(1 - percentile / 100, 1e-9)) }

  private var latencyChart: LineChart {
    func series(_ name: String, _ value: (LatencyHistogram.Summary) -> Int64) -> LineChart.Series {
      LineChart.Series(
        name: name,
        points: report.timeline.slices.enumerated().compactMap { index, slice in
          slice.latency.map { (report.timeline.seconds(index), Double(value($0)) / 1_000) }
        })
    }
    return LineChart(
      title: "Latency over time: \(LoadStage.request.title(isBulk: report.arrivals.isBulk))",
      series: [series("p50", { $0.percentiles[0] }), series("p99", { $0.percentiles[2] }), series("max", \.max)],
      scale: .logarithmic, label: Self.milliseconds)
  }

  private var throughputChart: LineChart {
    func series(_ name: String, _ count: (LoadTimeline.Slice) -> Int) -> LineChart.Series {
      LineChart.Series(
        name: name,
        points: report.timeline.slices.enumerated().map {
          (report.timeline.seconds($0), report.timeline.rate(count($1)))
        })
    }
    return LineChart(
      title: "Deliveries a second over time",
      series: [series("enqueued", \.enqueued), series("requests", \.received), series("settled", \.settled)],
      label: { "\(LoadReport.number($0))/s" })
  }

  private var table: String {
    let rows = report.latencies.flatMap { latencies in
      latencies.stages.map { stage, histogram in
        let summary = histogram.summary
        let cells = ["\(summary.count)"] + (summary.percentiles + [summary.max]).map(LatencyHistogram.text)
        return "<tr><th>\(latencies.title)</th><th>\(stage.title(isBulk: report.arrivals.isBulk))</th>"
          + cells.map { "<td>\($0)</td>" }.joined() + "</tr>"
      }
    }
    let heads = ["provider", "stage", "count", "p50", "p90", "p99", "p99.9", "max"]
    return "<table><thead><tr>" + heads.map { "<th>\($0)</th>" }.joined() + "</tr></thead><tbody>" + rows.joined()
      + "</tbody></table>"
  }

  private static let style = """
    :root { --ink: #1c2733; --soft: #66727f; --grid: #dfe4ea; --page: #fff; --card: #f6f8fa; --good: #1a7f4b; --bad: #b3261e;
      --c0: #2866c8; --c1: #d9791a; --c2: #9b3fb5; --c3: #1a8f7a; --c4: #c43a5c; }
    @media (prefers-color-scheme: dark) {
      :root { --ink: #e3e9ef; --soft: #98a5b3; --grid: #303a45; --page: #12181f; --card: #1a222b; --good: #4cc38a; --bad: #ff7a70;
        --c0: #6fa5ff; --c1: #ffab57; --c2: #d58cf0; --c3: #4fd1b8; --c4: #ff8aa6; } }
    body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 960px; margin: 2rem auto;
      padding: 0 1rem; }
    h1 { font-size: 1.4rem; margin: 0 0 .3rem; }
    .load, .notes { color: var(--soft); }
    .verdict { font-size: 1.1rem; font-weight: 600; padding: .7rem 1rem; background: var(--card); border-left: 5px solid; }
    .good { border-color: var(--good); color: var(--good); }
    .bad, .incomplete { border-color: var(--bad); color: var(--bad); }
    figure { margin: 1.5rem 0; padding: 1rem; background: var(--card); border-radius: 8px; }
    figcaption { font-weight: 600; }
    .legend { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; margin: .2rem 0 .6rem; padding: 0; }
    .legend li::before { content: ""; display: inline-block; width: 1.1em; height: 3px; margin-right: .45em; vertical-align: middle;
      background: currentColor; }
    svg { width: 100%; height: auto; }
    svg text { font-size: 12px; fill: var(--soft); }
    .grid { stroke: var(--grid); } .tick { stroke: var(--soft); }
    polyline { fill: none; stroke: currentColor; stroke-width: 1.8; stroke-linejoin: round; } circle { fill: currentColor; }
    .s0 { color: var(--c0); } .s1 { color: var(--c1); } .s2 { color: var(--c2); } .s3 { color: var(--c3); } .s4 { color: var(--c4); }
    table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
    th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--grid); text-align: right; }
    th { text-align: left; font-weight: 500; } thead th { color: var(--soft); } thead th:nth-child(n + 3) { text-align: right; }
    """
}
