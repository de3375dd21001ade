"""gptcli data: the corpora, what of them is cached and where, and downloading them."""

SUMMARY = "list, fetch or locate corpora"
EXAMPLES = """examples:
  gptcli data list
  gptcli data fetch tiny_shakespeare
  gptcli train data=text_file data.path="$(gptcli data path alice)\""""


def add_arguments(parser):
    """Adds the arguments of data."""
    parser.add_argument("action", choices=("list", "fetch", "path"), help="what to do")
    parser.add_argument("name", nargs="?", metavar="NAME", help="the corpus to fetch or to locate")
    parser.add_argument("--json", action="store_true", help="list as JSON")


def run(arguments):
    """Lists the corpora, downloads one or prints where it is."""
    from gptcli.errors import UserError

    if (arguments.action == "list") != (arguments.name is None):
        raise UserError(
            f"gptcli data {arguments.action} takes {'no' if arguments.name else 'the'} name of a corpus"
        )
    if arguments.json and arguments.action != "list":
        raise UserError(f"--json goes with gptcli data list, not with {arguments.action}")
    return {"list": _list, "fetch": _fetch, "path": _path}[arguments.action](arguments)


def _list(arguments):
    import json

    from gptcli.data.corpus import corpus_facts
    from gptcli.terminal import table

    facts = corpus_facts()
    if arguments.json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
        return 0
    header = ("data=", "title", "cached", "characters", "symbols", "path")
    rows = [
        (one["name"], one["title"], "yes" if one["cached"] else "no", _number(one["characters"]),
         _number(one["vocabulary"]), one["problem"] or one["path"] or "")
        for one in facts
    ]  # fmt: skip
    print("\n".join(table(rows, header, right=(3, 4))))
    return 0


def _number(value):
    return "" if value is None else f"{value:,}"


def _fetch(arguments):
    from gptcli.data.catalogue import find_cached, read_verified
    from gptcli.data.download import download
    from gptcli.terminal import printable

    corpus = _named(arguments.name)
    path = find_cached(corpus) or download(corpus)
    read_verified(corpus, path)
    print(printable(path))
    return 0


def _path(arguments):
    from gptcli.data.catalogue import find_cached
    from gptcli.errors import RunError
    from gptcli.terminal import printable

    corpus = _named(arguments.name)
    path = find_cached(corpus)
    if path is None:
        raise RunError(f"{corpus.name} is not cached; gptcli data fetch {corpus.name} downloads it")
    print(printable(path))
    return 0


def _named(name):
    import difflib

    from gptcli.data.catalogue import CATALOGUE
    from gptcli.errors import UserError

    if name in CATALOGUE:
        return CATALOGUE[name]
    if name == "synthetic_play":
        raise UserError("synthetic_play is made when it is used; there is no file to fetch")
    close = difflib.get_close_matches(name, CATALOGUE, n=1)
    hint = f"did you mean {close[0]}?" if close else f"use one of {', '.join(CATALOGUE)}"
    raise UserError(f"{name} is not a corpus that can be fetched; {hint}")
