"""The comparison as one HTML page that needs no network: tables, interactive figures, samples, commands."""

import base64
import hashlib
import importlib.util
import json
import re
import shlex
from html import escape
from importlib import resources
from string import Template

from gptcli.analysis.figures import colours, figure_data
from gptcli.analysis.grouping import shown
from gptcli.analysis.output import MARK
from gptcli.analysis.tables import count, headline, interval, magnitude, p_words
from gptcli.errors import UserError
from gptcli.terminal import printable
from gptcli.training.files import UnreadableFile, read_regular

SAMPLE_CHARACTERS = 1500
SAMPLE_BYTES = 2**28
_NAMED = 6
_QUOTED_STAGE = re.compile(r"^stage='(\w+)'$")
_MARKS = {"better": "▼", "worse": "▲", "identical": "="}


def check_library():
    """Raises UserError when plotly is not installed."""
    if importlib.util.find_spec("plotly") is None:
        raise UserError("--html needs plotly; install it with: pip install 'gptcli[plots]'")


def to_html(comparison):
    """Returns the whole page.

    Everything that came from a file is escaped. A content security policy allows the page's own two scripts
    by their hashes and no connection at all, so that text which slipped through could still neither run nor
    load anything.
    """
    from plotly.offline import get_plotlyjs

    parts = resources.files("gptcli.analysis") / "report"
    library, drawing = get_plotlyjs(), (parts / "report.js").read_text(encoding="utf-8")
    baseline, data = comparison.baseline_words, figure_data(comparison)
    return Template((parts / "report.html").read_text(encoding="utf-8")).substitute(
        policy=_policy(library, drawing),
        mark=MARK,
        title=text(f"Comparison against {baseline}"),
        style=(parts / "report.css").read_text(encoding="utf-8"),
        headline=text(_sentence(headline(comparison))),
        heading=_heading(comparison),
        claim=_claim(comparison.study),
        baseline=text(baseline),
        findings=_findings(comparison),
        notes=_notes(comparison),
        results=_results(comparison),
        settings=_settings(comparison),
        samples="".join(_sample(group) for group in comparison.groups),
        commands="".join(_commands(group) for group in comparison.groups),
        data=script_json(data),
        study_figures=_study_figures(data),
        library=library,
        drawing=drawing,
    )


def text(value, *, keep_newlines=False):
    """Returns value safe inside HTML text and attributes, with control and reordering characters shown."""
    return escape(printable(value, keep_newlines=keep_newlines), quote=True)


def _study_figures(data):
    """The frames of the study's panels, which the page's script fills."""
    panels = data["study"]["panels"] if data["study"] else []
    return "".join(
        f'<figure id="study-{number}-figure"><figcaption>{text(panel["title"] or "The study’s answer")}</figcaption>'
        f'<div id="study-{number}"></div></figure>'
        for number, panel in enumerate(panels)
    )


def script_json(data):
    """Returns JSON that cannot end the script element it stands in."""
    encoded = json.dumps(data, ensure_ascii=True, allow_nan=False)
    return encoded.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _policy(*scripts):
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _heading(comparison):
    if comparison.study and comparison.study.question:
        return text(comparison.study.question)
    baseline = text(comparison.baseline_words)
    words = "What each change bought against" if len(comparison.groups) > 1 else "What was measured for"
    return f'{words} <span class="name">{baseline}</span>'


def _claim(study):
    return f'<p class="claim">Claim under test: {text(study.claim)}</p>' if study and study.claim else ""


def _sentence(words):
    return words[:1].upper() + words[1:]


def _findings(comparison):
    """A list of the readings, each with the groups that it holds for."""
    found = {}
    for group in comparison.groups:
        if group.against is not None:
            found.setdefault(group.reading, []).append(group.label)
    return "".join(
        f'<li class="{_kind(reading)}"><strong>{text(_sentence(reading))}: {len(labels)}</strong> '
        f"<span>{text(_some(labels))}</span></li>"
        for reading, labels in sorted(found.items())
    )


def _some(labels):
    shown_labels = "; ".join(labels[:_NAMED])
    return shown_labels if len(labels) <= _NAMED else f"{shown_labels} and {len(labels) - _NAMED} more"


def _kind(reading):
    """Returns the CSS class of a reading; the words are a group's own, never a file's."""
    word = reading.split(" ")[0].rstrip(":")
    return word if word in _MARKS else "none"


def _notes(comparison):
    notes = [f"<li>{text(_sentence(note))}</li>" for note in comparison.notes]
    notes += [
        f"<li>Left out: <code>{text(path)}</code> ({text(reason)})</li>"
        for path, reason in comparison.left_out
    ]
    return f'<aside class="notes"><h2>Read with care</h2><ul>{"".join(notes)}</ul></aside>' if notes else ""


