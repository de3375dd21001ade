"""Wrong input over all commands: one clear line, the right exit status, nothing written; and odd input that works."""

import json
import re
import shlex
import shutil

import pytest
import torch

from gptcli.cli import COMMANDS
from gptcli.training.checkpoint import load_checkpoint

LONG = "x" * 300

# As typed after `gptcli`; QUICK stands for the settings of a quick run. Without a number the status is 2.
ROWS = [
    # The command itself
    ("frobnicate", "unknown command 'frobnicate'; the commands are train, resume"),
    ("trian", "unknown command 'trian'; did you mean train"),
    ("genrate latest", "unknown command 'genrate'; did you mean generate"),
    ("--bogus", "unknown command '--bogus'"),
    ("''", "unknown command ''"),
    ("tr\x1b[31main", r"unknown command 'tr\\x1b\[31main'; did you mean train"),
    # Keys and forms of overrides
    ("train -x", "unrecognized arguments: -x .see gptcli train --help"),
    ("train foo", "'foo' is not KEY=VALUE"),
    ("train =", "'=' is not KEY=VALUE"),
    ("train ''", "'' is not KEY=VALUE"),
    ("train =3", "'=3' is not KEY=VALUE"),
    ("train modle.num_heads=4", "unknown key modle.num_heads; did you mean model.num_heads"),
    ("train model.num_haeds=4", "unknown key model.num_haeds; did you mean model.num_heads"),
    ("train model.n_heads=4", "unknown key model.n_heads; did you mean model.num_heads"),
    ("train ++model.num_haeds=4", "unknown key model.num_haeds; did you mean model.num_heads"),
    ("train +model.width=4", "unknown key model.width; model has block_size, embedding_dim"),
    ("train optimizer.lr=0.1", "unknown key optimizer.lr; did you mean optimizer.learning_rate"),
    ("train optimizer.momentum=0.1", "optimizer has name, learning_rate, weight_decay, betas"),
    ("train trainer.step=5", "unknown key trainer.step; did you mean trainer.steps"),
    ("train stgae=4_10", "unknown key stgae; did you mean stage"),
    ("train dat=auto", "unknown key dat; did you mean data"),
    ("train model=big", "unknown key model; the groups are data, optimizer"),
    ("train ~model.num_heads", "~model.num_heads: every setting has a value"),
    ("train ~stage", "~stage: every setting has a value"),
    ("train 'model.num_heads=[1'", r"model.num_heads=\[1 does not parse; as literal text"),
    ("train hydra.ouput_subdir=x", "unknown key hydra.ouput_subdir; did you mean hydra.output_subdir"),
    ("train hydra.run.dri=x", "unknown key hydra.run.dri; did you mean hydra.run.dir"),
    ("train --cfg everything", "--cfg: invalid choice: 'everything' .choose from '?job"),
    ("train --config-dir", "--config-dir: expected one argument"),
    ("train --config-dir nowhere", "--config-dir nowhere is not a folder"),
    ("train --config-dir afile", "--config-dir afile is not a folder"),
    ("train --config-dir broken stage=9_1", "stage/9_1|9_1.yaml|mapping values|YAML"),
    ("train --config-dir broken stage=9_2", "unknown key model.num_haeds; did you mean model.num_heads"),
    ("train --config-dir broken stage=9_3", "9_99"),
    # Groups
    ("train stage=4_100", "unknown stage 4_100; did you mean 4_10"),
    ("train stage=4_11x", "unknown stage 4_11x; did you mean 4_1"),
    ("train stage=bigram", "unknown stage bigram; the stages are 2_9, 3_7"),
    ("train stage=", "unknown stage ''; the stages are"),
    ("train stage=null", "unknown stage None; the stages are"),
    ("train stage=../../conf/stage/4_10", "unknown stage|does not parse"),
    ("train stage=4_9,4_10", "stage=4_9,4_10 names several values; sweep over them with: gptcli train -m"),
    ("train 'stage=glob(9_*)'", "stage=glob.9_.. (names several values|matches nothing)"),
    ("train -m 'stage=glob(9_*)'", "stage=glob.9_.. matches nothing; use one of 2_9"),
    ("train data=shakespear", "data=shakespear is not one of .*did you mean tiny_shakespeare"),
    ("train optimizer=admm", "optimizer=admm is not one of adam, adamw; did you mean adam"),
    ("train optimizer=sgd", "optimizer=sgd is not one of adam, adamw"),
    ("train schedule=cosin", "schedule=cosin is not one of constant, cosine, linear; did you mean cosine"),
    ("train recipe=walktrough", "recipe=walktrough is not one of .*did you mean walkthrough"),
    ("train trainer=fast", "trainer=fast is not one of default"),
    ("train stage.name=a/b", "stage.name=a/b must be of letters"),
    ("train stage.name=..", r"stage.name=\.\. must be of letters"),
    # Numbers and words
    ("train stage=2_9 trainer.steps=0", "trainer.steps=0 must be at least 1"),
    ("train stage=2_9 trainer.steps=1.5", "trainer.steps=1.5 is not a whole number"),
    ("train stage=2_9 trainer.steps=abc", "trainer.steps=abc is not a whole number"),
    ("train stage=2_9 trainer.steps=null", "trainer.steps=null is not a whole number"),
    ("train stage=2_9 trainer.steps=", "trainer.steps= is not a whole number"),
    ("train stage=2_9 trainer.steps=1e400", "trainer.steps=inf is not a whole number"),
    ("train stage=2_9 trainer.steps=nan", "trainer.steps=nan is not a whole number"),
    ("train stage=2_9 'trainer.steps={a:1}'", "trainer.steps={'a': 1} is not a whole number"),
    ("train stage=2_9 trainer.steps=1000000000000000000000000", "trainer.steps=10{24} is too large"),
    ("train stage=2_9 trainer.batch_size=-4", "trainer.batch_size=-4 must be at least 1"),
    ("train stage=2_9 trainer.eval_tokens=0", "trainer.eval_tokens=0 must be at least 1"),
    ("train stage=2_9 trainer.keep_checkpoints=-1", "trainer.keep_checkpoints=-1 must be at least 0"),
    ("train stage=2_9 trainer.sample_tokens=1000000", "trainer.sample_tokens=1000000 must be at most 100000"),
    ("train stage=2_9 trainer.sample_prompts=A", r"trainer.sample_prompts=A is not a list; write it as .*\[a,b\]"),
    ("train stage=2_9 trainer.grad_clip=-1", "trainer.grad_clip=-1.0 must be at least 0"),
    ("train stage=2_9 trainer.on_nonfinite=ignore", "trainer.on_nonfinite=ignore is not one of stop, skip"),
    ("train stage=2_9 trainer.precision=fp16", "trainer.precision=fp16 is not one of auto, fp32, bf16"),
    ("train stage=2_9 trainer.threads=0", "trainer.threads=0 must be at least 1"),
    ("train stage=2_9 trainer.threads=many", "trainer.threads=many is not auto or a number of threads"),
    ("train stage=2_9 trainer.threads=5000", "trainer.threads=5000 must be at most 1024"),
    ("train stage=2_9 trainer.compile=maybe", "trainer.compile=maybe is not auto or true or false"),
    ("train stage=2_9 trainer.device=gpu", "trainer.device=gpu is not a device; use auto, cpu, cuda"),
    ("train stage=2_9 trainer.device=cuda:99", "trainer.device=cuda:99 is not there; this machine has cpu"),
    ("train stage=2_9 trainer.device=cpu:3", "trainer.device=cpu:3 is not there; this machine has cpu"),
    ("train stage=2_9 trainer.device=meta", "trainer.device=meta is not supported; use auto, cpu"),
    ("train stage=2_9 optimizer.learning_rate=0", "optimizer.learning_rate=0.0 must be above 0"),
    ("train stage=2_9 optimizer.learning_rate=-0.0", "optimizer.learning_rate=-0.0 must be above 0"),
    ("train stage=2_9 optimizer.learning_rate=nan", "optimizer.learning_rate=nan is not a finite number"),
    ("train stage=2_9 optimizer.learning_rate=1e400", "optimizer.learning_rate=inf is not a finite number"),
    ("train stage=2_9 optimizer.learning_rate=5000", "optimizer.learning_rate=5000.0 must be at most 1000"),
    ("train stage=2_9 optimizer.learning_rate=fast", "optimizer.learning_rate=fast is not a number"),
    ("train stage=2_9 optimizer.betas=0.9", "optimizer.betas=0.9 is not a list"),
    ("train stage=2_9 'optimizer.betas=[0.9]'", r"optimizer.betas=\[0.9\] has 1 values; 2 are needed"),
    ("train stage=2_9 'optimizer.betas=[0.9,1.0]'", "optimizer.betas=1.0 must be below 1"),
    ("train stage=2_9 'optimizer.betas=[0.9,x]'", "optimizer.betas=x is not a number"),
    ("train stage=2_9 schedule.warmup_steps=20 trainer.steps=10", "schedule.warmup_steps=20 is longer than the run"),
    ("train stage=2_9 schedule.final_fraction=0.5", "schedule.final_fraction=0.5 has no effect with schedule=constant"),
    ("train stage=2_9 schedule=cosine schedule.final_fraction=2", "schedule.final_fraction=2.0 must be at most 1"),
    ("train stage=2_9 seed=-1", "seed=-1 must be at least 0"),
    ("train stage=2_9 seed=4294967296", "seed=4294967296 must be at most 4294967295"),
    ("train stage=2_9 seed=abc", "seed=abc is not a whole number"),
    ("train stage=2_9 seed=1,2", "seed=1,2 names several values"),
    ("train recipe=walkthrough trainer.eval_tokens=100", "trainer.eval_tokens=100 has no effect with recipe="),
    # The model
    ("train model.num_heads=0", "model.num_heads=0 must be at least 1"),
    ("train model.num_heads=5", "does not divide model.embedding_dim=32; use 1, 2, 4, 8, 16 or 32"),
    ("train model.num_layers=0", "model.attention=multi_head has no effect with model.num_layers=0"),
    ("train model.embedding_dim=0", "model.embedding_dim=0 must be at least 1"),
    ("train model.embedding_dim=33", "does not divide model.embedding_dim=33; use 1, 3, 11 or 33"),
    ("train model.embedding_dim=null", "model.lm_head=true needs model.embedding_dim"),
    ("train model.dropout=1", "model.dropout=1.0 must be below 1"),
    ("train model.dropout=nan", "model.dropout=nan is not a finite number"),
    ("train model.attention=flash", "model.attention=flash is not one of none, single_head, multi_head"),
    ("train model.residual=maybe", "model.residual=maybe is not true or false"),
    ("train stage=2_9 model.embedding_dim=32", "model.embedding_dim=32 has no effect while model.lm_head=false"),
    ("train stage=2_9 model.num_layers=3", "has no place for blocks; use stage=3_7 or later"),
    ("train stage=4_7 model.norm_placement=post", "set model.norm=layer_norm, as from stage=4_9 on"),
    ("train stage=3_14 model.num_heads=4", "set model.attention=multi_head, as from stage=4_2 on"),
    # More than any machine has
    ("train QUICK model.embedding_dim=100000000", "model.embedding_dim=100000000 needs at least [0-9,.]+ GiB"),
    ("train QUICK model.embedding_dim=200000", "parameters need [0-9,.]+ GiB to train; this machine has"),
    ("train QUICK model.num_layers=1000000000", "model.num_layers=1000000000 must be at most 10000"),
    ("train QUICK model.block_size=1000000000000", "model.block_size=1000000000000|block_size 1000000000000"),
    ("train QUICK trainer.batch_size=1000000000000", "trainer.batch_size=1000000000000 windows .* need at least"),
    ("train QUICK stage=2_9 trainer.batch_size=1000000000", "trainer.batch_size=1000000000 windows"),
    ("train -m QUICK model.embedding_dim=100000000 seed=1,2", "model.embedding_dim=100000000 needs at least"),
    ("train -m QUICK 'seed=range(0,1000000000)'", "the sweep would have more than 10,000 jobs"),
    ("train data=synthetic_play data.synthetic_characters=1000000000000", "synthetic_characters=10{12} must be"),
    # Corpora and their paths
    ("train data=text_file", "data=text_file needs data.path=FILE"),
    ("train data=text_file data.path=", "data=text_file needs data.path=FILE"),
    ("train data.path=c.txt", "data.path=c.txt has no effect with data=auto; use data=text_file"),
    ("train data=text_file data.path=missing.txt", "missing.txt does not exist .relative paths start from"),
    ("train data=text_file data.path=folder", "folder is a folder; name a text file in it"),
    ("train data=text_file data.path=/dev/null", "/dev/null is not a regular file"),
    ("train data=text_file data.path=c.txt/x", "c.txt/x cannot be read: Not a directory"),
    ("train data=text_file data.path=empty.txt", "empty.txt is empty"),
    ("train data=text_file data.path=bomonly.txt", "bomonly.txt is empty"),
    ("train data=text_file data.path=one.txt", "the train split has 0 characters, but block_size 8 needs"),
    ("train data=text_file data.path=short.txt model.block_size=64", "validation split has 10 characters.* 65"),
    ("train data=text_file data.path=binary.bin", "binary.bin is not text: it has a zero byte at offset 0"),
    ("train data=text_file data.path=latin1.txt", "latin1.txt is not UTF-8: byte 0xe9 at offset 3 .line 1"),
    ("train data=text_file data.path=utf16.txt", "utf16.txt looks like UTF-16; convert it to UTF-8"),
    ("train data=text_file data.path=surrogate.txt", "surrogate.txt is not UTF-8: byte 0xed at offset 3"),
    ("train data=text_file 'data.path=a=b.txt'", "a=b.txt does not exist"),
    ("train data=text_file 'data.path=[x].txt'", r"\[x\].txt does not exist"),
    ("train data=text_file 'data.path=a#b%c@d&e.txt'", "a#b%c@d&e.txt does not exist"),
    ("train data=text_file 'data.path=ünï 你.txt'", "ünï 你.txt does not exist"),
    ("train data=text_file 'data.path=a, b.txt'", "names several values.*\"data.path='a, b.txt'\""),
    ("train data=text_file 'data.path=a\x1b[31mb.txt'", r"a\\x1b\[31mb.txt does not exist"),
    ("train data=text_file 'data.path=a\x00b'", r"a\\x00b does not exist|a\\x00b cannot be read"),
    (f"train data=text_file data.path={LONG}", "xxx cannot be read: File name too long"),
    ("train QUICK data.validation_fraction=0", "data.validation_fraction=0.0 must be above 0"),
    ("train QUICK data.validation_fraction=0.001", "the validation split has 3 characters"),
    ("train data=synthetic_play data.synthetic_characters=10", "the validation split has 1 characters"),
    # Where a run goes
    ("train QUICK hydra.run.dir=afile", "afile cannot be a run directory: it is a file"),
    ("train QUICK hydra.run.dir=afile/x", "afile/x cannot be a run directory: part of the path is a file"),
    ("train QUICK hydra.run.dir=run", "run already holds a run; go on with it: gptcli resume run"),
    ("train QUICK hydra.run.dir=", "hydra.run.dir= names no folder"),
    ("train QUICK 'hydra.run.dir=${nope}'", "Interpolation key 'nope' not found"),
    (f"train QUICK hydra.run.dir={LONG}", "run directory x+ cannot be made .File name too long"),
    ("train QUICK hydra/launcher=slurm", "Could not find 'hydra/launcher/slurm'; Available options.* basic"),
    # Sweeps
    ("train -m QUICK seed=", "seed= is not a whole number"),
    ("train -m QUICK model.num_heads=3,5", "model.num_heads=3 does not divide model.embedding_dim=32"),
    ("train -m QUICK 'seed=interval(0,1)'", "a sweep needs listed values, such as a,b,c"),
    ("train -m QUICK 'seed=range(0,0)'", r"seed=range\(0,0\) names no value"),
    ("train -m QUICK 'seed=range(0,9,0)'", "the step of a range must not be 0"),
    ("train -m QUICK stage=4_9,4_99", "unknown stage 4_99; did you mean 4_9"),
    ("train -m QUICK hydra/launcher=slurm seed=1,2", "hydra/launcher/slurm"),
    ("train -m QUICK hydra/sweeper=ax seed=1,2", "hydra/sweeper/ax'; Available options in 'hydra/sweeper': basic"),
    ("train -m QUICK hydra.sweep.dir=afile seed=1,2", "afile is a file, not a folder"),
    ("train -m QUICK hydra.sweep.dir=sw seed=1,2", "sw holds a sweep already; go on with it by gptcli resume"),
    ("train -m QUICK hydra.sweep.dir= seed=1,2", "hydra.sweep.dir= names no folder"),
    ("train -m QUICK sweep.workers=0 seed=1,2", "sweep.workers=0 must be at least 1"),
    ("train -m QUICK data.path=missing.txt seed=1,2", "missing.txt does not exist"),
    # resume
    ("resume", "required: RUN"),
    ("resume ''", "no run at ''; name a run directory, or latest"),
    ("resume nothing", "no run at nothing"),
    ("resume afile", "no run at afile: it holds no run.json"),
    ("resume folder", "no run at folder: it holds no run.json"),
    ("resume run", "the run has made its 5 steps; to go on, ask for more: gptcli resume RUN --steps 10"),
    ("resume run --steps 0", "--steps 0 must be at least 1"),
    ("resume run --steps 3", "--steps 3 is not more than the 5 steps that are done"),
    ("resume run --steps 1e3", "--steps: invalid int value: '1e3'"),
    ("resume run --steps 99999999999999999999999", "trainer.steps=9+ is too large"),
    ("resume run --steps 10 --data-path short.txt", "the corpus has changed since the run began"),
    ("resume run --steps 10 --data-path missing.txt", "missing.txt does not exist"),
    ("resume run/checkpoints/latest", "is a checkpoint; resume takes the run directory"),
    ("resume run extra", "unrecognized arguments: extra"),
    ("resume newer", "newer was written by a newer gptcli .run format 99"),
    ("resume badjson", "badjson is damaged: run.json is not valid JSON"),
    ("resume noinfo", "noinfo is damaged: run.json is missing"),
    (1, "resume nocheckpoint --steps 10", "nocheckpoint has no checkpoint that loads"),
    (1, "resume damaged --steps 10", "model.safetensors has 100 bytes instead of"),
    (1, "resume sw", "sw/sweep.json is not the record of a sweep: sweep.json does not hold a JSON object"),
    ("resume sw --steps 5", "--steps and --data-path are for a single run"),
    # stages, diff, params
    ("stages foo", "unrecognized arguments: foo"),
    ("stages --vocabulary 0", "--vocabulary 0 must be at least 1"),
    ("stages --vocabulary 1e400", "--vocabulary: invalid int value: '1e400'"),
    ("diff 4_10", "required: B"),
    ("diff 4_10 4_99", "'4_99' is neither a stage nor a run; the stages are 2_9"),
    ("diff 4_10 folder", "no run at folder: it holds no run.json"),
    ("diff 4_10 newer", "newer was written by a newer gptcli"),
    ("diff 4_10 badjson", "badjson is damaged"),
    ("diff a b c", "unrecognized arguments: c"),
    ("params stage=9_9", "unknown stage 9_9"),
    ("params --vocabulary 0", "--vocabulary 0 must be at least 1"),
    ("params model.num_layers=1000000000", "model.num_layers=1000000000 must be at most 10000"),
    ("params stage=4_9,4_10", "stage=4_9,4_10 names several values"),
    # eval
    ("eval", "required: RUN"),
    ("eval nothing", "no run at nothing"),
    ("eval run --split test", "--split: invalid choice: 'test' .choose from '?validation"),
    ("eval run --data-path missing.txt", "missing.txt does not exist"),
    ("eval run --data-path empty.txt", "empty.txt is empty"),
    ("eval run --data-path one.txt", "the text has 1 characters, but block_size 8 needs at least 9"),
    ("eval run --data-path latin1.txt", "latin1.txt is not UTF-8"),
    ("eval run --data-path folder", "folder is a folder"),
    ("eval run --data-path emoji.txt", "unknown character '🙂' .U.1F642. at character 1, 2, 3, ..."),
    ("eval newer", "newer was written by a newer gptcli"),
    (1, "eval nocheckpoint", "nocheckpoint has no checkpoint that loads"),
    (1, "eval damaged", "model.safetensors has 100 bytes instead of"),
    ("eval run/checkpoints/step_00000099", "no run at run/checkpoints/step_00000099"),
    ("eval run/checkpoints/foo", "no run at run/checkpoints/foo|is no checkpoint"),
    (1, "eval nan", "not finite"),
    # generate
    ("generate", "required: RUN"),
    ("generate nothing --prompt A", "no run at nothing"),
    ("generate run --prompt zzz", r"unknown character 'z' \(U\+007A\) at character 1, 2, 3; --skip-unknown"),
    ("generate run --prompt 🙂", r"unknown character '🙂' \(U\+1F642\) at character 1"),
    ("generate run --prompt '\ud800'", r"unknown character '\\ud800' \(U\+D800\) at character 1"),
    ("generate run --tokens 0", "--tokens 0 must be at least 1"),
    ("generate run --tokens many", "--tokens: invalid int value: 'many'"),
    ("generate run --tokens 1000000000000", "--tokens 1000000000000"),
    ("generate run --samples 0", "--samples 0 must be at least 1"),
    ("generate run --samples 1000000000000", "--samples 1000000000000"),
    ("generate run --temperature -1", "temperature -1.0 must be 0 .*or above"),
    ("generate run --temperature nan", "temperature nan must be 0"),
    ("generate run --temperature inf", "temperature inf must be 0"),
    ("generate run --temperature hot", "--temperature: invalid float value: 'hot'"),
    ("generate run --top-k -1", "top-k -1 must be 0 .off. or above"),
    ("generate run --top-k 1.5", "--top-k: invalid int value: '1.5'"),
    ("generate run --top-p 0", "top-p 0.0 must be above 0 and at most 1"),
    ("generate run --top-p 1.1", "top-p 1.1 must be above 0 and at most 1"),
    ("generate run --top-p nan", "top-p nan must be above 0 and at most 1"),
    ("generate run --seed -1", "--seed -1 must be at least 0"),
    ("generate run --seed 9223372036854775808", "--seed 9223372036854775808 must be .*below 2"),
    ("generate run --prompt A --prompt-file c.txt", "not allowed with argument --prompt"),
    ("generate run --interactive --json", "--interactive and --json do not go together"),
    ("generate run --prompt-file missing.txt", "missing.txt does not exist"),
    ("generate run --prompt-file binary.bin", "binary.bin is not text"),
    ("generate run --prompt-file latin1.txt", "latin1.txt is not UTF-8"),
    ("generate run --promt A", "unrecognized arguments: --promt A"),
    ("generate newer", "newer was written by a newer gptcli"),
    (1, "generate damaged", "damaged has no checkpoint that loads"),
    ("generate nan --prompt a --json", "the model puts out values that are not finite"),
    ("generate sw", "no run at sw: it holds no run.json"),
    # compare, runs
    ("compare", "required: RUN"),
    ("compare nothing", "no run at nothing: there is no such folder"),
    ("compare 'nope*'", r"no run at nope\*"),
    ("compare folder", "nothing to compare: no finished run"),
    ("compare newer", "nothing to compare: .*run.json has format 99, not 1"),
    ("compare badjson", "nothing to compare: .*run.json is not valid JSON"),
    ("compare run --metric accuracy", "--metric: invalid choice: 'accuracy' .choose from '?full_val_loss"),
    ("compare run --by model.num_haeds", "model.num_haeds"),
    ("compare run --baseline 7", "--baseline 7|baseline"),
    ("compare run --csv folder", "--csv folder is a folder; name a file in it"),
    ("compare run --csv nowhere/x.csv", "--csv nowhere/x.csv: the folder nowhere does not exist"),
    ("compare run --html folder", "--html folder is a folder"),
    ("runs nothing", "no run at nothing: there is no such folder"),
    ("runs folder nothing", "no run at nothing"),
    ("runs --where stage", "--where stage is not KEY=VALUE, such as --where stage=4_10"),
    ("runs --where =3", "--where =3 is not KEY=VALUE"),
    ("runs --sort", "--sort: expected one argument"),
    # data, completion
    ("data", "required: action"),
    ("data lst", "action: invalid choice: 'lst' .choose from '?list"),
    ("data fetch", "gptcli data fetch takes the name of a corpus"),
    ("data fetch shakespear", "did you mean tiny_shakespeare"),
    ("data fetch synthetic_play", "synthetic_play is made when it is used; there is no file to fetch"),
    ("data path nope", "nope is not a corpus that can be fetched; use one of tiny_shakespeare"),
    (1, "data path moby_dick", "moby_dick is not cached; gptcli data fetch moby_dick downloads it"),
    ("data list extra", "gptcli data list takes no name of a corpus"),
    ("data path alice bible", "unrecognized arguments: bible"),
    ("completion", "required: SHELL"),
    ("completion powershell", "SHELL: invalid choice: 'powershell' .choose from '?bash"),
    ("completion words", "completion words needs the line to complete"),
    # bench, inspect
    ("bench foo", "'foo' is not KEY=VALUE"),
    ("bench --seconds nan", "--seconds nan must be a number above 0"),
    ("bench --members 0", "--members 0 must be at least 1"),
    ("bench stage=9_9", "unknown stage 9_9"),
    ("inspect", "required: RUN"),
    ("inspect nothing", "no run at nothing"),
    ("inspect folder", "no run at folder: it holds no run.json"),
    ("inspect newer", "newer was written by a newer gptcli"),
    (1, "inspect damaged", "damaged has no checkpoint that loads"),
]


