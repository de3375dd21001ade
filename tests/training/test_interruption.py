"""Signals become a wish to stop; a second Ctrl-C ends the process; a sweep's job listens to the sweep."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from gptcli.training.interruption import Interruption, JobInterruption


@pytest.mark.parametrize("name", Interruption.SIGNALS)
def test_a_signal_is_remembered_and_does_not_end_the_process(name):
    interruption = Interruption()
    number = getattr(signal, name)
    before = signal.getsignal(number)
    with interruption.listening():
        assert not interruption
        os.kill(os.getpid(), number)
        assert interruption and interruption.signal_number == number and interruption.name == name
    assert signal.getsignal(number) == before


def test_the_first_signal_counts():
    interruption = Interruption()
    with interruption.listening():
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGHUP)
    assert interruption.name == "SIGTERM"


def test_a_second_ctrl_c_ends_the_process_at_once():
    code = (
        "import os, signal, time\n"
        "from gptcli.training.interruption import Interruption\n"
        "with Interruption().listening():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    print('still here', flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(20)\n"
        "    print('not ended')\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180)
    assert (ended.returncode, ended.stdout) == (130, "still here\n")


def test_outside_the_main_thread_no_handler_is_installed():
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def listen():
        with Interruption().listening() as interruption:
            seen.append((bool(interruption), signal.getsignal(signal.SIGTERM) == before))

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert seen == [(False, True)]


def test_a_job_leaves_ctrl_c_to_its_sweep_and_obeys_the_rest():
    job = JobInterruption(os.getppid())
    with job.listening():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        assert not job
        os.kill(os.getpid(), signal.SIGTERM)
    assert job.name == "SIGTERM"


def test_a_job_whose_sweep_has_died_stops():
    assert not JobInterruption(os.getppid())
    orphan = JobInterruption(os.getppid() + 1)
    assert orphan and orphan.name == "SIGTERM"
