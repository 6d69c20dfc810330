"""Tests of the checks of the documentation: `python3 -m unittest discover -s tools/book`."""

import os
import tempfile
import unittest
from pathlib import Path

import blocks
import links
import mentions
import pages


class APage(unittest.TestCase):
    def test_has_links_outside_of_code_alone(self):
        text = "[a](b.md) `[c](d.md)` [`e`](f.md#g)\n```\n[h](i.md)\n```\n![j](k.svg \"l\")\n[m]: n.md\n"
        self.assertEqual(pages.links(text), [(1, "b.md"), (1, "f.md#g"), (5, "k.svg"), (6, "n.md")])

    def test_has_an_anchor_for_each_heading_and_numbers_those_of_one_text(self):
        text = "# A load balancer: `x`\n## Same\n### Same\n```\n# not this\n```\n## [Linked](a.md) one\n"
        self.assertEqual(pages.anchors(text), {"a-load-balancer-x", "same", "same-1", "linked-one"})

    def test_has_blocks_with_their_words_and_lines(self):
        _, found = pages.split("x\n  ```console run exit=2\n  $ a\n    b\n  ```\n````text\n```\n````\n")
        self.assertEqual([(block.words, block.line, block.lines) for block in found],
                         [(["console", "run", "exit=2"], 2, ["$ a", "  b"]), (["text"], 6, ["```"])])


class ABook(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = Path(temporary.name).resolve()
        self.write("README.md", "[docs](docs/a.md#b)")
        self.write("docs/SUMMARY.md", "- [A](a.md)\n- [C](deep/c.md)\n")
        self.write("docs/a.md", "# B\n[c](deep/c.md) [out](https://example.com/x)")
        self.write("docs/deep/c.md", "[a](../a.md)")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def check(self):
        names = [str(path.relative_to(self.root)) for path in self.root.rglob("*.md")]
        return links.check(self.root, names)

    def test_with_living_links_has_nothing_wrong(self):
        self.assertEqual(self.check(), [])

    def test_tells_a_file_and_an_anchor_that_are_not_there(self):
        self.write("docs/deep/c.md", "\n[a](../b.md)\n[b](../a.md#c)")
        self.assertEqual(self.check(), [
            "docs/deep/c.md:2: ../b.md: there is no such file",
            "docs/deep/c.md:3: ../a.md#c: a.md has no heading with this anchor",
        ])

    def test_tells_a_link_that_leaves_it(self):
        self.write("docs/a.md", "# B\n[r](../README.md) [d](deep)")
        first, second = self.check()
        self.assertIn("docs/a.md:2: ../README.md: leads out of docs/", first)
        self.assertIn("docs/a.md:2: deep: is a directory", second)

    def test_tells_a_page_that_its_contents_lack_or_have_twice(self):
        self.write("docs/d.md", "")
        self.write("docs/SUMMARY.md", "- [A](a.md)\n- [C](deep/c.md)\n- [A](a.md)\n")
        self.assertEqual(self.check(), ["docs/d.md: is not in docs/SUMMARY.md", "docs/SUMMARY.md: a.md is there twice"])


class ABlock(unittest.TestCase):
    def run_text(self, text, have=()):
        with tempfile.TemporaryDirectory() as directory:
            page = Path(directory) / "page.md"
            page.write_text(text)
            return blocks.run_page(page, Path(directory), dict(os.environ), set(have))

    def test_that_says_nothing_is_refused(self):
        for info in ["console", "sh", "console run needs=vlan", "console needs=luck", "console urn"]:
            wrong, ran, left = self.run_text(f"```{info}\n$ true\n```\n")
            self.assertEqual((len(wrong), ran, left), (1, 0, 0), info)

    def test_that_is_no_shell_is_left_alone(self):
        self.assertEqual(self.run_text("```text\nfalse\n```\n```\nx\n```\n"), ([], 0, 0))

    def test_runs_and_its_output_is_held_against_the_page(self):
        self.assertEqual(self.run_text("```console run\n$ echo a   b; echo c\na b\nc\n```\n"), ([], 1, 0))
        wrong, _, _ = self.run_text("```console run\n$ echo a\nb\n```\n")
        self.assertIn("page.md:1: `echo a` printed something else:\na", wrong[0])

    def test_may_leave_out_what_differs(self):
        self.assertEqual(self.run_text("```console run\n$ seq 9; echo in 12 ms\n1\n…\n9\nin … ms\n```\n")[0], [])
        self.assertNotEqual(self.run_text("```console run\n$ seq 9\n1\n…\n8\n```\n")[0], [])

    def test_may_take_another_time_where_it_says_so(self):
        text = "```console run%s\n$ echo ok 1.5 ms in 2 s\nok 12 ms in 4.0 s\n```\n"
        self.assertEqual(self.run_text(text % " times")[0], [])
        self.assertEqual(len(self.run_text(text % "")[0]), 1)

    def test_must_end_as_it_says(self):
        self.assertEqual(self.run_text("```console run exit=3\n$ true\n$ exit 3\n```\n")[0], [])
        self.assertIn("ended with 1, not 0", self.run_text("```sh run\nfalse\ntrue\n```\n")[0][0])

    def test_finds_the_files_that_the_page_shows(self):
        text = "```yaml file=a.yaml\nx: 1\n```\n```console run\n$ cat a.yaml\nx: 1\n```\n"
        self.assertEqual(self.run_text(text), ([], 1, 0))

    def test_that_needs_something_runs_where_that_is(self):
        text = "```console needs=cluster\n$ false\n```\n"
        self.assertEqual(self.run_text(text), ([], 0, 1))
        self.assertEqual(len(self.run_text(text, have=["cluster"])[0]), 1)

    def test_may_go_on_on_the_next_line(self):
        self.assertEqual(self.run_text("```console run\n$ echo a \\\n    b\na b\n```\n"), ([], 1, 0))


REFERENCE = """
## oooi
```text
      --log-level <LEVEL>
```
## oooi leases
```text
  -o, --output <OUTPUT>
      --server <NAME>  its server, as in `--wrong`
```
## oooi leases release
```text
Options:
      --state-dir <DIR>
```
"""


class AMention(unittest.TestCase):
    def wrong(self, page):
        return mentions.wrong(page, mentions.known(REFERENCE))

    def test_of_what_there_is_is_fine(self):
        for page in ["`oooi leases --server x -o json`", "`oooi leases release 1.2.3.4 --state-dir d --log-level debug`",
                     "```console needs=vlan\n$ oooi leases --output yaml | grep --wrong x\n```", "oooi is `oooi`"]:
            self.assertEqual(self.wrong(page), [], page)

    def test_of_a_flag_or_a_command_that_there_is_not_is_told(self):
        self.assertEqual(self.wrong("\n`oooi leases --name x`"), [(2, "`oooi leases` has no --name")])
        self.assertEqual(self.wrong("`oooi leases --wrong`"), [(1, "`oooi leases` has no --wrong")])
        self.assertEqual(self.wrong("```console run\n$ true\n# oooi lease\n```"), [(3, "there is no command `oooi lease`")])
        self.assertEqual(len(self.wrong("```sh run\noooi leases \\\n  --name x\n```")), 1)


if __name__ == "__main__":
    unittest.main()
