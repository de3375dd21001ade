"""What each head of a model attends to: its weights on a text, and what they come to over many windows."""

import torch

_PIECE_WEIGHTS = 2**22  # attention weights of one block that are held at once
# What a share of the weight falls on, by the key's place or character.
SHARES = ("itself", "previous", "same_character", "line_start", "space", "colon")
MEASURES = ("entropy", "relative_entropy", "distance", *SHARES)


@torch.no_grad()
def attention_weights(model, tokens):
    """Returns {block number: weights (batch, head, query, key)} of tokens (batch, time)."""
    inputs, handles = {}, []

    def watch(number, attention):
        def take(_module, given):
            inputs[number] = given[0]

        handles.append(attention.register_forward_pre_hook(take))

    for number, block in enumerate(model.blocks, start=1):
        if block.attention is not None:
            watch(number, block.attention)
    try:
        model(tokens)
    finally:
        for handle in handles:
            handle.remove()
    return {number: model.blocks[number - 1].attention.weights(x) for number, x in inputs.items()}


@torch.no_grad()
def measure_heads(model, x, tokenizer):
    """Measures every head over windows x (windows, time).

    Returns:
        (heads, uniform): heads is a list of {"block", "head", and each of MEASURES}, numbered from 1; uniform
        holds the measures of a head that spreads its weight evenly. All are means over queries: entropy in
        nats, and relative to that of the uniform head; distance in characters back; shares of the weight that
        fall on the query's own place, the place before it, earlier places with the query's character, first
        characters of a line (after a newline in the window), spaces and colons. None where a window or the
        vocabulary has no such thing.
    """
    time, heads = x.shape[1], model.config.num_heads
    sums = {}
    for piece in x.split(max(1, _PIECE_WEIGHTS // (heads * time * time))):
        masks = _masks(piece, tokenizer)
        weights_of = {0: _uniform(piece), **attention_weights(model, piece)}
        for number, weights in weights_of.items():
            sums[number] = sums.get(number, 0) + _sums(weights, masks)
    uniform = next(_measures(sums.pop(0), x.shape, tokenizer, None))
    measured = [
        {"block": number, "head": head, **measures}
        for number, of_block in sums.items()
        for head, measures in enumerate(_measures(of_block, x.shape, tokenizer, uniform), start=1)
    ]
    return measured, uniform


def _uniform(x):
    """Returns the weights (windows, 1, query, key) of a head that spreads its weight evenly."""
    time = x.shape[1]
    lower = torch.ones(time, time, device=x.device).tril()
    return (lower / lower.sum(1, keepdim=True)).expand(len(x), 1, time, time)


def _masks(x, tokenizer):
    """Returns SHARES -> which keys count for a query, broadcastable to (windows, query, key)."""
    time = x.shape[1]
    place = torch.arange(time, device=x.device)
    line_start = torch.zeros_like(x, dtype=torch.bool)
    line_start[:, 1:] = _is(x, "\n", tokenizer)[:, :-1]
    return {
        "itself": (place[:, None] == place)[None],
        "previous": (place[:, None] == place + 1)[None],
        "same_character": (x[:, :, None] == x[:, None, :]) & (place[:, None] > place),
        "line_start": line_start[:, None],
        "space": _is(x, " ", tokenizer)[:, None],
        "colon": _is(x, ":", tokenizer)[:, None],
    }


def _is(x, character, tokenizer):
    if character not in tokenizer.symbols:
        return torch.zeros_like(x, dtype=torch.bool)
    return x == tokenizer.symbols.index(character)


def _sums(weights, masks):
    """Returns (head, measure) sums over windows and queries: entropy, distance, then the shares."""
    place = torch.arange(weights.shape[-1], device=weights.device, dtype=weights.dtype)
    back = (place[:, None] - place)[None, None]
    columns = [torch.special.entr(weights), weights * back]
    columns += [weights * masks[name][:, None] for name in SHARES]
    return torch.stack([column.double().sum((0, 2, 3)) for column in columns], dim=-1)


def _measures(sums, shape, tokenizer, uniform):
    """Yields the measures of each head from its sums; relative to the uniform head's, or that itself."""
    windows, time = shape
    # The first query of a window sees only itself.
    queries = dict.fromkeys(("previous", "same_character", "line_start"), windows * (time - 1))
    absent = {"line_start": "\n", "space": " ", "colon": ":"}
    for entropy, distance, *shares in sums.tolist():
        measures = {"entropy": entropy / (windows * time), "relative_entropy": None}
        most = uniform["entropy"] if uniform else measures["entropy"]
        if most > 0:
            measures["relative_entropy"] = measures["entropy"] / most
        measures["distance"] = distance / (windows * time)
        for name, share in zip(SHARES, shares, strict=True):
            known = absent.get(name, tokenizer.symbols[0]) in tokenizer.symbols
            count = queries.get(name, windows * time)
            measures[name] = share / count if known and count else None
        yield measures
