// The values of `--log-format`.

import ArgumentParser
package import Settings

extension LogFormat: ExpressibleByArgument {}
