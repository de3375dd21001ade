"""Translates a model's settings into the tape of operations that kernels.cpp runs."""

from math import prod

from gptcli.model.parameters import parameter_shapes

# As in slice.h: enum Kind, struct Operation, struct Shape.
KINDS = {
    name: number
    for number, name in enumerate(("embed", "linear", "norm", "attention", "relu", "dropout", "add", "loss"))
}
FIELDS = (
    "kind",
    "input",
    "other",
    "output",
    "width_in",
    "width_out",
    "weight",
    "bias",
    "constant",
    "saved",
    "heads",
    "packed",
    "add_input",
    "add_other",
    "drops",
)
# Rows of every buffer start at a multiple of this many floats, so that products need no remainder loop.
_ALIGNMENT = 16
# The parts of a batch each sum up a gradient of their own, which costs four times the memory of the parameters.
_MOST_PARAMETERS = 100_000_000

_COMPONENTS = {
    "attention": {"none", "single_head", "multi_head"},
    "feed_forward": {"none", "relu"},
    "norm": {"none", "layer_norm"},
    "norm_placement": {"pre", "post"},
    "position": {"none", "learned", "sinusoidal"},
    "dropout_placement": {"sublayer", "everywhere"},
}


def why_no_tape(config, vocabulary_size):
    """Returns in words why there is no tape for a ModelConfig, or None when there is one."""
    for name, known in _COMPONENTS.items():
        if getattr(config, name) not in known:
            return f"model.{name}={getattr(config, name)} has no kernel"
    if sum(prod(shape) for shape in parameter_shapes(config, vocabulary_size).values()) > _MOST_PARAMETERS:
        return f"the model has more than {_MOST_PARAMETERS:,} parameters"
    return None


class Tape:
    """The operations of one model on windows of `time` tokens.

    operations: list of dicts with FIELDS; widths: columns of each buffer.
    with_dropout adds the operations that drop; the rate is given with each call.
    """

    def __init__(self, config, vocabulary_size, time, with_dropout):
        self.config, self.time, self.vocabulary_size = config, time, vocabulary_size
        self.with_dropout = with_dropout
        self.operations, self.widths, self.packed, self.offsets, self.parameters = [], [], 0, {}, 0
        for name, shape in parameter_shapes(config, vocabulary_size).items():
            self.offsets[name] = self.parameters
            self.parameters += prod(shape)
        self.width = config.embedding_dim if config.lm_head else vocabulary_size
        x = self._embed()
        for index in range(config.num_layers):
            x = self._block(f"blocks.{index}.", x)
        if config.final_norm:
            x = self._norm("final_norm", x)
        if config.lm_head:
            x = self._linear("lm_head", x, self.width, vocabulary_size)
        self._add_operation("loss", input=x, width_in=vocabulary_size, saved=self._buffer(vocabulary_size))
        self._mark_sums()

    def operation_table(self):
        """Returns the operations as rows of integers, one column a field."""
        return [[operation[field] for field in FIELDS] for operation in self.operations]

    def shape(self):
        """Returns struct Shape as integers."""
        counts = [len(self.operations), len(self.widths), self.parameters]
        return [*counts, self.time, self.vocabulary_size]

    def _buffer(self, columns):
        self.widths.append(-(-columns // _ALIGNMENT) * _ALIGNMENT)
        return len(self.widths) - 1

    def _add_operation(self, kind, weight=None, bias=None, **fields):
        unset = dict.fromkeys(FIELDS, -1) | {"constant": 0, "add_input": 0, "add_other": 0, "drops": 0}
        offsets = {"weight": self.offsets.get(weight, -1), "bias": self.offsets.get(bias, -1)}
        self.operations.append(unset | {"kind": KINDS[kind]} | offsets | fields)

    def _embed(self):
        x = self._buffer(self.width)
        self._add_operation(
            "embed", "token_embedding.weight", "position_embedding.weight", output=x, width_out=self.width
        )
        if self.config.position == "sinusoidal":
            self.operations[-1] |= {"bias": 0, "constant": 1}
        return x

    def _block(self, prefix, x):
        if self.config.attention != "none":
            x = self._sublayer(f"{prefix}attention", x, self._attention)
        if self.config.feed_forward != "none":
            x = self._sublayer(f"{prefix}feed_forward", x, self._feed_forward)
        return x

    def _sublayer(self, name, x, build):
        config = self.config
        norm = config.norm_placement if config.norm != "none" else None
        y = build(name, self._norm(f"{name}_norm", x) if norm == "pre" else x)
        if config.extra_projection:
            y = self._linear(f"{name}_extra", y, self.width, self.width)
        y = self._dropout(y, self.width)
        if config.residual:
            total = self._buffer(self.width)
            self._add_operation("add", input=x, other=y, output=total, width_out=self.width)
            y = total
        return self._norm(f"{name}_norm", y) if norm == "post" else y

    def _attention(self, name, x):
        multi_head = self.config.attention == "multi_head"
        heads = self.config.num_heads
        inner = self._inner_dropout()
        qkv = self._linear(f"{name}.qkv", x, self.width, 3 * self.width)
        y, saved = self._buffer(self.width), self._buffer(heads * self.time)
        self._add_operation(
            "attention", input=qkv, output=y, width_out=self.width, heads=heads, saved=saved, drops=int(inner)
        )
        if not multi_head:
            return y
        y = self._linear(f"{name}.projection", y, self.width, self.width)
        return self._dropout(y, self.width) if inner else y

    def _feed_forward(self, name, x):
        inside = 4 * self.width
        hidden = self._linear(f"{name}.expand", x, self.width, inside)
        active = hidden  # in place: the backward pass needs to know only what is positive
        self._add_operation("relu", input=hidden, output=active, width_out=inside)
        if self._inner_dropout():
            active = self._dropout(active, inside)
        return self._linear(f"{name}.contract", active, inside, self.width)

    def _linear(self, name, x, width_in, width_out):
        y = self._buffer(width_out)
        self._add_operation(
            "linear", f"{name}.weight", f"{name}.bias",
            input=x, output=y, width_in=width_in, width_out=width_out, packed=self.packed,
        )  # fmt: skip
        self.packed += 2  # one for the forward, one for the backward product
        return y

    def _norm(self, name, x):
        y = self._buffer(self.width)
        fields = {"input": x, "output": y, "width_out": self.width, "saved": self._buffer(2)}
        self._add_operation("norm", f"{name}.weight", f"{name}.bias", **fields)
        return y

    def _dropout(self, x, width):
        if not self.with_dropout:
            return x
        y = self._buffer(width)
        self._add_operation("dropout", input=x, output=y, width_out=width)
        return y

    def _inner_dropout(self):
        return self.with_dropout and self.config.dropout_placement == "everywhere"

    def _mark_sums(self):
        """The backward pass writes a gradient buffer where it comes first, and adds to it afterwards."""
        written = set()
        for operation in reversed(self.operations):
            for field in ("input", "other"):
                if operation[field] >= 0:
                    operation[f"add_{field}"] = int(operation[field] in written)
                    written.add(operation[field])