def _results(comparison):
    groups = comparison.groups
    floor = any(group.floor_distance is not None for group in groups)
    header = ["mean", "difference", "p (Holm)", "reading", "seeds", "parameters", "best"]
    header += ["to floor"] * floor + ["steps to baseline", "FLOPs", "tokens/s"]
    rows = [
        _result_row(group, colour, floor) for group, colour in zip(groups, colours(comparison), strict=True)
    ]
    return _table(["group", *header], rows)


def _result_row(group, colour, floor):
    gap = group.against
    mark = _MARKS.get(_kind(group.reading), "·")
    reading = (
        f'<span class="{_kind(group.reading)}">{mark} {text(group.reading)}</span>' if gap else "baseline"
    )
    difference = interval(gap.value, gap.half_width, signed=True) if gap else "–"
    cells = [
        interval(group.summary.mean, group.summary.half_width),
        difference,
        p_words(group.holm_p).removeprefix("p ") or "–",
        reading,
        len(group.values),
        count(group.parameters),
        interval(group.best.mean, None),
        *([interval(group.floor_distance, None, signed=True)] if floor else []),
        count(group.steps_to_baseline),
        magnitude(group.flops),
        count(group.tokens_per_second),
    ]
    swatch = f'<span class="swatch" style="background:{colour}"></span>'
    return [
        f'<span class="{"long" if len(group.label) > 14 else "short"}">{swatch}{text(group.label)}</span>',
        *(cell if cell is reading else text(cell).replace("-", "−") for cell in cells),
    ]


def _table(header, rows):
    """Returns a table of ready HTML cells; the first of each row is its heading."""
    head = "".join(f'<th scope="col">{cell}</th>' for cell in header)
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>{"".join(f"<td>{cell}</td>" for cell in row[1:])}</tr>'
        for row in rows
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll" tabindex="0">{table}</div>'


def _settings(comparison):
    groups = comparison.groups
    keys = list(groups[0].differing)
    if not keys:
        return "<p>The groups do not differ in any setting.</p>"
    bases = [
        groups[comparison.baseline if position is None else position].differing
        for position in comparison.baselines
    ]
    rows = [
        [
            text(key),
            *(
                _setting(group.differing[key], base[key])
                for group, base in zip(groups, bases, strict=True)
            ),
        ]
        for key in keys
    ]
    return _table(["setting", *(text(group.label) for group in groups)], rows)


def _setting(value, baseline):
    return text(shown(value)) if value == baseline else f"<mark>{text(shown(value))}</mark>"


def _sample(group):
    run = group.runs[0]
    sample = _tail(run.path / "samples.txt")
    body = f"<pre>{text(sample, keep_newlines=True)}</pre>" if sample else "<p>No samples were kept.</p>"
    seed = text(run.info.get("seed"))
    return f"<details><summary>{text(group.label)} <small>seed {seed}</small></summary>{body}</details>"


def _tail(path):
    """Returns the last characters of a text file, or nothing where there is none."""
    try:
        data = read_regular(path, SAMPLE_BYTES)
    except UnreadableFile:
        return ""
    return data[-4 * SAMPLE_CHARACTERS :].decode("utf-8", errors="replace")[-SAMPLE_CHARACTERS:]


def _commands(group):
    runs = "".join(_command(run) for run in group.runs)
    many = f"{len(group.runs)} run{'s' * (len(group.runs) > 1)}"
    return f"<details><summary>{text(group.label)} <small>{many}</small></summary><ol>{runs}</ol></details>"


def _command(run):
    info = run.info
    versions = info.get("versions") or {}
    facts = [f"{name} {versions[name]}" for name in ("gptcli", "torch", "python") if versions.get(name)]
    facts += [f"revision {info['git_revision']}"] if info.get("git_revision") else []
    facts += [f"{info.get('device')}, {info.get('threads')} thread(s), {info.get('precision')}"]
    corpus = info.get("corpus") or {}
    facts += [f"{corpus.get('name')} sha256 {str(corpus.get('sha256'))[:12]}"]
    return (
        f"<li><code>{text(command_line(run))}</code>"
        f"<p><small>{text(run.path)}<br>{text('; '.join(facts))}</small></p></li>"
    )


def command_line(run):
    """Returns the command that starts a run again, quoted for a POSIX shell."""
    overrides = run.info.get("overrides") or ()
    # A study is a sweep; with every setting that it varies given, it is a sweep of this one job.
    multirun = ["-m"] * any(str(override).startswith("study=") for override in overrides)
    return " ".join(["gptcli", "train", *multirun, *map(_quoted, overrides)])


def _quoted(word):
    """Returns word quoted for a shell; control characters need bash's $'...' to survive being copied."""
    # Stage names are stored quoted for Hydra; the command line takes them as they are.
    word = _QUOTED_STAGE.sub(r"stage=\1", str(word))
    if printable(word) == word:
        return shlex.quote(word)
    escaped = "".join(_ansi_c(character) for character in word)
    return f"$'{escaped}'"


def _ansi_c(character):
    if character in "'\\":
        return f"\\{character}"
    return character if printable(character) == character else f"\\U{ord(character):08x}"
