"""The contents of a release: the SBOM, the page of dependencies, and the release tarball."""
