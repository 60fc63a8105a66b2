"""The page, the examples and the test name the same things. Starts nothing."""

import re
import unittest

from Tests.failover.__main__ import KINDS, LAG_SECONDS, ROUTES
from Tests.failover.nodes import EXAMPLES, ROOT, TTL


class FileTests(unittest.TestCase):
    def setUp(self) -> None:
        self.page = (ROOT / "docs" / "failover.md").read_text()
        self.node = (EXAMPLES / "patroni.yml").read_text()

    def setting(self, name: str) -> float:
        found = re.search(rf"^ *{name}: (\d+)$", self.node, re.MULTILINE)
        assert found is not None, name
        return float(found[1])

    def test_the_example_has_the_ttl_that_ratios_are_of(self) -> None:
        self.assertEqual(self.setting("ttl"), TTL)

    def test_patroni_accepts_the_times(self) -> None:
        self.assertLessEqual(self.setting("loop_wait") + 2 * self.setting("retry_timeout"), TTL)

    def test_the_page_shows_the_settings_of_the_example(self) -> None:
        for name in ("ttl", "loop_wait", "retry_timeout", "primary_start_timeout"):
            self.assertIn(f"`{name}: {self.setting(name):g}`", self.page)

    def test_the_page_describes_each_promotion_and_each_route(self) -> None:
        for kind in KINDS:
            self.assertIn(f"| `{kind}` |", self.page)
        for route in ROUTES:
            self.assertIn(f"`{route}`", self.page)
        self.assertIn(f"{LAG_SECONDS:g} s", self.page)

    def test_haproxy_asks_patroni(self) -> None:
        proxy = (EXAMPLES / "haproxy.cfg").read_text()
        self.assertIn("option httpchk OPTIONS /primary", proxy)
        self.assertIn("on-marked-down shutdown-sessions", proxy)
        self.assertIn("check port 8008", proxy)


if __name__ == "__main__":
    unittest.main()