@pytest.fixture(scope="module")
def workspace(trained, tmp_path_factory, text, rewritten, tampered):
    """Files and runs that are wrong in every way the table names."""
    folder = tmp_path_factory.mktemp("wrong")
    contents = {
        "c.txt": text.encode(),
        "short.txt": text[:100].encode(),
        "empty.txt": b"",
        "bomonly.txt": b"\xef\xbb\xbf",
        "one.txt": b"a",
        "binary.bin": bytes(range(256)) * 20,
        "latin1.txt": "caf\xe9 ".encode("latin-1") * 500,
        "utf16.txt": text.encode("utf-16"),
        "surrogate.txt": b"abc\xed\xa0\x80" * 500,
        "emoji.txt": "🙂".encode() * 200,
        "afile": b"x",
        "sw/sweep.json": b"[]",
        "broken/stage/9_1.yaml": b"stage: {name: [\n  model:: - x",
        "broken/stage/9_2.yaml": b'# @package _global_\ndefaults: ["4_10", _self_]\nmodel:\n  num_haeds: 4\n',
        "broken/stage/9_3.yaml": b'# @package _global_\ndefaults: ["9_99", _self_]\n',
    }
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir()
    for name in ("run", "newer", "badjson", "noinfo", "nocheckpoint", "damaged", "nan"):
        shutil.copytree(trained / "run", folder / name)
    rewritten(folder / "newer", format=99)
    (folder / "badjson" / "run.json").write_text("{")
    (folder / "noinfo" / "run.json").unlink()
    shutil.rmtree(folder / "nocheckpoint" / "checkpoints")
    (weights,) = (folder / "damaged").glob("checkpoints/step_*/model.safetensors")
    weights.write_bytes(weights.read_bytes()[:100])
    (saved,) = (folder / "nan").glob("checkpoints/step_*")
    model = load_checkpoint(saved).model
    tampered(folder / "nan", tensors={name: torch.full_like(value, torch.nan) for name, value in model.items()})
    return folder


