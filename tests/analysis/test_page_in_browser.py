"""The page opened from disk in headless Chromium: figures drawn, console silent, network untouched."""

import json
import os
import shutil
import subprocess
import time
import urllib.request

import pytest

from gptcli.analysis.compare import compare
from gptcli.analysis.page import to_html

EVIL = "</script><script>document.title='owned'</script><img src=http://127.0.0.1:9/x onerror=alert(2)><b>%{x}"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Browser:
    """A WebDriver session, spoken to in its own JSON."""

    def __init__(self, port, profile):
        self._address = f"http://127.0.0.1:{port}"
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": [*FLAGS, f"--user-data-dir={profile}"], "binary": _chromium()},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        session = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._address += f"/session/{session['sessionId']}"

    def _ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self._address}{path}", data, {"Content-Type": "application/json"}, method=method
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def open(self, path, width, height):
        # A window cannot be as narrow as a phone; the viewport can.
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self._command("Emulation.setDeviceMetricsOverride", size)
        self.requested()  # what the browser's own first page asked for
        self._ask("POST", "/url", {"url": path.as_uri()})

    def run(self, script):
        return self._ask("POST", "/execute/sync", {"script": script, "args": []})

    def console(self):
        return [entry["message"] for entry in self._ask("POST", "/se/log", {"type": "browser"})]

    def requested(self):
        events = [
            json.loads(entry["message"])["message"] for entry in self._ask("POST", "/se/log", {"type": "performance"})
        ]
        return [one["params"]["request"]["url"] for one in events if one["method"] == "Network.requestWillBeSent"]

    def emulate(self, scheme):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._command("Emulation.setEmulatedMedia", {"features": features})

    def _command(self, name, parameters):
        return self._ask("POST", "/goog/cdp/execute", {"cmd": name, "params": parameters})

    def close(self):
        self._ask("DELETE", "")


def _chromium():
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if not (shutil.which("chromedriver") and _chromium()):
        message = "chromium and chromedriver are not on PATH"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    driver = subprocess.Popen(
        ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        # "ChromeDriver was started successfully on port 12345."
        line = next(line for line in driver.stdout if "successfully on port" in line)
        session = Browser(int(line.rstrip(". \n").rsplit(" ", 1)[1]), tmp_path_factory.mktemp("profile"))
        yield session
        session.close()
    finally:
        driver.terminate()
        driver.wait(30)


@pytest.fixture
def page(make_run, tmp_path):
    runs = [
        make_run(
            seed=seed,
            loss=2.5 - layers / 10 - heads / 50 + seed / 100 + (seed * layers % 3) / 200,
            parameters=12_704 * layers,
            changes={"model.num_layers": layers, "model.num_heads": heads, "stage.name": EVIL},
            overrides=[EVIL],
        )
        for layers in (1, 3)
        for heads in (2, 4)
        for seed in range(3)
    ]
    for run in runs:
        (run.path / "samples.txt").write_text(EVIL, encoding="utf-8")
    path = tmp_path / "page #1 %.html"
    path.write_text(to_html(compare(runs)), encoding="utf-8")
    return path


def count(browser, figure, selector):
    return browser.run(f"return document.querySelectorAll('#{figure} {selector}').length")


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
def test_figures_are_drawn_in_silence(browser, page, width, height):
    browser.open(page, width, height)
    # Four groups: a line each; a point and an error bar each; three differences to the baseline; four cells.
    assert count(browser, "curves", ".scatterlayer path.js-line") >= 4
    assert count(browser, "curves", ".fills path.js-fill") >= 4
    assert count(browser, "parameters", ".scatterlayer path.point") == 4
    assert count(browser, "flops", ".scatterlayer path.yerror") == 4
    assert count(browser, "differences", ".scatterlayer path.point") == 3
    assert count(browser, "heat", ".heatmaplayer image, .heatmaplayer text") >= 4
    assert browser.run("return window.innerWidth") == width
    assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth")
    assert browser.run("return document.title") == "Comparison against num_layers=1 num_heads=2"
    assert browser.console() == []
    assert {url.split(":")[0] for url in browser.requested()} <= {"file", "data", "blob"}


def test_a_group_can_be_hidden_and_shown(browser, page):
    browser.open(page, 1280, 900)
    press = "document.querySelectorAll('#chips button')[1].click()"
    browser.run(press)
    assert count(browser, "parameters", ".scatterlayer path.point") == 3
    browser.run(press)
    assert count(browser, "parameters", ".scatterlayer path.point") == 4


def test_labels_are_shown_as_they_are(browser, make_run, tmp_path):
    name = "<b>%{x}&amp;"
    runs = [make_run(stage=stage, seed=seed, loss=2 + seed / 10) for stage in (name, "4_10") for seed in range(2)]
    path = tmp_path / "page.html"
    path.write_text(to_html(compare(runs, baseline="4_10")), encoding="utf-8")
    browser.open(path, 1280, 900)
    assert name in browser.run("return document.querySelector('#differences .yaxislayer-above').textContent")
    assert name in browser.run("return document.querySelector('#chips').textContent")


def test_dark_follows_the_reader(browser, page):
    browser.open(page, 1280, 900)
    colour = "return getComputedStyle(document.body).backgroundColor"
    tick = "return getComputedStyle(document.querySelector('#curves .xtick text')).fill"
    seen = []
    for scheme in ("light", "dark"):
        browser.emulate(scheme)
        time.sleep(0.3)  # the change event is delivered with the next frame
        seen.append((browser.run(colour), browser.run(tick)))
    assert seen == [("rgb(253, 253, 251)", "rgb(29, 33, 38)"), ("rgb(21, 24, 27)", "rgb(228, 230, 227)")]


def test_the_figure_of_a_study_has_a_panel_for_each_value_and_a_line_for_each_group(browser, make_run, tmp_path):
    by = ["model.num_layers", "model.num_heads", "model.position"]
    study = {"name": EVIL, "question": EVIL, "claim": EVIL, "by": by, "baseline": None}
    study |= {"x": "model.num_layers", "lines": "model.num_heads", "panels": "model.position"}
    cells = [(layers, heads, where) for layers in (1, 2, 8) for heads in (2, 4) for where in ("none", "learned")]
    runs = []
    for layers, heads, where in cells:
        changes = {"model.num_layers": layers, "model.num_heads": heads, "model.position": where}
        runs += [make_run(seed=seed, loss=2 - layers / 50 + seed / 10, changes=changes) for seed in (0, 1)]
    for run in runs:
        run.config["study"] = study
    path = tmp_path / "study.html"
    path.write_text(to_html(compare(runs)), encoding="utf-8")
    for width in (1280, 390):
        browser.open(path, width, 900)
        for panel in ("study-0", "study-1"):
            assert count(browser, panel, ".scatterlayer path.point") == 6
            assert count(browser, panel, ".scatterlayer path.js-line") == 2
        assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth")
        assert EVIL in browser.run("return document.querySelector('h1').textContent")
        assert browser.console() == []
