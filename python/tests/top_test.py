# SPDX-License-Identifier: Apache-2.0
"""`hotset top`: frames of pages that are written by hand, one frame as text, and the view on a terminal."""

import contextlib
import fcntl
import http.server
import math
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time

import pytest

from hotset import InvalidArgument, _top

BOUNDS = ("0.001", "0.01", "+Inf")


def page(scale=1, layers=(90, 50), copies=(10, 90, 100), slots=8, used=512, labels=""):
    """Counters of an engine that has done `scale` times the same: 200 accesses in two layers."""
    extra = labels and "," + labels
    lines = [f'hotset_{name}{{{labels}}} {value}' for name, value in (
        ("visits_total", 20 * scale), ("accesses_total", 200 * scale), ("hits_total", sum(layers) * scale),
        ("misses_total", (200 - sum(layers)) * scale), ("steps_total", 10 * scale), ("stalls_total", 4 * scale),
        ("stall_seconds_total", 0.5 * scale), ("slots", slots), ("resident_experts", 6), ("experts", 32),
        ("budget_bytes", 1024), ("budget_used_bytes", used),
    )]
    for layer, hits in enumerate(layers):
        lines += [f'hotset_hits_by_layer_total{{layer="{layer}"{extra}}} {hits * scale}',
                  f'hotset_accesses_by_layer_total{{layer="{layer}"{extra}}} {100 * scale}']
    for kind, accesses, hits in (("decode", 150, sum(layers) * 4 // 5), ("prefill", 50, sum(layers) // 5), ("verify", 0, 0)):
        lines += [f'hotset_accesses_by_kind_total{{kind="{kind}"{extra}}} {accesses * scale}',
                  f'hotset_hits_by_kind_total{{kind="{kind}"{extra}}} {hits * scale}']
    for le, count in zip(BOUNDS, copies):
        lines.append(f'hotset_copy_seconds_bucket{{copy="demand",le="{le}"{extra}}} {count * scale}')
    lines.append(f'hotset_link_bytes_total{{copy="demand"{extra}}} {3000000 * scale}')
    lines.append(f'hotset_info{{version="0.1.0",policy="lru"{extra}}} 1')
    return "# HELP hotset_hits_total Hits.\nprocess_cpu_seconds_total 1 2 3\n" + "\n".join(lines) + "\n"


def history(*readings, window=2.0):
    out = _top.History(window)
    for at, text in readings:
        out.add(_top.parse(text, "page", at))
    return out


def rows(frame):
    """label -> the cells after it."""
    found = [re.split(r"\s{2,}", line.text.strip()) for line in frame if line.text.strip()]
    return {cells[0]: cells[1:] for cells in found}


def test_a_frame_compares_the_last_seconds_with_all_since_the_start():
    now = time.time()
    frame = _top.frame(history((now - 2, page(10)), (now, page(12, layers=(90, 45)))), "page")
    found = rows(frame)
    assert frame[0] == _top.Line("hotset top: page", "title")
    assert frame[1].text == "lru, hotset 0.1.0"
    # 220 of 400 hits in 2 s, 1620 of 2400 since the start.
    assert found["hit rate"] == ["55.0 %", "67.5 %", "[###########.........]"]
    assert found["steps"] == ["10.0/s", "120"]
    assert found["stalls"] == ["4.0/s", "48"]
    assert found["waited for copies"] == ["50.0 %", "6.00 s"]
    assert found["demand bytes"] == ["3.0 MB/s", "36.0 MB"]
    assert found["demand copy, median"] == ["5.50 ms", "5.50 ms"]
    assert found["demand copy, p99"] == ["> 10.0 ms", "> 10.0 ms"]
    assert found["slots"] == ["8", "of 32", "[#####...............]"]
    assert found["resident"] == ["6", "of 8", "[###############.....]"]
    assert found["budget"] == ["512 B", "of 1.0 KiB", "[##########..........]"]


def test_before_a_second_reading_there_is_no_now():
    found = rows(_top.frame(history((time.time(), page())), "page"))
    assert found["hit rate"] == ["-", "70.0 %"]
    assert found["steps"] == ["-", "10"]
    assert found["demand copy, median"] == ["-", "5.50 ms"]
    assert found["layer 1"] == ["-", "50.0 %"]


def test_classes_are_shown_if_there_are_several():
    found = rows(_top.frame(history((time.time(), page())), "page"))
    assert found["decode"] == ["-", "74.7 %"]
    assert found["prefill"] == ["-", "56.0 %"]
    assert "verify" not in found


def test_layers_with_the_most_misses_come_first_and_the_height_limits_them():
    now = time.time()
    read = history((now - 2, page(10, layers=(50, 90, 70))), (now, page(11, layers=(50, 90, 70))))
    whole = [line.text for line in _top.frame(read, "page")]
    assert [text.split()[1] for text in whole[-3:]] == ["0", "2", "1"]
    assert whole[-3].endswith("[####################] 25.0") and whole[-1].endswith("[####................] 5.0")
    cut = [line.text for line in _top.frame(read, "page", len(whole) - 1)]
    assert cut == whole[:-1]
    assert [line.text for line in _top.frame(read, "page", 3)] == whole[:3]


def test_a_budget_above_its_limit_is_marked():
    (line,) = [line for line in _top.frame(history((time.time(), page(used=2048))), "page") if "budget" in line.text]
    assert line.style == "bad" and line.text.endswith("over its limit")


def test_caches_of_one_page_are_added():
    both = page(labels='model="a"') + page(labels='model="b"', layers=(100, 100))
    found = rows(_top.frame(history((time.time(), both)), "page"))
    assert found["hit rate"] == ["-", "85.0 %"]
    assert found["slots"][:2] == ["16", "of 64"]
    assert found["demand copy, median"] == ["-", "5.50 ms"]


def test_a_page_of_decisions_alone_has_no_times_and_no_slots():
    text = "hotset_visits_total 2\nhotset_accesses_total 10\nhotset_hits_total 9\n"
    found = rows(_top.frame(history((time.time(), text)), "page"))
    assert found["hit rate"] == ["-", "90.0 %"]
    assert found["waited for copies"] == ["-", "-"]
    assert not {"slots", "budget", "demand bytes", "most misses"} & set(found)


def test_the_window_moves_and_a_restart_begins_again():
    read = history(*((float(at), page(at)) for at in range(1, 8)))
    assert (read.seconds, read.rate("steps_total")) == (2.0, 10.0)
    read.add(_top.parse(page(9), "page", 7.0))  # a file that has not been written since
    assert read.newest.total("steps_total") == 70
    read.add(_top.parse(page(1), "page", 8.0))
    assert read.seconds == 0 and math.isnan(read.rate("steps_total"))
    read.add(_top.parse(page(2), "page", 6.0))  # a clock that was set back
    assert read.seconds == 0 and read.newest.at == 6.0


def test_quantiles_are_prometheus_quantiles():
    counts = [(0.1, 0.0), (0.3, 80.0), (1.0, 100.0), (math.inf, 100.0)]
    assert _top.quantile(0.5, counts) == pytest.approx(0.1 + 0.2 * 50 / 80)
    assert _top.quantile(0.99, counts) == pytest.approx(0.3 + 0.7 * 19 / 20)
    assert math.isinf(_top.quantile(0.5, [(0.1, 1.0), (math.inf, 10.0)]))
    assert math.isnan(_top.quantile(0.5, [(0.1, 0.0), (math.inf, 0.0)])) and math.isnan(_top.quantile(0.5, []))


@pytest.mark.parametrize("line", ["hotset_slots", "hotset_slots{a=b} 1", "hotset_slots x", 'hotset_slots{a="b} 1', "hotset_slots NaN"])
def test_a_line_that_is_not_prometheus_text_is_refused(line):
    with pytest.raises(InvalidArgument, match=r"page, line 2: '.*'; accepted: name\{label=\"value\"\} number"):
        _top.parse("hotset_visits_total 1\n" + line + "\n", "page", 0.0)


def test_labels_may_hold_what_separates_labels():
    read = _top.parse('hotset_visits_total{a="x, }\\"\\\\\\n", le="1"} 1 1700000000\n', "page", 0.0)
    assert read.samples["hotset_visits_total"] == [({"a": 'x, }"\\\n', "le": "1"}, 1.0)]


# The command.


class Engine:
    """A server with a page that grows by `page()` at each request."""

    def __init__(self, port=0, status=200, text=None):
        engine = self
        self.requests = 0

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                engine.requests += 1
                body = (page(engine.requests) if text is None else text).encode()
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/metrics"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def top(*words):
    return subprocess.run(
        [sys.executable, "-B", "-m", "hotset", "top", *words], capture_output=True, text=True, check=False, timeout=300
    )


def test_once_prints_a_frame_of_plain_text():
    with Engine() as engine:
        done = top("--once", "--window", "0.5", engine.url)
    assert (done.returncode, done.stderr, engine.requests) == (0, "", 2)
    assert re.search(r"hit rate +70\.0 % +70\.0 %  \[#{14}\.{6}\]\n", done.stdout)
    assert all(c.isprintable() or c == "\n" for c in done.stdout)
    assert done.stdout.startswith(f"hotset top: {engine.url}\nlru, hotset 0.1.0\n")


def test_once_without_a_window_reads_once(tmp_path):
    file = tmp_path / "hotset.prom"
    file.write_text(page())
    os.utime(file, (time.time() - 100, time.time() - 100))
    done = top("--once", "--window", "0", str(file))
    assert re.search(r"hit rate +- +70\.0 %\n", done.stdout)
    assert re.search(r"\nlru, hotset 0\.1\.0, written 1\d\d s ago\n", done.stdout)


def test_a_file_that_is_rewritten_has_rates(tmp_path):
    """As engines write for node_exporter: a new file is renamed over the old one."""
    file = tmp_path / "hotset.prom"
    file.write_text(page(1))
    os.utime(file, (1000, 1000))
    reader = _top.Reader(str(file), 2.0)
    reader.again()
    assert rows(reader.lines())["steps"] == ["-", "10"]
    (tmp_path / "new").write_text(page(4))
    os.utime(tmp_path / "new", (1015, 1015))
    os.replace(tmp_path / "new", file)
    reader.again()
    assert rows(reader.lines())["steps"] == ["2.0/s", "40"]
    file.write_text("hotset_hits_to")  # by a program that does not rename
    reader.again()
    assert "line 1: 'hotset_hits_to'" in reader.lines()[1].text and rows(reader.lines())["steps"] == ["2.0/s", "40"]


@pytest.mark.parametrize(
    "words, code, message",
    [
        (["--once", "http://127.0.0.1:1/metrics"], 1, "http://127.0.0.1:1/metrics: no answer: Connection refused"),
        (["--once", "http://127.0.0.1:port/"], 1, "no answer in HTTP: nonnumeric port: 'port'"),
        (["--once", "http://"], 1, "http://: no answer: "),
        (["--once", "absent.prom"], 1, "absent.prom: No such file or directory"),
        (["--once", __file__], 4, "no hotset_visits_total; accepted: the metrics of an engine with hotset"),
        ([__file__], 2, "standard input and output are not a terminal; accepted: --once, or a terminal"),
        (["--once", "--window", "-1", "x"], 2, "--window: '-1'; accepted: 0..3600"),
        ([], 2, "the following arguments are required: FILE|URL"),
    ],
)
def test_a_refusal_is_one_line(words, code, message):
    done = top(*words)
    assert done.returncode == code and done.stdout == ""
    assert message in done.stderr and done.stderr.count("\n") == 1


def test_a_server_of_other_things_is_refused_in_one_line():
    with Engine(status=404) as engine:
        done = top("--once", engine.url)
    assert done.stderr == f"hotset: {engine.url}: the server answers 404 Not Found; accepted: the page of the metrics\n"
    with Engine(text="up 1\n") as engine:
        done = top("--once", engine.url)
    assert done.returncode == 4 and "no hotset_visits_total" in done.stderr


# On a terminal.


class Terminal:
    """A program on a pseudo-terminal."""

    def __init__(self, *words, height=24, width=80, term="xterm", hangup=signal.SIG_DFL):
        self.output = b""
        self.process, self.master = pty.fork()
        if self.process == 0:
            os.environ["TERM"] = term
            signal.signal(signal.SIGHUP, hangup)
            os.execv(sys.executable, [sys.executable, "-B", "-c", self.WAIT, *words])
        self.resize(height, width)
        self.before = termios.tcgetattr(self.master)
        os.write(self.master, b"\n")

    # The program begins once the terminal has its size.
    WAIT = "import os, sys; input(); os.execv(sys.executable, [sys.executable, '-B', '-m', 'hotset', 'top', *sys.argv[1:]])"

    def resize(self, height, width):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def drain(self):
        if select.select([self.master], [], [], 0.1)[0]:
            self.output += os.read(self.master, 65536)

    def read_until(self, pattern):
        """Returns the output up to the pattern, and forgets it."""
        deadline = time.monotonic() + 120
        while not (found := re.search(pattern, self.output, re.DOTALL)):
            assert time.monotonic() < deadline, (pattern, self.output)
            self.drain()
        out, self.output = self.output[: found.end()], self.output[found.end() :]
        return out

    def type(self, keys):
        os.write(self.master, keys)

    def end(self):
        """Waits for the end; returns the exit code and the rest of the output."""
        while True:
            with contextlib.suppress(OSError):  # the other end is closed
                if select.select([self.master], [], [], 120)[0]:
                    self.output += os.read(self.master, 65536)
                    continue
            break
        _, status = os.waitpid(self.process, 0)
        return os.waitstatus_to_exitcode(status), self.output


@pytest.mark.parametrize("keys", [b"q", b"\x03"])
def test_a_key_ends_the_view_and_the_terminal_is_as_before(keys):
    with Engine() as engine:
        terminal = Terminal(engine.url)
        terminal.read_until(rb"\x1b\[\?1049h")  # the alternate screen
        terminal.read_until(rb"hit rate")
        terminal.type(keys)
        code, rest = terminal.end()
    assert code == 0
    assert b"\x1b[?1049l" in rest and b"Traceback" not in rest
    assert termios.tcgetattr(terminal.master) == terminal.before


def test_the_view_follows_the_engine_the_size_and_survives_its_restart():
    with Engine() as engine:
        terminal = Terminal(engine.url)
        terminal.read_until(rb"hit rate")
        while engine.requests < 15:
            terminal.drain()
        # curses writes what has changed, and after a change of the size all.
        terminal.resize(6, 70)
        drawn = terminal.read_until(rb"hotset top.*last .{1,4} s.*hit rate")
        drawn = drawn[drawn.rindex(b"hotset top") :] + terminal.read_until(rb"70\.0 %")
        assert max(int(row) for row in re.findall(rb"\x1b\[(\d+)[;d]", drawn)) <= 6
    terminal.read_until(rb"no answer")
    with Engine(engine.port):
        terminal.read_until(rb"lru, hotset 0")
        terminal.type(b"q")
        assert terminal.end()[0] == 0


def test_a_signal_to_end_restores_the_terminal(tmp_path):
    file = tmp_path / "hotset.prom"
    file.write_text(page())
    terminal = Terminal(str(file))
    terminal.read_until(rb"hit rate")
    os.kill(terminal.process, signal.SIGTERM)
    code, rest = terminal.end()
    assert code == 128 + signal.SIGTERM and b"\x1b[?1049l" in rest


@pytest.mark.parametrize("hangup", [signal.SIG_DFL, signal.SIG_IGN])
def test_the_view_ends_with_its_terminal(tmp_path, hangup):
    file = tmp_path / "hotset.prom"
    file.write_text(page())
    terminal = Terminal(str(file), hangup=hangup)
    terminal.read_until(rb"hit rate")
    os.close(terminal.master)
    deadline = time.monotonic() + 60
    while (done := os.waitpid(terminal.process, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    if done[0] == 0:
        os.kill(terminal.process, signal.SIGKILL)
    assert done[0] == terminal.process


def test_a_terminal_that_curses_does_not_know_is_refused_in_one_line(tmp_path):
    file = tmp_path / "hotset.prom"
    file.write_text(page())
    code, rest = Terminal(str(file), term="unheard-of").end()
    assert code == 1 and b"hotset: TERM=unheard-of: " in rest and b"accepted: a terminal, or --once" in rest