def _typed(line, settings):
    for word in shlex.split(line):
        yield from settings if word == "QUICK" else [word]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: repr(row[-2])[1:60])
def test_wrong_input_is_one_clear_line_and_changes_nothing(row, workspace, settings, listing, call, monkeypatch):
    *status, line, message = row
    monkeypatch.chdir(workspace)
    before = listing(workspace)
    result = call(*_typed(line, settings))
    assert (result.status, result.out) == (status[0] if status else 2, "")
    assert result.err.startswith("error: ") and result.err.count("\n") == 1
    assert re.search(message, result.err)
    assert "Traceback" not in result.err and "GPTCLI_DEBUG" not in result.err
    assert result.err[:-1].isprintable()
    assert listing(workspace) == before


def test_the_table_reaches_every_command_with_many_rows():
    named = [shlex.split(row[-2])[0] for row in ROWS]
    assert set(COMMANDS) <= set(named)
    assert len({row[-2] for row in ROWS}) == len(ROWS) >= 250


def test_a_folder_that_cannot_be_written(copied, settings, call, monkeypatch):
    """As root nothing is read-only, so the system's answer is put in its place."""
    import pathlib

    def refused(self, *arguments, **settings):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(pathlib.Path, "mkdir", refused)
    result = call("train", *settings)
    assert result.status == 2
    assert re.search(r"error: run directory outputs/\S+ cannot be made \(Permission denied\)\n", result.err)
    result = call("train", "-m", *settings, "seed=1,2")
    assert result.status == 2 and "cannot make the folder outputs/multirun/" in result.err


