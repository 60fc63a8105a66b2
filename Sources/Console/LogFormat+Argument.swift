// `--log-format json|text`.

import ArgumentParser
package import Settings

extension LogFormat: ExpressibleByArgument {}
