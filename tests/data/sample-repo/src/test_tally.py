import os
import unittest

from tally import add


class Adding(unittest.TestCase):
    def test_that_all_numbers_count(self):
        self.assertEqual(add([1, 2, 3]), 6)

    def test_that_the_mode_is_strict_where_the_caller_says_so(self):
        self.assertIn(os.environ.get("TALLY_MODE", "strict"), ["strict"])