# Odd, but right: content of the text, and what to ask for.
LETTERS = "qwxyz"
WORKS = {
    "one symbol": (lambda text: "a" * 500, []),
    "no letter of the sample prompts": (lambda text: "".join(LETTERS[i * i % 5] for i in range(900)), []),
    "no newline": (lambda text: text.replace("\n", "."), []),
    "no blank": (lambda text: text.replace(" ", "_"), []),
    "CRLF": (lambda text: text.replace("\n", "\r\n"), ["are read as \\n"]),
    "byte order mark": (lambda text: "\ufeff" + text, ["byte order mark at its start is left out"]),
    "emoji": (lambda text: text.replace("a", "🙂").replace("b", "👩‍🚀"), []),
    "escape sequences": (lambda text: text.replace("a", "\x1b[31m"), []),
    "every plane": (lambda text: "".join(map(chr, [*range(32, 127), 0x10FFFF, 0xFFFD, 0x1F642])) * 9, []),
    "just long enough": (lambda text: "ab" * 9, ["data.validation_fraction=0.5"]),
}


@pytest.mark.parametrize("kind", WORKS)
def test_odd_texts_train_and_generate(kind, text, settings, tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    make, expected = WORKS[kind]
    text, more = make(text), [one for one in expected if "=" in one]
    (tmp_path / "c.txt").write_bytes(text.encode())
    result = call("train", *settings, *more, "hydra.run.dir=out")
    assert result.status == 0, result.err
    assert all(note in result.out for note in expected if note not in more)
    assert "\x1b" not in result.out + result.err
    info = json.loads((tmp_path / "out" / "run.json").read_text(encoding="utf-8"))
    assert info["corpus"]["vocabulary"] == sorted(set(text.removeprefix("\ufeff").replace("\r\n", "\n")))
    assert "\x1b" not in (tmp_path / "out" / "samples.txt").read_text(encoding="utf-8")
    result = call("generate", "out", "--tokens", 40, "--seed", 1)
    assert result.status == 0 and "\x1b" not in result.out and len(result.out) >= 40
    assert call("eval", "out", "--json").status == 0


NAMES = [
    "a=b", "a#b", "a%b@c", "a, b", "[a],{b}", "with blanks", "ünï 你🙂", "it's \"q\"", "back\\slash", "(x)",
    "null", "1e5", "~x", "true", "'quoted'",
]  # fmt: skip


@pytest.mark.parametrize("name", [*(name for name in NAMES if name != "null"), "${oc.env:HOME}"])
def test_a_corpus_by_any_name_as_typed(name, copied, settings, call):
    (copied / "c.txt").rename(copied / name)
    named = [f"data.path={name}" if one == "data.path=c.txt" else one for one in settings]
    result = call("train", *named, "hydra.run.dir=out")
    assert result.status == 0, result.err
    assert json.loads((copied / "out" / "run.json").read_text(encoding="utf-8"))["config"]["data"]["path"] == name


@pytest.mark.parametrize("name", NAMES)
def test_a_run_directory_by_any_name_as_typed(name, copied, settings, call):
    result = call("train", *settings, f"hydra.run.dir={name}")
    folder = "quoted" if name == "'quoted'" else name
    assert result.status == 0, result.err
    assert (copied / folder / "run.json").is_file()
    assert call("runs", folder).out.count("finished") == 1


def test_a_very_long_line(tmp_path, settings, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.txt").write_bytes(b"abcde fghi" * 1_000_000)
    more = ["stage=2_9", "data.validation_fraction=0.0001", "hydra.run.dir=out"]
    result = call("train", *settings, *more)
    assert result.status == 0, result.err
    assert json.loads((tmp_path / "out" / "run.json").read_text())["corpus"]["characters"] == 10_000_000


@pytest.mark.parametrize(
    "prompt", ["", " ", "   ", "\n", "a" * 1000, "ROMEO:"], ids=["empty", "blank", "blanks", "newline", "long", "plain"]
)
def test_prompts_that_are_right(prompt, copied, call):
    result = call("generate", "run", "--prompt", prompt, "--tokens", 20, "--temperature", 0, "--json")
    assert result.status == 0, result.err
    (sample,) = json.loads(result.out)["samples"]
    assert sample["prompt"] == prompt and len(sample["text"]) == 20
    assert ("sees the prompt's last 8 characters" in result.err) == (len(prompt) > 8)


def test_sampling_at_its_borders(copied, call):
    def text(*options):
        result = call("generate", "run", "--prompt", "a", "--seed", 3, "--json", "--tokens", 30, *options)
        assert result.status == 0, result.err
        return json.loads(result.out)["samples"][0]["text"]

    greedy = text("--temperature", 0)
    assert text("--top-k", 1) == greedy == text("--top-p", 1e-9) == text("--temperature", 1e-30)
    assert text("--top-k", 0) == text("--top-k", 1000) == text("--top-p", 1) == text()
    assert text("--temperature", 1e30) != greedy


def test_unknown_characters_can_be_left_out(copied, call):
    result = call("generate", "run", "--prompt", "a🙂b", "--skip-unknown", "--tokens", 3, "--json")
    assert result.status == 0 and "1 characters that the model does not know are left out" in result.err
    assert json.loads(result.out)["samples"][0]["prompt"] == "ab"
