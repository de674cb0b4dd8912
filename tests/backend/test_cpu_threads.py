"""`run_threads`: nothing runs on after it, whatever ends it; a forked process has pools of its own."""

import multiprocessing
import os
import signal
import threading
import time

import pytest

from warpfront.backend import cpu


def test_every_body_runs_or_is_taken_back():
    seen = []
    cpu.run_threads(4, seen.append)
    assert 0 in seen
    assert sorted(seen) == sorted(set(seen))


@pytest.fixture
def interrupts_raise():
    """A process that was started in the background ignores interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs POSIX signals")
def test_an_interrupt_waits_for_the_other_threads(interrupts_raise):
    began, finished = threading.Event(), []

    def body(thread):
        if thread == 0:
            assert began.wait(30)
            return
        began.set()
        time.sleep(0.4)
        finished.append(thread)

    def interrupt():
        began.wait(30)
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=interrupt)
    sender.start()
    with pytest.raises(KeyboardInterrupt):
        cpu.run_threads(2, body)
    assert finished == [1]
    sender.join()


def test_a_failure_waits_for_the_other_threads():
    begin, finished = threading.Barrier(3), []

    def body(thread):
        begin.wait(30)
        if thread == 1:
            raise ValueError("one")
        time.sleep(0.2)
        finished.append(thread)

    with pytest.raises(ValueError, match="one"):
        cpu.run_threads(3, body)
    assert sorted(finished) == [0, 2]


def forked(answers):
    together = threading.Barrier(2)
    with cpu.single_threaded_blas():
        cpu.run_threads(2, lambda _: together.wait(30))  # breaks if the pool has no thread to run the second
    answers.put(cpu._pool(1)._work_queue.qsize())


# Python warns of forks, and JAX where it has been used in the process
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:.*fork:RuntimeWarning")
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system does not fork")
def test_a_forked_process_has_threads_of_its_own():
    cpu.run_threads(2, lambda _: None)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    with cpu.single_threaded_blas():
        child = context.Process(target=forked, args=(answers,))
        child.start()
    child.join(60)
    assert child.exitcode == 0
    assert answers.get(timeout=10) == 0
