"""TensorBoard event files, written without a background thread, TensorFlow or the host's name.

A file is a sequence of records (length, masked CRC of the length, protocol buffer, masked CRC of it), see
https://www.tensorflow.org/tutorials/load_data/tfrecord; the messages are TensorBoard's own.
"""

import html
import math
import re
import secrets
import struct
import time
from pathlib import Path

from gptcli.terminal import printable
from gptcli.training.files import AppendFile

_FILE_NAME = re.compile(r"events\.out\.tfevents\.(\d{10})\..*")
_TEXT_PLUGIN = b""  # an empty plugin message is version 0, the only one
_SESSION_START = "_hparams_/session_start_info"
_SESSION_END = "_hparams_/session_end_info"


def _crc_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)  # Castagnoli's polynomial, reflected
        table.append(value)
    return table


_CRC_TABLE = _crc_table()


def crc32c(data):
    """Returns the CRC-32C of bytes (RFC 3720, appendix B.4)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def record(data):
    """Returns data framed as one record of an event file."""
    length = struct.pack("<Q", len(data))
    return length + _masked_crc(length) + data + _masked_crc(data)


def _masked_crc(data):
    crc = crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


class EventFile:
    """One event file of a run."""

    def __init__(self, folder, report, purge_step=0):
        """Starts a new file that TensorBoard reads after all that are there.

        Args:
            report: called with one line of text when writing fails for the first time.
            purge_step: events of earlier files from this step on are hidden.

        Raises:
            OSError: the file cannot be made.
        """
        # Imported here: 40 ms that commands which write no events need not spend.
        from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2
        from tensorboard.plugins.hparams import plugin_data_pb2

        self._event, self._summary, self._hparams = event_pb2, summary_pb2, plugin_data_pb2
        self._tensor, self._shape = tensor_pb2.TensorProto, tensor_shape_pb2.TensorShapeProto
        self._file = AppendFile(_next_path(Path(folder)), report, new=True)
        self.path = self._file.path
        self._write(file_version="brain.Event:2")
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._write(step=purge_step, session_log=start)

    def scalars(self, step, values):
        """Writes {tag: number} of one step as one event."""
        Value = self._summary.Summary.Value
        self._write_summary(step, [Value(tag=tag, simple_value=value) for tag, value in values.items()])

    def text(self, step, tag, markdown):
        """Writes Markdown; for text that is not trusted use markdown_code."""
        metadata = self._metadata("text", _TEXT_PLUGIN)
        tensor = self._tensor(
            dtype=7,  # DT_STRING
            string_val=[markdown.encode("utf-8", "replace")],
            tensor_shape=self._shape(dim=[self._shape.Dim(size=1)]),
        )
        self._write_summary(step, [self._summary.Summary.Value(tag=tag, metadata=metadata, tensor=tensor)])

    def image(self, step, tag, png, width, height):
        """Writes one image given as the bytes of a PNG file."""
        size = {"height": height, "width": width, "colorspace": 3}
        image = self._summary.Summary.Image(**size, encoded_image_string=png)
        self._write_summary(step, [self._summary.Summary.Value(tag=tag, image=image)])

    def hyperparameters(self, values):
        """Writes {name: number, boolean or text} into the run itself.

        No experiment message is written: TensorBoard would show only the keys that the first such message
        names, and without one it takes the union over all runs.
        """
        # The tab's Trial ID: runs of one name in two places stay two trials.
        trial = f"{printable(self.path.parent.absolute().name)} {secrets.token_hex(4)}"
        start = self._hparams.SessionStartInfo(group_name=trial, start_time_secs=time.time())
        for name, value in sorted(values.items()):
            if isinstance(value, bool):
                start.hparams[name].bool_value = value
            elif isinstance(value, (int, float)) and math.isfinite(value):
                start.hparams[name].number_value = value
            else:
                start.hparams[name].string_value = "null" if value is None else str(value)
        self._write_hparams(_SESSION_START, session_start_info=start)

    def session_end(self, succeeded):
        """Says in the hparams tab that the run ended."""
        # The numbers are STATUS_SUCCESS and STATUS_FAILURE of the plugin's api.proto.
        end = self._hparams.SessionEndInfo(status=1 if succeeded else 2, end_time_secs=time.time())
        self._write_hparams(_SESSION_END, session_end_info=end)

    def _write_hparams(self, tag, **message):
        content = self._hparams.HParamsPluginData(version=0, **message)
        metadata = self._metadata("hparams", content.SerializeToString())
        empty = self._tensor(dtype=1, tensor_shape=self._shape(dim=[self._shape.Dim(size=0)]))
        self._write_summary(0, [self._summary.Summary.Value(tag=tag, metadata=metadata, tensor=empty)])

    def _metadata(self, plugin, content):
        data = self._summary.SummaryMetadata.PluginData(plugin_name=plugin, content=content)
        return self._summary.SummaryMetadata(plugin_data=data)

    def _write_summary(self, step, values):
        if values:
            self._write(step=step, summary=self._summary.Summary(value=values))

    def _write(self, **fields):
        event = self._event.Event(wall_time=time.time(), **fields)
        self._file.write(record(event.SerializeToString()))

    def sync(self):
        """Waits until everything written is on the disk."""
        self._file.sync()

    def close(self):
        """Closes the file; closing twice does no harm."""
        self._file.close()


def _next_path(folder):
    # TensorBoard reads the files of a run in the order of their names, so a second one in the same second, or
    # after the clock was set back, still needs a later time.
    times = [int(match[1]) for path in folder.iterdir() if (match := _FILE_NAME.fullmatch(path.name))]
    stamp = max([int(time.time()), *(seen + 1 for seen in times)])
    return folder / f"events.out.tfevents.{stamp:010d}.{secrets.token_hex(4)}"


def markdown_code(text):
    """Returns Markdown that shows text as it is: no markup in it, HTML included, has an effect."""
    # Markdown leaves an HTML block alone, so the content is escaped once; line ends as references keep a
    # blank line from ending the block.
    escaped = html.escape(text, quote=False).replace("\n", "&#10;")
    return f"<pre><code>{escaped}</code></pre>"
